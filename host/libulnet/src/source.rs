//! The sources of events that a node has: operations, inboxes, attachments.

use core::future::{Future, IntoFuture};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use lnet_rt::{Attachment, Event, Inbox, Message, Moved, OpFailed, OpFuture};

use crate::lease::Lease;
use crate::queue::Source;

/// An operation with lent memory: one event, when the memory is the program's again. Dropped before, it
/// is cancelled, and the memory awaited.
pub struct OperationSource<F> {
    future: Option<OpFuture>,
    lease: Arc<Lease>,
    /// Makes the event.
    end: Option<F>,
}

impl<F> OperationSource<F> {
    /// Starts `request`, whose buffer is that of `lease`.
    pub fn start(
        request: impl IntoFuture<IntoFuture = OpFuture>,
        lease: impl Into<Arc<Lease>>,
        end: F,
    ) -> Self {
        Self { future: Some(request.into_future()), lease: lease.into(), end: Some(end) }
    }
}

impl<T, F> Source<T> for OperationSource<F>
where
    F: FnOnce(Result<u32, OpFailed>) -> T + Send,
{
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(future) = &mut self.future else { return Poll::Ready(None) };
        let Poll::Ready(outcome) = Pin::new(future).poll(cx) else { return Poll::Pending };
        self.future = None;
        let outcome = settled(outcome, &self.lease);
        Poll::Ready(self.end.take().map(|end| end(outcome)))
    }
}

impl<F> Drop for OperationSource<F> {
    fn drop(&mut self) {
        self.future = None;
        self.lease.wait();
    }
}

/// Gives lent memory back: the bytes moved, or the failure without its buffer.
///
/// # Errors
/// The outcome's.
pub fn settled(outcome: Result<Moved, OpFailed>, lease: &Lease) -> Result<u32, OpFailed> {
    let outcome = match outcome {
        Ok(Moved { buffer, mlength }) => {
            drop(buffer);
            Ok(mlength)
        }
        Err(OpFailed { error, buffer }) => {
            drop(buffer);
            Err(OpFailed { error, buffer: None })
        }
    };
    lease.wait();
    outcome
}

type Next<V> = Pin<Box<dyn Future<Output = Option<V>> + Send>>;

/// Messages of an inbox; the last event says that there will be none.
pub struct InboxSource<F> {
    inbox: Arc<Inbox>,
    armed: Option<Next<Message>>,
    ended: bool,
    /// Makes the event; `None` at the end.
    event: F,
}

impl<F> InboxSource<F> {
    /// The messages of `inbox` as `event` makes them.
    pub const fn new(inbox: Arc<Inbox>, event: F) -> Self {
        Self { inbox, armed: None, ended: false, event }
    }
}

impl<T, F> Source<T> for InboxSource<F>
where
    F: FnMut(Option<Message>) -> T + Send,
{
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let inbox = &self.inbox;
        let next = poll_stream(
            &mut self.armed,
            cx,
            || inbox.try_recv(),
            || {
                let inbox = Arc::clone(inbox);
                Box::pin(async move { inbox.recv().await })
            },
        );
        let Poll::Ready(message) = next else { return Poll::Pending };
        self.ended = message.is_none();
        Poll::Ready(Some((self.event)(message)))
    }
}

/// An event at an attached buffer, and where its bytes begin.
#[derive(Clone, Copy, Debug)]
pub struct Landed {
    /// The event.
    pub event: Event,
    /// First byte of a PUT that can be read in place.
    pub at: Option<usize>,
}

/// Events of an attachment; the last one says that there will be none.
pub struct AttachmentSource<F> {
    attachment: Arc<Attachment>,
    armed: Option<Next<Landed>>,
    ended: bool,
    /// Makes the event; `None` at the end.
    event: F,
}

impl<F> AttachmentSource<F> {
    /// The events of `attachment` as `event` makes them.
    pub const fn new(attachment: Arc<Attachment>, event: F) -> Self {
        Self { attachment, armed: None, ended: false, event }
    }
}

fn landed(delivery: &lnet_rt::Delivery<'_>) -> Landed {
    let at = (!delivery.is_empty()).then_some(delivery.event.offset as usize);
    Landed { event: delivery.event, at }
}

