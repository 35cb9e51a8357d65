//! Waiting for the node or the network: the interpreter goes on meanwhile, and looks at signals, so that
//! Ctrl-C ends a call that waits.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::time::Instant;

use lnet_rt::{Errno, Nid};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ulnet::queue::{Queue, Source, Taken};

use crate::errors::{Failure, value};

/// How long a signal may wait to be seen.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// A future as a source: one event, its output.
pub(crate) struct Once<T>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T> Once<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<T> Source<T> for Once<T> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(future) = &mut self.0 else { return Poll::Ready(None) };
        let Poll::Ready(output) = future.as_mut().poll(cx) else { return Poll::Pending };
        self.0 = None;
        Poll::Ready(Some(output))
    }
}

/// Waits for `future`. A signal whose handler raises ends it, and drops the future.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    future: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let queue = Queue::new();
    let _ = queue.add(Box::new(Once::new(future)));
    match next(py, &queue, None) {
        Ok(Taken::Event(output)) => Ok(output),
        Ok(_) => Err(Failure::new(Errno::ESHUTDOWN, "the node has stopped").into()),
        Err(signal) => {
            py.detach(|| drop(queue));
            Err(signal)
        }
    }
}

/// The next event of a queue within `limit`; for ever if `None`.
pub(crate) fn next<T: Send + 'static>(
    py: Python<'_>,
    queue: &Queue<T>,
    limit: Option<Duration>,
) -> PyResult<Taken<T>> {
    // A limit beyond what the clock can say is none.
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = left.unwrap_or(SLICE).min(SLICE);
        match py.detach(|| queue.next(Some(slice))) {
            Taken::Nothing if left.is_none_or(|left| left > slice) => py.check_signals()?,
            taken => return Ok(taken),
        }
    }
}

/// Seconds as an argument.
pub(crate) fn seconds(field: &str, given: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(given).map_err(|_| {
        PyValueError::new_err(format!("{field} {given}: expected seconds, at least 0"))
    })
}

/// Seconds that may be absent.
pub(crate) fn limit(field: &str, given: Option<f64>) -> PyResult<Option<Duration>> {
    given.map(|given| seconds(field, given)).transpose()
}

/// One NID as an argument.
pub(crate) fn nid(field: &str, given: &str) -> PyResult<Nid> {
    let nid: Nid = given.parse().map_err(|e| value(field, given, e))?;
    if nid.is_any() { Err(value(field, given, "must be one NID")) } else { Ok(nid) }
}
