//! Promises of space (L-95, L-96): what clients may write later without being refused.

use std::collections::BTreeMap;

use lustre_wire::ost::Obdo;
use ptlrpc::ExportId;

use super::BRW_SIZE;

/// Bytes that one promise is beside the data that it is for, for each extent.
const EXTENT: u64 = 24 << 10;

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Client {
    /// Bytes that it may write.
    granted: u64,
    /// Bytes that it has and has not written.
    dirty: u64,
    /// The connection by which that was last compared.
    conn_cnt: u32,
}

/// The space of a target, and what of it is promised.
#[derive(Debug, Default)]
pub(super) struct Grants {
    clients: BTreeMap<ExportId, Client>,
    /// Bytes that all clients may write.
    total: u64,
    /// Bytes of the store; 0 until it has said how many.
    size: u64,
    /// Free ones among them.
    free: u64,
    /// Bytes that were written since the store was asked.
    since: u64,
}

impl Grants {
    /// What the store said, when it was asked.
    pub(super) fn measured(&mut self, size: u64, free: u64) {
        (self.size, self.free) = (size, free.saturating_sub(self.since));
    }

    /// The store is asked now.
    pub(super) const fn asked(&mut self) {
        self.since = 0;
    }

    /// Size of the store, free bytes, promised bytes.
    pub(super) const fn space(&self) -> (u64, u64, u64) {
        (self.size, self.free, self.total)
    }

    /// Bytes that are neither used nor promised.
    fn left(&self) -> u64 {
        self.free.saturating_sub(self.total)
    }

    /// Whether a request of the largest kind may find no room.
    pub(super) fn is_short(&self) -> bool {
        self.left() < BRW_SIZE.into()
    }

    /// A client speaks over a connection with which it said that it holds `announced`. What it holds
    /// by our own account counts, if there is one of it (L-96).
    pub(super) fn meet(&mut self, export: ExportId, conn_cnt: u32, announced: u64) {
        let left = self.left();
        let client = self.clients.entry(export).or_insert_with(|| {
            let granted = announced.min(left);
            self.total += granted;
            Client { granted, dirty: 0, conn_cnt }
        });
        if client.conn_cnt != conn_cnt {
            let granted = client.granted.min(announced);
            self.total -= client.granted - granted;
            *client = Client { granted, dirty: 0, conn_cnt };
        }
    }

    /// What a client that is gone held is free again.
    pub(super) fn keep(&mut self, lives: impl Fn(ExportId) -> bool) {
        self.clients.retain(|export, _| lives(*export));
        self.total = self.clients.values().map(|client| client.granted).sum();
    }

    /// A client gives up to so many bytes back.
    pub(super) fn give_back(&mut self, export: ExportId, bytes: u64) {
        let Some(client) = self.clients.get_mut(&export) else { return };
        let bytes = bytes.min(client.granted);
        client.granted -= bytes;
        self.total -= bytes;
    }

    /// A client says what it has: dirty bytes, and what it no longer needs.
    pub(super) fn hear(&mut self, export: ExportId, body: &Obdo) {
        self.give_back(export, body.misc.into());
        if let Some(client) = self.clients.get_mut(&export) {
            client.dirty = body.blocks.min(client.granted);
        }
    }

    /// Bytes are written, `promised` of them by promise and the others without: which of the others
    /// there is room for. While the store has not said how much it has, it is left to the store to refuse
    /// them.
    pub(super) fn spend(&mut self, export: ExportId, promised: u64, others: &[u64]) -> Vec<bool> {
        self.give_back(export, promised);
        let mut written = promised;
        let mut room = Vec::with_capacity(others.len());
        for len in others {
            let fits = self.size == 0 || self.left().saturating_sub(written) >= *len;
            written += if fits { *len } else { 0 };
            room.push(fits);
        }
        self.free = self.free.saturating_sub(written);
        self.since = self.since.saturating_add(written);
        room
    }

    /// Whether a client holds so many bytes.
    pub(super) fn holds(&self, export: ExportId, bytes: u64) -> bool {
        self.clients.get(&export).is_some_and(|client| client.granted >= bytes)
    }

