//! Objects of files, made ahead on object targets: this metadata target is a client of each. It has
//! objects made before files need them, gives them to files, has those of removed files destroyed, and
//! gives those of others to new owners.
//!
//! ```text
//!  connect ─► orphans: what is above the last used goes ─► create ahead ─► … ─► pay what is owed, when committed
//! ```
//!
//! The last used object of a target is stored with the file that uses it. What is above it was given to
//! no file: it is removed with each connection, so that neither end has to repeat anything, and the
//! connection keeps no records (LIGHTWEIGHT). Its numbers are not used again (SKIP_ORPHAN): a client whose
//! file was lost in a crash may still write to them. While clients may still repeat what they did before a crash
//! no orphans are removed, as one of them may be theirs.

use core::time::Duration;
use std::collections::BTreeMap;

use lnet_types::{Errno, Instant};
use lustre_wire::Opcode;
use lustre_wire::fid::{Fid, ObjectId, Valid};
use lustre_wire::ost::{Obdo, ObdoFlags};
use lustre_wire::striping::StripeObject;
use ptlrpc::{Call, CallError, CallId, ImportId, ImportState, Reply, Rpc};

use super::layouts::COMPONENTS_MAX;
use super::links;
use super::sequences;
use super::tree::{Debt, Tree};
use crate::ost::wire;
use crate::site::{Part, Site};

/// Objects that are made ahead, as many as that at least; further ones are made when half of them are left.
const AHEAD: u64 = 128;
/// Where half of them last for less than this, twice as many are made next: each time they are committed first,
/// and files wait for it when there are too few.
const BRIEF: Duration = Duration::from_secs(1);
const AHEAD_MOST: u64 = 4096;
/// What one file may need of one target.
const SPARE: u64 = COMPONENTS_MAX as u64;
/// How long a target rests that has refused something.
const PAUSE: Duration = Duration::from_secs(5);
/// How long new files wait for targets that are being connected, if they could have more stripes then.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most stripes of a file.
pub(super) const STRIPES_MAX: usize = 160;

/// What is under way at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// What no file uses is removed.
    Orphans,
    Create,
    Pay(u64, Debt),
}

#[derive(Debug)]
struct ObjectTarget {
    import: Option<ImportId>,
    call: Option<(CallId, Doing)>,
    /// Whether it has removed orphans since it was connected.
    settled: bool,
    /// The last object that was made.
    made: u64,
    /// How many are made ahead.
    ahead: u64,
    /// When further ones were asked for last.
    asked: Option<Instant>,
    /// It has refused, and is asked again then.
    rests_until: Option<Instant>,
    /// It has refused nothing for good: it waits for clients of its life before, or the connection was
    /// lost. Files wait for its objects.
    comes: bool,
}

/// The object targets of a file system.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Index of the metadata target.
    mdt: u32,
    targets: BTreeMap<u32, ObjectTarget>,
    /// No client may repeat what it did before a crash any more.
    recovered: bool,
    /// Where the next file begins.
    next: u32,
    /// Until when files wait for targets that are being connected.
    patient_until: Option<Instant>,
}

/// What an object target has to know of a call of ours.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    /// An object has what it was owed: index of its target, number, and what.
    pub(super) paid: Option<(u32, u64, Debt)>,
    /// The last used object of a target is another one: it knows of later ones.
    pub(super) used: Option<(u32, u64)>,
}

/// An object that a metadata target uses on an object target.
fn object(mdt: u32, ost: u32, number: u64) -> Option<ObjectId> {
    let oid = u32::try_from(number).ok()?;
    Some(ObjectId::of(Fid { seq: sequences::of_objects(mdt, ost), oid, ver: 0 }))
}

impl ObjectTarget {
    /// Further objects are asked for: how many are made ahead from now on.
    fn pace(&mut self, now: Instant) {
        let brief = self.asked.is_some_and(|at| now.saturating_since(at) < BRIEF);
        self.ahead = if brief { self.ahead * 2 } else { self.ahead / 2 }.clamp(AHEAD, AHEAD_MOST);
        self.asked = Some(now);
    }
}

