//! Memory at a portal, for programs that match by hand and for bytes that peers read.

use std::sync::{Arc, Mutex, PoisonError};

use lnet_rt::{AttachOptions, Buffer, Errno, EventKind};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use ulnet::queue::{Queue, Taken};
use ulnet::source::{AttachmentSource, Landed};

use crate::errors::Failure;
use crate::inbox::match_entry;
use crate::node::Node;
use crate::wait::{limit, next, wait};

/// A buffer at a portal.
#[pyclass(module = "ulnet._ulnet", frozen)]
pub(crate) struct Attachment {
    queue: Queue<Option<Landed>>,
    /// `None` once it is detached.
    attachment: Mutex<Option<Arc<lnet_rt::Attachment>>>,
}

impl Attachment {
    fn attachment(&self) -> Result<Arc<lnet_rt::Attachment>, Failure> {
        let attachment = self.attachment.lock().unwrap_or_else(PoisonError::into_inner);
        attachment.clone().ok_or_else(|| Failure::new(Errno::ESHUTDOWN, "the buffer is detached"))
    }
}

#[pymethods]
impl Attachment {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "the Python half names them")]
    fn new(
        py: Python<'_>,
        node: &Node,
        portal: u32,
        match_bits: u64,
        ignore_bits: u64,
        from: Option<&str>,
        data: &[u8],
        put: bool,
        get: bool,
        manage_remote: bool,
        truncate: bool,
        threshold: Option<u32>,
    ) -> PyResult<Self> {
        let entry = match_entry(match_bits, ignore_bits, from)?;
        let options =
            AttachOptions { put, get, manage_remote, truncate, threshold, ..AttachOptions::PUT };
        let (handle, buffer) = (node.handle.clone(), Buffer::from(data));
        let attach = async move { handle.attach_async(portal, entry, buffer, options).await };
        let attached = wait(py, attach)?.map_err(|failed| Failure::from(failed.error))?;
        let (attached, queue) = (Arc::new(attached), Queue::new());
        let source = AttachmentSource::new(Arc::clone(&attached), |landed| landed);
        let _ = queue.add(Box::new(source));
        Ok(Self { queue, attachment: Mutex::new(Some(attached)) })
    }

    /// The next event within so many seconds: `(False, None)` without one, `(True, None)` at the end.
    #[allow(clippy::type_complexity, reason = "a pair for the Python half")]
    fn take<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<(bool, Option<Bound<'py, PyTuple>>)> {
        match next(py, &self.queue, limit("timeout", timeout)?)? {
            Taken::Event(Some(Landed { event, .. })) => {
                let kind = match event.kind {
                    EventKind::Put => "put",
                    EventKind::Get => "get",
                    EventKind::Unlink | EventKind::Send | EventKind::Ack | EventKind::Reply => {
                        "unlink"
                    }
                };
                let fields = (
                    kind,
                    event.offset,
                    event.mlength,
                    event.initiator.nid.to_string(),
                    event.initiator.pid.0,
                    event.match_bits,
                    event.hdr_data,
                );
                Ok((false, Some(fields.into_pyobject(py)?)))
            }
            Taken::Event(None) | Taken::Closed => Ok((true, None)),
            Taken::Nothing => Ok((false, None)),
        }
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let attachment = self.attachment()?;
        let read = async move {
            let mut bytes = vec![0; length];
            attachment.read_at(offset, &mut bytes).await.map(|()| bytes)
        };
        Ok(PyBytes::new(py, &wait(py, read)?.map_err(Failure::from)?))
    }

    fn write(&self, py: Python<'_>, offset: u64, data: &[u8]) -> PyResult<()> {
        let (attachment, bytes) = (self.attachment()?, data.to_vec());
        let write = async move { attachment.write_at(offset, bytes).await };
        Ok(wait(py, write)?.map_err(Failure::from)?)
    }

    fn detach(&self, py: Python<'_>) {
        py.detach(|| {
            self.queue.close();
            drop(self.attachment.lock().unwrap_or_else(PoisonError::into_inner).take());
        });
    }
}
