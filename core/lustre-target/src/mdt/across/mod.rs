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
//! `wire.rs` has the messages. A [`Across`] is what a target remembers of both roles; it decides nothing.

mod first;
mod second;
mod wire;

use core::time::Duration;
use std::collections::BTreeMap;

use lnet_types::{Errno, Instant};
use lustre_wire::ImportKind;
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use ptlrpc::{
    Answer, CallError, CallId, ExportId, ImportConfig, ImportId, ImportState, Reply, Rpc, Served,
    ServedId,
};

use super::access::Who;
use super::inode::Id;
use super::open::Parent;
use super::tree::{ChangeId, Tree};
use crate::site::{Part, Site};

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
    uuid: String,
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
    /// Up to which number changes of a target were settled since this one began.
    floors: BTreeMap<u32, u64>,
}

/// What a call that has ended leads to.
#[derive(Debug)]
pub(super) enum Ended {
    Nothing,
    /// The request goes on: the other target holds the name, or it is to begin anew.
    GoesOn(Box<Served>),
    /// The other target has refused it.
    Refused(ServedId, Errno),
    /// The other target has made this change; the request is to be answered.
    Made(u64, Option<(ServedId, Answer)>),
}

/// Whether a target that refuses so may take the same message another time.
const fn is_passing(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::EAGAIN
            | Errno::EBUSY
            | Errno::ENODEV
            | Errno::ENOMEM
            | Errno::ENOTCONN
            | Errno::EINPROGRESS
    )
}

fn wanted(index: u32) -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::INDEX
            | ConnectFlags::MDS
            | ConnectFlags::AT
            | ConnectFlags::FID
            | ConnectFlags::FULL20
            | ConnectFlags::LIGHTWEIGHT
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        index,
        ..ConnectData::default()
    }
}