impl<T, F> Source<T> for AttachmentSource<F>
where
    F: FnMut(Option<Landed>) -> T + Send,
{
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let attachment = &self.attachment;
        let there = || attachment.try_recv().map(|d| landed(&d));
        let next = poll_stream(&mut self.armed, cx, there, || {
            let attachment = Arc::clone(attachment);
            Box::pin(async move { attachment.recv().await.map(|d| landed(&d)) })
        });
        let Poll::Ready(landed) = next else { return Poll::Pending };
        self.ended = landed.is_none();
        Poll::Ready(Some((self.event)(landed)))
    }
}

/// The next of a stream: what is there already, without a future of its own; else one that waits, which
/// is kept until it has woken us.
fn poll_stream<V>(
    armed: &mut Option<Next<V>>,
    cx: &mut Context<'_>,
    there: impl FnOnce() -> Option<V>,
    wait: impl FnOnce() -> Next<V>,
) -> Poll<Option<V>> {
    if armed.is_none()
        && let Some(value) = there()
    {
        return Poll::Ready(Some(value));
    }
    let polled = armed.get_or_insert_with(wait).as_mut().poll(cx);
    if polled.is_ready() {
        *armed = None;
    }
    polled
}

#[cfg(test)]
mod tests {
    use core::ptr::NonNull;
    use core::time::Duration;
    use std::net::TcpListener;
    use std::sync::Weak;

    use lnet_rt::{Nid, NodeBuilder};

    use super::*;
    use crate::queue::{Queue, Taken};

    #[test]
    #[allow(unsafe_code)]
    fn a_cancelled_operation_gives_its_memory_back_before_its_source_is_gone() {
        let port = TcpListener::bind("127.0.0.8:0").unwrap().local_addr().unwrap().port();
        let node = NodeBuilder::new().tcp("127.0.0.8".parse().unwrap(), port).start().unwrap();
        let bytes: Arc<[u8]> = vec![0; 1 << 20].into();
        let kept: Weak<[u8]> = Arc::downgrade(&bytes);
        let at = NonNull::new(bytes.as_ptr().cast_mut()).unwrap();
        // SAFETY: `bytes` outlives the source, and is sent from only.
        let (lease, buffer) = unsafe { Lease::new(at, bytes.len()) };
        let lease = Arc::new(lease);
        // A listener that never answers: the request is under way for as long as it likes.
        let silent = TcpListener::bind(("127.0.0.9", port)).unwrap();
        let to: Nid = "127.0.0.9@tcp".parse().unwrap();
        let source =
            OperationSource::start(node.put(to, 1, 1, buffer), Arc::clone(&lease), |_| 7u32);
        let queue = Queue::new();
        let key = queue.add(Box::new(source)).unwrap();
        assert_eq!(queue.next(Some(Duration::from_millis(100))), Taken::Nothing);
        assert!(!lease.is_over());
        queue.remove(key);
        assert!(lease.is_over());
        drop((bytes, silent));
        assert!(kept.upgrade().is_none());
    }

    #[test]
    #[allow(unsafe_code)]
    fn the_end_of_an_operation_comes_once_and_with_its_memory() {
        let node = NodeBuilder::new().start().unwrap();
        let mut bytes = [0u8; 16];
        // SAFETY: `bytes` outlives the queue, and is not touched before its end.
        let (lease, buffer) = unsafe { Lease::new(NonNull::from(&mut bytes).cast(), 16) };
        let lease = Arc::new(lease);
        let to: Nid = "127.0.0.9@tcp".parse().unwrap();
        let end = |outcome: Result<u32, OpFailed>| outcome.is_err();
        let source = OperationSource::start(node.get(to, 1, 1, buffer), Arc::clone(&lease), end);
        let queue = Queue::new();
        queue.add(Box::new(source)).unwrap();
        // Without an interface there is no path.
        assert_eq!(queue.next(None), Taken::Event(true));
        assert!(lease.is_over());
        assert_eq!(queue.next(Some(Duration::ZERO)), Taken::Nothing);
    }
}
