//! Changes over two metadata targets: a directory is made or removed here, and its name is in a directory of
//! another target. The target of the directory has the request, and is the first; the other one is the second.
//!
//! ```text
//!  first.rs                                  second.rs
//!  request ── prepare ─────────────────────► may it be? the name is held (stored)
//!          ◄──────────────────────────────── yes, or why not
//!  change, number, reply record (stored)
//!          ── apply ───────────────────────► the name is changed, no longer held (stored)
//!          ◄────────────────────────────────
//!  reply to the client
//! ```
//!
//! The change is made with the transaction of the first target, which names it by a number. What dies before
//! that has changed nothing: with each connection the first target says which of its changes are made
//! (*settle*), and the names of the others are let go. What dies after it is asked of the second target again
//! until that has made it. Meanwhile the name is held there: requests for it wait, so that no client sees one
//! half of a change.
//!
//! `calls.rs` asks other targets and takes their answers, `wire.rs` has the messages, `past.rs` keeps copies that
//! come late from being taken for new ones. A [`Across`] is what a
//! target remembers of both roles; it decides nothing.

mod calls;
mod first;
mod past;
mod second;
mod wire;

use core::time::Duration;
use std::collections::BTreeMap;

use lnet_types::Instant;
use ptlrpc::{Answer, CallId, ExportId, ImportId, Rpc, Served, ServedId};

use super::access::Who;
use super::inode::Id;
use super::links;
use super::open::Parent;
use super::tree::{ChangeId, Tree};
use crate::sabotage::Sabotage;
use crate::site::{Part, Site};

pub(super) use calls::Ended;
use past::Past;
pub use wire::AcrossWire;
use wire::OPEN_MAX;
pub(super) use wire::{Message, NameChange, OPCODE, Order, What};

/// How long a target rests that could not be asked.
const PAUSE: Duration = Duration::from_secs(5);
/// When a target is asked again that holds the name for another change.
const AGAIN: Duration = Duration::from_millis(200);

/// Another metadata target.
#[derive(Debug)]
struct Partner {
    import: Option<ImportId>,
    /// It knows which changes are under way.
    settled: bool,
    settling: Option<CallId>,
    /// Changes up to this number are to be prepared no more.
    floor: u64,
    rests_until: Option<Instant>,
}

/// How far a change has come.
#[derive(Debug)]
enum Stage {
    /// The other target is asked whether the name may be changed.
    Ask { owner: u32, who: Who },
    /// It holds the name.
    Prepared(Box<Parent>),
    /// The change is being stored here.
    Storing,
    /// It is stored; the other target is to make it.
    Apply,
    /// The other target is to let the name go.
    Drop,
}

/// A change that was begun here.
#[derive(Debug)]
struct Change {
    partner: u32,
    stage: Stage,
    /// `None` for one of an earlier life, which is made.
    change: Option<NameChange>,
    /// The request, while no one else has it.
    served: Option<Served>,
    /// Name and client of it.
    request: Option<(ServedId, ExportId)>,
    /// What it is answered with in the end.
    answer: Option<Answer>,
    call: Option<CallId>,
    /// When it is asked again.
    again: Option<Instant>,
}

/// What is known of changes over two targets.
#[derive(Debug, Default)]
pub(super) struct Across {
    index: u32,
    partners: BTreeMap<u32, Partner>,
    /// Changes that were begun here, by number.
    changes: BTreeMap<u64, Change>,
    /// The last number.
    last: u64,
    /// Names here that are held for changes of others.
    held: BTreeMap<(Id, Vec<u8>), ChangeId>,
    /// What is over of the changes of targets that have settled since this one began.
    past: BTreeMap<u32, Past>,
    #[cfg(feature = "sabotage")]
    sabotage: Option<Sabotage>,
}

