//! A node, and what it does for a caller that waits or for an event loop.

use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::time::Duration;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lnet_rt::{
    Buffer, Errno, Found, NodeBuilder, NodeHandle, OpError, OpFailed, Profile, RouteSpec,
    SockConfig, Spin, TcpNi, Tunables,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use ulnet::queue::{Key, Queue, Taken};

use crate::errors::{Failure, value};
use crate::wait::{Once, limit, nid, seconds, wait};

/// The end of an operation.
pub(crate) enum Outcome {
    /// A PUT: bytes moved.
    Sent(Result<u32, OpError>),
    /// A GET: the bytes.
    Fetched(Result<(Buffer, u32), OpError>),
    /// A ping or discovery.
    Found(Result<Found, OpError>),
}

type Pending = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Outcome {
    /// As Python sees it.
    fn into_object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Sent(sent) => {
                Ok(sent.map_err(Failure::from)?.into_pyobject(py)?.into_any().unbind())
            }
            Self::Fetched(fetched) => {
                let (buffer, length) = fetched.map_err(Failure::from)?;
                let bytes = buffer.get(..length as usize).unwrap_or(&buffer);
                Ok(PyBytes::new(py, bytes).into_any().unbind())
            }
            Self::Found(found) => {
                let found = found.map_err(Failure::from)?;
                let nids: Vec<String> = found.nids.iter().map(ToString::to_string).collect();
                let peer = (found.primary.to_string(), found.multi_rail, nids);
                Ok(peer.into_pyobject(py)?.into_any().unbind())
            }
        }
    }
}

/// Bytes of Python, which do not change, lent without a copy: they live as long as the buffer.
#[allow(unsafe_code)]
fn lent(data: &Bound<'_, PyBytes>) -> Buffer {
    let bytes = data.as_bytes();
    let ptr = NonNull::new(bytes.as_ptr().cast_mut()).unwrap_or(NonNull::dangling());
    // SAFETY: bytes objects are immutable and keep their place; the reference, which the buffer drops at its
    // end, keeps this one alive. It is used to send from, so nothing writes through it.
    unsafe { Buffer::foreign(ptr, bytes.len(), data.clone().unbind()) }
}

/// A node on a thread of its own.
#[pyclass(module = "ulnet._ulnet", frozen)]
pub(crate) struct Node {
    pub(crate) handle: NodeHandle,
    /// Ends of what was begun for an event loop.
    ends: Queue<(u64, Outcome)>,
    /// What is under way for one, by number.
    begun: Mutex<BTreeMap<u64, Key>>,
    next: AtomicU64,
}

