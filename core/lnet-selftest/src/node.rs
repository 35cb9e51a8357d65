//! The whole: which part a request, the end of an action, a command or a time-out belongs to.

use core::time::Duration;

use lnet_types::{Errno, Instant, Nid, ProcessId};
use lnet_wire::WireError;
use lnet_wire::selftest::{self, Reply, Request, RequestMessage, Service};

use crate::calls::{Calls, Ended, answer};
use crate::console::command::{Answer, Command, LocalTest};
use crate::console::{Console, Owner, Tools};
use crate::io::{Io, RpcCounters};
use crate::limits::{FRAMEWORK_BUFFERS, TEST_BUFFERS};
use crate::serve::{Asker, Serving};
use crate::session::Framework;
use crate::units::{Clock, Job};
use crate::{Action, Done, LnetCounters, Settings, Token};

/// Names a command until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// What a command must know of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here {
    /// The NID that this node's sessions are named by.
    pub nid: Option<Nid>,
    /// A number that no other session of this node has: milliseconds of some clock.
    pub stamp_ms: i64,
}

/// Responder and console of one node.
#[derive(Debug)]
pub struct Selftest {
    io: Io,
    epoch: Duration,
    calls: Calls<Owner>,
    framework: Framework,
    serving: Serving,
    console: Console,
}

impl Selftest {
    /// A node that listens for requests. `epoch`: the time since 1970 at instant zero, which ping
    /// tests tell; ids begin with its seconds, so that those of the life before are over.
    pub fn new(settings: Settings, epoch: Duration) -> Self {
        let mut io = Io::new(settings, epoch.as_secs() << 48);
        for service in Service::ALL {
            let buffers = if service.is_test() { TEST_BUFFERS } else { FRAMEWORK_BUFFERS };
            io.push(Action::Listen { service, buffers });
        }
        Self {
            io,
            epoch,
            calls: Calls::new(),
            framework: Framework::new(),
            serving: Serving::default(),
            console: Console::new(),
        }
    }

    /// The settings, to be changed.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.io.settings
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.io.pop()
    }

    /// The next answer to a command.
    pub fn poll_answer(&mut self) -> Option<(CommandId, Result<Answer, Errno>)> {
        self.console.answer()
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let all = [
            self.calls.next_deadline(),
            self.framework.next_deadline(&self.io),
            self.console.next_deadline(),
        ];
        all.into_iter().flatten().min()
    }

    /// Calls in flight.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// A request has arrived at `at`, one of this node's NIDs. `lnet`: the counters of LNet now.
    pub fn request(
        &mut self,
        now: Instant,
        service: Service,
        who: ProcessId,
        at: Nid,
        bytes: &[u8],
        lnet: &LnetCounters,
    ) {
        let message = match RequestMessage::parse(service, bytes) {
            Ok(message) => message,
            Err(WireError::Version { .. }) => {
                if let Some(id) = selftest::reply_id(bytes) {
                    let status = Errno::EPROTO.0 as u32;
                    let features = self.framework.features();
                    let body = Reply::refusal(service, status);
                    answer(&mut self.io, at, who, id, features, body);
                }
                return;
            }
            Err(_) => {
                RpcCounters::bump(&mut self.io.counters.dropped);
                return;
            }
        };
        RpcCounters::bump(&mut self.io.counters.received);
        let (clock, asker) = (self.clock(now), Asker { who, at });
        let features = self.framework.features();
        let Self { io, calls, framework, serving, console, .. } = self;
        match message.body {
            Request::Ping(ping) => Serving::ping(io, asker, &message, ping, features),
            Request::Brw(brw) => serving.brw(io, asker, &message, brw, features),
            Request::Join(join) => {
                let reply = console.join(now, who, message.features, &join);
                answer(io, at, who, join.reply_id, features, reply.into());
            }
            _ => framework.request(calls, io, clock, asker, &message, lnet),
        }
    }

    /// An action has ended. Those that were withdrawn are of no interest.
    pub fn done(&mut self, now: Instant, token: Token, done: Done<'_>) {
        if let Some(end) = self.calls.done(&mut self.io, now, token, done) {
            self.ended(now, end);
        } else if !self.serving.done(&mut self.io, token, done)
            && !self.framework.done(&mut self.io, token, done)
            && done.status.is_err()
        {
            // A reply that could not be sent.
            RpcCounters::bump(&mut self.io.counters.errors);
        }
    }

    /// Does what the time has come for.
    pub fn handle_timeout(&mut self, now: Instant) {
        for end in self.calls.expire(&mut self.io, now) {
            self.ended(now, end);
        }
        let clock = self.clock(now);
        self.framework.expire(&mut self.calls, &mut self.io, clock);
        let Self { io, calls, console, .. } = self;
        console.expire(&mut Tools { calls, io, now });
    }

    /// Takes a command of the holder of `key`. Its answer comes from [`Self::poll_answer`].
    pub fn command(&mut self, now: Instant, here: Here, id: CommandId, key: u32, command: Command) {
        let Self { io, calls, console, framework, .. } = self;
        if command == Command::Local {
            console.report(id, Answer::Local(local(framework, now)));
            return;
        }
        if let Command::Patience { seconds } = command {
            let answer = console.is_commanded_by(key).and_then(|()| match seconds {
                0 => Err(Errno::EINVAL),
                n => {
                    io.patience = Some(Duration::from_secs(n.into()));
                    Ok(Answer::Done)
                }
            });
            console.conclude(id, answer);
            return;
        }
        console.command(&mut Tools { calls, io, now }, here, id, key, command);
    }

    /// No caller waits for the answer to a command any more.
    pub fn forget(&mut self, id: CommandId) {
        self.console.forget(id);
    }

    /// Ends sessions, of the console and of this node, for the node goes away.
    pub fn stop(&mut self, now: Instant) {
        let Self { io, calls, console, framework, .. } = self;
        framework.end(calls, io, now);
        console.stop(&mut Tools { calls, io, now });
    }

    /// Whether there is no session, and nothing is in hand.
    pub fn is_idle(&self) -> bool {
        self.framework.session.is_none() && self.console.is_idle() && self.calls.len() == 0
    }

    const fn clock(&self, now: Instant) -> Clock {
        Clock { now, epoch: self.epoch }
    }

    fn ended(&mut self, now: Instant, end: Ended<Owner>) {
        let clock = self.clock(now);
        let Self { io, calls, framework, console, .. } = self;
        match end.owner {
            Owner::Unit(id) => framework.unit_ended(calls, io, clock, id, &end),
            Owner::Console(purpose) => console.ended(&mut Tools { calls, io, now }, purpose, end),
        }
    }
}

fn local(framework: &Framework, now: Instant) -> Vec<LocalTest> {
    let Some(session) = &framework.session else { return Vec::new() };
    let batches = session.batches.batches.iter();
    let tests = batches.flat_map(|(batch, b)| b.tests.iter().enumerate().map(move |t| (*batch, t)));
    let shown = |(batch, (i, test)): (u64, (usize, &crate::units::Test))| LocalTest {
        batch,
        test: i as u32 + 1,
        kind: match test.job {
            Job::Ping => "ping".to_owned(),
            Job::Brw { .. } => "brw".to_owned(),
        },
        bytes: test.job.bytes(),
        active: test.active(),
        errors: test.errors,
        took: test.took.clone(),
        stalled: test.stalled(now).0,
        oldest: test.stalled(now).1,
    };
    tests.map(shown).collect()
}