    /// What a client gets that wants `wanted` in all and holds `held`, with requests of up to `brw`
    /// bytes: not more than a chunk, and not more than an eighth of what is left.
    pub(super) fn grant(&mut self, export: ExportId, wanted: u64, held: u64, brw: u64) -> u64 {
        let chunk = 2 * (brw + EXTENT);
        let left = self.left();
        let Some(client) = self.clients.get_mut(&export) else { return 0 };
        let most = (wanted + chunk).saturating_sub(client.granted);
        let given = wanted.saturating_sub(held).min(chunk).min(left / 8).min(most);
        client.granted += given;
        self.total += given;
        given
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn export(n: u64) -> ExportId {
        ExportId::from(n)
    }

    fn grants(free: u64) -> Grants {
        let mut grants = Grants::default();
        grants.measured(2 * free, free);
        grants
    }

    #[test]
    fn grant_is_at_most_a_chunk_an_eighth_of_what_is_left_and_what_is_wanted() {
        let mut g = grants(1024 * MIB);
        g.meet(export(1), 1, 0);
        let chunk = 2 * (4 * MIB + EXTENT);
        assert_eq!(g.grant(export(1), 100 * MIB, 0, 4 * MIB), chunk);
        assert_eq!(g.grant(export(1), 10 * MIB, 9 * MIB, 4 * MIB), MIB);
        // Beyond what it wants and a chunk it gets nothing, whatever it says that it holds.
        assert_eq!(g.grant(export(1), MIB, 0, 4 * MIB), 0);
        let mut g = grants(8 * MIB);
        g.meet(export(1), 1, 0);
        assert_eq!(g.grant(export(1), 100 * MIB, 0, 4 * MIB), MIB);
        assert_eq!(g.grant(export(1), 100 * MIB, 0, 4 * MIB), 7 * MIB / 8);
        assert_eq!(g.grant(export(2), 100 * MIB, 0, 4 * MIB), 0, "a client that is not known");
    }

    #[test]
    fn bytes_of_a_store_that_has_not_said_its_space_are_written_and_none_are_promised() {
        let mut g = Grants::default();
        g.meet(export(1), 1, 0);
        assert_eq!(g.spend(export(1), 0, &[MIB, MIB]), [true, true]);
        assert_eq!(g.grant(export(1), 100 * MIB, 0, 4 * MIB), 0);
        g.measured(2 * MIB, 0);
        assert_eq!(g.spend(export(1), 0, &[1]), [false]);
    }

    #[test]
    fn promised_bytes_are_written_although_others_find_no_room() {
        let mut g = grants(8 * MIB);
        g.meet(export(1), 1, 0);
        g.meet(export(2), 1, 0);
        let promise = g.grant(export(1), 100 * MIB, 0, 4 * MIB);
        assert_eq!(g.spend(export(2), 0, &[6 * MIB, 2 * MIB, MIB]), [true, false, true]);
        assert!(g.holds(export(1), promise));
        assert_eq!(g.spend(export(1), promise, &[]), []);
        assert!(!g.holds(export(1), 1));
        assert_eq!(g.space(), (16 * MIB, 0, 0));
    }

    #[test]
    fn reconnect_keeps_the_lower_account_and_a_client_that_is_gone_frees_its_own() {
        let mut g = grants(800 * MIB);
        g.meet(export(1), 1, 50 * MIB);
        g.meet(export(2), 1, u64::MAX);
        assert_eq!(g.space().2, 800 * MIB);
        g.meet(export(1), 1, 0);
        assert!(g.holds(export(1), 50 * MIB), "the same connection");
        g.meet(export(1), 2, 70 * MIB);
        assert!(g.holds(export(1), 50 * MIB) && !g.holds(export(1), 51 * MIB));
        g.meet(export(1), 3, 20 * MIB);
        assert!(!g.holds(export(1), 21 * MIB));
        g.keep(|e| e == export(1));
        assert_eq!(g.space().2, 20 * MIB);
    }

    #[test]
    fn bytes_that_are_written_while_the_store_is_asked_are_not_counted_as_free() {
        let mut g = grants(10 * MIB);
        g.asked();
        g.spend(export(1), 0, &[MIB]);
        g.measured(20 * MIB, 10 * MIB);
        assert_eq!(g.space().1, 9 * MIB);
    }

    proptest! {
        /// Whatever clients say, the total is the sum of what they hold, and promises are covered.
        #[test]
        fn promises_never_exceed_the_free_space(
            ops in proptest::collection::vec((0..6u8, 0..3u64, any::<u32>(), any::<u32>()), 1..60)
        ) {
            let mut g = grants(1 << 34);
            for (op, client, a, b) in ops {
                let (e, a, b) = (export(client), u64::from(a), u64::from(b));
                match op {
                    0 => g.meet(e, b as u32 % 3, a),
                    1 => { g.grant(e, a, b, 4 * MIB); }
                    2 => g.give_back(e, a),
                    3 => { g.spend(e, 0, &[a, b]); }
                    4 => {
                        let promised = if g.holds(e, a) { a } else { 0 };
                        g.spend(e, promised, &[b]);
                    }
                    _ => g.keep(|e| e != export(a % 3)),
                }
                let sum: u64 = g.clients.values().map(|c| c.granted).sum();
                prop_assert_eq!(sum, g.total);
                prop_assert!(g.total <= g.free, "{} promised of {}", g.total, g.free);
            }
        }
    }
}