impl Across {
    /// What a target knows that has not begun, with what its store has.
    pub(super) fn of(site: &Site, index: u32, tree: &Tree) -> Self {
        let mdts = site.targets().iter().filter(|target| target.part == Part::Mdt);
        let others = mdts.filter(|target| target.index != index).map(|target| {
            let partner = Partner {
                uuid: site.uuid(target),
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
            let config = ImportConfig {
                kind: ImportKind::MdtToMdt,
                target: partner.uuid.clone(),
                client: site.mdt_client(self.index),
                nids: target.nodes.iter().flatten().copied().collect(),
                wanted: wanted(self.index),
            };
            // Names and NIDs of a description are such as an import takes.
            partner.import = rpc.import(config).ok();
            if let Some(import) = partner.import {
                rpc.connect(import);
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Asks each target for what is due.
    pub(super) fn work(&mut self, rpc: &mut Rpc<'_, '_>) {
        let now = rpc.now();
        for (index, partner) in &mut self.partners {
            partner.rests_until = partner.rests_until.filter(|until| now < *until);
            let Some(import) = partner.import.filter(|_| partner.rests_until.is_none()) else {
                continue;
            };
            if partner.settled {
                continue;
            }
            if partner.settling.is_none() {
                let made = self.changes.iter().filter(|(_, change)| {
                    change.partner == *index
                        && matches!(change.stage, Stage::Storing | Stage::Apply)
                });
                let open = made.map(|(number, _)| *number).take(OPEN_MAX).collect();
                let (from, number, order) = (self.index, partner.floor, Order::Settle(open));
                match rpc.call(import, Message { from, number, order }.call()) {
                    Ok(call) => partner.settling = Some(call),
                    Err(_) => partner.rests_until = Some(now + PAUSE),
                }
            }
        }
        for (number, change) in &mut self.changes {
            change.again = change.again.filter(|again| now < *again);
            let Some(partner) = self.partners.get(&change.partner) else { continue };
            if change.call.is_some() || change.again.is_some() || !partner.settled {
                continue;
            }
            let order = match (&change.stage, &change.change) {
                (Stage::Ask { owner, who }, Some(of)) => Order::Prepare(of.clone(), *owner, *who),
                (Stage::Apply, _) => Order::Apply,
                (Stage::Drop, _) => Order::Drop,
                _ => continue,
            };
            let Some(import) = partner.import else { continue };
            let message = Message { from: self.index, number: *number, order };
            match rpc.call(import, message.call()) {
                Ok(call) => change.call = Some(call),
                Err(_) => change.again = Some(now + PAUSE),
            }
        }
    }

    /// A target no longer knows what is under way, or it is not certain what it knows: it is settled again.
    /// What was not decided begins anew.
    fn unsettle(&mut self, index: u32) {
        let Some(partner) = self.partners.get_mut(&index) else { return };
        partner.settled = false;
        partner.settling = None;
        // What begins anew has a number above it.
        partner.floor = self.last;
        let of = |(number, change): (&u64, &Change)| (change.partner == index).then_some(*number);
        let numbers: Vec<u64> = self.changes.iter().filter_map(of).collect();
        for number in numbers {
            let Some(mut change) = self.changes.remove(&number) else { continue };
            change.call = None;
            let number = match change.stage {
                Stage::Storing | Stage::Apply => number,
                Stage::Drop => continue,
                Stage::Ask { .. } => self.number(),
                // Who has the request finds that it is not prepared any more.
                Stage::Prepared(_) => continue,
            };
            self.changes.insert(number, change);
        }
    }

    /// A call has ended; `None` if it is none of these.
    pub(super) fn ended(
        &mut self,
        call: CallId,
        result: &Result<Reply, CallError>,
        now: Instant,
    ) -> Option<Ended> {
        let settled = self.partners.iter_mut().find(|(_, partner)| partner.settling == Some(call));
        if let Some((_, partner)) = settled {
            partner.settling = None;
            match result {
                Ok(_) => partner.settled = true,
                Err(_) => partner.rests_until = Some(now + PAUSE),
            }
            return Some(Ended::Nothing);
        }
        let (number, change) =
            self.changes.iter_mut().find(|(_, change)| change.call == Some(call))?;
        let (number, partner) = (*number, change.partner);
        change.call = None;
        let asks = matches!(change.stage, Stage::Ask { .. });
        if result.is_err() {
            change.again = Some(now + PAUSE);
        }
        let reply = match result {
            Ok(reply) => reply,
            // It does not know what is asked, or the target that asks.
            Err(CallError::Refused(errno)) if asks && !is_passing(*errno) => {
                return Some(self.decided(number, Err(*errno), now));
            }
            Err(CallError::Refused(_)) => return Some(Ended::Nothing),
            Err(_) => {
                self.unsettle(partner);
                return Some(Ended::Nothing);
            }
        };
        Some(match change.stage {
            Stage::Ask { .. } => self.decided(number, wire::decision(reply), now),
            Stage::Apply => {
                let change = self.changes.remove(&number);
                let answered = change.and_then(|change| Some((change.request?.0, change.answer?)));
                Ended::Made(number, answered)
            }
            Stage::Drop => {
                // The answer to the question that was under way when the change was dropped, or to the drop.
                if change.change.take().is_none() {
                    self.changes.remove(&number);
                }
                Ended::Nothing
            }
            Stage::Storing | Stage::Prepared(_) => Ended::Nothing,
        })
    }

    /// The other target has said whether a name may be changed.
    fn decided(&mut self, number: u64, decision: wire::Decision, now: Instant) -> Ended {
        let Some(change) = self.changes.get_mut(&number) else { return Ended::Nothing };
        match decision {
            Ok(parent) => {
                change.stage = Stage::Prepared(Box::new(parent));
                match change.served.take() {
                    Some(served) => Ended::GoesOn(Box::new(served)),
                    None => Ended::Nothing,
                }
            }
            // It holds the name for another change.
            Err(Errno::EAGAIN) => {
                change.again = Some(now + AGAIN);
                Ended::Nothing
            }
            Err(errno) => {
                let request = self.changes.remove(&number).and_then(|change| change.request);
                request.map_or(Ended::Nothing, |(id, _)| Ended::Refused(id, errno))
            }
        }
    }

    /// A connection has changed its state. `false` if it is none of these.
    pub(super) fn import_changed(&mut self, import: ImportId, state: ImportState) -> bool {
        let of =
            |(index, partner): (&u32, &Partner)| (partner.import == Some(import)).then_some(*index);
        let Some(index) = self.partners.iter().find_map(of) else { return false };
        if state == ImportState::Full {
            // It may have begun again.
            self.unsettle(index);
            if let Some(partner) = self.partners.get_mut(&index) {
                partner.rests_until = None;
            }
        }
        true
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
