//! One host: commands and code run in it, links that go down and come back, rates and filters.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Error, Process, process};

/// A network namespace with a name. Cheap to clone: the [`crate::World`] owns the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    namespace: String,
    name: String,
}

impl Host {
    pub(crate) fn new(namespace: String, name: &str) -> Self {
        Self { namespace, name: name.to_owned() }
    }

    /// The name that the test gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name that `ip netns` knows it by.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A command that will run in this host. The child is the program itself (`ip` replaces itself
    /// by it), so its id and its signals are the program's.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    /// Runs a command line to its end and returns its output.
    ///
    /// # Errors
    /// It cannot be started or does not exit with 0.
    pub fn run<I>(&self, args: I) -> Result<Output, Error>
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).args(args);
        process::run(command)
    }

    /// Starts `command` (made by [`Self::command`]) and kills it when the guard goes away.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&self, command: Command) -> Result<Process, Error> {
        Process::spawn(command)
    }

    /// Runs `f` on a thread of its own inside this host. Sockets that it opens and threads that it
    /// starts belong to the host for good, wherever they are used later.
    ///
    /// # Panics
    /// When the namespace cannot be entered, and when `f` panics.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let path = PathBuf::from("/run/netns").join(&self.namespace);
        let run = || {
            let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .unwrap_or_else(|e| panic!("entering {}: {e}", path.display()));
            f()
        };
        thread::scope(|scope| match scope.spawn(run).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Takes an interface down, as pulling its cable and its software together do.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn link_down(&self, interface: &str) -> Result<(), Error> {
        self.ip(["link", "set", interface, "down"])
    }

    /// Brings an interface up. IPv6 addresses that went with it are not given back.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn link_up(&self, interface: &str) -> Result<(), Error> {
        self.ip(["link", "set", interface, "up"])
    }

    /// Adds an address in CIDR form, usable at once.
    ///
    /// # Errors
    /// No such interface, no address, or one that it has already.
    pub fn address_add(&self, interface: &str, cidr: &str) -> Result<(), Error> {
        if cidr.contains(':') {
            return self.ip(["address", "add", cidr, "dev", interface, "nodad"]);
        }
        self.ip(["address", "add", cidr, "dev", interface])
    }

    /// Removes an address.
    ///
    /// # Errors
    /// The interface does not have it.
    pub fn address_del(&self, interface: &str, cidr: &str) -> Result<(), Error> {
        self.ip(["address", "del", cidr, "dev", interface])
    }

    /// Limits what leaves by `interface` to `rate` in tc's notation (`1gbit`), by a token bucket
    /// that holds 256 KiB and queues at most 50 ms. Limit both ends for both directions.
    ///
    /// # Errors
    /// No such interface, a rate that is none, or a kernel without `tbf`.
    pub fn rate_limit(&self, interface: &str, rate: &str) -> Result<(), Error> {
        self.shape(interface, rate, "256kb", "50ms")
    }

    /// [`Self::rate_limit`] with a bucket of `burst` (tc's notation: `32kb`) and a queue in which
    /// nothing waits longer than `latency` (`50ms`). A link that has one keeps what is in its queue.
    ///
    /// # Errors
    /// As there.
    pub fn shape(
        &self,
        interface: &str,
        rate: &str,
        burst: &str,
        latency: &str,
    ) -> Result<(), Error> {
        let bucket = ["tbf", "rate", rate, "burst", burst, "latency", latency];
        self.qdisc(interface, "tbf", &bucket)
    }

    /// Ends the TCP connections that `filter` (words of `ss`: `src 10.77.0.2`) selects: both ends
    /// see them reset. Connections that are not there are no error.
    ///
    /// # Errors
    /// `ss` fails.
    pub fn kill_connections(&self, filter: &str) -> Result<(), Error> {
        self.run(["ss", "--kill", "--tcp"].into_iter().chain(filter.split_whitespace())).map(drop)
    }

    /// Applies `netem` words (`delay 5ms loss 1%`) to what leaves by `interface`.
    ///
    /// # Errors
    /// No such interface, words that netem does not know, or a kernel without `netem`
    /// ([`Error::NoQdisc`], on which a test skips).
    pub fn netem(&self, interface: &str, words: &str) -> Result<(), Error> {
        let all: Vec<&str> = ["netem"].into_iter().chain(words.split_whitespace()).collect();
        self.qdisc(interface, "netem", &all)
    }

    /// Takes rate limits and netem away again.
    ///
    /// # Errors
    /// There are none.
    pub fn qdisc_clear(&self, interface: &str) -> Result<(), Error> {
        self.run(["tc", "qdisc", "del", "dev", interface, "root"]).map(drop)
    }

    /// Gives `script` to `nft -f -` in this host.
    ///
    /// # Errors
    /// nft is not installed or does not like the script; what it says is in the error.
    pub fn nft(&self, script: &str) -> Result<(), Error> {
        let mut command = self.command("nft");
        command.args(["-f", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let start = |source| Error::Start { command: "nft -f -".to_owned(), source };
        let mut child = command.spawn().map_err(start)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A broken pipe means that nft has ended; its status and words say why.
            let _ = stdin.write_all(script.as_bytes());
        }
        let output = child.wait_with_output().map_err(start)?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Failed {
            command: format!("nft -f - in {}", self.name),
            status: output.status,
            stderr: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        })
    }

    pub(crate) fn ip<const N: usize>(&self, args: [&str; N]) -> Result<(), Error> {
        process::ip(["-n", &self.namespace].into_iter().chain(args)).map(drop)
    }

    fn qdisc(&self, interface: &str, kind: &'static str, words: &[&str]) -> Result<(), Error> {
        let head = ["tc", "qdisc", "replace", "dev", interface, "root"];
        match self.run(head.iter().chain(words)) {
            Err(Error::Failed { stderr, .. }) if stderr.contains("qdisc kind is unknown") => {
                Err(Error::NoQdisc(kind))
            }
            other => other.map(drop),
        }
    }
}
