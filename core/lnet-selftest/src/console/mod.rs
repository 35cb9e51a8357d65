//! The console (lnetctl.md 9, wire.md 6.14): a session with groups of nodes and batches of tests,
//! and the commands that work on them.
//!
//! A command that needs other nodes becomes a transaction: calls to all of them at once, and an
//! answer when each has ended. `command.rs` is the vocabulary, `state.rs` what a session holds,
//! `transaction.rs` what is asked of nodes and what their answers mean; this file has the commands.

pub(crate) mod command;
mod state;
mod transaction;

use std::collections::{BTreeMap, VecDeque};

use core::time::Duration;

use lnet_types::{Errno, Instant, Nid, ProcessId};
use lnet_wire::selftest::{CONCURRENCY_MAX, FEATURES, JoinReply, JoinRequest, Name, SessionId};

use crate::calls::{Calls, Ended};
use crate::io::Io;
use crate::limits::{
    COMMANDS_MAX, CONSOLE_BATCHES_MAX, GROUPS_MAX, NODES_MAX, PING_INTERVAL, TIMEOUT_MAX,
    TRANSACTION_TIMEOUT,
};
use crate::node::{CommandId, Here};
use crate::units::{Job, UnitId};
use command::{Answer, Command, Kind, NodeState, Target, TestSpec};
use state::{Batch, Group, Session, Test};
use transaction::{After, Purpose, Transaction, What};

/// Who made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A test unit of this node.
    Unit(UnitId),
    /// The console.
    Console(Purpose),
}

/// A session or none, and the commands in hand.
#[derive(Debug)]
pub(crate) struct Console {
    session: Option<Session>,
    transactions: BTreeMap<u64, Transaction>,
    answers: VecDeque<(CommandId, Result<Answer, Errno>)>,
    next_transaction: u64,
    /// Batches are numbered over all sessions.
    next_batch: u64,
}

/// What a command leads to: an answer, or one later.
type Begun = Result<Option<Answer>, Errno>;

/// What commands work with.
pub(crate) struct Tools<'a> {
    pub(crate) calls: &'a mut Calls<Owner>,
    pub(crate) io: &'a mut Io,
    pub(crate) now: Instant,
}

impl Console {
    pub(crate) const fn new() -> Self {
        Self {
            session: None,
            transactions: BTreeMap::new(),
            answers: VecDeque::new(),
            next_transaction: 1,
            next_batch: 1,
        }
    }

    pub(crate) fn answer(&mut self) -> Option<(CommandId, Result<Answer, Errno>)> {
        self.answers.pop_front()
    }

    /// Answers the command of another caller.
    pub(crate) fn report(&mut self, id: CommandId, answer: Answer) {
        self.answers.push_back((id, Ok(answer)));
    }

    /// Answers a command that was carried out elsewhere.
    pub(crate) fn conclude(&mut self, id: CommandId, answer: Result<Answer, Errno>) {
        self.answers.push_back((id, answer));
    }

