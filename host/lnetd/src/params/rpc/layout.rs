//! The texts of parameters of imports, exports, targets and services, laid out as on kernel nodes.
//! Times on those are of the clock on the wall, in whole seconds.

use core::fmt::Write as _;
use core::time::Duration;

use lnet_types::Instant;
use lustre_rt::{
    ConnectData, ConnectFlags, Estimate, ExportView, ImportView, Readiness, RecoveryStage,
    ServiceView, TargetView,
};

use super::flags;

/// The two clocks: what views count, and what is printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Now, as the node counts.
    pub(super) now: Instant,
    /// Now, seconds since 1970.
    pub(super) wall: u64,
}

impl Clock {
    /// Whole seconds since then.
    const fn ago(&self, at: Instant) -> u64 {
        self.now.saturating_since(at).as_secs()
    }

    /// That time on the wall.
    const fn at(&self, at: Instant) -> u64 {
        self.wall.saturating_sub(self.ago(at))
    }
}

/// Whole seconds, a fraction being one.
const fn secs(time: Duration) -> u64 {
    time.as_secs() + (time.subsec_nanos() > 0) as u64
}

/// What was asked and granted; in exports and imports alike.
fn granted(out: &mut String, data: &ConnectData) {
    use ConnectFlags as F;
    // Infallible, as all writing here: it goes to a String.
    let _ = write!(
        out,
        "    connect_flags: [ {} ]\n    connect_data:\n       flags: {:#x}\n       instance: {}\n",
        flags::names(data).join(", "),
        data.flags.bits(),
        data.instance
    );
    let version = data.version.to_be_bytes().map(|part| part.to_string()).join(".");
    let block = 1_u64 << data.grant_blkbits.min(32);
    let inode = 1_u64 << data.grant_inobits.min(32);
    let extent = u64::from(data.grant_max_blks) * block;
    let tax = u64::from(data.grant_tax_kb) * 1024;
    let rows = [
        (F::VERSION, "target_version", version),
        (F::MDS, "mdt_index", data.group.to_string()),
        (F::INDEX, "target_index", data.index.to_string()),
        (F::GRANT, "initial_grant", data.grant.to_string()),
        (F::BRW_SIZE, "max_brw_size", data.brw_size.to_string()),
        (F::IBITS, "ibits_known", format!("{:#x}", data.ibits_known)),
        (F::GRANT_PARAM, "grant_block_size", block.to_string()),
        (F::GRANT_PARAM, "grant_inode_size", inode.to_string()),
        (F::GRANT_PARAM, "grant_max_extent_size", extent.to_string()),
        (F::GRANT_PARAM, "grant_extent_tax", tax.to_string()),
        (F::CKSUM, "cksum_types", format!("{:#x}", data.cksum_types.bits())),
        (F::MAX_EASIZE, "max_easize", data.max_easize.to_string()),
        (F::MAXBYTES, "max_object_bytes", data.maxbytes.to_string()),
        (F::MULTIMODRPCS, "max_mod_rpcs", data.maxmodrpcs.to_string()),
    ];
    for (_, key, value) in rows.into_iter().filter(|(flag, ..)| data.flags.contains(*flag)) {
        let _ = writeln!(out, "       {key}: {value}");
    }
}

/// `*.import`.
pub(super) fn import(name: &str, view: &ImportView, clock: &Clock) -> String {
    let mut out = format!(
        "import:\n    name: {name}\n    target: {}\n    state: {}\n",
        view.target,
        view.state.name()
    );
    granted(&mut out, &view.granted);
    let flags = [
        (view.deactivated, "IMPF_DEACTIVE"),
        (view.replayable, "IMPF_REPLAYABLE"),
        (view.callback.is_none(), "IMPF_PINGABLE"),
        (view.conn_cnt > 0, "IMPF_CONNECT_TRIED"),
    ];
    let flags: Vec<_> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let nids: Vec<_> = view.connections.iter().map(|c| format!("\"{}\"", c.nid)).collect();
    let _ = write!(
        out,
        "    import_flags: [ {} ]\n    connection:\n       failover_nids: [ {} ]\n       nids_stats:\n",
        flags.join(", "),
        nids.join(", ")
    );
    for c in &view.connections {
        let state = match c.ready {
            Readiness::Ready => "uptodate",
            Readiness::Unknown => "unknown",
            Readiness::Unreachable => "unreachable",
        };
        let ago = c.last_attempt.map_or_else(|| "never".to_owned(), |at| clock.ago(at).to_string());
        let _ = writeln!(
            out,
            "          \"{}\": {{ connects: {}, replied: {}, uptodate: {state}, sec_ago: {ago} }}",
            c.nid, c.attempts, c.replies
        );
    }
    let idle = view.last_reply.map_or(0, |at| clock.ago(at));
    let (took, answers) = view.answered;
    let average = took.as_micros().checked_div(u128::from(answers)).unwrap_or_default();
    let services = view.services.iter().map(|(_, estimate)| secs(*estimate)).max().unwrap_or(0);
    let _ = write!(
        out,
        "       current_connection: \"{nid}\"\n       connection_attempts: {attempts}\n       \
         generation: {generation}\n       in-progress_invalidations: {invalidations}\n       \
         idle: {idle} sec\n    rpcs:\n       inflight: {inflight}\n       \
         unregistering: {unlinking}\n       timeouts: {timeouts}\n       \
         avg_waittime: {average} usecs\n    service_estimates:\n       services: {services} sec\n       \
         network: {network} sec\n    transactions:\n       last_replay: {replayed}\n       \
         peer_committed: {committed}\n       last_checked: {committed}\n",
        nid = view.nid,
        attempts = view.conn_cnt,
        generation = view.generation,
        invalidations = u32::from(view.invalidating),
        inflight = view.calls.saturating_sub(view.slots.1),
        unlinking = view.unlinking,
        timeouts = view.expired,
        network = secs(view.net),
        replayed = view.last_replayed,
        committed = view.committed,
    );
    out
}

