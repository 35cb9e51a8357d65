//! `ulnet serve`: a node with targets, each on a directory of its own.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use lnet_rt::Nid;
use lustre_rt::store::DirLock;
use lustre_rt::{MDTS_MAX, OSTS_MAX, OstLimits, RpcNode, TargetSpec, Tunables};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::client::nid;
use crate::rails::{self, Routes};
use crate::site;

/// What is served, and where.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet serve kv-1=kv:/srv/kv-1 --listen 10.0.0.1@tcp\n  \
    ulnet serve kv-1=kv:/shared/kv-1 --listen 10.0.0.2@tcp --standby\n  \
    ulnet serve kv-1=kv:/srv/kv-1 --listen 10.0.0.1@tcp,10.0.1.1@tcp1\n  \
    ulnet serve ost-0=ost:/srv/ost-0 e=echo: --listen 10.0.0.1@tcp --json\n  \
    ulnet serve --fs lfs /srv/lfs --osts 4 --listen 10.0.0.1@tcp\n  \
    ulnet serve --fs lfs /srv/lfs --mdts 2 --osts 4 --listen 10.0.0.1@tcp\n  \
    ulnet serve MGS=mgs:/srv/mgs lfs-MDT0000_UUID=mdt:/srv/mdt --listen 10.0.0.1@tcp\n\n\
    The directory of an mgs or mdt target has a file 'targets', which describes the file system: a line \
    for each target, with its uuid and its NIDs, such as 'lfs-OST0000_UUID 10.0.0.2@tcp'.\n\n\
    A lock in the directory keeps two processes from serving it at once, where the file system has \
    locks that work between its nodes. Where it has none, fencing the storage is the site's business.")]
pub(crate) struct Options {
    /// Target: its name, its kind (kv: values, lock: locks, ost: objects, echo: objects in memory, mgs: configuration, mdt: names) and its directory
    #[arg(required_unless_present = "fs", value_name = "NAME=KIND:DIR")]
    targets: Vec<TargetSpec>,
    /// All targets of a small file system, in directories below this one
    #[arg(long, num_args = 2, value_names = ["FSNAME", "DIR"], conflicts_with = "targets")]
    fs: Option<Vec<String>>,
    /// Metadata targets of the file system: `ulnet lustre mkdir -i` makes directories on those with an index above 0
    #[arg(long, requires = "fs", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MDTS_MAX)))]
    mdts: u32,
    /// Object targets of the file system
    #[arg(long, requires = "fs", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(OSTS_MAX)))]
    osts: u32,
    /// NIDs of the node, one for each interface
    #[arg(long, required = true, value_name = "NID,…", value_delimiter = ',', value_parser = nid)]
    listen: Vec<Nid>,
    #[command(flatten)]
    routes: Routes,
    /// TCP port
    #[arg(long, default_value_t = 988)]
    port: u16,
    /// Wait until another process lets go of a directory, and take over
    #[arg(long)]
    standby: bool,
    /// Base of timeouts, seconds: a client that was silent for 1.5 times as long is evicted (by default clients ping every 25 s), and recovery waits three times as long for clients
    #[arg(long, value_name = "SECONDS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=3600))]
    obd_timeout: u64,
    /// Most bytes of the objects of one owner on an object target; no limit if not given
    #[arg(long, value_name = "BYTES")]
    uid_limit: Option<u64>,
    /// Least time that a client has to give a lock back, seconds, before it is evicted
    #[arg(long, value_name = "SECONDS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=3600))]
    ldlm_enqueue_min: u64,
    /// Most that is estimated for what a client or server does, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=3600))]
    at_max: u64,
    /// Print a JSON object for each line
    #[arg(long)]
    json: bool,
}

/// A line of the command's output.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Said<'a> {
    /// A target is served from now on.
    Serving {
        target: &'a str,
        kind: &'static str,
        /// Where it is stored; none if it is in memory.
        directory: Option<String>,
        nids: &'a [String],
    },
    /// Another process has the directory of a target.
    Standby { target: &'a str, why: String },
    /// A line of a target's log.
    Log { target: &'a str, line: &'a str },
}