    /// Whether `key` commands the session.
    ///
    /// # Errors
    /// ESRCH: there is none. EACCES: it has another key.
    pub(crate) fn is_commanded_by(&self, key: u32) -> Result<(), Errno> {
        let session = self.session.as_ref().ok_or(Errno::ESRCH)?;
        if session.key == key { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// No caller waits for an answer any more.
    pub(crate) fn forget(&mut self, id: CommandId) {
        self.answers.retain(|(waits, _)| *waits != id);
        for transaction in self.transactions.values_mut() {
            transaction.forget(id);
        }
    }

    /// Ends the session, for the node goes away.
    pub(crate) fn stop(&mut self, tools: &mut Tools<'_>) {
        self.end_session(tools, None);
    }

    /// Whether nothing is under way: a session, or the end of one.
    pub(crate) fn is_idle(&self) -> bool {
        self.session.is_none() && self.transactions.is_empty()
    }

    /// Takes a command. Its answer is in [`Self::answer`], now or later.
    pub(crate) fn command(
        &mut self,
        tools: &mut Tools<'_>,
        here: Here,
        id: CommandId,
        key: u32,
        command: Command,
    ) {
        let begun = if self.transactions.len() >= COMMANDS_MAX {
            Err(Errno::EBUSY)
        } else {
            self.begin(tools, here, id, key, command)
        };
        match begun {
            Ok(None) => {}
            Ok(Some(answer)) => self.answers.push_back((id, Ok(answer))),
            Err(errno) => self.answers.push_back((id, Err(errno))),
        }
    }

    fn begin(
        &mut self,
        tools: &mut Tools<'_>,
        here: Here,
        id: CommandId,
        key: u32,
        command: Command,
    ) -> Begun {
        match command {
            Command::NewSession { name, timeout_s, force, features } => {
                return self.new_session(tools, here, key, &name, timeout_s, force, features);
            }
            Command::ShowSession => {
                let session = self.session.as_ref().ok_or(Errno::ESRCH)?;
                return Ok(Some(Answer::Session(session.shown())));
            }
            _ => {}
        }
        let session = self.session.as_mut().ok_or(Errno::ESRCH)?;
        if session.key != key {
            return Err(Errno::EACCES);
        }
        session.active = tools.now;
        match command {
            Command::EndSession => Ok(self.end_session(tools, Some(id))),
            Command::AddGroup { name } => {
                if session.group(&name).is_ok() {
                    return Err(Errno::EEXIST);
                }
                if session.groups.len() >= GROUPS_MAX {
                    return Err(Errno::ENOSPC);
                }
                Name::new(&name).filter(|_| !name.is_empty()).ok_or(Errno::EINVAL)?;
                session.groups.push(Group { name, members: Vec::new() });
                Ok(Some(Answer::Done))
            }
            Command::AddNodes { group, nids } => {
                session.free_group(&group)?;
                // What has no short form cannot be named in a list of destinations (6.8).
                let bad = |nid: &Nid| nid.is_any() || nid.is_loopback() || nid.is_large();
                if nids.iter().any(bad) {
                    return Err(Errno::EINVAL);
                }
                let ids: Vec<ProcessId> = nids.into_iter().map(ProcessId::lustre).collect();
                let fresh = ids.iter().filter(|id| !session.nodes.contains_key(id)).count();
                if session.nodes.len() + fresh > NODES_MAX {
                    return Err(Errno::ENOSPC);
                }
                session.join(&group, &ids);
                self.invite(tools, id, ids)
            }
            Command::DelGroup { name } => {
                let group = session.free_group(&name)?;
                let members = group.members.clone();
                session.groups.retain(|g| g.name != name);
                self.dismiss(tools, id, &members)
            }
            Command::RefreshGroup { name } => {
                let members = session.free_group(&name)?.members.clone();
                self.invite(tools, id, members)
            }
            Command::CleanGroup { name, states } => {
                let members = session.free_group(&name)?.members.clone();
                let gone: Vec<_> =
                    members.into_iter().filter(|m| states.contains(&session.state(*m))).collect();
                session.leave(&name, &gone);
                self.dismiss(tools, id, &gone)
            }
            Command::RemoveNodes { group, nids } => {
                let members = &session.free_group(&group)?.members;
                let gone: Vec<ProcessId> = nids.into_iter().map(ProcessId::lustre).collect();
                if gone.iter().any(|g| !members.contains(g)) {
                    return Err(Errno::ENOENT);
                }
                session.leave(&group, &gone);
                self.dismiss(tools, id, &gone)
            }
            Command::ListGroups => {
                let names = session.groups.iter().map(|g| g.name.clone()).collect();
                Ok(Some(Answer::Names(names)))
            }
            Command::ShowGroup { name } => {
                let members = &session.group(&name)?.members;
                Ok(Some(Answer::Group(session.nodes_shown(members))))
            }
            Command::Ping { target, timeout_s } => {
                let targets = session.targets(&target)?;
                self.ask(tools, Some(id), seconds(timeout_s), After::Nothing, targets, What::Debug)
            }
            Command::AddBatch { name } => {
                if session.batch(&name).is_ok() {
                    return Err(Errno::EEXIST);
                }
                if session.batches.len() >= CONSOLE_BATCHES_MAX {
                    return Err(Errno::ENOSPC);
                }
                Name::new(&name).filter(|_| !name.is_empty()).ok_or(Errno::EINVAL)?;
                session.batches.push(Batch::new(name, self.next_batch));
                self.next_batch += 1;
                Ok(Some(Answer::Done))
            }
            Command::AddTest(spec) => self.add_test(tools, id, spec),
            Command::Run { batch, timeout_s } => {
                let b = session.batch(&batch)?;
                let (clients, number) = (session.active_of(&b.clients()), b.number);
                if b.tests.is_empty() {
                    return Err(Errno::ENODATA);
                }
                let what = What::Run { batch: number, arg: timeout_s };
                self.ask(tools, Some(id), TRANSACTION_TIMEOUT, After::Ran(number), clients, what)
            }
            Command::Stop { batch, force } => {
                let b = session.batch(&batch)?;
                let (clients, number) = (session.active_of(&b.clients()), b.number);
                let what = What::Stop { batch: number, force };
                self.ask(tools, Some(id), TRANSACTION_TIMEOUT, After::Nothing, clients, what)
            }
            Command::ListBatches => {
                let names = session.batches.iter().map(|b| b.name.clone()).collect();
                Ok(Some(Answer::Names(names)))
            }
            Command::ShowBatch { name } => {
                let batch = session.batch(&name)?;
                Ok(Some(Answer::Batch(Box::new(session.batch_shown(batch)))))
            }
            Command::Query { batch, test, server, timeout_s } => {
                let b = session.batch(&batch)?;
                if test as usize > b.tests.len() {
                    return Err(Errno::ENOENT);
                }
                let nodes = match (test as usize).checked_sub(1).and_then(|i| b.tests.get(i)) {
                    Some(t) => if server { &t.servers } else { &t.clients }.clone(),
                    None => {
                        if server {
                            b.servers()
                        } else {
                            b.clients()
                        }
                    }
                };
                let what = What::Query { batch: b.number, test: if server { 0 } else { test } };
                let after = match (test, server) {
                    (0, false) => After::Queried(b.number),
                    _ => After::Nothing,
                };
                let nodes = session.active_of(&nodes);
                self.ask(tools, Some(id), seconds(timeout_s), after, nodes, what)
            }
            Command::Stat { target, timeout_s } => {
                let targets = session.targets(&target)?;
                self.ask(tools, Some(id), seconds(timeout_s), After::Nothing, targets, What::Stat)
            }
            // These are handled above, or by the node itself.
            Command::NewSession { .. }
            | Command::ShowSession
            | Command::Local
            | Command::Patience { .. } => Err(Errno::EOPNOTSUPP),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one command")]
    fn new_session(
        &mut self,
        tools: &mut Tools<'_>,
        here: Here,
        key: u32,
        name: &str,
        timeout_s: u32,
        force: bool,
        features: u32,
    ) -> Begun {
        let wire_name = Name::new(name).filter(|_| !name.is_empty()).ok_or(Errno::EINVAL)?;
        if key == 0 || timeout_s == 0 {
            return Err(Errno::EINVAL);
        }
        if features & !FEATURES != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.session.is_some() && !force {
            // The session that runs goes on (DEC-33).
            return Err(Errno::EEXIST);
        }
        let nid = here.nid.filter(|nid| !nid.is_large()).ok_or(Errno::EADDRNOTAVAIL)?;
        self.end_session(tools, None);
        let session = Session {
            name: name.to_owned(),
            wire_name,
            key,
            sid: SessionId { nid, stamp: here.stamp_ms },
            features,
            force,
            timeout_s,
            active: tools.now,
            next_ping: tools.now + PING_INTERVAL,
            nodes: BTreeMap::new(),
            groups: Vec::new(),
            batches: vec![Batch::new("batch".to_owned(), self.next_batch)],
        };
        self.next_batch += 1;
        let shown = session.shown();
        self.session = Some(session);
        Ok(Some(Answer::Session(shown)))
    }

    /// Ends the session: its nodes leave it, and the caller gets the answer when they have.
    fn end_session(&mut self, tools: &mut Tools<'_>, id: Option<CommandId>) -> Option<Answer> {
        let session = self.session.take()?;
        // What it has set for its own calls ends with it, however it ends.
        tools.io.patience = None;
        let nodes: Vec<ProcessId> = session.nodes.keys().copied().collect();
        let nodes = session.active_of(&nodes);
        let what = What::Leave { tries: 1, sid: session.sid, features: session.features };
        let begun = self.ask(tools, id, TRANSACTION_TIMEOUT, After::Nothing, nodes, what);
        begun.ok().flatten()
    }

    /// Asks those of `members` that are not active to take part.
    fn invite(&mut self, tools: &mut Tools<'_>, id: CommandId, members: Vec<ProcessId>) -> Begun {
        let session = self.session.as_ref().ok_or(Errno::ESRCH)?;
        let (there, wanted): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|m| session.state(*m) == NodeState::Active);
        let results = there.iter().map(|m| session.result(*m, What::Make, Ok(None))).collect();
        let what = What::Make;
        self.transact(tools, Some(id), TRANSACTION_TIMEOUT, After::Nothing, results, wanted, what)
    }

    /// Nodes that are in no group any more leave the session.
    fn dismiss(&mut self, tools: &mut Tools<'_>, id: CommandId, gone: &[ProcessId]) -> Begun {
        let session = self.session.as_mut().ok_or(Errno::ESRCH)?;
        let homeless: Vec<ProcessId> =
            gone.iter().copied().filter(|n| !session.has_home(*n)).collect();
        let leaving = session.active_of(&homeless);
        session.nodes.retain(|node, _| !homeless.contains(node));
        let what = What::Leave { tries: 1, sid: session.sid, features: session.features };
        self.ask(tools, Some(id), TRANSACTION_TIMEOUT, After::Nothing, leaving, what)
    }

    /// 6.14, steps 2 and 3.
    fn add_test(&mut self, tools: &mut Tools<'_>, id: CommandId, spec: TestSpec) -> Begun {
        let session = self.session.as_ref().ok_or(Errno::ESRCH)?;
        let batch = session.batch(&spec.batch)?;
        let clients = session.active_of(&session.group(&spec.from)?.members);
        let servers = session.active_of(&session.group(&spec.to)?.members);
        if batch.running {
            return Err(Errno::EBUSY);
        }
        if batch.tests.len() >= crate::limits::TESTS_MAX {
            return Err(Errno::ENOSPC);
        }
        if clients.is_empty() || servers.is_empty() {
            return Err(Errno::ENODATA);
        }
        let params = transaction::params(&spec.kind);
        let offset_bad = matches!(spec.kind, Kind::Brw(brw) if brw.offset % 8 != 0);
        if Job::new(params).is_err()
            || offset_bad
            || spec.repeat.is_some_and(|n| n == 0 || n == u32::MAX)
            || !(1..=CONCURRENCY_MAX).contains(&spec.concurrency)
            || spec.clients == 0
            || !(1..=servers.len()).contains(&(spec.servers as usize))
        {
            return Err(Errno::EINVAL);
        }
        let test = Test { spec, clients, servers: servers.clone() };
        let number = batch.number;
        let (repeat, concurrency) = (test.server_buffers(), test.spec.concurrency);
        let what = What::Test { batch: number, repeat, concurrency, ndest: 0, params };
        let after = After::Servers { batch: number, test: Box::new(test) };
        self.ask(tools, Some(id), TRANSACTION_TIMEOUT, after, servers, what)
    }

    /// JOIN (6.11): a node takes itself into a group.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        who: ProcessId,
        features: u32,
        request: &JoinRequest,
    ) -> JoinReply {
        let refuse = |errno: Errno, sid, timeout, name| JoinReply {
            status: errno.0 as u32,
            sid,
            timeout,
            session: name,
        };
        let Some(session) = &mut self.session else {
            return refuse(Errno::ESRCH, SessionId::NONE, 0, Name::default());
        };
        let (sid, timeout, name) = (session.sid, session.timeout_s, session.wire_name);
        let reply = |errno| refuse(errno, sid, timeout, name);
        if features != session.features {
            return reply(Errno::EPROTO);
        }
        if !request.sid.is_none() && request.sid != sid {
            return reply(Errno::EBUSY);
        }
        let group = request.group.text();
        match session.free_group(&group) {
            Ok(found) if found.members.contains(&who) => return reply(Errno::EEXIST),
            Ok(_) => {}
            Err(Errno::ENOENT) if group.is_empty() => return reply(Errno::EINVAL),
            Err(Errno::ENOENT) if session.groups.len() >= GROUPS_MAX => {
                return reply(Errno::ENOSPC);
            }
            Err(Errno::ENOENT) => {
                session.groups.push(Group { name: group.clone(), members: Vec::new() });
            }
            Err(errno) => return reply(errno),
        }
        if session.nodes.len() >= NODES_MAX {
            return reply(Errno::ENOSPC);
        }
        session.join(&group, &[who]);
        session.heard(now, who, NodeState::Active);
        reply(Errno::OK)
    }

    /// A call of the console has ended.
    pub(crate) fn ended(&mut self, tools: &mut Tools<'_>, purpose: Purpose, end: Ended<Owner>) {
        self.settle(tools, purpose, end);
    }

    /// Ends a session without commands, and looks for silent nodes (6.7).
    pub(crate) fn expire(&mut self, tools: &mut Tools<'_>) {
        if self.session.as_ref().is_some_and(|s| s.dies() <= tools.now) {
            self.end_session(tools, None);
        }
        let Some(session) = &mut self.session else { return };
        if session.next_ping > tools.now {
            return;
        }
        session.next_ping = tools.now + PING_INTERVAL;
        let silent = session.silent(tools.now);
        // No caller waits for the outcome.
        let _ = self.ask(tools, None, PING_INTERVAL, After::Nothing, silent, What::Debug);
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.session.as_ref().map(|s| s.dies().min(s.next_ping))
    }
}

fn seconds(timeout_s: u32) -> Duration {
    Duration::from_secs(timeout_s.max(1).into()).min(TIMEOUT_MAX)
}

impl Target {
    /// How errors name it.
    pub fn name(&self) -> String {
        match self {
            Self::Session => "session".to_owned(),
            Self::Group(name) | Self::Batch { name, .. } => name.clone(),
            Self::Nodes(nids) => nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        }
    }
}
