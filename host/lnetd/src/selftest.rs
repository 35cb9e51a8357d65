//! LNet selftest on a node: adds the machine (`lnet_selftest::Runner`) to the node's protocols, gives
//! it the commands of consoles, and takes answers to the threads that wait for them. What the machine
//! does happens in the node's own turn; here are only the wall clock and the waiting.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lnet::Report;
use lnet_rt::{Below, Errno, Event, Instant, NodeHandle, OpError, Upper, UpperId};
use lnet_selftest::{Answer, Command, CommandId, Runner, Settings};

/// LNet selftest on a node: the responder, and a console that obeys [`Selftest::command`].
///
/// It ends when this is dropped, or with the node.
#[derive(Debug)]
pub struct Selftest {
    id: UpperId,
    handle: NodeHandle,
}

/// The machine, and the threads that wait for it.
struct Shell {
    runner: Runner,
    waiting: BTreeMap<CommandId, Sender<Result<Answer, Errno>>>,
    next_command: u64,
    /// Dropped when there is no session and nothing in hand: a thread waits for that.
    ending: Option<Sender<()>>,
}

impl Selftest {
    /// Starts it on a node.
    ///
    /// # Errors
    /// The node has stopped, or has had as many protocols as it can.
    pub fn start(handle: &NodeHandle, settings: Settings) -> Result<Self, OpError> {
        let start = handle.call(move |stack, now| {
            let epoch = since_1970().saturating_sub(Duration::from_nanos(now.as_nanos()));
            let shell = Shell {
                runner: Runner::new(settings, epoch),
                waiting: BTreeMap::new(),
                next_command: 1,
                ending: None,
            };
            let id = stack.add_upper(Box::new(shell))?;
            // It listens from here on, not from the next turn.
            stack.with_upper(id, |shell: &mut Shell, below| shell.handle_timeout(below))?;
            Some(id)
        });
        let id = start.blocking()?.ok_or(OpError::Stopped)?;
        Ok(Self { id, handle: handle.clone() })
    }

    /// Runs `f` on the node's thread.
    fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Shell, &mut Below<'_>) -> R + Send + 'static,
    ) -> lnet_rt::Call<Option<R>> {
        let id = self.id;
        self.handle.call(move |stack, _| {
            stack.with_upper(id, |shell: &mut Shell, below| {
                let result = f(shell, below);
                shell.hand_out();
                result
            })
        })
    }

    /// Gives the console a command in the name of the program that holds `key`, and waits for its
    /// answer.
    ///
    /// # Errors
    /// The console's refusal; ETIMEDOUT after `limit`; the node has stopped.
    pub fn command(&self, key: u32, command: Command, limit: Duration) -> Result<Answer, Errno> {
        let (tx, rx) = channel();
        let stamp_ms = i64::try_from(since_1970().as_millis()).unwrap_or(i64::MAX);
        let given = self.call(move |shell, below| {
            let id = CommandId(shell.next_command);
            shell.next_command += 1;
            shell.waiting.insert(id, tx);
            shell.runner.command(id, key, stamp_ms, command, below);
            id
        });
        let id = given.blocking().map_err(|e| e.errno())?.ok_or(Errno::ESHUTDOWN)?;
        match rx.recv_timeout(limit) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                drop(self.call(move |shell, _| {
                    shell.waiting.remove(&id);
                    shell.runner.forget(id);
                }));
                Err(Errno::ETIMEDOUT)
            }
            Err(RecvTimeoutError::Disconnected) => Err(Errno::ESHUTDOWN),
        }
    }

    /// Whether there is no session, and nothing is in hand.
    pub fn is_idle(&self) -> bool {
        let idle = self.call(|shell, _| shell.runner.is_idle()).blocking();
        // A node that has stopped has none.
        idle.ok().flatten().unwrap_or(true)
    }

    /// Ends sessions and waits, at most for `grace`, until their nodes have been notified.
    pub fn stop(&self, grace: Duration) {
        let (tx, rx) = channel::<()>();
        let stopped = self.call(move |shell, below| {
            shell.ending = Some(tx);
            shell.runner.stop(below);
        });
        if stopped.blocking().is_ok() {
            // Either way it is over: all is at its end, the time is up, or the node has stopped.
            let _ = rx.recv_timeout(grace);
            drop(self.call(|shell, _| shell.waiting.clear()));
        }
    }
}

impl Drop for Selftest {
    fn drop(&mut self) {
        let id = self.id;
        // A node that has stopped has removed it.
        drop(self.handle.call(move |stack, _| {
            stack.with_upper(id, |shell: &mut Shell, below| shell.runner.close(below));
            drop(stack.remove_upper(id));
        }));
    }
}

impl Shell {
    /// Takes answers to the threads that wait.
    fn hand_out(&mut self) {
        while let Some((id, answer)) = self.runner.poll_answer() {
            if let Some(waiter) = self.waiting.remove(&id) {
                // A thread whose time was up is gone.
                let _ = waiter.send(answer);
            }
        }
        if self.ending.is_some() && self.runner.is_idle() {
            self.ending = None;
        }
    }
}

impl Upper for Shell {
    fn event(&mut self, event: &Event, below: &mut Below<'_>) {
        self.runner.event(event, below);
        self.hand_out();
    }

    fn spent(&mut self, _: u64) {}

    fn report(&mut self, report: &Report, below: &mut Below<'_>) {
        self.runner.report(report, below);
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.runner.handle_timeout(below);
        self.hand_out();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.runner.poll_timeout()
    }
}

/// The wall clock. One before 1970 is that of a machine without a clock.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
