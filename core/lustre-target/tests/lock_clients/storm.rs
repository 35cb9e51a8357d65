//! Everything at once: clients that ask, keep, release and give up, messages that get lost, a server
//! that dies, evictions. The model knows no message: from a grant to its release or the eviction of its
//! client no other hold conflicts, and numbers of conflicting holds grow.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use ldlm::Mode;
use ldlm::client::{Ask, HoldId, LockEvent};
use lnet_types::{ByteOrder, Prng};
use lustre_target::lock::wire::fence_of;
use lustre_wire::Opcode;
use lustre_wire::ldlm::LockFlags;
use ptlrpc::{ImportId, Part};

use super::{Bench, Seen, ask};

const NAMES: [&str; 3] = ["jobs/1", "jobs/2", "file"];
const CLIENTS: [&str; 3] = ["a", "b", "c"];
const MODES: [Mode; 5] = [Mode::Ex, Mode::Pw, Mode::Pr, Mode::Cr, Mode::Cw];

/// What was asked for.
#[derive(Clone, Debug)]
struct Want {
    client: usize,
    name: usize,
    mode: Mode,
    start: u64,
    end: u64,
}

impl Want {
    fn conflicts(&self, other: &Self) -> bool {
        self.name == other.name
            && self.start <= other.end
            && other.start <= self.end
            && !self.mode.allows(other.mode)
    }
}

#[derive(Debug, Default)]
struct Model {
    asked: BTreeMap<HoldId, Want>,
    /// Granted, not released, of a client that the server has.
    active: BTreeSet<HoldId>,
    /// Clients that the server has dropped, and that have not learnt it.
    out: BTreeSet<usize>,
    /// The highest number of each grant, by what was granted.
    fences: Vec<(Want, u64)>,
    grants: usize,
    evictions: usize,
    lost: usize,
    refused: usize,
}

