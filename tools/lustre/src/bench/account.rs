//! What one client knows of its keys. No other client has them, so each answer can be compared: the
//! version that a change has met is that of the client's last change. A higher one means that
//! something was executed twice, a lower one that something was lost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lustre_rt::{InfoFlags, KvClient, KvError};

/// Keys of each client.
const KEYS: usize = 4;

/// The last change of a key that was answered.
#[derive(Clone, Debug, Default)]
struct Last {
    version: u64,
    value: Vec<u8>,
    /// A call of unknown outcome came after it.
    unsure: bool,
}

/// The calls of one client, or the sum of several.
#[derive(Clone, Debug)]
pub(super) struct Account {
    client: u32,
    size: usize,
    turn: u64,
    last: Vec<Last>,
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) twice: u64,
    pub(super) lost: u64,
    pub(super) longest: Duration,
    /// How often each failure was met.
    failures: BTreeMap<String, u64>,
    /// When the first and the last call failed.
    failed_at: Option<(Instant, Instant)>,
}

impl Account {
    pub(super) fn new(client: u32, size: usize) -> Self {
        Self {
            client,
            size,
            turn: 0,
            last: vec![Last::default(); KEYS],
            calls: 0,
            failed: 0,
            twice: 0,
            lost: 0,
            longest: Duration::ZERO,
            failures: BTreeMap::new(),
            failed_at: None,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.twice += other.twice;
        self.lost += other.lost;
        self.longest = self.longest.max(other.longest);
        for (failure, times) in &other.failures {
            *self.failures.entry(failure.clone()).or_default() += times;
        }
        if let Some((first, last)) = other.failed_at {
            self.failed_between(first, last);
        }
    }

    fn failed_between(&mut self, first: Instant, last: Instant) {
        let (a, b) = self.failed_at.unwrap_or((first, last));
        self.failed_at = Some((a.min(first), b.max(last)));
    }

    /// What failed, how often, and when in a run that began at `begun`: `3 times "not connected", from
    /// 1.0 s to 1.2 s`.
    pub(super) fn failures(&self, begun: Instant) -> String {
        let times = self.failures.iter().map(|(failure, times)| match times {
            1 => format!("once \"{failure}\""),
            _ => format!("{times} times \"{failure}\""),
        });
        let all = times.collect::<Vec<_>>().join(", ");
        let Some((first, last)) = self.failed_at else { return all };
        let at = |at: Instant| at.saturating_duration_since(begun).as_secs_f64();
        format!("{all}, from {:.3} s to {:.3} s", at(first), at(last))
    }

    fn key(&self, k: usize) -> Vec<u8> {
        format!("bench-{}-{}-{k}", std::process::id(), self.client).into_bytes()
    }

    /// What a server must have at the end: the keys that are there, and the version of each. Keys of which
    /// that is unknown are left out.
    pub(super) fn versions(&self) -> impl Iterator<Item = (String, u64)> {
        let sure =
            self.last.iter().enumerate().filter(|(_, last)| last.version != 0 && !last.unsure);
        sure.map(|(k, last)| (String::from_utf8_lossy(&self.key(k)).into_owned(), last.version))
    }

    /// The next call: puts, a compare-and-swap and a get in turn.
    pub(super) fn call(&mut self, kv: &KvClient) {
        self.turn += 1;
        let k = (self.turn / 4) as usize % KEYS;
        match self.turn % 4 {
            0 => self.get(kv, k),
            1 if !self.at(k).unsure => {
                let expect = self.at(k).version;
                self.change(k, |key, value| kv.cas(key, value, expect));
            }
            _ => self.change(k, |key, value| kv.put(key, value)),
        }
    }

    /// At the end each key has what its last change has put.
    pub(super) fn close(&mut self, kv: &KvClient) {
        for k in 0..KEYS {
            if self.at(k).version != 0 {
                self.get(kv, k);
            }
        }
    }

    fn at(&self, k: usize) -> Last {
        self.last.get(k).cloned().unwrap_or_default()
    }

    fn ended<T>(&mut self, k: usize, begun: Instant, result: Result<T, KvError>) -> Option<T> {
        self.calls += 1;
        self.longest = self.longest.max(begun.elapsed());
        match result {
            Ok(answer) => Some(answer),
            Err(e) => {
                self.failed += 1;
                *self.failures.entry(e.to_string()).or_default() += 1;
                let now = Instant::now();
                self.failed_between(now, now);
                if let Some(last) = self.last.get_mut(k) {
                    last.unsure = true;
                }
                None
            }
        }
    }

    /// Compares the version that a key had with the one that it must have had.
    fn compare(&mut self, k: usize, had: u64) {
        let Last { version, unsure, .. } = self.at(k);
        if had > version && !unsure {
            self.twice += 1;
        } else if had < version {
            self.lost += 1;
        }
    }

    fn change(
        &mut self,
        k: usize,
        call: impl FnOnce(&[u8], Vec<u8>) -> Result<lustre_rt::Info, KvError>,
    ) {
        let mut value = self.turn.to_le_bytes().to_vec();
        value.resize(self.size, self.client as u8);
        let begun = Instant::now();
        let result = call(&self.key(k), value.clone());
        let Some(info) = self.ended(k, begun, result) else { return };
        if !info.flags.contains(InfoFlags::APPLIED) {
            // Somebody else's change, or ours executed before: its version says which.
            return self.compare(k, info.version);
        }
        self.compare(k, info.previous);
        if let Some(last) = self.last.get_mut(k) {
            *last = Last { version: info.version, value, unsure: false };
        }
    }

    fn get(&mut self, kv: &KvClient, k: usize) {
        if self.at(k).version == 0 {
            return;
        }
        let begun = Instant::now();
        let result = kv.get(&self.key(k));
        let unsure = self.at(k).unsure;
        let Some((info, value)) = self.ended(k, begun, result) else { return };
        self.compare(k, info.version);
        if info.version == self.at(k).version && value != self.at(k).value {
            self.lost += 1;
        }
        if let Some(last) = self.last.get_mut(k).filter(|_| unsure) {
            *last = Last { version: info.version, value, unsure: false };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(previous: u64, version: u64) -> lustre_rt::Info {
        lustre_rt::Info { previous, version, len: 0, flags: InfoFlags::APPLIED }
    }

    fn failed() -> KvError {
        KvError::BadReply("none")
    }

    #[test]
    fn account_tells_twice_from_lost() {
        let mut account = Account::new(0, 8);
        account.change(0, |_, _| Ok(info(0, 5)));
        account.change(0, |_, _| Ok(info(5, 6)));
        assert_eq!((account.twice, account.lost), (0, 0));
        account.change(0, |_, _| Ok(info(7, 8)));
        assert_eq!((account.twice, account.lost), (1, 0));
        account.change(0, |_, _| Ok(info(6, 9)));
        assert_eq!((account.twice, account.lost), (1, 1));
    }

    #[test]
    fn call_of_unknown_outcome_may_have_happened_or_not() {
        for had in [5, 6] {
            let mut account = Account::new(0, 8);
            account.change(0, |_, _| Ok(info(0, 5)));
            account.change(0, |_, _| Err(failed()));
            account.change(0, |_, _| Ok(info(had, 7)));
            assert_eq!((account.twice, account.lost, account.failed), (0, 0, 1), "had {had}");
            let said = account.failures(Instant::now());
            assert_eq!(said, "once \"bad reply: none\", from 0.000 s to 0.000 s");
        }
    }
}