impl Said<'_> {
    fn text(&self) -> String {
        match self {
            Self::Serving { target, directory, nids, .. } => {
                let what = directory.as_deref().unwrap_or("memory");
                format!("{target}: serving {what} at {}", nids.join(", "))
            }
            Self::Standby { target, why } => format!("{target}: standby, {why}"),
            Self::Log { target, line } => format!("{target}: {line}"),
        }
    }

    /// Prints it at once: others wait for it.
    fn say(&self, json: bool) {
        let line = if json { serde_json::json!(self).to_string() } else { self.text() };
        let mut out = std::io::stdout().lock();
        // A reader that has gone away is no error of ours.
        let _ = writeln!(out, "{line}");
        let _ = out.flush();
    }
}

/// Runs the command until a signal ends it.
///
/// # Errors
/// The address is in use, a directory is locked, damaged or holds something else.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { listen, port, json, .. } = options;
    let json = *json;
    let targets = match options.fs.as_deref() {
        Some([fsname, dir]) => {
            site::targets(fsname, dir.as_ref(), (options.mdts, options.osts), listen)?
        }
        _ => options.targets.clone(),
    };
    distinct(&targets)?;
    let interface = |nid: &Nid| Ok((nid.net(), rails::address(*nid)?));
    let interfaces = listen.iter().map(interface).collect::<Result<Vec<_>>>()?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let node = rails::start(&interfaces, *port, &options.routes, "serve")?;
    let nids: Vec<String> = listen.iter().map(Nid::to_string).collect();
    let tunables = Tunables {
        obd_timeout: Duration::from_secs(options.obd_timeout),
        ldlm_enqueue_min: Duration::from_secs(options.ldlm_enqueue_min),
        at_max: Duration::from_secs(options.at_max),
        ..Tunables::default()
    };
    let rpc = RpcNode::start(&node, tunables)?;
    rpc.log(move |target, lines| {
        lines.lines().for_each(|line| Said::Log { target, line }.say(json));
    })?;
    // A target that is not here yet is answered with ENODEV, and its clients try the partner.
    targets.iter().try_for_each(|target| rpc.serve_kind(target.kind))?;
    let limits = OstLimits { uid_bytes: options.uid_limit };
    for target in &targets {
        match target.lock() {
            Ok(lock) => begin(&rpc, target, lock, limits, &nids)?.say(json),
            Err(e @ lustre_rt::store::OpenError::Locked { .. }) if options.standby => {
                Said::Standby { target: &target.name, why: e.to_string() }.say(json);
                let (rpc, target, nids) = (rpc.clone(), target.clone(), nids.clone());
                thread::spawn(move || {
                    let lock = DirLock::wait(&target.dir).map_err(anyhow::Error::from);
                    match lock.and_then(|lock| begin(&rpc, &target, Some(lock), limits, &nids)) {
                        Ok(serving) => serving.say(json),
                        Err(e) => {
                            eprintln!("ulnet serve: {e:#}");
                            std::process::exit(1);
                        }
                    }
                });
            }
            Err(e) => return Err(e).with_context(|| format!("target {}", target.name)),
        }
    }
    signals.forever().next();
    rpc.stop_targets()?;
    node.stop(Duration::from_secs(1)).blocking();
    Ok(())
}

/// Two targets have neither a name nor a directory in common.
fn distinct(targets: &[TargetSpec]) -> Result<()> {
    for (n, target) in targets.iter().enumerate() {
        let TargetSpec { name, kind, dir } = target;
        let mut before = targets.iter().take(n);
        if before.clone().any(|other| other.name == *name) {
            bail!("target '{name}': named twice, expected another name for each");
        }
        if kind.has_dir() && before.any(|other| other.kind.has_dir() && other.dir == *dir) {
            bail!("directory '{}': named twice, expected another one for each", dir.display());
        }
    }
    Ok(())
}

/// Serves a target from now on.
fn begin<'a>(
    rpc: &RpcNode,
    target: &'a TargetSpec,
    lock: Option<DirLock>,
    limits: OstLimits,
    nids: &'a [String],
) -> Result<Said<'a>> {
    let TargetSpec { name, kind, dir } = target;
    let started = rpc.start_limited_target(target, lock, limits);
    started.with_context(|| format!("target {name}"))?;
    let directory = kind.has_dir().then(|| dir.display().to_string());
    Ok(Said::Serving { target: name, kind: kind.name(), directory, nids })
}