impl Node {
    fn begun(&self) -> MutexGuard<'_, BTreeMap<u64, Key>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `pending`, or begins it and returns its number.
    fn run(&self, py: Python<'_>, pending: Pending, block: bool) -> PyResult<Py<PyAny>> {
        if block {
            return wait(py, pending)?.into_object(py);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let ended = async move { (number, pending.await) };
        // Held until it is known here: its end may come at once, on another thread.
        let mut begun = self.begun();
        let key = self.ends.add(Box::new(Once::new(ended)));
        begun.insert(number, key.map_err(|_| Failure::from(OpError::Stopped))?);
        drop(begun);
        Ok(number.into_pyobject(py)?.into_any().unbind())
    }

    /// Runs a closure with the node's own thread.
    fn call<R: Send + 'static>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut lnet_rt::Stack, lnet_rt::Instant) -> R + Send + 'static,
    ) -> PyResult<R> {
        Ok(wait(py, self.handle.call(f))?.map_err(Failure::from)?)
    }
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (nids, port, profile, tunables, seed, spin))]
    fn new(
        py: Python<'_>,
        nids: Vec<String>,
        port: u16,
        profile: &str,
        tunables: Vec<(String, i64)>,
        seed: Option<u64>,
        spin: f64,
    ) -> PyResult<Self> {
        let profile = Profile::from_name(profile).ok_or_else(|| {
            let all = Profile::ALL.map(Profile::name).join(", ");
            value("profile", profile, format_args!("expected one of {all}"))
        })?;
        let mut all = Tunables::new(profile);
        let changes: Vec<(&str, i64)> = tunables.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        all.set_all(&changes).map_err(Failure::from)?;
        let nis = nids.iter().map(|name| Ok(TcpNi::new(nid("nid", name)?)));
        let nis = nis.collect::<PyResult<Vec<_>>>()?;
        if port == 0 {
            return Err(value("port", "0", "expected 1 to 65535"));
        }
        let spin = Spin { max: seconds("spin", spin)? };
        let start = || -> Result<NodeHandle, Failure> {
            lnet_rt::log_to_stderr();
            let mut builder = NodeBuilder::new().tunables(all);
            if let Some(seed) = seed {
                builder = builder.seed(seed);
            }
            let mut stack = builder.build()?;
            stack.enable_tcp(SockConfig::on_port(port))?;
            for ni in nis {
                stack.add_tcp_ni(ni)?;
            }
            Ok(stack.spawn("lnet", spin)?)
        };
        let handle = py.detach(start)?;
        Ok(Self { handle, ends: Queue::new(), begun: Mutex::default(), next: AtomicU64::new(1) })
    }

    #[pyo3(signature = (target, portal, match_bits, data, ack, hdr_data, offset, source, timeout, block))]
    #[allow(clippy::too_many_arguments, reason = "the Python half names them")]
    fn put(
        &self,
        py: Python<'_>,
        target: &str,
        portal: u32,
        match_bits: u64,
        data: &Bound<'_, PyBytes>,
        ack: bool,
        hdr_data: u64,
        offset: u32,
        source: Option<&str>,
        timeout: Option<f64>,
        block: bool,
    ) -> PyResult<Py<PyAny>> {
        let target = nid("target", target)?;
        let request = self.handle.put(target, portal, match_bits, lent(data));
        let mut request = request.hdr_data(hdr_data).offset(offset);
        if ack {
            request = request.ack();
        }
        if let Some(source) = source {
            request = request.source(nid("source", source)?);
        }
        if let Some(limit) = limit("timeout", timeout)? {
            request = request.timeout(limit);
        }
        let operation = request.into_future();
        let sent = async move {
            Outcome::Sent(match operation.await {
                Ok(moved) => Ok(moved.mlength),
                Err(OpFailed { error, .. }) => Err(error),
            })
        };
        self.run(py, Box::pin(sent), block)
    }

    #[pyo3(signature = (target, portal, match_bits, length, offset, source, timeout, block))]
    #[allow(clippy::too_many_arguments, reason = "the Python half names them")]
    fn get(
        &self,
        py: Python<'_>,
        target: &str,
        portal: u32,
        match_bits: u64,
        length: u32,
        offset: u32,
        source: Option<&str>,
        timeout: Option<f64>,
        block: bool,
    ) -> PyResult<Py<PyAny>> {
        let target = nid("target", target)?;
        let room = Buffer::zeroed(length as usize);
        let mut request = self.handle.get(target, portal, match_bits, room).offset(offset);
        if let Some(source) = source {
            request = request.source(nid("source", source)?);
        }
        if let Some(limit) = limit("timeout", timeout)? {
            request = request.timeout(limit);
        }
        let operation = request.into_future();
        let fetched = async move {
            Outcome::Fetched(match operation.await {
                Ok(moved) => Ok((moved.buffer, moved.mlength)),
                Err(OpFailed { error, .. }) => Err(error),
            })
        };
        self.run(py, Box::pin(fetched), block)
    }

    #[pyo3(signature = (target, timeout, source, block))]
    fn ping(
        &self,
        py: Python<'_>,
        target: &str,
        timeout: f64,
        source: Option<&str>,
        block: bool,
    ) -> PyResult<Py<PyAny>> {
        let (target, limit) = (nid("target", target)?, seconds("timeout", timeout)?);
        let asked = match source {
            None => self.handle.ping(target, limit),
            Some(source) => self.handle.ping_from(nid("source", source)?, target, limit),
        };
        self.run(py, Box::pin(async move { Outcome::Found(asked.await) }), block)
    }

    #[pyo3(signature = (target, force, block))]
    fn discover(
        &self,
        py: Python<'_>,
        target: &str,
        force: bool,
        block: bool,
    ) -> PyResult<Py<PyAny>> {
        let target = nid("target", target)?;
        let asked =
            if force { self.handle.discover_again(target) } else { self.handle.discover(target) };
        self.run(py, Box::pin(async move { Outcome::Found(asked.await) }), block)
    }

    /// A descriptor that polls readable while ends of what was begun may be there.
    fn fileno(&self) -> PyResult<i32> {
        // The queue keeps it open.
        Ok(self.ends.fd().map_err(Failure::from)?.as_raw_fd())
    }

    /// The next end of what was begun: number, result, exception. `None` if there is none now.
    fn next_end<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match py.detach(|| self.ends.next(Some(Duration::ZERO))) {
            Taken::Event((number, outcome)) => {
                self.begun().remove(&number);
                let (result, error) = match outcome.into_object(py) {
                    Ok(result) => (result, py.None()),
                    Err(error) => (py.None(), error.into_value(py).into_any()),
                };
                (number, result, error).into_pyobject(py).map(Some)
            }
            Taken::Nothing | Taken::Closed => Ok(None),
        }
    }

    /// Cancels what was begun, if it has not ended.
    fn cancel(&self, py: Python<'_>, number: u64) {
        py.detach(|| {
            let key = self.begun().remove(&number);
            if let Some(key) = key {
                self.ends.remove(key);
            }
        });
    }

    fn nids(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.call(py, |stack, _| {
            let nets = stack.node().net_views();
            let nids = nets.iter().flat_map(|net| &net.nis).map(|ni| ni.nid);
            nids.filter(|nid| !nid.is_loopback()).map(|nid| nid.to_string()).collect()
        })
    }

    fn add_ni(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let ni = TcpNi::new(nid("nid", name)?);
        self.call(py, move |stack, _| stack.add_tcp_ni(ni))?.map_err(Failure::from)?;
        Ok(())
    }

    fn del_ni(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let nid = nid("nid", name)?;
        let gone = self.call(py, move |stack, _| {
            let nets = stack.node().net_views();
            let ni = nets.iter().flat_map(|net| &net.nis).find(|ni| ni.nid == nid);
            ni.map(|ni| ni.id).ok_or(Errno::ENOENT).and_then(|ni| stack.del_ni(ni))
        })?;
        gone.map_err(|errno| Failure::new(errno, format!("nid {nid}: {errno}")))?;
        Ok(())
    }

    fn add_peer(&self, py: Python<'_>, primary: &str, nids: Vec<String>) -> PyResult<()> {
        let primary = nid("primary", primary)?;
        let nids = nids.iter().map(|name| nid("nid", name)).collect::<PyResult<Vec<_>>>()?;
        let add = move |stack: &mut lnet_rt::Stack, now| {
            stack.node_mut().peer_add(now, primary, &nids, true, false)
        };
        let added = self.call(py, add)?;
        added.map_err(|errno| Failure::new(errno, format!("peer {primary}: {errno}")))?;
        Ok(())
    }

    fn add_route(
        &self,
        py: Python<'_>,
        net: &str,
        gateway: &str,
        hops: Option<u32>,
        priority: u32,
    ) -> PyResult<()> {
        let gateway = nid("gateway", gateway)?;
        let net = net.parse().map_err(|e| value("net", net, e))?;
        let spec = RouteSpec { net, gateway, hops, priority };
        let added = self.call(py, move |stack, now| stack.node_mut().add_route(now, spec))?;
        added.map_err(Failure::from)?;
        Ok(())
    }

    fn set(&self, py: Python<'_>, name: String, to: i64) -> PyResult<()> {
        let set = move |stack: &mut lnet_rt::Stack, _| stack.set_tunables(&[(&name, to)]);
        self.call(py, set)?.map_err(Failure::from)?;
        Ok(())
    }

    fn value(&self, py: Python<'_>, name: String) -> PyResult<i64> {
        let asked = name.clone();
        let found = self.call(py, move |stack, _| stack.node().tunables().value(&asked))?;
        let unknown = || Failure::new(Errno::ENOENT, format!("no tunable is called '{name}'"));
        Ok(found.ok_or_else(unknown)?)
    }

    fn stop(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        let stopped = self.handle.stop(seconds("grace", grace)?);
        wait(py, stopped.wait())
    }

    fn is_stopped(&self) -> bool {
        self.handle.is_stopped()
    }
}
