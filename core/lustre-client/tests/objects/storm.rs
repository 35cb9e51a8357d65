//! Clients write and read the cells of one object while messages get lost, clients hang and are
//! evicted, and the server dies, with what it had answered and not committed or without. Model: a read
//! finds the last write; one that was lost with its client is said by the next fsync, and then the read
//! finds what was there before it.

use std::collections::{BTreeMap, BTreeSet};

use lnet_types::{Errno, Prng};
use lustre_target::Commit;
use lustre_wire::Opcode;
use ptlrpc::{ImportId, Part};

use super::{Bench, Setting, object};

const CELL: u64 = 4096;
const CELLS: u64 = 6;
const NAMES: [&str; 3] = ["a", "b", "c"];

struct Storm {
    bench: Bench,
    prng: Prng,
    seed: u64,
    imports: Vec<ImportId>,
    number: u64,
    /// What a cell may have: the last write, and, after a loss that may have taken it, those before.
    cells: BTreeMap<u64, BTreeSet<u64>>,
    /// Who has written what that may not be at the target.
    unsure: BTreeMap<u64, usize>,
    /// Writes that failed, or were lost as their client has said.
    doubtful: BTreeSet<u64>,
    reads: u64,
    losses: u64,
}

impl Storm {
    fn new(seed: u64) -> Self {
        // Half of the targets commit when a request wants it, and lose the rest when they die.
        let commit = if seed.is_multiple_of(2) { Commit::Ordered } else { Commit::AtOnce };
        let mut bench = Bench::with(Setting { commit, ..Setting::default() });
        let imports: Vec<ImportId> = NAMES.iter().map(|name| bench.client(name)).collect();
        imports.iter().for_each(|import| bench.warm(*import));
        let cells = (0..CELLS).map(|cell| (cell, BTreeSet::from([0]))).collect();
        let prng = Prng::new(seed);
        let (number, unsure, doubtful) = (0, BTreeMap::new(), BTreeSet::new());
        Self { bench, prng, seed, imports, number, cells, unsure, doubtful, reads: 0, losses: 0 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.prng.next_u64() % n
    }

    /// Waits for the end of an operation, which comes.
    fn end(&mut self, client: usize, op: lustre_client::osc::OpId) -> Result<u64, Errno> {
        for _ in 0..2000 {
            if let Some(end) = self.bench.done(self.imports[client], op) {
                return end;
            }
            self.bench.secs(1);
        }
        panic!("seed {}: an operation of {} without an end", self.seed, NAMES[client]);
    }

    fn write(&mut self, client: usize) {
        let cell = self.below(CELLS);
        self.number += 1;
        let number = self.number;
        let mut bytes = vec![0; CELL as usize];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[CELL as usize - 8..].copy_from_slice(&number.to_le_bytes());
        let op = self.bench.begin_write(self.imports[client], 1, cell * CELL, &bytes);
        let end = self.end(client, op);
        // One that failed may have been executed all the same.
        if end.is_ok() {
            self.unsure.insert(number, client);
        } else {
            self.doubtful.insert(number);
        }
        let may = self.cells.get_mut(&cell).unwrap();
        // Whatever is lost, what was there before the last safe write never comes back.
        let safe = may
            .iter()
            .rev()
            .find(|old| !self.unsure.contains_key(old) && !self.doubtful.contains(old));
        let safe = safe.copied().unwrap_or(0);
        may.retain(|old| *old >= safe);
        may.insert(number);
    }

    /// A client says whether it has lost something. If it has not, all its writes are there.
    fn sync(&mut self, client: usize) {
        let op = self.bench.osc(self.imports[client], |osc, cx| osc.fsync(object(1), cx)).unwrap();
        let ok = self.end(client, op).is_ok();
        self.losses += u64::from(!ok);
        let (own, others) =
            core::mem::take(&mut self.unsure).into_iter().partition(|(_, by)| *by == client);
        let own: BTreeMap<u64, usize> = own;
        self.unsure = others;
        if !ok {
            self.doubtful.extend(own.into_keys());
        }
    }

    fn read(&mut self, client: usize) {
        let cell = self.below(CELLS);
        let (op, memory) = self.bench.begin_read(self.imports[client], 1, cell * CELL, CELL);
        let Ok(len) = self.end(client, op) else { return };
        let bytes = self.bench.bytes(&memory);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let found = if len == CELL { word(0) } else { 0 };
        let (seed, may) = (self.seed, self.cells.get_mut(&cell).unwrap());
        assert!(len == 0 || len == CELL && word(CELL as usize - 8) == found, "seed {seed}: torn");
        assert!(may.contains(&found), "seed {seed}: cell {cell}: {found} is none of {may:?}");
        let last = may.last().copied().unwrap();
        // What is read comes from the target: nothing newer is on its way.
        if found != last {
            let lost = self.unsure.contains_key(&last) || self.doubtful.contains(&last);
            assert!(lost, "seed {seed}: cell {cell}: {last} was safe");
        }
        // A value that is not committed may go with an eviction and a crash: those before come back.
        may.retain(|old| *old <= found);
        let known = !self.unsure.contains_key(&found) && !self.doubtful.contains(&found);
        if known || self.bench.setting.commit == Commit::AtOnce {
            *may = BTreeSet::from([found]);
            self.unsure.remove(&found);
            self.doubtful.remove(&found);
        }
        self.reads += 1;
    }

    fn fault(&mut self) {
        match self.below(10) {
            0..5 => {
                const LOST: [Opcode; 6] = [
                    Opcode::LDLM_ENQUEUE,
                    Opcode::LDLM_CANCEL,
                    Opcode::LDLM_BL_CALLBACK,
                    Opcode::LDLM_CP_CALLBACK,
                    Opcode::OST_WRITE,
                    Opcode::OST_READ,
                ];
                let opcode = LOST[self.below(6) as usize];
                let part = if self.below(2) == 0 { Part::Request } else { Part::Reply };
                let count = 1 + self.below(3) as u32;
                self.bench.lose(opcode, part, count);
            }
            5 | 6 => {
                let name = NAMES[self.below(3) as usize];
                self.bench.evict(name);
            }
            7 | 8 => self.bench.restart(),
            _ => {
                // It hangs for as long as it takes to lose its locks, if another one wants them.
                let client = self.below(3) as usize;
                self.bench.hang(self.imports[client], true);
                self.other(client);
                self.bench.secs(5);
                self.bench.hang(self.imports[client], false);
            }
        }
    }

    fn other(&mut self, client: usize) {
        let other = (client + 1) % 3;
        if self.below(2) == 0 { self.read(other) } else { self.write(other) }
    }

    fn step(&mut self) {
        let client = self.below(3) as usize;
        match self.below(100) {
            0..45 => self.write(client),
            45..80 => self.read(client),
            80..88 => self.sync(client),
            88..92 => {
                let secs = self.below(20);
                self.bench.secs(secs);
            }
            _ => self.fault(),
        }
    }
}

#[test]
fn reads_find_the_last_writes_and_what_is_lost_is_said() {
    let (mut reads, mut losses) = (0, 0);
    for seed in 1..=12 {
        let mut storm = Storm::new(seed);
        (0..200).for_each(|_| storm.step());
        storm.bench.mend();
        (0..3).for_each(|client| storm.sync(client));
        (0..20).for_each(|_| storm.read(0));
        for import in storm.imports.clone() {
            assert_eq!(storm.bench.dirty(import), 0, "seed {seed}");
        }
        reads += storm.reads;
        losses += storm.losses;
    }
    // The storms were storms.
    assert!(reads > 300 && losses > 3, "reads {reads}, losses {losses}");
}
