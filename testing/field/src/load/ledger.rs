//! Which messages a receiver has seen, in a file that outlives it: a receiver that is killed and
//! started again knows what its former life was given. One byte for each number.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Numbers from here on are refused: a number that large is not one of ours.
const NUMBERS_MAX: u64 = 16 << 20;

/// How often a message was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Never.
    Never,
    /// Once.
    Once,
    /// More than once by one life of the receiver.
    Twice,
    /// Once by one life, and again by a later one, which can't know.
    Again,
}

/// The upper half of a byte is the life that saw it last, the lower half how often.
const ONCE: u8 = 1;
const TWICE: u8 = 2;
const AGAIN: u8 = 3;

/// The file, and its content in memory.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    bytes: Vec<u8>,
    life: u8,
}

impl Ledger {
    /// Opens the file, or makes it, for a receiver in its `life`, from 1 to 15.
    ///
    /// # Errors
    /// Those of the file.
    pub fn open(path: &Path, life: u8) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Self { file, bytes, life: life.clamp(1, 15) })
    }

    /// Enters that `number` was seen.
    ///
    /// # Errors
    /// Those of the file; `InvalidData` for a number that no client sends.
    pub fn enter(&mut self, number: u64) -> io::Result<()> {
        if number >= NUMBERS_MAX {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let at = number as usize;
        if at >= self.bytes.len() {
            self.bytes.resize(at + 1, 0);
        }
        let Some(byte) = self.bytes.get_mut(at) else { return Ok(()) };
        let count = match (*byte >> 4, *byte & 0xf) {
            (_, 0) => ONCE,
            (life, _) if life == self.life => TWICE,
            (_, TWICE) => TWICE,
            _ => AGAIN,
        };
        *byte = self.life << 4 | count;
        self.file.write_all_at(&[*byte], number)
    }

    /// What a file says of all numbers from 0 on; a file that is not there says nothing.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read(path: &Path) -> io::Result<Vec<Seen>> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e),
        };
        Ok(bytes
            .into_iter()
            .map(|byte| match byte & 0xf {
                0 => Seen::Never,
                ONCE => Seen::Once,
                TWICE => Seen::Twice,
                _ => Seen::Again,
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_life_knows_what_the_former_one_saw() {
        let dir = fresh::path("ledger");
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("ledger");
        let mut first = Ledger::open(&path, 1).unwrap();
        for number in [0, 2, 2, 4] {
            first.enter(number).unwrap();
        }
        first.enter(u64::MAX).unwrap_err();
        drop(first);
        let mut second = Ledger::open(&path, 2).unwrap();
        for number in [2, 4, 5] {
            second.enter(number).unwrap();
        }
        use Seen::{Again, Never, Once, Twice};
        let seen = Ledger::read(&path).unwrap();
        assert_eq!(seen, [Once, Never, Twice, Never, Again, Once]);
        assert_eq!(Ledger::read(&dir.join("none")).unwrap(), []);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
