//! `ulnet rpc bench`: clients put, compare and get keys of their own, as fast as they are answered,
//! while the server may be killed. `account.rs` compares each answer with what must have happened.
//! Without a target it runs two servers of its own, `servers.rs`. What their clients have seen of a
//! recovery is in `recovery.rs`.

mod account;
mod recovery;
pub(crate) mod servers;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use lustre_rt::{ClientStats, ImportView, KvClient};
use serde_json::json;

use crate::client::{Target, Way, node, target};
use crate::ping::client_uuid;
use crate::stop::Stop;

use account::Account;
use recovery::Recovery;
use servers::Servers;

/// What is measured, and for how long.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet rpc bench --clients 16 --seconds 30 --kill-at 10\n  \
    ulnet rpc bench --target kv-1@10.0.0.1@tcp,10.0.0.2@tcp --clients 16 --seconds 30\n\n\
    Without a target, a server and its standby are run on this machine; --kill-at kills the server, \
    and the standby takes over. With one, --kill-at needs the server's process (--kill-pid).")]
pub(crate) struct Options {
    /// Target, and the nodes that may serve it; servers of its own if not given
    #[arg(long, value_name = "NAME@NID[,NID]", value_parser = target)]
    target: Option<Target>,
    /// Clients, each with one call under way
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    clients: u32,
    /// Length of the run
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Kill the server after so many seconds
    #[arg(long, value_name = "S")]
    kill_at: Option<u64>,
    /// The process to kill, on this machine
    #[arg(long, value_name = "PID", requires_all = ["kill_at", "target"])]
    kill_pid: Option<i32>,
    /// Bytes of each value
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    size: u32,
    #[command(flatten)]
    way: Way,
}

/// Runs the command.
///
/// # Errors
/// No way to the target, or an answer that can't be: lost, or executed twice.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { seconds, kill_at, way, .. } = options;
    if kill_at.is_some_and(|at| at >= *seconds) {
        bail!("--kill-at {}: must be less than --seconds {seconds}", kill_at.unwrap_or(0));
    }
    if kill_at.is_some() && options.target.is_some() && options.kill_pid.is_none() {
        bail!("--kill-at with --target: expected --kill-pid");
    }
    let mut servers = match options.target {
        Some(_) => None,
        None => Some(Servers::start(way.port)?),
    };
    let own = servers.as_ref().map(Servers::target);
    let target = options.target.clone().or(own).ok_or_else(|| anyhow!("expected --target"))?;
    let (node, rpc) = node(&target, way)?;
    let stop = Stop::of(&rpc)?;
    let limit = Duration::from_secs(way.timeout);
    let begun = Instant::now();
    let until = begun + Duration::from_secs(*seconds);
    let mut threads = Vec::new();
    for n in 0..options.clients {
        let uuid = format!("{}-{n}", client_uuid());
        let kv = KvClient::new(&rpc, &target.name, &uuid, target.nids.clone())?.with_limit(limit);
        let (size, stop) = (options.size as usize, stop.clone());
        let run = move || -> Result<(Account, Option<ImportView>)> {
            let mut account = Account::new(n, size);
            while Instant::now() < until && !stop.is_wanted() {
                account.call(&kv);
            }
            account.close(&kv);
            let view = kv.import().view()?;
            kv.disconnect()?;
            Ok((account, view))
        };
        threads.push(thread::Builder::new().name(format!("client-{n}")).spawn(run)?);
    }
    if let Some(at) = kill_at {
        stop.sleep_until(begun + Duration::from_secs(*at));
        match (&mut servers, options.kill_pid) {
            _ if stop.is_wanted() => {}
            (Some(servers), _) => servers.kill()?,
            (None, Some(pid)) => servers::kill(pid)?,
            (None, None) => {}
        }
    }
    let (mut sum, mut recovery) = (Account::new(0, 0), Recovery::default());
    let mut versions = BTreeMap::new();
    for thread in threads {
        let (account, view) = thread.join().map_err(|_| anyhow!("a client has failed"))??;
        sum.add(&account);
        versions.extend(account.versions());
        recovery.add(view.as_ref());
    }
    let took = begun.elapsed();
    let stats = rpc.client_stats()?;
    node.stop(Duration::from_secs(1)).blocking();
    servers.map(Servers::stop).transpose().context("servers")?;
    print(options, &sum, took, &stats, &recovery, &versions);
    if sum.twice + sum.lost > 0 {
        bail!("{} executed twice, {} lost", sum.twice, sum.lost);
    }
    if sum.failed > 0 {
        let before = if stop.is_wanted() { "interrupted; " } else { "" };
        bail!("{before}{} of {} calls failed: {}", sum.failed, sum.calls, sum.failures(begun));
    }
    stop.check()?;
    Ok(())
}

fn print(
    options: &Options,
    sum: &Account,
    took: Duration,
    stats: &ClientStats,
    recovery: &Recovery,
    versions: &BTreeMap<String, u64>,
) {
    let Account { calls, failed, twice, lost, longest, .. } = sum;
    let ClientStats { resent, replayed, .. } = stats;
    let (longest, reconnects) = (longest.as_secs_f64(), recovery.reconnects);
    let clients = (recovery.clients > 0).then(|| recovery.to_string());
    let secs = recovery.took().map(|took| took.as_secs_f64());
    if options.way.json {
        println!(
            "{:#}",
            json!({
                "calls": calls, "failed": failed, "executed_twice": twice, "lost": lost,
                "longest_s": longest, "reconnects_tried": reconnects, "seconds": took.as_secs_f64(),
                "resent": resent, "replayed": replayed, "recovery_s": secs, "recovered": clients,
                "versions": versions,
            })
        );
        return;
    }
    println!(
        "calls {calls}  failed {failed}  executed twice {twice}  lost {lost}   longest {longest:.1} s"
    );
    print!("reconnects tried {reconnects}  resent {resent}  replayed {replayed}");
    if let (Some(secs), Some(clients)) = (secs, clients) {
        print!("   recovery {secs:.1} s ({clients} clients)");
    }
    println!();
}
