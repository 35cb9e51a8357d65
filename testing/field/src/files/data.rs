//! A program that reads, writes, appends to and cuts off files at random, and holds each result against
//! a copy: in memory of a file of its own, on the local disk of one that several clients work with in
//! turns.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use lnet_types::Errno;
use lustre_rt::Mount;
use lustre_rt::visitor::{Create, Node, OpenFile, OpenHow, Part, VisitError, Wish};

use super::score::{Rng, Score};

/// Most bytes of a file, and of a read or write.
const FILE_MAX: u64 = 512 << 10;
const PART_MAX: u64 = 64 << 10;
/// Bytes of a stripe: the smallest that a server takes, so that parts cross borders.
const STRIPE: u64 = 64 << 10;

/// What must be in a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) bytes: Vec<u8>,
    /// An operation has failed in the middle: the next turn begins with an empty file.
    pub(super) torn: bool,
}

impl Image {
    /// Reads one from a file of this machine; none is an empty one.
    pub(super) fn read(file: &mut File) -> io::Result<Self> {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        let torn = bytes.first() == Some(&1);
        Ok(Self { bytes: bytes.split_off(bytes.len().min(1)), torn })
    }

    /// Writes it there.
    pub(super) fn write(&self, file: &mut File) -> io::Result<()> {
        file.rewind()?;
        file.set_len(0)?;
        file.write_all(&[u8::from(self.torn)])?;
        file.write_all(&self.bytes)
    }

    /// The bytes of a range, as far as there are some.
    fn part(&self, offset: u64, len: u64) -> &[u8] {
        let size = self.bytes.len() as u64;
        let (from, to) = (offset.min(size), offset.saturating_add(len).min(size));
        self.bytes.get(from as usize..to as usize).unwrap_or_default()
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        if let Some(there) = self.bytes.get_mut(from..to) {
            there.copy_from_slice(bytes);
        }
    }
}

/// The file of this machine that has the image of a file of a name.
pub(super) fn image_file(dir: &Path, name: &str) -> io::Result<File> {
    let path = dir.join(format!("{name}.image"));
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

/// Where parts that were read differ from what is expected: the first such offset.
fn difference(offset: u64, parts: &[Part], expected: &[u8]) -> Option<u64> {
    let mut found = Vec::new();
    for part in parts {
        let len = part.len as usize;
        found.extend_from_slice(part.bytes.get(..len).unwrap_or(&part.bytes));
        found.resize(found.len() + len.saturating_sub(part.bytes.len()), 0);
    }
    if found == expected {
        return None;
    }
    let same = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
    Some(offset + same as u64)
}

/// The program.
pub(super) struct Writer<'a> {
    pub(super) mount: &'a Mount,
    /// The directory of the files.
    pub(super) dir: &'a Node,
    pub(super) rng: Rng,
}

