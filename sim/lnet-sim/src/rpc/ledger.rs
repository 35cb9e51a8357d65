//! The books of all targets and calls, kept from what is seen from outside: which changes a target
//! has, which of them would survive, which calls are open; and a plain map of keys, to which changes are
//! applied in the order of their transactions. No resend, no deadline and no connection stands in them.
//! [`Ledger::see`] says what contradicts them.

use std::collections::BTreeMap;

use lnet_scenario::Scenario;
use ptlrpc::CallError;

use super::ascending::Ascending;
use super::calls::Calls;
use super::seen::{Answered, Asked, CallNo, KeyNo, RpcSeen};
use crate::directory::HostId;

/// A call, from its beginning on.
#[derive(Clone, Copy, Debug)]
struct Call {
    host: HostId,
    target: usize,
    asked: Asked,
    /// What a read must see at least: the last change of the same thing that was answered before the
    /// call began.
    least: u64,
    state: State,
    /// The transaction of its change, while its target has that.
    made: Option<u64>,
    /// The transaction of its change that a crash has taken.
    gone: Option<u64>,
}

impl Call {
    /// Its change was answered, and no target has it.
    fn is_lost(&self) -> bool {
        self.gone.is_some() && matches!(self.state, State::Changed(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// With the transaction of its change.
    Changed(u64),
    /// Nothing was changed.
    Read,
    /// Its effect is there or not.
    Failed,
    /// The client died, or was evicted: what it was answered need not be there.
    Void,
}

/// A change that a target has, or has had.
#[derive(Clone, Copy, Debug)]
struct Done {
    call: CallNo,
    /// The key, and whether it was there from then on.
    key: Option<(KeyNo, bool)>,
    /// The version that the key had.
    before: u64,
}

/// What a target has.
#[derive(Debug, Default)]
struct History {
    /// Where it is served.
    at: Option<HostId>,
    /// Its changes by transaction.
    done: Ascending<Done>,
    /// Those that a crash has taken, and that were not made again as the same transaction.
    taken: BTreeMap<u64, Done>,
    /// The map that these changes make: versions of the keys that are there.
    keys: BTreeMap<KeyNo, u64>,
    committed: u64,
    /// The last change of each key that a client was answered, or of the list.
    answered: BTreeMap<Option<KeyNo>, u64>,
}

impl History {
    fn change(&self, transno: u64) -> Option<&Done> {
        self.done.get(transno).or_else(|| self.taken.get(&transno))
    }

    /// Applies a change to the map.
    fn set(&mut self, transno: u64, key: Option<(KeyNo, bool)>) {
        match key {
            Some((key, true)) => _ = self.keys.insert(key, transno),
            Some((key, false)) => _ = self.keys.remove(&key),
            None => {}
        }
    }

    /// A crash leaves what is committed.
    fn crash(&mut self) -> Vec<(u64, CallNo)> {
        self.at = None;
        let lost = self.done.take_above(self.committed);
        self.keys.clear();
        for (transno, key) in self.done.iter().map(|(n, d)| (n, d.key)).collect::<Vec<_>>() {
            self.set(transno, key);
        }
        let gone = lost.iter().map(|(transno, done)| (*transno, done.call)).collect();
        self.taken.extend(lost);
        gone
    }

    /// Whether a read may find this version of what the call is about, by whose value came along.
    fn allows(&self, call: &Call, value: u64, by: Option<CallNo>) -> Result<(), String> {
        let key = call.asked.key();
        // A crash may have taken what a client that is gone was answered.
        let stale = value < call.least && self.done.contains(call.least);
        match key {
            None if stale => return Err(format!("reads {value}")),
            None => return Ok(()),
            Some(_) => {}
        }
        let of = |done: &Done, is| done.key.is_some_and(|(k, there)| Some(k) == key && there == is);
        if value == 0 {
            let deleted = |n: u64| {
                let taken = self.taken.range(n..).map(|(_, done)| done);
                self.done.from(n).chain(taken).any(|done| of(done, false))
            };
            return match !stale || deleted(call.least) {
                true => Ok(()),
                false => Err("finds no such key".to_owned()),
            };
        }
        match self.change(value) {
            Some(done) if of(done, true) => {
                if by.is_some_and(|by| by != done.call) {
                    return Err(format!("gets another value than that of version {value}"));
                }
            }
            _ => return Err(format!("gets version {value}, which the key never had")),
        }
        if stale { Err(format!("gets version {value}")) } else { Ok(()) }
    }
}

/// The name of a target.
fn name_of(names: &[String], target: usize) -> &str {
    names.get(target).map_or("?", String::as_str)
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    calls: Calls<Call>,
    targets: Vec<History>,
    names: Vec<String>,
    open: usize,
    /// Calls that were answered, and that failed.
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    /// Changes that targets carried out.
    pub(crate) executed: u64,
    /// Changes that a target has twice.
    pub(crate) executed_twice: u64,
    /// Evictions that living clients found out about.
    pub(crate) invalidated: u64,
    /// Clients that targets have evicted.
    pub(crate) evicted: u64,
}

impl Ledger {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            targets: scenario.rpc.targets.iter().map(|_| History::default()).collect(),
            names: scenario.rpc.targets.iter().map(|t| t.name.clone()).collect(),
            ..Self::default()
        }
    }

    /// Enters what was seen at a node.
    ///
    /// # Errors
    /// What contradicts the books.
    pub(crate) fn see(&mut self, host: HostId, seen: &RpcSeen) -> Result<(), String> {
        match *seen {
            RpcSeen::Served { target } => self.served(host, target),
            RpcSeen::Called { target, call, asked } => self.called(host, target, call, asked),
            RpcSeen::Executed { target, call, transno, key } => {
                self.executed(target, call, transno, key)
            }
            RpcSeen::Committed { target, transno } => {
                if let Some(history) = self.targets.get_mut(target) {
                    history.committed = history.committed.max(transno);
                }
                Ok(())
            }
            RpcSeen::Ended { target, call, result, .. } => self.ended(host, target, call, result),
            RpcSeen::Damaged { call } => Err(format!("bulk data of call {call} are damaged")),
            RpcSeen::Unmarked { copies } => {
                Err(format!("{copies} copies of requests came without the mark of a copy"))
            }
            RpcSeen::Invalidated { target } => {
                self.invalidated += 1;
                for call in self.calls.of_node(host).filter(|call| call.target == target) {
                    // Open ones have their end still.
                    if matches!(call.state, State::Changed(_)) {
                        call.state = State::Void;
                    }
                }
                Ok(())
            }
            RpcSeen::Evicted { .. } => {
                self.evicted += 1;
                Ok(())
            }
            RpcSeen::Unmoved { .. }
            | RpcSeen::State { .. }
            | RpcSeen::Lock { .. }
            | RpcSeen::File { .. }
            | RpcSeen::Recovery { .. } => Ok(()),
        }
    }

    /// A host has died: its clients' calls are void, and its targets lose what is not committed.
    pub(crate) fn died(&mut self, host: HostId) {
        for history in self.targets.iter_mut().filter(|h| h.at == Some(host)) {
            for (transno, call) in history.crash() {
                if let Some(call) = self.calls.get_mut(call) {
                    (call.made, call.gone) = (None, Some(transno));
                }
            }
        }
        for call in self.calls.of_node(host) {
            self.open -= usize::from(call.state == State::Open);
            call.state = State::Void;
        }
    }

    /// Calls without an end.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// One of them.
    pub(crate) fn first_open(&self) -> Option<(CallNo, HostId)> {
        let mut open = self.calls.iter().filter(|(_, c)| c.state == State::Open);
        open.next().map(|(no, call)| (no, call.host))
    }

    /// Changes that were answered to a client that is there still, and that no target has.
    pub(crate) fn lost(&self) -> u64 {
        self.calls.iter().filter(|(_, call)| call.is_lost()).count() as u64
    }

    /// One of them, and its target.
    pub(crate) fn first_lost(&self) -> Option<(CallNo, &str)> {
        let (no, call) = self.calls.iter().find(|(_, call)| call.is_lost())?;
        Some((no, self.names.get(call.target)?))
    }

    fn name(&self, target: usize) -> &str {
        name_of(&self.names, target)
    }

    fn served(&mut self, host: HostId, target: usize) -> Result<(), String> {
        let Some(history) = self.targets.get_mut(target) else { return Ok(()) };
        match history.at.replace(host) {
            None => Ok(()),
            Some(_) => Err(format!("{} is served at two nodes", self.name(target))),
        }
    }

    fn called(
        &mut self,
        host: HostId,
        target: usize,
        no: CallNo,
        asked: Asked,
    ) -> Result<(), String> {
        let answered = self.targets.get(target).and_then(|h| h.answered.get(&asked.key()));
        let least = answered.copied().unwrap_or(0);
        let (state, made, gone) = (State::Open, None, None);
        let call = Call { host, target, asked, least, state, made, gone };
        self.open += 1;
        match self.calls.insert(no, call) {
            None => Ok(()),
            Some(_) => Err(format!("call {no} was begun twice")),
        }
    }

    fn executed(
        &mut self,
        target: usize,
        no: CallNo,
        transno: u64,
        key: Option<(KeyNo, bool)>,
    ) -> Result<(), String> {
        self.executed += 1;
        if no != CallNo::UNKNOWN {
            self.account(target, no, transno, key)?;
        }
        let Some(history) = self.targets.get_mut(target) else { return Ok(()) };
        let before = key.and_then(|(key, _)| history.keys.get(&key)).copied().unwrap_or(0);
        history.set(transno, key);
        history.taken.remove(&transno);
        match history.done.insert(transno, Done { call: no, key, before }) {
            None => Ok(()),
            Some(other) => {
                let name = self.name(target);
                Err(format!("{name} gives transaction {transno} to calls {} and {no}", other.call))
            }
        }
    }

    /// Enters a change in the books of its call.
    fn account(
        &mut self,
        target: usize,
        no: CallNo,
        transno: u64,
        key: Option<(KeyNo, bool)>,
    ) -> Result<(), String> {
        let name = name_of(&self.names, target);
        let Some(call) = self.calls.get_mut(no) else {
            return Err(format!("{name} carries out call {no}, which no client has begun"));
        };
        let about = key.map(|(key, _)| key);
        if call.target != target || call.asked.reads() || call.asked.key() != about {
            return Err(format!("{name} carries out call {no}, which asks for no change of it"));
        }
        if let Some(before) = call.made.replace(transno) {
            self.executed_twice += 1;
            return Err(format!(
                "{name} carries out call {no} twice, as transactions {before} and {transno}"
            ));
        }
        // It was lost in a crash, and is repeated.
        if call.gone.take().is_some()
            && let State::Changed(value) = call.state
            && value != transno
        {
            return Err(format!(
                "{name} repeats call {no} as transaction {transno}, it was answered {value}"
            ));
        }
        Ok(())
    }

    /// A call has ended: with an answer, or in a failure.
    fn ended(
        &mut self,
        host: HostId,
        target: usize,
        no: CallNo,
        result: Result<Answered, CallError>,
    ) -> Result<(), String> {
        let name = name_of(&self.names, target);
        let Some(call) = self.calls.get_mut(no).filter(|c| c.host == host) else {
            return Err(format!("call {no} to {name} ended, and was never begun"));
        };
        if call.state != State::Open {
            return Err(format!("call {no} to {name} ended twice"));
        }
        self.open -= 1;
        call.state = match result {
            Ok(Answered::Changed { transno, .. }) => State::Changed(transno),
            Ok(Answered::Read { .. }) => State::Read,
            Err(_) => State::Failed,
        };
        let call = *call;
        if call.asked.reads() {
            // Nothing comes of it any more.
            self.calls.remove(no);
        }
        *(if result.is_ok() { &mut self.answered } else { &mut self.failed }) += 1;
        let nothing_changed = !matches!(result, Ok(Answered::Changed { .. }));
        let said = matches!(result, Ok(_) | Err(CallError::Refused(_)));
        if said && nothing_changed && call.made.is_some() {
            return Err(format!("call {no} is answered by {name}, and was carried out"));
        }
        let made = call.made.or(call.gone);
        let Some(history) = self.targets.get_mut(target) else { return Ok(()) };
        match result {
            Err(_) => Ok(()),
            Ok(Answered::Read { value, by }) => history.allows(&call, value, by).map_err(|what| {
                let least = call.least;
                format!("call {no} {what} at {name}, where {least} was answered before it began")
            }),
            Ok(Answered::Changed { transno, before }) => {
                let last = history.answered.entry(call.asked.key()).or_default();
                *last = transno.max(*last);
                let done = history.change(transno).copied();
                // The answer may have been on its way when the target died.
                let own = done.filter(|d| d.call == CallNo::UNKNOWN).map(|_| transno);
                match made.or(own) {
                    Some(made) if made == transno => {}
                    Some(made) => {
                        return Err(format!(
                            "call {no} is answered {transno} by {name}, and is its transaction {made}"
                        ));
                    }
                    None => {
                        return Err(format!(
                            "call {no} is answered {transno} by {name}, and was not carried out"
                        ));
                    }
                }
                match (before, done) {
                    (Some(before), Some(done)) if before != done.before => Err(format!(
                        "call {no} to {name} met version {before}, and {} was there",
                        done.before
                    )),
                    _ => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use lnet_scenario::parse;

    const TEXT: &str = r#"
name = "books"
[[net]]
name = "tcp"
[[node]]
name = "c"
rails = ["tcp"]
[[node]]
name = "s"
rails = ["tcp"]
[[target]]
name = "kept"
kind = "list"
on = "s"
[[target]]
name = "late"
kind = "list"
on = "s"
commit = "1s"
"#;

    const CLIENT: HostId = HostId(0);
    const SERVER: HostId = HostId(1);

    /// The books of two targets that are served.
    fn books() -> Ledger {
        let mut books = Ledger::new(&parse("books", TEXT).unwrap());
        for target in [0, 1] {
            books.see(SERVER, &RpcSeen::Served { target }).unwrap();
        }
        books
    }

    fn called(target: usize, call: u64, reads: bool) -> RpcSeen {
        let asked = if reads { Asked::Length } else { Asked::Append };
        RpcSeen::Called { target, call: CallNo(call), asked }
    }

    fn executed(target: usize, call: u64, transno: u64) -> RpcSeen {
        RpcSeen::Executed { target, call: CallNo(call), transno, key: None }
    }

    fn end(target: usize, call: u64, result: Result<Answered, CallError>) -> RpcSeen {
        RpcSeen::Ended { target, call: CallNo(call), took: Duration::ZERO, result }
    }

    fn ended(target: usize, call: u64, value: Option<u64>) -> RpcSeen {
        let changed = |transno| Answered::Changed { transno, before: None };
        end(target, call, value.map(changed).ok_or(CallError::Evicted))
    }

    fn read(target: usize, call: u64, value: u64) -> RpcSeen {
        end(target, call, Ok(Answered::Read { value, by: None }))
    }

    /// What the books say to the last of these, the others being right.
    fn objection(seen: &[(HostId, RpcSeen)]) -> Option<String> {
        let mut books = books();
        let (last, before) = seen.split_last().unwrap();
        for (host, seen) in before {
            books.see(*host, seen).unwrap();
        }
        books.see(last.0, &last.1).err()
    }

    #[test]
    fn each_contradiction_is_named_and_what_is_right_is_not() {
        let begun = (CLIENT, called(0, 7, false));
        let done = (SERVER, executed(0, 7, 1));
        let good = (CLIENT, ended(0, 7, Some(1)));
        assert_eq!(objection(&[begun.clone(), done.clone(), good.clone()]), None);
        assert_eq!(objection(&[begun.clone(), (CLIENT, ended(0, 7, None)), done.clone()]), None);
        for (seen, says) in [
            (vec![done.clone()], "no client has begun"),
            (vec![begun.clone(), begun.clone()], "begun twice"),
            (vec![begun.clone(), good.clone()], "was not carried out"),
            (vec![begun.clone(), done.clone(), (SERVER, executed(0, 7, 2))], "twice"),
            (vec![begun.clone(), (SERVER, executed(1, 7, 1))], "no change of it"),
            (vec![begun.clone(), done.clone(), good.clone(), good.clone()], "ended twice"),
            (vec![begun.clone(), done.clone(), (CLIENT, ended(0, 7, Some(2)))], "transaction 1"),
            (
                vec![
                    begun.clone(),
                    done.clone(),
                    (CLIENT, called(0, 8, false)),
                    (SERVER, executed(0, 8, 1)),
                ],
                "gives transaction 1 to calls 7 and 8",
            ),
            (
                vec![begun, done, good, (CLIENT, called(0, 9, true)), (CLIENT, read(0, 9, 0))],
                "where 1 was answered",
            ),
            (vec![(CLIENT, RpcSeen::Served { target: 0 })], "at two nodes"),
            (vec![(SERVER, RpcSeen::Damaged { call: CallNo(3) })], "damaged"),
        ] {
            let objection = objection(&seen).unwrap_or_else(|| panic!("nothing about {says}"));
            assert!(objection.contains(says), "{objection}: not {says}");
        }
    }

    const KEY: KeyNo = KeyNo(5);

    /// A put of the key by call and transaction, done and answered.
    fn put(call: u64, transno: u64, before: u64) -> [(HostId, RpcSeen); 3] {
        let (no, key) = (CallNo(call), Some((KEY, true)));
        let answered = Answered::Changed { transno, before: Some(before) };
        [
            (CLIENT, RpcSeen::Called { target: 1, call: no, asked: Asked::Put(KEY) }),
            (SERVER, RpcSeen::Executed { target: 1, call: no, transno, key }),
            (CLIENT, end(1, call, Ok(answered))),
        ]
    }

    fn asks(call: u64, asked: Asked) -> (HostId, RpcSeen) {
        (CLIENT, RpcSeen::Called { target: 1, call: CallNo(call), asked })
    }

    #[test]
    fn keys_are_held_against_a_map_of_changes_in_order() {
        let finds = |value, by: u64| {
            let read = Answered::Read { value, by: Some(CallNo(by)) };
            (CLIENT, end(1, 9, Ok(read)))
        };
        let nothing = (CLIENT, read(1, 9, 0));
        let deletes =
            RpcSeen::Executed { target: 1, call: CallNo(8), transno: 3, key: Some((KEY, false)) };
        let story = |last: &[(HostId, RpcSeen)]| {
            let mut all = [put(6, 1, 0), put(7, 2, 1)].concat();
            all.extend_from_slice(last);
            objection(&all)
        };
        let get = asks(9, Asked::Get(KEY));
        assert_eq!(story(&[get.clone(), finds(2, 7)]), None);
        let deleted = [asks(8, Asked::Del(KEY)), (SERVER, deletes)];
        let gone = [&deleted[..], &[get.clone(), nothing.clone()]].concat();
        assert_eq!(story(&gone), None);
        // What is not answered yet may be seen, or not.
        let before = [&deleted[..], &[get.clone(), finds(2, 7)]].concat();
        assert_eq!(story(&before), None);
        let refused = (CLIENT, end(1, 8, Err(CallError::Refused(lnet_types::Errno::ENOSPC))));
        for (last, says) in [
            (vec![get.clone(), finds(1, 6)], "gets version 1 at late, where 2 was answered"),
            (vec![get.clone(), finds(2, 6)], "another value than that of version 2"),
            (vec![get.clone(), finds(3, 7)], "gets version 3, which the key never had"),
            (vec![get, nothing], "finds no such key"),
            (put(8, 3, 1).to_vec(), "met version 1, and 2 was there"),
            ([&deleted[..], &[refused]].concat(), "is answered by late, and was carried out"),
            (
                vec![
                    asks(9, Asked::Put(KeyNo(4))),
                    (
                        SERVER,
                        RpcSeen::Executed {
                            target: 1,
                            call: CallNo(9),
                            transno: 4,
                            key: Some((KEY, true)),
                        },
                    ),
                ],
                "asks for no change of it",
            ),
        ] {
            let objection = story(&last).unwrap_or_else(|| panic!("nothing about {says}"));
            assert!(objection.contains(says), "{objection}: not {says}");
        }
    }

    #[test]
    fn map_of_keys_is_that_of_committed_changes_after_a_crash() {
        let mut books = books();
        for (host, seen) in [put(6, 1, 0), put(7, 2, 1)].concat() {
            books.see(host, &seen).unwrap();
        }
        books.see(SERVER, &RpcSeen::Committed { target: 1, transno: 1 }).unwrap();
        books.died(SERVER);
        // The next change is made before what was lost is repeated: it meets the older version.
        let [called, done, _] = put(8, 3, 0);
        books.see(called.0, &called.1).unwrap();
        books.see(done.0, &done.1).unwrap();
        let met = |before| Answered::Changed { transno: 3, before: Some(before) };
        assert_eq!(books.see(CLIENT, &end(1, 8, Ok(met(1)))), Ok(()));
        assert_eq!(books.first_lost(), Some((CallNo(7), "late")));
    }

    #[test]
    fn an_answered_change_that_a_crash_takes_is_lost_until_it_is_carried_out_again() {
        for (again, objection) in [(1, None), (2, Some("it was answered 1"))] {
            let mut books = books();
            books.see(CLIENT, &called(1, 7, false)).unwrap();
            books.see(SERVER, &executed(1, 7, 1)).unwrap();
            books.see(CLIENT, &ended(1, 7, Some(1))).unwrap();
            assert_eq!(books.lost(), 0);
            books.died(SERVER);
            assert_eq!((books.lost(), books.first_lost()), (1, Some((CallNo(7), "late"))));
            books.see(SERVER, &RpcSeen::Served { target: 1 }).unwrap();
            let said = books.see(SERVER, &executed(1, 7, again)).err();
            match objection {
                None => assert_eq!((said, books.lost()), (None, 0)),
                Some(objection) => assert!(said.unwrap().contains(objection)),
            }
        }
    }

    #[test]
    fn what_was_committed_is_there_after_a_crash_and_what_was_not_is_carried_out_anew() {
        let mut books = books();
        for (call, transno) in [(7, 1), (8, 2)] {
            books.see(CLIENT, &called(1, call, false)).unwrap();
            books.see(SERVER, &executed(1, call, transno)).unwrap();
        }
        books.see(SERVER, &RpcSeen::Committed { target: 1, transno: 1 }).unwrap();
        books.died(SERVER);
        assert!(books.see(SERVER, &executed(1, 7, 3)).unwrap_err().contains("twice"));
        books.see(SERVER, &executed(1, 8, 2)).unwrap();
        assert_eq!((books.executed_twice, books.open()), (1, 2));
        books.died(CLIENT);
        assert_eq!(books.open(), 0);
    }
}
