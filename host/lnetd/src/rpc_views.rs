//! Views of the request layer to what the control protocol shows. Decides nothing.

use std::time::Duration;

use lnet_admin as admin;
use lnet_types::{Instant, Nid};
use lustre_rt::{
    Eviction, Explanation, ExportView, Histogram, ImportView, LockLine, LockRow, LockStats,
    NamespaceRow, Policy, RecoveryStage, RecoveryView, ServiceView, TargetSpec, TargetView,
};

/// A target. `view`: what the request layer has of it; none while it is taken out.
pub(crate) fn target(
    spec: &TargetSpec,
    view: Option<&TargetView>,
    failure: Option<String>,
) -> admin::TargetSnapshot {
    let recovery = view.and_then(|view| view.recovery.as_ref()).map(recovery);
    let recovers = recovery.as_ref().is_some_and(|r| !matches!(&*r.stage, "done" | "aborted"));
    let state = match view {
        _ if failure.is_some() => "failed",
        None => "stopping",
        Some(view) if view.failed_over => "stopping",
        Some(_) if recovers => "recovering",
        Some(_) => "serving",
    };
    admin::TargetSnapshot {
        name: spec.name.clone(),
        kind: spec.kind.name().to_owned(),
        dir: spec.dir.display().to_string(),
        state: state.to_owned(),
        failure,
        instance: view.map_or(0, |view| view.instance),
        clients: view.map_or(0, |view| view.clients as u64),
        last_transno: view.map_or(0, |view| view.last_transno),
        committed: view.map_or(0, |view| view.committed),
        uncommitted: view.map_or(0, |view| view.uncommitted),
        recovery,
    }
}

fn recovery(view: &RecoveryView) -> admin::RecoverySnapshot {
    let stage = match view.stage {
        RecoveryStage::Waiting => "waiting",
        RecoveryStage::Requests => "requests",
        RecoveryStage::Locks => "locks",
        RecoveryStage::Done(_) => "done",
        RecoveryStage::Aborted(_) => "aborted",
        _ => "another stage",
    };
    admin::RecoverySnapshot {
        stage: stage.to_owned(),
        clients: view.clients as u64,
        connected: view.connected as u64,
        evicted: view.evicted as u64,
        missing: view.missing.clone(),
        left_ms: view.left.map(millis),
    }
}

pub(crate) fn import(view: &ImportView, now: Instant) -> admin::ImportSnapshot {
    let history = view.history.iter();
    let nodes = view.connections.iter().map(|node| {
        let reason = view.next.iter().find(|(nid, _)| *nid == node.nid);
        admin::NodeChoice {
            nid: node.nid,
            attempts: node.attempts,
            replies: node.replies,
            reason: reason.map(|(_, reason)| reason.to_string()).unwrap_or_default(),
        }
    });
    admin::ImportSnapshot {
        target: view.target.clone(),
        client: view.client.clone(),
        state: view.state.name().to_owned(),
        history: history.map(|(at, state)| (ago(*at, now), state.name().to_owned())).collect(),
        nid: view.nid,
        connections: view.conn_cnt,
        refusal: view.refusal.as_ref().map(ToString::to_string),
        nodes: nodes.collect(),
        in_flight: view.calls.saturating_sub(view.slots.1) as u64,
        delayed: view.slots.1 as u64,
        retained: view.retained as u64,
        committed: view.committed,
        truncated: view.truncated,
        net_ms: millis(view.net),
        services_ms: view.services.iter().map(|(portal, e)| (*portal, millis(*e))).collect(),
    }
}

/// Why an import would connect where it would.
pub(crate) fn explanation(why: &Explanation) -> admin::ImportExplanation {
    let nodes = why.nodes.iter().map(|node| admin::NodeExplanation {
        nid: node.nid,
        next: node.next,
        reason: node.reason.to_string(),
        lnet: node.ready.to_string(),
        tried_ms_ago: node.tried.map(millis),
        attempts: node.attempts,
        replies: node.replies,
    });
    admin::ImportExplanation {
        target: why.target.clone(),
        client: why.client.clone(),
        state: why.state.name().to_owned(),
        never: why.never.as_ref().map(ToString::to_string),
        due_in_ms: why.due.map(millis),
        all_tried: why.all_tried,
        sent: why.sent,
        server_ms: millis(why.server),
        net_ms: millis(why.net),
        nodes: nodes.collect(),
        text: why.to_string(),
    }
}

fn histogram(histogram: &Histogram) -> admin::HistogramSnapshot {
    let bounds = Histogram::BOUNDS.into_iter().map(|bound| Some(millis(bound)));
    let bounds = bounds.chain(core::iter::once(None));
    admin::HistogramSnapshot {
        classes: bounds.zip(histogram.counts().iter().copied()).collect(),
        sum_ms: millis(histogram.sum()),
    }
}

pub(crate) fn export(view: &ExportView, now: Instant) -> admin::ExportSnapshot {
    admin::ExportSnapshot {
        target: view.target.clone(),
        client: view.client.clone(),
        nid: Some(view.from).filter(|from| *from != Nid::ANY),
        connections: view.conn_cnt,
        heard_ms_ago: ago(view.heard, now),
        evicted_in_ms: view.deadline.map(|at| millis(at.saturating_since(now))),
        in_work: view.in_work as u64,
        retained: view.records as u64,
        committed: view.committed,
    }
}

