//! The books of all targets and calls, kept from what is seen from outside: which changes a target
//! has, which of them would survive, which calls are open. No resend, no deadline and no connection
//! stands in them. [`Ledger::see`] says what contradicts them.

use std::collections::BTreeMap;

use lnet_scenario::Scenario;

use super::seen::{CallNo, RpcSeen};
use crate::directory::HostId;

/// A call, from its beginning on.
#[derive(Clone, Copy, Debug)]
struct Call {
    host: HostId,
    target: usize,
    reads: bool,
    /// What a read must see at least: the last change that was answered before it began.
    least: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// With the transaction of its change, or the last one that it has read of.
    Answered(u64),
    /// Its effect is there or not.
    Failed,
    /// The client died, or was evicted: what it was answered need not be there.
    Void,
}

/// What a target has.
#[derive(Debug, Default)]
struct History {
    /// Where it is served.
    at: Option<HostId>,
    /// Its changes by transaction.
    done: BTreeMap<u64, CallNo>,
    committed: u64,
    /// The last change that a client was answered.
    answered: u64,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    calls: BTreeMap<CallNo, Call>,
    /// Transactions of changes that targets have.
    of: BTreeMap<CallNo, u64>,
    /// Transactions of changes that a crash has taken.
    gone: BTreeMap<CallNo, u64>,
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
            RpcSeen::Called { target, call, reads } => self.called(host, target, call, reads),
            RpcSeen::Executed { target, call, transno } => self.executed(target, call, transno),
            RpcSeen::Committed { target, transno } => {
                if let Some(history) = self.targets.get_mut(target) {
                    history.committed = history.committed.max(transno);
                }
                Ok(())
            }
            RpcSeen::Ended { target, call, ref result, .. } => {
                self.ended(host, target, call, result.as_ref().ok().copied())
            }
            RpcSeen::Damaged { call } => Err(format!("bulk data of call {call} are damaged")),
            RpcSeen::Invalidated { target } => {
                self.invalidated += 1;
                self.void(|call| call.host == host && call.target == target);
                Ok(())
            }
            RpcSeen::Evicted { .. } => {
                self.evicted += 1;
                Ok(())
            }
            RpcSeen::State { .. } | RpcSeen::Recovery { .. } => Ok(()),
        }
    }

    /// A host has died: its clients' calls are void, and its targets lose what is not committed.
    pub(crate) fn died(&mut self, host: HostId) {
        for history in self.targets.iter_mut().filter(|h| h.at == Some(host)) {
            history.at = None;
            for (transno, call) in history.done.split_off(&(history.committed + 1)) {
                self.of.remove(&call);
                self.gone.insert(call, transno);
            }
        }
        let open = |c: &Call| c.host == host && c.state == State::Open;
        self.open -= self.calls.values().filter(|c| open(c)).count();
        for call in self.calls.values_mut().filter(|c| c.host == host) {
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
        open.next().map(|(no, call)| (*no, call.host))
    }

    /// Changes that were answered to a client that is there still, and that no target has.
    pub(crate) fn lost(&self) -> u64 {
        self.gone.keys().filter(|no| self.is_owed(**no)).count() as u64
    }

    /// One of them, and its target.
    pub(crate) fn first_lost(&self) -> Option<(CallNo, &str)> {
        let no = self.gone.keys().find(|no| self.is_owed(**no))?;
        Some((*no, self.names.get(self.calls.get(no)?.target)?))
    }

    fn is_owed(&self, no: CallNo) -> bool {
        self.calls.get(&no).is_some_and(|call| matches!(call.state, State::Answered(_)))
    }

    /// What calls were answered need not be there any more.
    fn void(&mut self, of: impl Fn(&Call) -> bool) {
        for call in self.calls.values_mut().filter(|c| of(c)) {
            // Open ones have their end still.
            if matches!(call.state, State::Answered(_)) && !call.reads {
                call.state = State::Void;
            }
        }
    }

    fn name(&self, target: usize) -> &str {
        self.names.get(target).map_or("?", String::as_str)
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
        reads: bool,
    ) -> Result<(), String> {
        let least = self.targets.get(target).map_or(0, |h| h.answered);
        let call = Call { host, target, reads, least, state: State::Open };
        self.open += 1;
        match self.calls.insert(no, call) {
            None => Ok(()),
            Some(_) => Err(format!("call {no} was begun twice")),
        }
    }

    fn executed(&mut self, target: usize, no: CallNo, transno: u64) -> Result<(), String> {
        self.executed += 1;
        let name = self.name(target).to_owned();
        let Some(call) = self.calls.get(&no) else {
            return Err(format!("{name} carries out call {no}, which no client has begun"));
        };
        if call.target != target || call.reads {
            return Err(format!("{name} carries out call {no}, which asks for no change of it"));
        }
        let answered = call.state;
        if let Some(before) = self.of.insert(no, transno) {
            self.executed_twice += 1;
            return Err(format!(
                "{name} carries out call {no} twice, as transactions {before} and {transno}"
            ));
        }
        // It was lost in a crash, and is repeated.
        if self.gone.remove(&no).is_some()
            && let State::Answered(value) = answered
            && value != transno
        {
            return Err(format!(
                "{name} repeats call {no} as transaction {transno}, it was answered {value}"
            ));
        }
        let Some(history) = self.targets.get_mut(target) else { return Ok(()) };
        match history.done.insert(transno, no) {
            None => Ok(()),
            Some(other) => {
                Err(format!("{name} gives transaction {transno} to calls {other} and {no}"))
            }
        }
    }

    /// A call has ended: with a value, or in a failure.
    fn ended(
        &mut self,
        host: HostId,
        target: usize,
        no: CallNo,
        value: Option<u64>,
    ) -> Result<(), String> {
        let name = self.name(target).to_owned();
        let Some(call) = self.calls.get_mut(&no).filter(|c| c.host == host) else {
            return Err(format!("call {no} to {name} ended, and was never begun"));
        };
        if call.state != State::Open {
            return Err(format!("call {no} to {name} ended twice"));
        }
        self.open -= 1;
        call.state = value.map_or(State::Failed, State::Answered);
        let (reads, least) = (call.reads, call.least);
        let Some(value) = value else {
            self.failed += 1;
            return Ok(());
        };
        self.answered += 1;
        let Some(history) = self.targets.get_mut(target) else { return Ok(()) };
        if reads {
            // A crash may have taken what a client that is gone was answered.
            return match value >= least || !history.done.contains_key(&least) {
                true => Ok(()),
                false => Err(format!(
                    "call {no} reads {value} at {name}, where {least} was answered before it began"
                )),
            };
        }
        history.answered = history.answered.max(value);
        // The answer may have been on its way when the target died.
        match self.of.get(&no).or_else(|| self.gone.get(&no)) {
            Some(transno) if *transno == value => Ok(()),
            Some(transno) => Err(format!(
                "call {no} is answered {value} by {name}, and is its transaction {transno}"
            )),
            None => {
                Err(format!("call {no} is answered {value} by {name}, and was not carried out"))
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
        RpcSeen::Called { target, call: CallNo(call), reads }
    }

    fn executed(target: usize, call: u64, transno: u64) -> RpcSeen {
        RpcSeen::Executed { target, call: CallNo(call), transno }
    }

    fn ended(target: usize, call: u64, value: Option<u64>) -> RpcSeen {
        let result = value.ok_or(ptlrpc::CallError::Evicted);
        RpcSeen::Ended { target, call: CallNo(call), took: Duration::ZERO, result }
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
                vec![
                    begun,
                    done,
                    good,
                    (CLIENT, called(0, 9, true)),
                    (CLIENT, ended(0, 9, Some(0))),
                ],
                "where 1 was answered",
            ),
            (vec![(CLIENT, RpcSeen::Served { target: 0 })], "at two nodes"),
            (vec![(SERVER, RpcSeen::Damaged { call: CallNo(3) })], "damaged"),
        ] {
            let objection = objection(&seen).unwrap_or_else(|| panic!("nothing about {says}"));
            assert!(objection.contains(says), "{objection}: not {says}");
        }
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
