//! An inbox: messages are copied into bytes objects when they are taken, so a buffer is posted again
//! without the program's help, and a program that takes none slows its senders down.

use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, PoisonError};

use lnet_rt::{InboxOptions, MatchEntry, Message, NodeHandle, Pid, ProcessId};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use ulnet::queue::{Queue, Taken};
use ulnet::source::InboxSource;

use crate::errors::Failure;
use crate::node::Node;
use crate::wait::{limit, next, nid, wait};

/// A match entry from arguments.
pub(crate) fn match_entry(bits: u64, ignore: u64, from: Option<&str>) -> PyResult<MatchEntry> {
    let mut entry = MatchEntry { ignore_bits: ignore, ..MatchEntry::bits(bits) };
    if let Some(from) = from {
        entry.from = ProcessId { nid: nid("from", from)?, pid: Pid::ANY };
    }
    Ok(entry)
}

/// Buffers that receive without end.
#[pyclass(module = "ulnet._ulnet", frozen)]
pub(crate) struct Inbox {
    queue: Queue<Option<Message>>,
    /// `None` once it is closed.
    inbox: Mutex<Option<Arc<lnet_rt::Inbox>>>,
}

/// Opens one without the interpreter's lock.
fn opened(
    py: Python<'_>,
    handle: NodeHandle,
    portal: u32,
    entry: MatchEntry,
    options: InboxOptions,
) -> PyResult<lnet_rt::Inbox> {
    let open = async move { handle.inbox_async(portal, entry, options).await };
    Ok(wait(py, open)?.map_err(Failure::from)?)
}

#[pymethods]
impl Inbox {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "the Python half names them")]
    fn new(
        py: Python<'_>,
        node: &Node,
        portal: u32,
        match_bits: u64,
        ignore_bits: u64,
        from: Option<&str>,
        buffers: usize,
        buffer_bytes: usize,
        messages_per_buffer: u32,
        wait: bool,
    ) -> PyResult<Self> {
        let entry = match_entry(match_bits, ignore_bits, from)?;
        let options = InboxOptions { buffers, buffer_bytes, messages_per_buffer, wait };
        let inbox = Arc::new(opened(py, node.handle.clone(), portal, entry, options)?);
        let queue = Queue::new();
        let _ = queue.add(Box::new(InboxSource::new(Arc::clone(&inbox), |message| message)));
        Ok(Self { queue, inbox: Mutex::new(Some(inbox)) })
    }

    /// The next message within so many seconds: `(False, None)` without one, `(True, None)` at the end.
    #[allow(clippy::type_complexity, reason = "a pair for the Python half")]
    fn take<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<(bool, Option<Bound<'py, PyTuple>>)> {
        match next(py, &self.queue, limit("timeout", timeout)?)? {
            Taken::Event(Some(message)) => {
                let event = &message.event;
                let fields = (
                    PyBytes::new(py, &message),
                    event.initiator.nid.to_string(),
                    event.initiator.pid.0,
                    event.portal,
                    event.match_bits,
                    event.hdr_data,
                );
                Ok((false, Some(fields.into_pyobject(py)?)))
            }
            Taken::Event(None) => {
                self.queue.close();
                Ok((true, None))
            }
            Taken::Nothing => Ok((false, None)),
            Taken::Closed => Ok((true, None)),
        }
    }

    /// A descriptor that polls readable while there may be a message.
    fn fileno(&self) -> PyResult<i32> {
        // The queue keeps it open.
        Ok(self.queue.fd().map_err(Failure::from)?.as_raw_fd())
    }

    /// Buffers, posted ones, unread messages, how often none was posted. `None` when it is closed.
    fn state(&self) -> Option<(usize, usize, usize, u64)> {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let state = inbox.as_ref()?.state();
        Some((state.buffers, state.posted, state.unread, state.exhausted))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            self.queue.close();
            drop(self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take());
        });
    }
}