pub(crate) fn lock(row: &LockRow, now: Instant) -> admin::LockSnapshot {
    let own = lock_line(row, &row.lock, now);
    let waits_for = row.waits_for.iter().map(|line| lock_line(row, line, now)).collect();
    admin::LockSnapshot { waits_for, ..own }
}

fn lock_line(row: &LockRow, line: &LockLine, now: Instant) -> admin::LockSnapshot {
    let desc = &line.desc;
    let end = |end: u64| if end == u64::MAX { "end".to_owned() } else { end.to_string() };
    let part = match desc.policy() {
        Some(Policy::Extent { start, end: last, .. } | Policy::Flock { start, end: last, .. }) => {
            Some(format!("{start} to {}", end(last)))
        }
        Some(Policy::Ibits { bits, .. }) => Some(bits.to_string()),
        Some(Policy::Plain) | None => None,
    };
    let state = match (line.waits, line.called_back) {
        (true, _) => "waiting",
        (false, true) => "called back",
        (false, false) => "granted",
    };
    admin::LockSnapshot {
        target: row.target.clone(),
        resource: row.name.clone().unwrap_or_else(|| desc.resource.to_string()),
        lock: line.lock.0,
        kind: desc.kind.to_string(),
        mode: if line.waits { desc.requested } else { desc.granted }.to_string(),
        part,
        state: state.to_owned(),
        since_ms_ago: ago(line.since, now),
        client: line.client.clone(),
        nid: Some(line.from).filter(|nid| *nid != Nid::ANY),
        fence: Some(line.fence).filter(|fence| *fence != 0),
        evicted_in_ms: line.expires.map(|at| millis(at.saturating_since(now))),
        waits_for: Vec::new(),
    }
}

pub(crate) fn namespace(row: &NamespaceRow) -> admin::NamespaceSnapshot {
    let counters = LOCK_COUNTERS.iter().map(|(name, _, of)| ((*name).to_owned(), of(&row.stats)));
    admin::NamespaceSnapshot {
        target: row.target.clone(),
        resources: row.space.resources as u64,
        clients: row.space.holders as u64,
        locks: row.space.locks as u64,
        waiting: row.space.waiting as u64,
        called_back: row.space.called_back as u64,
        slv: row.volume.0,
        limit: row.volume.1,
        counters: counters.collect(),
    }
}

/// A counter of locks: its name, its help, and where it is.
type LockCounter = (&'static str, &'static str, fn(&LockStats) -> u64);

/// What the locks of a target count.
pub(crate) const LOCK_COUNTERS: [LockCounter; 14] = [
    ("enqueues", "Requests for locks.", |s| s.enqueues),
    ("granted", "Locks granted in the reply.", |s| s.granted),
    ("waited", "Locks whose reply said that they wait.", |s| s.waited),
    ("refused", "Requests for locks that were refused.", |s| s.refused),
    ("found_again", "Requests whose lock was there.", |s| s.resent),
    ("cancels", "Locks given back.", |s| s.cancels),
    ("converts", "Locks that gave parts back.", |s| s.converts),
    ("glimpses", "Requests for sizes.", |s| s.glimpses),
    ("blocking_callbacks", "Callbacks that ask for a lock.", |s| s.blocking),
    ("completions", "Callbacks that announce a grant.", |s| s.completions),
    ("callbacks_resent", "Callbacks sent again.", |s| s.again),
    ("prolonged", "Reads and writes that moved a timer.", |s| s.touches),
    ("evicted_by_timer", "Clients evicted for a lock that they kept.", |s| s.expired),
    ("evicted_by_callback", "Clients evicted for a callback without answer.", |s| s.failed),
];

pub(crate) fn eviction(eviction: &Eviction, now: Instant) -> admin::EvictionSnapshot {
    admin::EvictionSnapshot {
        target: eviction.target.clone(),
        client: eviction.client.clone(),
        reason: eviction.reason.to_string(),
        ms_ago: ago(eviction.at, now),
    }
}

pub(crate) fn service(view: &ServiceView, now: Instant) -> admin::ServiceSnapshot {
    admin::ServiceSnapshot {
        name: view.name.clone(),
        portal: view.portal,
        policy: view.policies.0.name().to_owned(),
        policy_high: view.policies.1.map(|policy| policy.name().to_owned()),
        delayed: view.queued as u64,
        delayed_high: view.queued_high as u64,
        in_flight: view.busy as u64,
        posted: view.posted,
        estimate_ms: millis(view.estimate),
        worst_ms: millis(view.history.worst()),
        worst_ms_ago: view.history.worst_at().map(|at| ago(at, now)),
        bins_ms: view.history.bins().into_iter().map(millis).collect(),
        unhealthy_in_ms: view.unhealthy_at.map(|at| millis(at.saturating_since(now))),
        buffers: view.buffers,
        behind_ms_ago: view.behind_at.map(|at| ago(at, now)),
        waited: histogram(&view.waited),
        served: histogram(&view.served),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn ago(at: Instant, now: Instant) -> u64 {
    millis(now.saturating_since(at))
}
