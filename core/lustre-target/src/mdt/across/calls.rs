//! What other metadata targets are asked for changes over two targets, and what their answers lead to.

use std::collections::BTreeMap;

use lnet_types::{Errno, Instant};
use ptlrpc::{Answer, CallError, CallId, ImportId, ImportState, Reply, Rpc, Served, ServedId};

use super::wire::{self, OPEN_MAX, is_asked_again};
use super::{AGAIN, Across, Change, Message, Order, PAUSE, Partner, Stage};
use crate::sabotage::Sabotage;

/// What a call that has ended leads to.
#[derive(Debug)]
pub(in crate::mdt) enum Ended {
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

impl Across {
    /// Asks each target for what is due.
    pub(in crate::mdt) fn work(&mut self, rpc: &mut Rpc<'_, '_>) {
        let now = rpc.now();
        let unnamed = self.breaks(Sabotage::MadeNotNamed);
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
                        && !unnamed
                        && matches!(change.stage, Stage::Storing | Stage::Apply)
                });
                let open = made.map(|(number, _)| *number).take(OPEN_MAX).collect();
                let (from, number, order) = (self.index, partner.floor, Order::Settle(open));
                match rpc.call(import, Message { from, number, lowest: 0, order }.call()) {
                    Ok(call) => partner.settling = Some(call),
                    Err(_) => partner.rests_until = Some(now + PAUSE),
                }
            }
        }
        // Changes are in the order of their numbers.
        let mut lowest: BTreeMap<u32, u64> = BTreeMap::new();
        for (number, change) in &mut self.changes {
            let lowest = *lowest.entry(change.partner).or_insert(*number);
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
            let message = Message { from: self.index, number: *number, lowest, order };
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
    pub(in crate::mdt) fn ended(
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
            Err(errno) if is_asked_again(errno) => {
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
    pub(in crate::mdt) fn import_changed(&mut self, import: ImportId, state: ImportState) -> bool {
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
}
