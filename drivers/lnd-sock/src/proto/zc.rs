//! Zero-copy acknowledgements that we owe a peer: each cookie that it put into a message goes back
//! once, on the back of a message or in a NOOP (wire.md 3.10). We never ask for any, so one that
//! comes in is always unknown.

use std::collections::VecDeque;

use lnet_wire::sock::{COOKIE_FIRST, COOKIE_KEEPALIVE, FrameHdr, FrameType, Noop, Version};

use crate::stats::Refusal;

/// Cookies to be acknowledged, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Owed(VecDeque<u64>);

impl Owed {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, cookie: u64) {
        self.0.push_back(cookie);
    }

    /// One cookie for the back of a message. The values below [`COOKIE_FIRST`] would be read as
    /// something else there; no peer uses them.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        self.0.pop_front()
    }

    /// The next NOOP, for as many cookies as one can carry in `version`, and how many that are.
    pub(crate) fn next_noop(&mut self, version: Version) -> Option<(Noop, u64)> {
        let first = self.0.pop_front()?;
        if !version.has_keepalives() {
            return Some((Noop::One(first), 1));
        }
        let mut last = first;
        while last != u64::MAX && self.0.front() == Some(&(last + 1)) {
            last += 1;
            self.0.pop_front();
        }
        if last > first {
            return Some((Noop::Range(first, last), last - first + 1));
        }
        // Two that do not follow each other: the higher one goes first, which tells them from a
        // range. Leave the second alone if it begins a range of its own.
        match self.0.front().copied() {
            Some(second) if second != first && self.0.get(1) != Some(&second.wrapping_add(1)) => {
                self.0.pop_front();
                Some((Noop::Two(first.max(second), first.min(second)), 2))
            }
            _ => Some((Noop::One(first), 1)),
        }
    }
}

/// What a frame says about acknowledgements, apart from the request in a message's `cookie0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nothing.
    Nothing,
    /// A sign of life.
    Keepalive,
}

/// Reads the acknowledgement in a frame of either type.
///
/// # Errors
/// Cookies that contradict each other; an acknowledgement, since nothing of ours waits for one.
pub(crate) const fn heard(version: Version, frame: &FrameHdr) -> Result<Heard, Refusal> {
    // In a message `cookie0` is a request, and `cookie1` stands alone.
    let cookie0 = match frame.kind {
        FrameType::Lnet => 0,
        FrameType::Noop => frame.cookie0,
    };
    if !version.has_keepalives() && frame.cookie1 == COOKIE_KEEPALIVE {
        return Err(Refusal::UnknownCookie);
    }
    match Noop::from_cookies(cookie0, frame.cookie1) {
        Ok(Noop::Nothing) => Ok(Heard::Nothing),
        Ok(Noop::Keepalive) => Ok(Heard::Keepalive),
        Ok(Noop::One(_) | Noop::Two(..) | Noop::Range(..)) => Err(Refusal::UnknownCookie),
        Err(_) => Err(Refusal::FrameCookies),
    }
}

/// Whether the `cookie0` of a message asks for an acknowledgement that can be expressed.
pub(crate) const fn is_request(cookie: u64) -> bool {
    cookie >= COOKIE_FIRST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(version: Version, cookies: &[u64]) -> Vec<Noop> {
        let mut owed = Owed::default();
        cookies.iter().for_each(|&c| owed.push(c));
        let mut out = Vec::new();
        let mut total = 0;
        while let Some((noop, n)) = owed.next_noop(version) {
            out.push(noop);
            total += n;
        }
        assert_eq!(total, cookies.len() as u64, "{cookies:?} gave {out:?}");
        out
    }

    #[test]
    fn cookies_are_folded_as_versions_allow() {
        let v3 = Version::V3;
        assert_eq!(drain(v3, &[7]), [Noop::One(7)]);
        assert_eq!(drain(v3, &[7, 9]), [Noop::Two(9, 7)]);
        assert_eq!(drain(v3, &[9, 7]), [Noop::Two(9, 7)]);
        assert_eq!(drain(v3, &[7, 8]), [Noop::Range(7, 8)]);
        assert_eq!(drain(v3, &[7, 8, 9, 10]), [Noop::Range(7, 10)]);
        assert_eq!(drain(v3, &[2, 7, 8, 9]), [Noop::One(2), Noop::Range(7, 9)]);
        assert_eq!(drain(v3, &[2, 7, 9]), [Noop::Two(7, 2), Noop::One(9)]);
        assert_eq!(drain(v3, &[u64::MAX, 2]), [Noop::Two(u64::MAX, 2)]);
        assert_eq!(drain(v3, &[5, 5]), [Noop::One(5), Noop::One(5)]);
        assert_eq!(drain(Version::V2, &[7, 8]), [Noop::One(7), Noop::One(8)]);
    }

    #[test]
    fn whatever_is_folded_reads_back_as_itself() {
        for cookies in [&[7][..], &[7, 9], &[9, 7], &[7, 8], &[3, 4, 5, 9], &[u64::MAX, 2]] {
            let mut named = Vec::new();
            for noop in drain(Version::V4, cookies) {
                let (c0, c1) = noop.cookies();
                match Noop::from_cookies(c0, c1).expect("our own NOOP") {
                    Noop::One(c) => named.push(c),
                    Noop::Two(a, b) => named.extend([a, b]),
                    Noop::Range(a, b) => named.extend(a..=b),
                    other => panic!("{other:?}"),
                }
            }
            let (mut want, mut got) = (cookies.to_vec(), named);
            want.sort_unstable();
            got.sort_unstable();
            assert_eq!(got, want);
        }
    }

    #[test]
    fn acknowledgements_of_nothing_are_errors_and_keepalives_are_not() {
        let noop =
            |c0, c1| FrameHdr { kind: FrameType::Noop, checksum: 0, cookie0: c0, cookie1: c1 };
        let table = [
            (noop(0, 0), Ok(Heard::Nothing), Ok(Heard::Nothing)),
            (noop(5, 0), Ok(Heard::Nothing), Ok(Heard::Nothing)),
            (noop(0, 1), Ok(Heard::Keepalive), Err(Refusal::UnknownCookie)),
            (noop(1, 1), Ok(Heard::Keepalive), Err(Refusal::UnknownCookie)),
            (noop(2, 1), Err(Refusal::FrameCookies), Err(Refusal::UnknownCookie)),
            (noop(0, 0x9999), Err(Refusal::UnknownCookie), Err(Refusal::UnknownCookie)),
            (noop(9, 7), Err(Refusal::UnknownCookie), Err(Refusal::UnknownCookie)),
            (noop(7, 9), Err(Refusal::UnknownCookie), Err(Refusal::UnknownCookie)),
            (FrameHdr::lnet(9, 0), Ok(Heard::Nothing), Ok(Heard::Nothing)),
            (FrameHdr::lnet(9, 1), Ok(Heard::Keepalive), Err(Refusal::UnknownCookie)),
            (FrameHdr::lnet(9, 2), Err(Refusal::UnknownCookie), Err(Refusal::UnknownCookie)),
        ];
        for (frame, v3, v2) in table {
            assert_eq!(heard(Version::V3, &frame), v3, "{frame}");
            assert_eq!(heard(Version::V2, &frame), v2, "{frame}");
        }
    }
}
