//! What can be looked at over HTTP: a status page and numbers for Prometheus. Read-only, off unless
//! asked for, on loopback by default. It decides nothing and changes nothing.
//!
//! `request.rs` reads a client's request, `accept.rs` in which format, `server.rs` bounds what
//! clients may cost, `metrics.rs` and `status.rs` make texts from a picture (`../picture.rs`) and
//! `process.rs`, `history.rs` remembers an hour.

mod accept;
mod history;
mod metrics;
mod process;
mod request;
mod server;
mod status;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use self::history::{History, SERIES_MAX};
use self::process::Process;
use self::request::What;
use self::server::Answer;
use crate::control::Control;
use crate::picture::Picture;

/// Peer interfaces that are looked at for a page or for metrics; of more, the oldest peers' are.
const PEER_NIS_MAX: usize = 8192;
/// A picture this young is shown again instead of a new one being taken: many clients cost the node
/// no more than one.
const FRESH: Duration = Duration::from_millis(250);
/// How often health is looked at for the history.
const LOOK: Duration = Duration::from_secs(1);

/// What clients are shown, and what that takes.
#[derive(Debug)]
struct Site {
    control: Arc<Control>,
    started: Instant,
    /// Start of the process, Unix time.
    process_start: Option<f64>,
    history: Mutex<History>,
    picture: Mutex<Option<(Instant, Arc<Picture>)>>,
    /// Requests of this server that were refused.
    refused: AtomicU64,
}

/// Listens at `address` and serves on threads of its own, for as long as the process lives.
pub(crate) fn start(address: SocketAddr, control: &Arc<Control>) -> anyhow::Result<()> {
    let failed = || format!("status server on {address}");
    let listener = TcpListener::bind(address).with_context(failed)?;
    let bound = listener.local_addr().with_context(failed)?;
    let site = Arc::new(Site {
        control: Arc::clone(control),
        started: Instant::now(),
        process_start: process::start(),
        history: Mutex::default(),
        picture: Mutex::default(),
        refused: AtomicU64::new(0),
    });
    watch(Arc::clone(&site)).with_context(failed)?;
    server::serve(listener, site).with_context(failed)?;
    tracing::info!("status page on http://{bound}/, metrics on http://{bound}/metrics");
    Ok(())
}

/// Looks at the health of all interfaces again and again.
fn watch(site: Arc<Site>) -> io::Result<()> {
    thread::Builder::new().name("lnetd-history".to_owned()).spawn(move || {
        loop {
            let healths = site.control.healths(SERIES_MAX);
            let seconds = site.started.elapsed().as_secs();
            match healths {
                Some((healths, stats)) => site.history().add(seconds, &healths, &stats),
                None => site.history().pause(),
            }
            thread::sleep(LOOK);
        }
    })?;
    Ok(())
}

impl Site {
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A picture that is fresh. Those who ask at the same time wait for one.
    fn picture(&self) -> Arc<Picture> {
        let mut last = self.picture.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, picture)) if at.elapsed() < FRESH => Arc::clone(picture),
            _ => {
                let picture = Arc::new(self.control.picture(PEER_NIS_MAX));
                *last = Some((Instant::now(), Arc::clone(&picture)));
                picture
            }
        }
    }

    fn answer(&self, what: &What) -> Answer {
        match what {
            What::Page => Answer {
                content_type: "text/html; charset=utf-8",
                body: page(&host()).into_bytes(),
            },
            What::Metrics(format) => Answer {
                content_type: format.content_type(),
                body: metrics::text(&self.picture(), &Process::read(self.process_start), *format)
                    .into_bytes(),
            },
            What::Status(filter) => {
                let (picture, refused) = (self.picture(), self.refused.load(Ordering::Relaxed));
                let status = status::of(&picture, &self.history(), filter, refused);
                Answer { content_type: "application/json", body: status }
            }
        }
    }
}

/// The name that the page and its document show.
fn host() -> String {
    lnet_admin::host_name().unwrap_or_else(|| "this node".to_owned())
}

/// The page with the name of the node in its title, so that tabs differ without a script too.
fn page(host: &str) -> String {
    let escaped = host.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    include_str!("page.html").replace(HOST_PLACE, &escaped)
}

/// Where the page has the name of the node.
const HOST_PLACE: &str = "@HOST@";

/// An address as `--http` takes it: `9110` and `:9110` are on loopback.
///
/// # Errors
/// A sentence that names what was expected.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let wrong =
        || "expected a port (on loopback) or IP:PORT, such as 9110 or 0.0.0.0:9110".to_owned();
    text.parse().map_err(|_| wrong())
}
