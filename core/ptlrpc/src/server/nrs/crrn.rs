//! Client round robin (P-117): each NID gets so many requests served, then it is another's turn.
//!
//! A request ranks by its round. The requests of a client fill one round after the other, so many in
//! each; a client of which none waited begins in the round that is being served.

use std::collections::BTreeMap;

use lnet_types::Nid;

/// Requests of one NID in a round, until an administrator says otherwise.
const QUANTUM: u16 = 16;

#[derive(Debug)]
struct Client {
    round: u64,
    /// Requests in its round.
    used: u16,
    /// Requests that wait; without one the client is forgotten.
    waiting: u32,
}

#[derive(Debug)]
pub(super) struct Crrn {
    pub(super) quantum: u16,
    /// The round that is being served.
    round: u64,
    clients: BTreeMap<Nid, Client>,
}

impl Default for Crrn {
    fn default() -> Self {
        Self { quantum: QUANTUM, round: 0, clients: BTreeMap::new() }
    }
}

impl Crrn {
    /// The round of a request that arrives.
    pub(super) fn rank(&mut self, from: Nid) -> u64 {
        let new = Client { round: self.round, used: 0, waiting: 0 };
        let client = self.clients.entry(from).or_insert(new);
        if client.round < self.round {
            (client.round, client.used) = (self.round, 0);
        } else if client.used >= self.quantum {
            (client.round, client.used) = (client.round + 1, 0);
        }
        client.used += 1;
        client.waiting += 1;
        client.round
    }

    /// A request of this round is served.
    pub(super) fn serves(&mut self, round: u64) {
        self.round = self.round.max(round);
    }

    /// A request of this client waits no longer.
    pub(super) fn left(&mut self, from: Nid) {
        let Some(client) = self.clients.get_mut(&from) else { return };
        client.waiting -= 1;
        if client.waiting == 0 {
            self.clients.remove(&from);
        }
    }
}