struct Storm {
    bench: Bench,
    imports: Vec<ImportId>,
    model: Model,
    prng: Prng,
    seed: u64,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut bench = Bench::new(seed * 10_000 + 1);
        let imports = CLIENTS.map(|name| bench.client(name)).to_vec();
        Self { bench, imports, model: Model::default(), prng: Prng::new(seed), seed }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.prng.next_u64() % n
    }

    fn client_of(&self, import: ImportId) -> usize {
        self.imports.iter().position(|other| *other == import).unwrap()
    }

    /// Holds that were called back: most are released at once.
    fn look(&mut self) {
        loop {
            let seen = self.bench.seen();
            if seen.is_empty() {
                return;
            }
            let mut wanted = Vec::new();
            for seen in seen {
                wanted.extend(self.take(seen));
            }
            for hold in wanted {
                if self.below(10) < 8 {
                    self.release(hold);
                }
            }
        }
    }

    fn take(&mut self, seen: Seen) -> Vec<HoldId> {
        let (seed, model) = (self.seed, &mut self.model);
        match seen {
            Seen::Evicted(name, _) => {
                let client = CLIENTS.iter().position(|other| **other == *name).unwrap();
                model.evictions += 1;
                model.out.insert(client);
                model.active.retain(|hold| model.asked[hold].client != client);
            }
            Seen::Learnt(import) => {
                let client = self.client_of(import);
                self.model.out.remove(&client);
            }
            Seen::Lock(_, LockEvent::Granted { hold, lvb, .. }) => {
                let Some(want) = model.asked.get(&hold).cloned() else {
                    panic!("seed {seed}: {hold:?} was granted after it was over");
                };
                model.grants += 1;
                // A client that is out is granted nothing that counts.
                if model.out.contains(&want.client) {
                    return Vec::new();
                }
                for other in &model.active {
                    let held = &model.asked[other];
                    assert!(
                        !held.conflicts(&want),
                        "seed {seed}: {hold:?} {want:?} granted beside {other:?} {held:?}"
                    );
                }
                if let Some(fence) = fence_of(ByteOrder::Little, &lvb) {
                    for (held, last) in &model.fences {
                        assert!(
                            !held.conflicts(&want) || *last < fence || held.client == want.client,
                            "seed {seed}: number {fence} of {want:?} after {last} of {held:?}"
                        );
                    }
                    model.fences.push((want, fence));
                }
                model.active.insert(hold);
            }
            Seen::Lock(_, LockEvent::Refused { hold, .. }) => {
                assert!(
                    !model.active.contains(&hold),
                    "seed {seed}: {hold:?} refused when granted"
                );
                model.refused += 1;
                model.asked.remove(&hold);
            }
            Seen::Lock(_, LockEvent::CalledBack { holds, .. }) => return holds,
            Seen::Lock(_, LockEvent::Gone { holds, .. }) => {
                for hold in holds {
                    assert!(
                        !model.active.contains(&hold),
                        "seed {seed}: {hold:?} lost by no eviction"
                    );
                    model.lost += 1;
                    model.asked.remove(&hold);
                }
            }
            Seen::Lock(..) => {}
        }
        Vec::new()
    }

    fn ask(&mut self) {
        let client = self.below(CLIENTS.len() as u64) as usize;
        let name = self.below(NAMES.len() as u64) as usize;
        let mode = MODES[self.below(MODES.len() as u64) as usize];
        let (start, end) = match self.below(3) {
            0 => (0, u64::MAX),
            1 => (0, 9),
            _ => {
                let start = self.below(20);
                (start, start + self.below(10))
            }
        };
        let limit = (self.below(3) == 0).then(|| Duration::from_secs(self.prng.next_u64() % 60));
        let mut flags = LockFlags::NO_EXPANSION;
        flags.set(LockFlags::SPECULATIVE, self.below(6) == 0);
        flags.set(LockFlags::NO_EXPANSION, self.below(2) == 0);
        let ask = Ask { limit, flags, ..ask(NAMES[name], mode, start, end) };
        let import = self.imports[client];
        let hold = self.bench.clients(|clients, below| {
            clients.locks.enqueue(import, &ask, &mut clients.ptlrpc.rpc(below)).unwrap()
        });
        self.model.asked.insert(hold, Want { client, name, mode, start, end });
    }

    fn release(&mut self, hold: HoldId) {
        self.model.active.remove(&hold);
        let Some(want) = self.model.asked.remove(&hold) else { return };
        let keep = self.below(2) == 0;
        let import = self.imports[want.client];
        self.bench.release(import, hold, keep);
    }

    fn step(&mut self) {
        match self.below(100) {
            0..40 => self.ask(),
            40..65 => {
                let nth = self.below(1 + self.model.asked.len() as u64) as usize;
                if let Some(hold) = self.model.asked.keys().nth(nth).copied() {
                    self.release(hold);
                }
            }
            65..85 => {
                let secs = self.below(40);
                self.bench.secs(secs);
            }
            85..95 => {
                const LOST: [Opcode; 4] = [
                    Opcode::LDLM_ENQUEUE,
                    Opcode::LDLM_CANCEL,
                    Opcode::LDLM_BL_CALLBACK,
                    Opcode::LDLM_CP_CALLBACK,
                ];
                let opcode = LOST[self.below(4) as usize];
                let part = if self.below(2) == 0 { Part::Request } else { Part::Reply };
                let count = 1 + self.below(3) as u32;
                self.bench.lose(opcode, part, count);
            }
            95..97 => {
                let name = CLIENTS[self.below(3) as usize];
                self.bench.evict(name);
            }
            97 => self.bench.restart(),
            _ => self.bench.secs(160),
        }
        self.look();
    }

    /// Faults end, holders release what they have: nothing waits, nothing is left.
    fn end(&mut self) {
        self.bench.mend();
        for _ in 0..200 {
            self.bench.secs(60);
            self.look();
            let Some(hold) = self.model.active.iter().next().copied() else {
                if self.model.asked.is_empty() {
                    break;
                }
                continue;
            };
            self.release(hold);
            let held: Vec<HoldId> = self.model.active.iter().copied().collect();
            held.into_iter().for_each(|hold| self.release(hold));
        }
        let (seed, left) = (self.seed, &self.model.asked);
        assert!(left.is_empty(), "seed {seed}: neither granted nor refused: {left:?}");
        // What is in caches grows old.
        self.bench.secs(1300);
        assert_eq!(self.bench.server_locks(), 0, "seed {seed}: locks of no client");
    }
}

#[test]
fn no_two_holds_conflict_and_each_ask_ends_whatever_is_lost() {
    let (mut grants, mut evictions, mut lost, mut refused) = (0, 0, 0, 0);
    for seed in 1..=40 {
        let mut storm = Storm::new(seed);
        (0..150).for_each(|_| storm.step());
        storm.end();
        grants += storm.model.grants;
        evictions += storm.model.evictions;
        lost += storm.model.lost;
        refused += storm.model.refused;
    }
    // The storms were storms.
    assert!(grants > 1000 && evictions > 40 && lost > 20 && refused > 100);
    println!("grants {grants} evictions {evictions} lost {lost} refused {refused}");
}
