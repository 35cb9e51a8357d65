//! What the console asks of nodes, what their answers mean for the session, and when a command that
//! asked many of them has its answer.

use core::time::Duration;

use lnet_types::{Errno, ProcessId};
use lnet_wire::ByteOrder;
use lnet_wire::selftest::{
    BatchRequest, BrwRequest, DebugRequest, MakeSessionRequest, QueryStatReply, QueryStatRequest,
    RemoveSessionRequest, Reply, ReplyMessage, Request, SessionId, TestParams, TestRequest,
    emit_destinations,
};

use super::command::{Answer, Check, Counters, Kind, NodeFailure, NodeResult, NodeState, Report};
use super::state::{Session, Test};
use super::{Begun, Console, Owner, Tools};
use crate::Data;
use crate::calls::{Bulk, Ended, Route};
use crate::limits::{LEAVES_MAX, TRANSACTION_TIMEOUT};
use crate::node::CommandId;

/// What is asked of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Make,
    Leave {
        tries: u32,
        sid: SessionId,
        features: u32,
    },
    Debug,
    /// A test: to a client with the number of its destinations, to a server with 0.
    Test {
        batch: u64,
        repeat: u32,
        concurrency: u32,
        ndest: u32,
        params: TestParams,
    },
    Run {
        batch: u64,
        arg: u32,
    },
    Stop {
        batch: u64,
        force: bool,
    },
    Query {
        batch: u64,
        test: u32,
    },
    Stat,
}

impl What {
    /// Its name in errors (L-23).
    const fn name(self) -> &'static str {
        match self {
            Self::Make => "create session",
            Self::Leave { .. } => "end session",
            Self::Debug => "debug",
            Self::Test { .. } => "add test",
            Self::Run { .. } => "run batch",
            Self::Stop { .. } => "stop batch",
            Self::Query { .. } => "query batch",
            Self::Stat => "get stat",
        }
    }
}

/// Whose call it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Purpose {
    transaction: u64,
    what: What,
}

/// What follows when all nodes have answered.
#[derive(Clone, Debug)]
pub(super) enum After {
    Nothing,
    /// The batch runs, if any node runs it.
    Ran(u64),
    /// The batch has stopped, if no node runs it.
    Queried(u64),
    /// The clients are next.
    Servers {
        batch: u64,
        test: Box<Test>,
    },
    /// The test is there.
    Clients {
        batch: u64,
        test: Box<Test>,
    },
}

/// A command that waits for nodes.
#[derive(Debug)]
pub(super) struct Transaction {
    /// The command that gets its outcome; none for the console's own.
    command: Option<CommandId>,
    waiting: usize,
    results: Vec<NodeResult>,
    after: After,
}

impl Transaction {
    pub(super) fn forget(&mut self, id: CommandId) {
        self.command = self.command.filter(|command| *command != id);
    }
}

impl Session {
    /// The result for a node, with its state as it is now.
    pub(super) fn result(
        &self,
        node: ProcessId,
        what: What,
        outcome: Result<Option<Report>, NodeFailure>,
    ) -> NodeResult {
        result(self.state(node), node, what, outcome)
    }
}

fn result(
    state: NodeState,
    node: ProcessId,
    what: What,
    outcome: Result<Option<Report>, NodeFailure>,
) -> NodeResult {
    NodeResult {
        nid: node.nid,
        pid: node.pid.0,
        state,
        operation: what.name().to_owned(),
        outcome: outcome.map(|report| report.unwrap_or(Report::Done)),
    }
}

impl Console {
    /// Asks all of `nodes` the same.
    pub(super) fn ask(
        &mut self,
        tools: &mut Tools<'_>,
        command: Option<CommandId>,
        timeout: Duration,
        after: After,
        nodes: Vec<ProcessId>,
        what: What,
    ) -> Begun {
        self.transact(tools, command, timeout, after, Vec::new(), nodes, what)
    }

    /// [`Self::ask`] with some results that are there already.
    #[allow(clippy::too_many_arguments, reason = "the parts of one transaction")]
    pub(super) fn transact(
        &mut self,
        tools: &mut Tools<'_>,
        command: Option<CommandId>,
        timeout: Duration,
        after: After,
        results: Vec<NodeResult>,
        nodes: Vec<ProcessId>,
        what: What,
    ) -> Begun {
        let number = self.next_transaction;
        self.next_transaction += 1;
        let waiting = nodes.len();
        let transaction = Transaction { command, waiting, results, after };
        if waiting == 0 {
            return Ok(Some(Answer::Nodes(transaction.results)));
        }
        self.transactions.insert(number, transaction);
        for node in nodes {
            self.call(tools, number, timeout, node, what, Bulk::None);
        }
        Ok(None)
    }

