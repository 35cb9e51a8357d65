//! The handle: what other threads do with a node that runs on its own thread (or is driven by
//! another one). Cheap to clone, usable from anywhere, async or blocking, with any executor or none.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use lnet::{Event, Found, MatchEntry, Node, OpId};
use lnet_types::{Instant, Nid, ProcessId};

use crate::mailbox::{COMMANDS_MAX, Command, Mailbox};
use crate::oneshot::{self, Receiver, block_on};
use crate::operation::{GetRequest, PutRequest};
use crate::stack::{Stack, Waiter};
use crate::{AttachOptions, Attachment, Buffer, OpError, OpFailed};

/// How long the node may finish what is under way when its last handle goes away.
const GRACE: Duration = Duration::from_secs(1);

/// A node, as seen from outside of its thread.
///
/// A node that was started lives until [`NodeHandle::stop`], or until the last handle and everything
/// made from one is gone. Whatever is waited for through a handle ends, at the latest with
/// [`OpError::Stopped`] when the node goes away.
#[derive(Clone)]
pub struct NodeHandle {
    mailbox: Arc<Mailbox>,
    /// Shared by the handles that keep the node alive.
    _alive: Option<Arc<Alive>>,
}

struct Alive(Arc<Mailbox>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.push(Command::Stop(GRACE));
    }
}

impl NodeHandle {
    pub(crate) fn owner(mailbox: Arc<Mailbox>) -> Self {
        let alive = Arc::new(Alive(Arc::clone(&mailbox)));
        Self { mailbox, _alive: Some(alive) }
    }

    pub(crate) fn observer(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox, _alive: None }
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Sends `buffer` to `portal` of `target`. The request says more, then is awaited or blocks.
    pub fn put(
        &self,
        target: impl Into<ProcessId>,
        portal: u32,
        match_bits: u64,
        buffer: impl Into<Buffer>,
    ) -> PutRequest {
        PutRequest::new(self, target.into(), portal, match_bits, buffer.into())
    }

    /// Fetches from `portal` of `target` into `buffer`, up to its length. The request says more,
    /// then is awaited or blocks.
    pub fn get(
        &self,
        target: impl Into<ProcessId>,
        portal: u32,
        match_bits: u64,
        buffer: impl Into<Buffer>,
    ) -> GetRequest {
        GetRequest::new(self, target.into(), portal, match_bits, buffer.into())
    }

    /// Attaches `buffer` to `portal` for messages that match `me`. Waits for the node's thread, not
    /// for the network.
    ///
    /// # Errors
    /// [`OpFailed`], with the buffer: the node refused ([`OpError::Attach`]), has stopped, or this
    /// is its own thread, where `Stack::attach_handler` is the way.
    pub fn attach(
        &self,
        portal: u32,
        me: MatchEntry,
        buffer: impl Into<Buffer>,
        options: AttachOptions,
    ) -> Result<Attachment, OpFailed> {
        let buffer = buffer.into();
        if self.mailbox.is_here() {
            let error = OpError::WouldDeadlock;
            return Err(OpFailed { error, buffer: Some(buffer) });
        }
        block_on(self.attach_async(portal, me, buffer, options))
    }

    /// [`NodeHandle::attach`] for async code.
    ///
    /// # Errors
    /// As there.
    pub async fn attach_async(
        &self,
        portal: u32,
        me: MatchEntry,
        buffer: impl Into<Buffer>,
        options: AttachOptions,
    ) -> Result<Attachment, OpFailed> {
        let buffer = buffer.into();
        let call = self.call(move |stack, _| stack.attach_inbox(portal, me, buffer, options));
        let mut attachment = call.await.map_err(|error| OpFailed { error, buffer: None })??;
        attachment.hold(self.clone());
        Ok(attachment)
    }

    /// Attaches `buffer` to `portal` with code that runs on the node's thread at each event, so that
    /// an answer needs no second thread. The handler must not wait for anything. Use
    /// [`Stack::payload`] to read what came.
    ///
    /// # Errors
    /// As [`NodeHandle::attach`].
    pub fn attach_handler(
        &self,
        portal: u32,
        me: MatchEntry,
        buffer: impl Into<Buffer>,
        options: AttachOptions,
        handler: impl FnMut(&mut Stack, &Event) + Send + 'static,
    ) -> Result<Service, OpFailed> {
        let buffer = buffer.into();
        let mailbox = Arc::clone(&self.mailbox);
        let call = self.call(move |stack, _| {
            let key = stack.attach_service(portal, me, buffer, options, Box::new(handler))?;
            Ok(Service { key, mailbox, _handle: None })
        });
        let made: Result<Service, OpFailed> =
            call.blocking().map_err(|error| OpFailed { error, buffer: None })?;
        let mut service = made?;
        service._handle = Some(self.clone());
        Ok(service)
    }

    /// Asks `target` for its interfaces, within `timeout` (zero or more than 180 s means 180 s).
    pub fn ping(&self, target: impl Into<ProcessId>, timeout: Duration) -> Asked {
        let target = target.into();
        self.ask((true, target.nid), move |node, now| node.ping(now, target, None, timeout))
    }

    /// [`NodeHandle::ping`] from one of the node's own NIDs.
    pub fn ping_from(&self, source: Nid, target: impl Into<ProcessId>, timeout: Duration) -> Asked {
        let target = target.into();
        self.ask((true, target.nid), move |node, now| node.ping(now, target, Some(source), timeout))
    }

