//! The control socket of a daemon: requests of its own protocol, and the commands of `lnetctl`, run in this
//! process, as JSON.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lnet_admin::{Ask as _, Client, ClientError, Request, default_socket};
use lnet_rt::Errno;
use lnetctl::Session;
use pyo3::prelude::*;

use crate::errors::{Failure, value};
use crate::wait::SLICE;

/// How long the socket of a daemon that is starting may take to appear.
const APPEARS_WITHIN: Duration = Duration::from_secs(2);

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let errno = error.errno();
        let text = match &error {
            ClientError::Refused(refusal) => match &refusal.detail {
                Some(detail) => format!("{}: {detail}", refusal.text),
                None => refusal.text.clone(),
            },
            _ => error.to_string(),
        };
        Self::new(errno, text)
    }
}

/// A connection to a daemon, made when it is first needed.
#[pyclass(module = "ulnet._ulnet", frozen)]
pub(crate) struct Control {
    socket: Option<PathBuf>,
    client: Arc<Mutex<Option<Client>>>,
}

impl Control {
    /// Runs `f` with the connection on a thread beside this one, so that a signal can end the wait. The
    /// connection of a call that was ended so is given up with it.
    fn with<R: Send + 'static>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Client) -> (R, bool) + Send + 'static,
    ) -> PyResult<R> {
        let (kept, named) = (Arc::clone(&self.client), self.socket.clone());
        let (done, mut end) = sync_channel(1);
        let work = move || -> Result<R, Failure> {
            let client = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut client = match (client, named) {
                (Some(client), _) => client,
                (None, Some(path)) => Client::connect_within(path, APPEARS_WITHIN)?,
                (None, None) => Client::connect(default_socket())?,
            };
            let (result, is_good) = f(&mut client);
            if is_good {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
            }
            Ok(result)
        };
        // A caller that was interrupted does not want it any more.
        let run = move || _ = done.send(work());
        thread::Builder::new().name("ulnet-admin".to_owned()).spawn(run).map_err(Failure::from)?;
        loop {
            let end = &mut end;
            match py.detach(move || end.recv_timeout(SLICE)) {
                Ok(result) => return Ok(result?),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => {
                    let text = "the call to the daemon died: a defect, see standard error";
                    return Err(Failure::new(Errno::EIO, text).into());
                }
            }
        }
    }
}

#[pymethods]
impl Control {
    #[new]
    fn new(socket: Option<PathBuf>) -> Self {
        Self { socket, client: Arc::default() }
    }

    /// The path of the socket.
    #[getter]
    fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(default_socket)
    }

    /// A request of the protocol as JSON; the reply as JSON.
    fn request(&self, py: Python<'_>, request: &str, timeout: f64) -> PyResult<String> {
        let request: Request =
            serde_json::from_str(request).map_err(|e| value("request", request, e))?;
        let limit = crate::wait::seconds("timeout", timeout)?;
        let reply = self.with(py, move |client| {
            let reply = client.ask_within(&request, limit);
            let is_good = matches!(reply, Ok(_) | Err(ClientError::Refused(_)));
            (reply, is_good)
        })?;
        let reply = reply.map_err(Failure::from)?;
        Ok(serde_json::to_string(&reply).map_err(|e| Failure::new(Errno::EIO, e.to_string()))?)
    }

    /// A command of lnetctl: return code, output (JSON of what it shows), complaints.
    fn command(&self, py: Python<'_>, words: Vec<String>) -> PyResult<(i32, String, String)> {
        self.with(py, move |client| {
            let mut session = Session::new(client);
            session.json = true;
            session.explain = true;
            let code = lnetctl::run(&mut session, &words);
            let (out, err) = (session.out, session.err);
            // What a command makes of an error of the connection can't be seen: after a failure the next
            // call has a new one.
            ((code, out, err), code == 0)
        })
    }
}