    fn call(
        &self,
        tools: &mut Tools<'_>,
        transaction: u64,
        timeout: Duration,
        to: ProcessId,
        what: What,
        bulk: Bulk,
    ) {
        let session = self.session.as_ref();
        let (own, features) =
            session.map_or((SessionId::NONE, 0), |session| (session.sid, session.features));
        let (sid, features) = match what {
            What::Leave { sid, features, .. } => (sid, features),
            _ => (own, features),
        };
        let (force, name) =
            session.map_or_else(Default::default, |s| (u32::from(s.force), s.wire_name));
        // A node counts only tests of its own.
        let number_at = |number: u64, test: u32| {
            let batch = session.and_then(|s| s.batches.iter().find(|b| b.number == number));
            batch.map_or(test, |b| b.number_at(to, test))
        };
        let batch = |reply_id, batch_id, opc, test_index, arg| {
            Request::Batch(BatchRequest { reply_id, sid, batch_id, opc, test_index, arg })
        };
        let body = |reply_id, bulk_id| match what {
            What::Make => Request::MakeSession(MakeSessionRequest { reply_id, sid, force, name }),
            What::Leave { .. } => Request::RemoveSession(RemoveSessionRequest { reply_id, sid }),
            What::Debug => Request::Debug(DebugRequest { reply_id, sid, flags: 0 }),
            What::Stat => Request::QueryStat(QueryStatRequest { reply_id, sid, stat_type: 0 }),
            What::Run { batch: id, arg } => batch(reply_id, id, BatchRequest::RUN, 0, arg),
            What::Stop { batch: id, force } => {
                batch(reply_id, id, BatchRequest::STOP, 0, force.into())
            }
            What::Query { batch: id, test } => {
                batch(reply_id, id, BatchRequest::QUERY, number_at(id, test), 0)
            }
            What::Test { batch, repeat, concurrency, ndest, params } => {
                Request::Test(TestRequest {
                    reply_id,
                    bulk_id,
                    sid,
                    batch_id: batch,
                    service: params.service().id() as u32,
                    repeat,
                    concurrency,
                    is_client: u8::from(ndest > 0),
                    // As kernel consoles ask for in every test.
                    stop_on_error: 1,
                    ndest,
                    param: params.emit(ByteOrder::Little),
                })
            }
        };
        let owner = Owner::Console(Purpose { transaction, what });
        let route = Route { to, features, timeout };
        tools.calls.start(tools.io, tools.now, route, owner, bulk, body);
    }

    /// A call has ended: the session records its result, the transaction comes nearer to its end.
    pub(super) fn settle(&mut self, tools: &mut Tools<'_>, purpose: Purpose, end: Ended<Owner>) {
        let Purpose { transaction, what } = purpose;
        let (node, reply) = (end.to, end.result);
        // A node that took part twice leaves twice.
        if let (What::Leave { tries, sid, features }, Ok(message)) = (what, &reply)
            && let Reply::RemoveSession(left) = &message.body
            && left.status == 0
            && left.sid == sid
            && tries < LEAVES_MAX
        {
            let again = What::Leave { tries: tries + 1, sid, features };
            self.call(tools, transaction, TRANSACTION_TIMEOUT, node, again, Bulk::None);
            return;
        }
        let outcome = match &reply {
            Ok(message) => self.learn(tools, node, what, message),
            Err(errno) => {
                // A node that leaves may be in the next session already.
                let leaves = matches!(what, What::Leave { .. });
                if let Some(session) = self.session.as_mut().filter(|_| !leaves) {
                    session.heard(tools.now, node, NodeState::Down);
                }
                Err(NodeFailure { refused: false, errno: errno.0 })
            }
        };
        let state = self.session.as_ref().map_or(NodeState::Unknown, |s| s.state(node));
        let Some(open) = self.transactions.get_mut(&transaction) else { return };
        open.results.push(result(state, node, what, outcome));
        open.waiting -= 1;
        if open.waiting == 0
            && let Some(done) = self.transactions.remove(&transaction)
        {
            self.finish(tools, transaction, done);
        }
    }

    /// What an answer tells about its node.
    fn learn(
        &mut self,
        tools: &Tools<'_>,
        node: ProcessId,
        what: What,
        message: &ReplyMessage,
    ) -> Result<Option<Report>, NodeFailure> {
        let refused = |errno: Errno| Err(NodeFailure { refused: true, errno: errno.0 });
        let status = Errno(i32::try_from(message.body.status()).unwrap_or(Errno::EPROTO.0));
        let ours = self.session.as_ref().map(|s| s.sid);
        let mut heard = |state| {
            if let Some(session) = &mut self.session {
                session.heard(tools.now, node, state);
            }
        };
        match (&message.body, what) {
            (Reply::MakeSession(made), What::Make) => {
                if status != Errno::OK {
                    let busy = status == Errno::EBUSY;
                    heard(if busy { NodeState::Busy } else { NodeState::Unknown });
                    return refused(status);
                }
                heard(NodeState::Active);
                let Some(session) = &mut self.session else { return Ok(None) };
                if message.features != session.features {
                    // All nodes must speak alike (6.5).
                    session.heard(tools.now, node, NodeState::Unknown);
                    return refused(Errno::EPROTO);
                }
                if let Some(node) = session.nodes.get_mut(&node) {
                    node.timeout_s = made.timeout;
                }
                Ok(None)
            }
            // A node that has no such session has left it (6.6).
            (Reply::RemoveSession(_), What::Leave { .. }) => match status {
                Errno::OK | Errno::ESRCH => Ok(None),
                other => refused(other),
            },
            (Reply::Debug(debug), What::Debug) => {
                heard(match ours == Some(debug.sid) {
                    true => NodeState::Active,
                    false if debug.sid.is_none() => NodeState::Unknown,
                    false => NodeState::Busy,
                });
                Ok(Some(Report::Alive { session: debug.name.text(), console: debug.sid.nid }))
            }
            (body, _) if status != Errno::OK => {
                // No session where there should be ours.
                let lost = matches!(body, Reply::Test(_)) && status == Errno::ENOENT
                    || status == Errno::ESRCH;
                heard(if lost { NodeState::Unknown } else { NodeState::Active });
                refused(status)
            }
            (Reply::Batch(batch), What::Query { .. }) => {
                heard(NodeState::Active);
                Ok(Some(Report::Active(batch.active)))
            }
            (Reply::QueryStat(stat), _) => {
                heard(NodeState::Active);
                Ok(Some(Report::Counters(Box::new(counters(stat)))))
            }
            _ => {
                heard(NodeState::Active);
                Ok(None)
            }
        }
    }

