//! Refused connections: counted by reason for ever, and the last of them by address, so that an
//! administrator sees their source. Bounded for any number of sources and attempts.

use core::net::{IpAddr, SocketAddr};

use lnet_types::{Instant, NiId, Nid};

use super::SockDriver;
use crate::stats::{Refusal, Refused};
use crate::streams::Streams;
use crate::tunables::REFUSED_KEPT;

/// The last ones.
#[derive(Debug, Default)]
pub(super) struct Turned(Vec<Refused>);

impl Turned {
    /// Notes one more; tells whether it is a new line.
    fn note(
        &mut self,
        now: Instant,
        ni: NiId,
        addr: IpAddr,
        nid: Option<Nid>,
        why: Refusal,
    ) -> bool {
        let same = |r: &&mut Refused| (r.ni, r.addr, r.why) == (ni, addr, why);
        if let Some(line) = self.0.iter_mut().find(same) {
            line.count += 1;
            line.last = now;
            line.nid = nid.or(line.nid);
            return false;
        }
        if self.0.len() >= REFUSED_KEPT
            && let Some((oldest, _)) = self.0.iter().enumerate().min_by_key(|(_, r)| r.last)
        {
            self.0.remove(oldest);
        }
        self.0.push(Refused { ni, addr, nid, why, count: 1, last: now });
        true
    }

    /// All of them, longest ago first.
    pub(super) fn lines(&self) -> Vec<Refused> {
        let mut lines = self.0.clone();
        lines.sort_by_key(|r| r.last);
        lines
    }
}

impl<S: Streams> SockDriver<S> {
    /// Counts a refusal, and records its source.
    pub(super) fn turn_away(
        &mut self,
        now: Instant,
        ni: NiId,
        remote: SocketAddr,
        nid: Option<Nid>,
        why: Refusal,
    ) {
        self.stats.refuse(why);
        if !why.turns_away() {
            return;
        }
        let name = nid.map(|nid| format!(" ({nid})")).unwrap_or_default();
        // One line for each source, so that repeated attempts do not fill the log.
        if self.refused.note(now, ni, remote.ip(), nid, why) {
            tracing::warn!("connection from {remote}{name} refused: {why}");
        } else {
            tracing::debug!("connection from {remote}{name} refused: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use slotmap::KeyData;

    use super::*;

    #[test]
    fn the_last_to_knock_are_remembered_and_no_more_than_fit() {
        let mut turned = Turned::default();
        let ni = NiId::from(KeyData::from_ffi(1));
        let addr = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        let at = |n: u64| Instant::from_secs(n);
        for n in 0..200 {
            assert!(turned.note(at(n), ni, addr(n as u32), None, Refusal::InsecurePort));
            // This one knocks all the time.
            turned.note(at(n), ni, addr(0), None, Refusal::InsecurePort);
        }
        let lines = turned.lines();
        assert_eq!(lines.len(), REFUSED_KEPT);
        assert!(lines.is_sorted_by_key(|r| r.last));
        let always = lines.iter().find(|r| r.addr == addr(0)).unwrap();
        assert_eq!((always.count, always.last), (201, at(199)));
        assert!(lines.iter().any(|r| r.addr == addr(199)));
        assert!(!lines.iter().any(|r| r.addr == addr(100)));
    }
}