impl Objects {
    /// The object targets of a file system, without connections.
    pub(super) fn of(site: &Site, mdt: u32) -> Self {
        let osts = site.targets().iter().filter(|target| target.part == Part::Ost);
        let targets = osts.map(|target| {
            let one = ObjectTarget {
                import: None,
                call: None,
                settled: false,
                made: 0,
                ahead: AHEAD,
                asked: None,
                rests_until: None,
                comes: false,
            };
            (target.index, one)
        });
        Self { mdt, targets: targets.collect(), ..Self::default() }
    }

    /// Connects. `recovers`: clients are to repeat what they did before.
    pub(super) fn begin(&mut self, site: &Site, recovers: bool, rpc: &mut Rpc<'_, '_>) {
        self.recovered = !recovers;
        self.patient_until = Some(rpc.now() + PATIENCE);
        for target in site.targets().iter().filter(|target| target.part == Part::Ost) {
            let Some(one) = self.targets.get_mut(&target.index) else { continue };
            one.import = links::connect(site, self.mdt, target, rpc);
        }
    }

    /// Clients repeat nothing any more.
    pub(super) fn recovered(&mut self, now: Instant) {
        self.recovered = true;
        self.patient_until = Some(now + PATIENCE);
    }

    /// Whether the target has objects for files now.
    fn ready(&self, index: u32, tree: &Tree) -> bool {
        self.targets
            .get(&index)
            .is_some_and(|target| target.settled && target.made >= tree.used(index) + SPARE)
    }

    /// Objects for a file: `count` of them, or as many as there are targets; from `first` on, or from the
    /// target whose turn it is; `listed`: from these targets alone. Fewer if targets are not there.
    ///
    /// # Errors
    /// `EINPROGRESS` if no target has objects now, `EINVAL` for one that does not exist.
    pub(super) fn take(
        &mut self,
        count: usize,
        first: Option<u32>,
        listed: &[u32],
        tree: &Tree,
    ) -> Result<Vec<StripeObject>, Errno> {
        let all: Vec<u32> = self.targets.keys().copied().collect();
        let known = |index: &u32| self.targets.contains_key(index);
        if !listed.iter().chain(&first).all(known) {
            return Err(Errno::EINVAL);
        }
        let begin = first.unwrap_or_else(|| {
            all.get(self.next as usize % all.len().max(1)).copied().unwrap_or(0)
        });
        let at = all.iter().position(|index| *index == begin).unwrap_or(0);
        let (before, behind) = all.split_at(at);
        let turn: Vec<u32> = match listed {
            [] => [behind, before].concat(),
            listed => listed.to_vec(),
        };
        let chosen = turn.into_iter().filter(|index| self.ready(*index, tree)).take(count.max(1));
        let objects: Vec<StripeObject> = chosen
            .filter_map(|index| {
                let id = object(self.mdt, index, tree.used(index) + 1)?;
                Some(StripeObject { id, generation: 0, index })
            })
            .collect();
        let fewer = objects.len() < count.min(all.len()) && self.patient_until.is_some();
        if objects.is_empty() || fewer && !self.is_settled(tree) {
            return Err(Errno::EINPROGRESS);
        }
        if first.is_none() && listed.is_empty() {
            self.next = self.next.wrapping_add(objects.len() as u32);
        }
        Ok(objects)
    }

    /// Whether all targets that may be asked have objects, or have refused: there is nothing to wait for.
    pub(super) fn is_settled(&self, tree: &Tree) -> bool {
        self.targets.iter().all(|(index, target)| {
            self.ready(*index, tree) || target.rests_until.is_some() && !target.comes
        })
    }

    /// Number of object targets.
    pub(super) fn count(&self) -> usize {
        self.targets.len()
    }

    /// Asks each target for what is due.
    pub(super) fn work(&mut self, tree: &Tree, committed: u64, rpc: &mut Rpc<'_, '_>) {
        let now = rpc.now();
        self.patient_until = self.patient_until.filter(|until| now < *until);
        for (index, target) in &mut self.targets {
            target.rests_until = target.rests_until.filter(|until| now < *until);
            let Some(import) = target.import.filter(|_| target.call.is_none()) else { continue };
            if target.rests_until.is_some() || !self.recovered {
                continue;
            }
            let used = tree.used(*index);
            let (doing, call) = if !target.settled {
                let Some(id) = object(self.mdt, *index, used) else { continue };
                (Doing::Orphans, orphans(id))
            } else if target.made < used + target.ahead / 2 {
                target.pace(now);
                let Some(id) = object(self.mdt, *index, used + target.ahead) else { continue };
                (Doing::Create, wire::create(id))
            } else if let Some((number, debt)) = tree.owed(*index, committed).next() {
                let Some(id) = object(self.mdt, *index, number) else { continue };
                (Doing::Pay(number, debt), pays(id, debt))
            } else {
                continue;
            };
            match rpc.call(import, call) {
                Ok(call) => target.call = Some((call, doing)),
                Err(_) => target.rests_until = Some(now + PAUSE),
            }
        }
    }