/// `*.state`.
pub(super) fn state(view: &ImportView, clock: &Clock) -> String {
    let mut out = format!("current_state: {}\nstate_history:\n", view.state.name());
    for (at, state) in &view.history {
        let _ = writeln!(out, " - [ {}, {} ]", clock.at(*at), state.name());
    }
    out
}

/// An estimate with what it was learnt from.
fn estimate(out: &mut String, current: Duration, history: &Estimate, clock: &Clock) {
    let worst = history.worst_at();
    let (at, ago) = worst.map_or((clock.wall, 0), |at| (clock.at(at), clock.ago(at)));
    let (current, most) = (secs(current), secs(history.worst()));
    let _ = write!(out, "cur {current:>3}  worst {most:>3} (at {at}, {ago}s ago) ");
    for bin in history.bins() {
        let _ = write!(out, "{:>3} ", secs(bin));
    }
    out.push('\n');
}

/// `*.timeouts` of an import.
pub(super) fn timeouts(view: &ImportView, clock: &Clock) -> String {
    let (at, ago) = view.last_reply.map_or((0, 0), |at| (clock.at(at), clock.ago(at)));
    let mut out = format!("last reply : {at}, {ago}s ago\nnetwork    : ");
    estimate(&mut out, view.net, &view.net_history, clock);
    for ((portal, current), history) in view.services.iter().zip(&view.service_histories) {
        let _ = write!(out, "portal {portal:<3} : ");
        estimate(&mut out, *current, history, clock);
    }
    out
}

/// `*.timeouts` of a service.
pub(super) fn service_timeouts(view: &ServiceView, clock: &Clock) -> String {
    let mut out = format!("{:>10} : ", "service");
    estimate(&mut out, view.estimate, &view.history, clock);
    out
}

/// `*.exports.NID.export`: all clients on a node.
pub(super) fn exports<'a>(views: impl Iterator<Item = &'a ExportView>) -> String {
    let mut out = String::new();
    for view in views {
        let name = view.target.trim_end_matches("_UUID");
        let _ = write!(out, "{}:\n    name: {name}\n    client: {}\n", view.client, view.from);
        granted(&mut out, &view.granted);
        out.push_str("    export_flags: [  ]\n");
    }
    out
}

/// `*.recovery_status`.
pub(super) fn recovery(view: &TargetView, clock: &Clock) -> String {
    let Some(recovery) = &view.recovery else { return "status: INACTIVE\n".to_owned() };
    let done = match recovery.stage {
        RecoveryStage::Waiting if recovery.connected == 0 => {
            return "status: WAITING_FOR_CLIENTS\n".to_owned();
        }
        RecoveryStage::Done(outcome) | RecoveryStage::Aborted(outcome) => Some(outcome),
        _ => None,
    };
    let Some(outcome) = done else {
        let left = recovery.left.map_or(0, secs);
        return format!(
            "status: RECOVERING\ntime_remaining: {left}\nconnected_clients: {}/{}\n\
             evicted_clients: {}\n",
            recovery.connected, recovery.clients, recovery.evicted
        );
    };
    let start = clock.wall.saturating_sub(secs(recovery.since));
    format!(
        "status: COMPLETE\nrecovery_start: {start}\nrecovery_duration: {}\ncompleted_clients: {}/{}\n\
         replayed_requests: {}\nlast_transno: {}\nVBR: ENABLED\nIR: DISABLED\n",
        secs(outcome.after),
        outcome.recovered,
        outcome.clients,
        outcome.replayed,
        outcome.last_transno
    )
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
