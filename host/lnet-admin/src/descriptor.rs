//! Open files that go along with the bytes of a connection: the network namespace of a caller, which no
//! name says to a daemon in another one.

use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Writes all of `bytes`, and an open file with the first of them.
pub(crate) fn send_with(mut stream: &UnixStream, bytes: &[u8], file: &impl AsFd) -> io::Result<()> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // There is room for one.
    control.push(SendAncillaryMessage::ScmRights(&files));
    let sent = loop {
        match sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => break sent?,
        }
    };
    stream.write_all(bytes.get(sent..).unwrap_or_default())
}

/// Reads as `Read::read` does, and gives the open file that came along, if any did. Of several the last
/// one counts; what there is no room for is closed by the system.
///
/// # Errors
/// As `Read::read`.
pub fn receive_with(stream: &UnixStream, buf: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(stream, &mut [IoSliceMut::new(buf)], &mut control, flags)?;
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last().or(file);
        }
    }
    Ok((got.bytes, file))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn an_open_file_goes_along_with_bytes_and_none_with_plain_ones() {
        let (here, there) = UnixStream::pair().unwrap();
        let path = fresh::path("descriptor");
        std::fs::write(&path, "content").unwrap();
        send_with(&here, b"first", &File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut buf = [0; 64];
        let (n, file) = receive_with(&there, &mut buf).unwrap();
        assert_eq!(&buf[..n], b"first");
        let mut text = String::new();
        File::from(file.unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
        (&here).write_all(b"second").unwrap();
        let (n, file) = receive_with(&there, &mut buf).unwrap();
        assert_eq!((&buf[..n], file.is_none()), (b"second".as_slice(), true));
    }
}