    /// Discovers the peer that has `nid`: also one that is known already. Ends when the node gives
    /// up, at the latest.
    pub fn discover(&self, nid: Nid) -> Asked {
        self.ask((false, nid), move |node, now| node.discover(now, nid, false))
    }

    /// [`NodeHandle::discover`], asking and telling the peer even if nothing seems to have changed.
    pub fn discover_again(&self, nid: Nid) -> Asked {
        self.ask((false, nid), move |node, now| node.discover(now, nid, true))
    }

    /// Asks a node; its NID and whether that is a ping are for the error.
    fn ask(
        &self,
        (is_ping, target): (bool, Nid),
        f: impl FnOnce(&mut Node, Instant) -> OpId + Send + 'static,
    ) -> Asked {
        let (tx, rx) = oneshot::channel();
        let command = Command::Call(Box::new(move |stack: &mut Stack| {
            if stack.is_stopping() {
                return;
            }
            let now = stack.tick();
            let op = f(stack.node_mut(), now);
            stack.waiters.insert(op, Waiter { is_ping, target, answer: tx });
        }));
        Asked(self.submit(rx, command))
    }

    /// Runs `f` on the node's thread, with the time there. Await the result or wait for it with
    /// [`Call::blocking`]; `f` runs in any case.
    pub fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Stack, Instant) -> R + Send + 'static,
    ) -> Call<R> {
        // A result without a waiter is dropped here, on the node's thread.
        self.call_later(move |stack, now, answer| answer.give(f(stack, now)))
    }

    /// [`NodeHandle::call`] for a result that is there later: `f` gets what gives it then. The wait ends with
    /// [`OpError::Stopped`] if that is dropped.
    pub fn call_later<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Stack, Instant, Answer<R>) + Send + 'static,
    ) -> Call<R> {
        let (tx, rx) = oneshot::channel();
        let command = Command::Call(Box::new(move |stack: &mut Stack| {
            let now = stack.tick();
            f(stack, now, Answer(tx));
        }));
        self.submit(rx, command)
    }

    fn submit<R>(&self, rx: Receiver<R>, command: Command) -> Call<R> {
        let busy = !self.mailbox.has_room();
        if busy {
            drop(command);
        } else {
            self.mailbox.push(command);
        }
        Call { rx, busy, mailbox: Arc::clone(&self.mailbox) }
    }

    /// Stops the node: attachments are detached at once, operations may finish within `grace`, then
    /// they fail. Await the end, or wait for it with [`Stopped::blocking`].
    pub fn stop(&self, grace: Duration) -> Stopped {
        self.mailbox.push(Command::Stop(grace));
        Stopped { mailbox: Arc::clone(&self.mailbox) }
    }

    /// Whether this is the node's own thread, on which nothing of the node can be waited for.
    pub fn is_here(&self) -> bool {
        self.mailbox.is_here()
    }

    /// Whether the node has stopped.
    pub fn is_stopped(&self) -> bool {
        self.mailbox.is_closed()
    }
}

impl fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeHandle({:?})", self.mailbox)
    }
}

/// Gives the result of [`NodeHandle::call_later`] to the one who waits for it.
pub struct Answer<R>(oneshot::Sender<R>);

impl<R> Answer<R> {
    /// Gives it. If nothing waits for it any more, it is dropped.
    pub fn give(self, result: R) {
        drop(self.0.send(result));
    }
}

impl<R> fmt::Debug for Answer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// A closure on its way through the node's thread, from [`NodeHandle::call`].
pub struct Call<R> {
    rx: Receiver<R>,
    busy: bool,
    mailbox: Arc<Mailbox>,
}

impl<R> Call<R> {
    /// Waits for the result on this thread.
    ///
    /// # Errors
    /// [`OpError::Stopped`], [`OpError::Busy`], and [`OpError::WouldDeadlock`] on the node's own
    /// thread.
    pub fn blocking(self) -> Result<R, OpError> {
        if self.mailbox.is_here() {
            return Err(OpError::WouldDeadlock);
        }
        block_on(self)
    }
}

impl<R> Future for Call<R> {
    type Output = Result<R, OpError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let gone = if self.busy { OpError::Busy(COMMANDS_MAX) } else { OpError::Stopped };
        Pin::new(&mut self.rx).poll(cx).map(|result| result.ok_or(gone))
    }
}

/// A ping or discovery under way.
#[must_use = "the answer is only seen when it is awaited or waited for"]
pub struct Asked(Call<Result<Found, OpError>>);

impl Asked {
    /// Waits for the answer on this thread.
    ///
    /// # Errors
    /// [`OpError::Question`] with what the node says, and those of [`Call::blocking`].
    pub fn blocking(self) -> Result<Found, OpError> {
        self.0.blocking()?
    }
}

impl Future for Asked {
    type Output = Result<Found, OpError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Result::flatten)
    }
}

/// The end of a node, from [`NodeHandle::stop`].
pub struct Stopped {
    mailbox: Arc<Mailbox>,
}

impl Stopped {
    /// Waits on this thread until the node has stopped and its sockets are closed. On the node's own
    /// thread it returns at once: the node stops after this turn.
    pub fn blocking(self) {
        if !self.mailbox.is_here() {
            block_on(self.wait());
        }
    }

    /// Waits until the node has stopped and its sockets are closed.
    pub async fn wait(self) {
        self.mailbox.gone().await;
    }
}

/// A buffer with code behind it, from [`NodeHandle::attach_handler`]. Detached when dropped.
pub struct Service {
    key: u64,
    mailbox: Arc<Mailbox>,
    _handle: Option<NodeHandle>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.mailbox.push(Command::Release(self.key));
    }
}