impl Writer<'_> {
    /// Opens a file, works with it for so many steps, closes it.
    pub(super) async fn turn(
        &mut self,
        name: &str,
        stripes: u32,
        image: &mut Image,
        steps: u32,
        score: &mut Score,
    ) {
        let how = OpenHow { truncate: image.torn, ..OpenHow::WRITE };
        let wish =
            Wish { count: Some(stripes.cast_signed()), size: Some(STRIPE), ..Wish::default() };
        // The numbers are such as a wish takes.
        let layout = wish.bytes().unwrap_or_default();
        let create = Create { mode: 0o644, exclusive: false, layout, ..Create::default() };
        let opened = score.timed(self.mount.create(self.dir, name.as_bytes(), how, &create)).await;
        let mut file = match opened {
            Ok(file) => file,
            Err(e) => return score.error(&format!("{name}: open"), &e),
        };
        if image.torn {
            *image = Image::default();
        } else if file.size() != image.bytes.len() as u64 {
            let how = format!("{} bytes, expected {}", file.size(), image.bytes.len());
            score.differs(&format!("{name}: size"), &how);
            image.torn = true;
        }
        for _ in 0..steps {
            if image.torn {
                break;
            }
            let (what, end) = self.step(&mut file, image, score).await;
            match end {
                Ok(None) => {}
                Ok(Some(how)) => {
                    score.differs(&format!("{name}: {what}"), &how);
                    image.torn = true;
                }
                Err(e) => {
                    score.error(&format!("{name}: {what}"), &e);
                    image.torn = true;
                }
            }
        }
        if let Err(e) = score.timed(self.mount.close(file)).await {
            score.error(&format!("{name}: close"), &e);
        }
    }

    /// One operation: what it was, and what it found otherwise than expected.
    async fn step(
        &mut self,
        file: &mut OpenFile,
        image: &mut Image,
        score: &mut Score,
    ) -> (String, Result<Option<String>, VisitError>) {
        let size = image.bytes.len() as u64;
        let offset = self.rng.below(size.max(1) + PART_MAX).min(FILE_MAX - 1);
        let len = 1 + self.rng.below(PART_MAX).min(FILE_MAX - 1 - offset);
        match self.rng.below(10) {
            0..3 => {
                let what = format!("read of {len} bytes at {offset}");
                let read = score.timed(self.mount.read(file, offset, len)).await;
                let found = read.map(|parts| difference(offset, &parts, image.part(offset, len)));
                (what, found.map(|at| at.map(|at| format!("differs from byte {at} on"))))
            }
            3..6 => {
                let bytes = self.rng.bytes(len as usize);
                let written = score.timed(self.mount.write_at(file, offset, &bytes)).await;
                image.put(offset, &bytes);
                (format!("write of {len} bytes at {offset}"), written.map(|()| None))
            }
            6 if size + len <= FILE_MAX => {
                let bytes = self.rng.bytes(len as usize);
                let what = format!("append of {len} bytes at {size}");
                let end = score.timed(self.mount.append(file, &bytes)).await;
                image.put(size, &bytes);
                let other = |at: u64| (at != size).then(|| format!("written at {at}"));
                (what, end.map(other))
            }
            6 | 7 => {
                let to = self.rng.below(size.saturating_add(PART_MAX).min(FILE_MAX));
                let cut = score.timed(self.mount.truncate(file, to)).await;
                image.bytes.resize(to as usize, 0);
                (format!("truncate to {to} bytes"), cut.map(|()| None))
            }
            8 => {
                let synced = score.timed(self.mount.fsync(file)).await;
                ("fsync".to_owned(), synced.map(|()| None))
            }
            _ => {
                // All of it.
                let read = score.timed(self.mount.read(file, 0, FILE_MAX)).await;
                let found = read.map(|parts| difference(0, &parts, &image.bytes));
                let how = found.map(|at| at.map(|at| format!("differs from byte {at} on")));
                ("read of all".to_owned(), how)
            }
        }
    }
}

/// Compares a file with its image.
pub(super) async fn compare(
    mount: &Mount,
    dir: &Node,
    name: &str,
    image: &Image,
    score: &mut Score,
) {
    if image.torn {
        return;
    }
    let read = async {
        let node = mount.child(dir, name.as_bytes()).await?;
        let file = mount.open_file(&node).await?;
        let parts = mount.read(&file, 0, u64::MAX >> 1).await;
        mount.close(file).await?;
        parts
    };
    match score.timed(read).await {
        Ok(parts) => {
            if let Some(at) = difference(0, &parts, &image.bytes) {
                score.differs(name, &format!("differs from byte {at} on, read by another client"));
            }
        }
        Err(e) if e.errno() == Errno::ENOENT && image.bytes.is_empty() => {}
        Err(e) => score.error(name, &e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_with_zeros_behind_their_bytes_are_compared_as_a_reader_sees_them() {
        let part = |offset, len, bytes: &[u8]| Part { offset, len, bytes: bytes.to_vec() };
        let parts = [part(4, 4, b"ab"), part(8, 2, b"cd")];
        assert_eq!(difference(4, &parts, b"ab\0\0cd"), None);
        assert_eq!(difference(4, &parts, b"ab\0xcd"), Some(7));
        assert_eq!(difference(4, &parts, b"ab\0\0cde"), Some(10));
        assert_eq!(difference(4, &[], b""), None);
    }

    #[test]
    fn an_image_comes_back_from_its_file() {
        let path = fresh::path("image");
        std::fs::create_dir_all(&path).unwrap();
        let mut file = image_file(&path, "f").unwrap();
        let mut image = Image::read(&mut file).unwrap();
        assert!(image.bytes.is_empty() && !image.torn);
        image.put(3, b"abc");
        image.torn = true;
        image.write(&mut file).unwrap();
        let again = Image::read(&mut image_file(&path, "f").unwrap()).unwrap();
        assert_eq!((again.bytes.as_slice(), again.torn), (&b"\0\0\0abc"[..], true));
        assert_eq!(again.part(2, 2), b"\0a");
        assert_eq!(again.part(5, 9), b"c");
        assert_eq!(again.part(6, 9), b"");
        std::fs::remove_dir_all(path).unwrap();
    }
}
