//! Reads what a workload of kind `lock` asks for: which locks of which part of a name, and what its
//! programs do with them.

use core::time::Duration;

use ldlm::Mode;

use crate::error::ScenarioError;
use crate::read::Table;
use crate::units::Share;

/// Locks that programs of a load take, use and give back, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockLoad {
    /// How many names, which are the load's own.
    pub names: u32,
    /// Which part of a name is locked.
    pub part: LockPart,
    /// Modes, each as often as the others.
    pub modes: ModeSet,
    /// How long a lock is in use. It is given back earlier when another client wants it, unless
    /// `io` says otherwise.
    pub hold: Duration,
    /// Part of the locks that stay in the cache of their client when they are given back.
    pub keep: Share,
    /// I/O under the lock at this pace. The program has begun something: it ends it, for the whole of
    /// `hold`, even when another client wants the lock. `None`: no I/O.
    pub io: Option<Duration>,
    /// Programs begin at random moments of so long a time, not all at once.
    pub ramp: Duration,
}

/// Part of a name that is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockPart {
    /// All bytes.
    Whole,
    /// One of eight neighbouring ranges of a page, some with the first byte of the next.
    Touching,
    /// Any range of up to 64 pages, or one that ends with the file.
    Random,
    /// Some of the inode bits.
    Bits,
    /// The name, without parts.
    Plain,
}

/// Modes of locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeSet(u16);

impl ModeSet {
    /// These modes.
    pub fn of(modes: &[Mode]) -> Self {
        Self(modes.iter().fold(0, |set, mode| set | 1 << *mode as u16))
    }

    /// The modes of the set, strongest first.
    pub fn iter(self) -> impl Iterator<Item = Mode> {
        Mode::ALL.into_iter().filter(move |mode| self.0 & 1 << *mode as u16 != 0)
    }

    /// How many.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// None.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Modes by their words, as programs ask for them.
const MODES: [(&str, Mode); 6] = [
    ("EX", Mode::Ex),
    ("PW", Mode::Pw),
    ("PR", Mode::Pr),
    ("CW", Mode::Cw),
    ("CR", Mode::Cr),
    ("GROUP", Mode::Group),
];

const PARTS: [(&str, LockPart); 5] = [
    ("whole", LockPart::Whole),
    ("touching", LockPart::Touching),
    ("random", LockPart::Random),
    ("bits", LockPart::Bits),
    ("plain", LockPart::Plain),
];

/// Modes under which the server finds I/O of a range (L-49).
const MODES_OF_IO: [Mode; 3] = [Mode::Pw, Mode::Pr, Mode::Group];

/// Most names of a load, and how many there are where nothing is said.
const NAMES_MAX: i64 = 65_536;
const NAMES: u32 = 4;

/// The words of a lock workload that no other has.
pub(crate) fn read(t: &mut Table<'_, '_>) -> Result<LockLoad, ScenarioError> {
    let names = t.take("names").map(|v| v.number(1, NAMES_MAX)).transpose()?;
    let part = t.take("part").map(|v| v.word(&PARTS)).transpose()?.unwrap_or(LockPart::Whole);
    let hold = t.take("hold").map(|v| v.duration()).transpose()?.unwrap_or_default();
    let ramp = t.take("ramp").map(|v| v.duration()).transpose()?.unwrap_or_default();
    let keep = t.take("keep").map(|v| v.share()).transpose()?.unwrap_or(Share::ALL);
    let mut modes = ModeSet::default();
    let shown = t.require("modes", "modes like [\"PR\", \"PW\"]")?;
    for (_, v) in shown.texts()? {
        let mode = v.word(&MODES)?;
        if mode == Mode::Group && part == LockPart::Plain {
            return Err(v.wrong("another mode: GROUP requires a range or bits"));
        }
        modes.0 |= 1 << mode as u16;
    }
    if modes.is_empty() {
        return Err(shown.wrong("at least one mode"));
    }
    let io = match t.take("io") {
        Some(v) => {
            let ranges = matches!(part, LockPart::Whole | LockPart::Touching | LockPart::Random);
            if !ranges || modes.iter().any(|mode| !MODES_OF_IO.contains(&mode)) {
                return Err(v.wrong("no I/O but under ranges of modes PR, PW and GROUP"));
            }
            Some(v.duration_above_zero()?)
        }
        None => None,
    };
    Ok(LockLoad { names: names.map_or(NAMES, |n| n as u32), part, modes, hold, keep, io, ramp })
}