impl Across {
    /// What a target knows that has not begun, with what its store has.
    pub(super) fn of(site: &Site, index: u32, tree: &Tree) -> Self {
        let mdts = site.targets().iter().filter(|target| target.part == Part::Mdt);
        let others = mdts.filter(|target| target.index != index).map(|target| {
            let partner = Partner {
                import: None,
                settled: false,
                settling: None,
                floor: 0,
                rests_until: None,
            };
            (target.index, partner)
        });
        let changes = tree.pending().map(|(number, partner)| {
            let change = Change {
                partner,
                stage: Stage::Apply,
                change: None,
                served: None,
                request: None,
                answer: None,
                call: None,
                again: None,
            };
            (number, change)
        });
        let held = tree.all_prepared().map(|(id, of)| ((of.dir, of.name.clone()), id));
        Self {
            index,
            partners: others.collect(),
            changes: changes.collect(),
            held: held.collect(),
            ..Self::default()
        }
    }

    /// Connects to the other targets. `starts`: how often this one was started; no number is given twice.
    pub(super) fn begin(&mut self, site: &Site, starts: u32, rpc: &mut Rpc<'_, '_>) {
        self.last = u64::from(starts) << 32;
        for target in site.targets().iter().filter(|target| target.part == Part::Mdt) {
            let Some(partner) = self.partners.get_mut(&target.index) else { continue };
            partner.floor = self.last;
            partner.import = links::connect(site, self.index, target, rpc);
        }
    }

    /// Breaks a rule, to see whether it is noticed.
    #[cfg(feature = "sabotage")]
    pub(super) fn sabotage(&mut self, rule: Sabotage) {
        self.sabotage = Some(rule);
        if rule == Sabotage::HalfForgotten {
            self.changes.clear();
        }
    }

    /// Whether a rule is broken.
    #[cfg_attr(not(feature = "sabotage"), allow(clippy::unused_self))]
    const fn breaks(&self, rule: Sabotage) -> bool {
        #[cfg(feature = "sabotage")]
        return matches!(self.sabotage, Some(broken) if broken as u8 == rule as u8);
        #[cfg(not(feature = "sabotage"))]
        {
            let _ = rule;
            false
        }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A client is gone: what it asked for and is not decided is dropped.
    pub(super) fn left(&mut self, export: ExportId) {
        let of = |change: &Change| change.request.is_some_and(|(_, of)| of == export);
        let numbers: Vec<u64> = self
            .changes
            .iter()
            .filter(|(_, change)| of(change))
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            self.drop_change(number);
        }
    }

    /// A change is not made, if that is not decided.
    fn drop_change(&mut self, number: u64) {
        let Some(change) = self.changes.get_mut(&number) else { return };
        match change.stage {
            Stage::Ask { .. } if change.call.is_none() => {
                self.changes.remove(&number);
            }
            Stage::Ask { .. } | Stage::Prepared(_) => {
                // What is under way tells the answer to the question from that to the drop.
                if change.call.is_none() {
                    change.change = None;
                }
                change.stage = Stage::Drop;
                (change.served, change.request) = (None, None);
            }
            Stage::Storing | Stage::Apply | Stage::Drop => {}
        }
    }

    /// When [`Self::work`] is next due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let resting = self.partners.values().filter_map(|partner| partner.rests_until);
        resting.chain(self.changes.values().filter_map(|change| change.again)).min()
    }

    /// The change of a request.
    fn number_of(&self, request: ServedId) -> Option<u64> {
        let is = |change: &Change| change.request.is_some_and(|(id, _)| id == request);
        self.changes.iter().find(|(_, change)| is(change)).map(|(number, _)| *number)
    }

    /// Whether a directory is about to be removed: it gets no names any more.
    fn is_dying(&self, dir: Id) -> bool {
        if self.breaks(Sabotage::DyingTakesNames) {
            return false;
        }
        self.changes.values().any(|change| {
            let of = change.change.as_ref();
            of.is_some_and(|of| of.what == What::Remove && of.file == dir)
                && !matches!(change.stage, Stage::Drop)
        })
    }

    /// Whether a name is held for a change of another target.
    fn is_held(&self, dir: Id, name: &[u8]) -> bool {
        !self.held.is_empty() && self.held.contains_key(&(dir, name.to_vec()))
    }

    /// Whether a name of a directory is held.
    fn holds_in(&self, dir: Id) -> bool {
        let from = (dir, Vec::new());
        self.held.range(from..).next().is_some_and(|((of, _), _)| *of == dir)
    }
}