    /// All nodes have answered.
    fn finish(&mut self, tools: &mut Tools<'_>, number: u64, mut done: Transaction) {
        let good = |r: &NodeResult| r.outcome.is_ok();
        match (done.after, &mut self.session) {
            (After::Nothing, _) | (_, None) => {}
            (After::Ran(batch), Some(session)) => {
                if let Some(batch) = session.batch_numbered(batch) {
                    batch.running |= done.results.iter().any(good);
                }
            }
            (After::Queried(batch), Some(session)) => {
                let idle = |r: &NodeResult| r.outcome == Ok(Report::Active(0));
                if let Some(batch) = session.batch_numbered(batch)
                    && done.results.iter().all(idle)
                {
                    batch.running = false;
                }
            }
            (After::Servers { batch, test }, Some(_)) => {
                if done.results.iter().all(good) {
                    done.after = After::Clients { batch, test: test.clone() };
                    self.clients(tools, number, done, batch, &test);
                    return;
                }
            }
            (After::Clients { batch, test }, Some(session)) => {
                let clients = done.results.iter().rev().take(test.clients.len());
                let served: Vec<_> = clients.filter(|r| good(r)).map(|r| r.nid).collect();
                let mut test = *test;
                test.clients.retain(|c| served.contains(&c.nid));
                if let Some(batch) = session.batch_numbered(batch)
                    && !test.clients.is_empty()
                {
                    batch.tests.push(test);
                }
            }
        }
        if let Some(id) = done.command {
            self.answers.push_back((id, Ok(Answer::Nodes(done.results))));
        }
    }

    /// The servers of a test are ready: each client gets its own list of them.
    fn clients(
        &mut self,
        tools: &mut Tools<'_>,
        number: u64,
        mut open: Transaction,
        batch: u64,
        test: &Test,
    ) {
        open.waiting = test.clients.len();
        self.transactions.insert(number, open);
        let (repeat, concurrency) =
            (test.spec.repeat.unwrap_or(TestRequest::ENDLESS), test.spec.concurrency);
        let params = params(&test.spec.kind);
        for (i, client) in test.clients.iter().enumerate() {
            let list = test.destinations(i);
            let what = What::Test { batch, repeat, concurrency, ndest: list.len() as u32, params };
            let bulk = Bulk::Give(Data::Bytes(emit_destinations(ByteOrder::Little, &list)));
            self.call(tools, number, TRANSACTION_TIMEOUT, *client, what, bulk);
        }
    }
}

/// The parameters of a test on the wire.
pub(super) fn params(kind: &Kind) -> TestParams {
    match kind {
        Kind::Ping => TestParams::Ping { size: 0, flags: 0 },
        Kind::Brw(brw) => TestParams::Brw {
            opc: if brw.write { BrwRequest::WRITE } else { BrwRequest::READ } as u16,
            check: match brw.check {
                Check::None => BrwRequest::CHECK_NONE,
                Check::Simple => BrwRequest::CHECK_SIMPLE,
                Check::Full => BrwRequest::CHECK_FULL,
                Check::Discard => BrwRequest::CHECK_DISCARD,
            } as u16,
            len: brw.size,
            offset: brw.offset,
        },
    }
}

fn counters(stat: &QueryStatReply) -> Counters {
    Counters {
        running_ms: stat.running_ms,
        active_batches: stat.active_batches,
        brw_errors: stat.brw_errors,
        ping_errors: stat.ping_errors,
        rpc_errors: stat.rpc_errors,
        rpcs_sent: stat.rpcs_sent,
        rpcs_rcvd: stat.rpcs_rcvd,
        rpcs_dropped: stat.rpcs_dropped,
        rpcs_expired: stat.rpcs_expired,
        bulk_get: stat.bulk_get,
        bulk_put: stat.bulk_put,
        send_count: stat.send_count,
        recv_count: stat.recv_count,
        drop_count: stat.drop_count,
        send_length: stat.send_length,
        recv_length: stat.recv_length,
    }
}