    /// A call has ended; `None` if it is none of these.
    pub(super) fn ended(
        &mut self,
        call: CallId,
        result: &Result<Reply, CallError>,
        now: Instant,
        tree: &Tree,
    ) -> Option<Ended> {
        let is = |target: &ObjectTarget| target.call.is_some_and(|(ours, _)| ours == call);
        let (index, target) = self.targets.iter_mut().find(|(_, target)| is(target))?;
        let (_, doing) = target.call.take()?;
        target.comes = match result {
            // P-150.
            Err(CallError::Refused(errno)) => *errno == Errno::EAGAIN,
            Err(_) => true,
            Ok(_) => false,
        };
        let body = result.as_ref().ok().and_then(|reply| reply.msg().ok()?.get::<Obdo>(1).ok());
        let mut ended = Ended::default();
        match (doing, body) {
            (Doing::Orphans, Some(body)) => {
                target.settled = true;
                target.made = body.id.oid.into();
                // Numbers of objects that are gone are passed over.
                if target.made > tree.used(*index) {
                    ended.used = Some((*index, target.made));
                }
            }
            (Doing::Create, Some(body)) => target.made = target.made.max(body.id.oid.into()),
            (Doing::Pay(number, debt), Some(_)) => ended.paid = Some((*index, number, debt)),
            // It is gone already.
            (Doing::Pay(number, debt), None)
                if matches!(result, Err(CallError::Refused(Errno::ENOENT))) =>
            {
                ended.paid = Some((*index, number, debt));
            }
            (_, None) => {
                target.rests_until = Some(now + PAUSE);
                // What it has is known again when it has removed orphans.
                target.settled &= matches!(result, Err(CallError::Refused(_)));
            }
        }
        Some(ended)
    }

    /// A connection has changed its state. `false` if it is none of these.
    pub(super) fn import_changed(&mut self, import: ImportId, state: ImportState) -> bool {
        let mut targets = self.targets.values_mut();
        let Some(target) = targets.find(|target| target.import == Some(import)) else {
            return false;
        };
        if state == ImportState::Full {
            // It may have begun again, and lost what was made.
            target.settled = false;
            target.rests_until = None;
        }
        true
    }

    /// When [`Self::work`] is next due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let resting = self.targets.values().filter(|target| target.call.is_none());
        resting.filter_map(|target| target.rests_until).chain(self.patient_until).min()
    }
}

/// What an object is owed.
fn pays(id: ObjectId, debt: Debt) -> Call {
    match debt {
        Debt::Destroy => wire::destroy(id, 1),
        Debt::Own(uid, gid) => {
            let mut body = Obdo { uid, gid, ..wire::named(id) };
            body.valid |= Valid::UID | Valid::GID;
            wire::object(Opcode::OST_SETATTR, &body)
        }
    }
}

/// What is above an object goes; it is made if it is not there.
fn orphans(id: ObjectId) -> Call {
    let flags = ObdoFlags::DELORPHAN;
    let valid = Valid::ID | Valid::GROUP | Valid::FLAGS;
    let body = Obdo { id, valid, flags, ..Obdo::default() };
    wire::object(Opcode::OST_CREATE, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_objects_are_made_ahead_as_files_need_in_some_time() {
        let mut target = ObjectTarget {
            import: None,
            call: None,
            settled: true,
            made: 0,
            ahead: AHEAD,
            asked: None,
            rests_until: None,
            comes: false,
        };
        let mut now = Instant::ZERO;
        let mut after = |time| {
            now += time;
            target.pace(now);
            target.ahead
        };
        let (brief, long) = (Duration::from_millis(999), Duration::from_secs(1));
        assert_eq!([after(brief), after(brief), after(brief)], [128, 256, 512]);
        assert_eq!([after(long), after(long), after(long)], [256, 128, 128]);
        assert_eq!((0..9).map(|_| after(brief)).last(), Some(AHEAD_MOST));
    }
}
