//! `target show`, `import show`, `export show`, `service show`, `fault rpc show`: the request layer.
//! Times are in seconds, with three places.

use lnet_admin::{
    EvictionSnapshot, ExportSnapshot, HistogramSnapshot, ImportExplanation, ImportSnapshot,
    RecoverySnapshot, RpcFaults, ServiceSnapshot, TargetSnapshot,
};
use lnet_config::Tree;

use super::Rows;

/// A document with a list; `None` for an empty one.
pub(super) fn document<T>(key: &str, rows: &[T], row: impl Fn(&T) -> Tree) -> Option<Tree> {
    let rows: Vec<Tree> = rows.iter().map(row).collect();
    (!rows.is_empty()).then(|| Tree::map([(key, Tree::List(rows))]))
}

pub(crate) fn targets(targets: &[TargetSnapshot]) -> Option<Tree> {
    document("target", targets, |target| {
        let mut rows: Rows = vec![
            ("name", Tree::plain(&target.name)),
            ("kind", Tree::plain(&target.kind)),
            ("directory", Tree::plain(&target.dir)),
            ("state", Tree::plain(&target.state)),
        ];
        rows.extend(target.failure.as_ref().map(|why| ("failure", Tree::plain(why))));
        rows.extend([
            ("instance", Tree::plain(target.instance)),
            ("clients", Tree::plain(target.clients)),
            ("last_transno", Tree::plain(target.last_transno)),
            ("last_committed", Tree::plain(target.committed)),
        ]);
        rows.extend(target.recovery.as_ref().map(|r| ("recovery", recovery(r))));
        Tree::map(rows)
    })
}

fn recovery(recovery: &RecoverySnapshot) -> Tree {
    let mut rows: Rows = vec![
        ("stage", Tree::plain(&recovery.stage)),
        ("clients", Tree::plain(recovery.clients)),
        ("connected", Tree::plain(recovery.connected)),
        ("evicted", Tree::plain(recovery.evicted)),
    ];
    rows.extend(recovery.left_ms.map(|left| ("time_left", seconds(left))));
    if !recovery.missing.is_empty() {
        rows.push(("missing", Tree::List(recovery.missing.iter().map(Tree::plain).collect())));
    }
    Tree::map(rows)
}

pub(crate) fn imports(imports: &[ImportSnapshot]) -> Option<Tree> {
    document("import", imports, |import| {
        let mut rows: Rows = vec![
            ("target", Tree::plain(&import.target)),
            ("client", Tree::plain(&import.client)),
            ("state", Tree::plain(&import.state)),
            ("nid", Tree::plain(import.nid)),
            ("connections", Tree::plain(import.connections)),
        ];
        rows.extend(import.refusal.as_ref().map(|why| ("refusal", Tree::plain(why))));
        rows.extend([
            ("in_flight", Tree::plain(import.in_flight)),
            ("delayed", Tree::plain(import.delayed)),
            ("retained", Tree::plain(import.retained)),
            ("last_committed", Tree::plain(import.committed)),
            ("truncated", Tree::plain(import.truncated)),
            ("network_estimate", seconds(import.net_ms)),
        ]);
        let services = import.services_ms.iter().map(|(portal, estimate)| {
            Tree::map([("portal", Tree::plain(portal)), ("estimate", seconds(*estimate))])
        });
        let nodes = import.nodes.iter().map(|node| {
            Tree::map([
                ("nid", Tree::plain(node.nid)),
                ("attempts", Tree::plain(node.attempts)),
                ("replies", Tree::plain(node.replies)),
                ("choice", Tree::plain(&node.reason)),
            ])
        });
        let history = import
            .history
            .iter()
            .map(|(ago, state)| Tree::map([("ago", seconds(*ago)), ("state", Tree::plain(state))]));
        let lists: [(&'static str, Vec<Tree>); 3] = [
            ("services", services.collect()),
            ("nodes", nodes.collect()),
            ("history", history.collect()),
        ];
        let lists = lists.into_iter().filter(|(_, rows)| !rows.is_empty());
        rows.extend(lists.map(|(key, rows)| (key, Tree::List(rows))));
        Tree::map(rows)
    })
}

/// Why imports would connect where they would.
pub(crate) fn explanations(all: &[ImportExplanation]) -> Tree {
    let import = |why: &ImportExplanation| {
        let mut rows: Rows = vec![
            ("target", Tree::plain(&why.target)),
            ("client", Tree::plain(&why.client)),
            ("state", Tree::plain(&why.state)),
        ];
        rows.extend(why.never.as_ref().map(|never| ("never", Tree::plain(never))));
        rows.extend(why.due_in_ms.map(|ms| ("due_in", seconds(ms))));
        rows.extend([
            ("all_tried", Tree::Bool(why.all_tried)),
            ("sent", Tree::Bool(why.sent)),
            ("server_part", seconds(why.server_ms)),
            ("network_part", seconds(why.net_ms)),
        ]);
        let nodes = why.nodes.iter().map(|node| {
            let mut rows: Rows = vec![
                ("nid", Tree::plain(node.nid)),
                ("next", Tree::Bool(node.next)),
                ("reason", Tree::plain(&node.reason)),
                ("lnet", Tree::plain(&node.lnet)),
                ("attempts", Tree::plain(node.attempts)),
                ("replies", Tree::plain(node.replies)),
            ];
            rows.extend(node.tried_ms_ago.map(|ms| ("tried_ago", seconds(ms))));
            Tree::map(rows)
        });
        rows.push(("nodes", Tree::List(nodes.collect())));
        Tree::map(rows)
    };
    Tree::map([("import", Tree::List(all.iter().map(import).collect()))])
}

/// A histogram: its classes that have any, and the mean.
fn histogram(histogram: &HistogramSnapshot) -> Tree {
    let classes = histogram.classes.iter().filter(|(_, count)| *count > 0);
    let class = |(bound, count): &(Option<u64>, u64)| {
        let within = bound.map_or_else(|| Tree::plain("more"), seconds);
        Tree::map([("within", within), ("count", Tree::plain(count))])
    };
    let mean = histogram.sum_ms.checked_div(histogram.count()).unwrap_or_default();
    Tree::map([
        ("count", Tree::plain(histogram.count())),
        ("mean", seconds(mean)),
        ("classes", Tree::List(classes.map(class).collect())),
    ])
}

pub(crate) fn exports(exports: &[ExportSnapshot]) -> Option<Tree> {
    document("export", exports, |export| {
        let mut rows: Rows =
            vec![("target", Tree::plain(&export.target)), ("client", Tree::plain(&export.client))];
        rows.extend(export.nid.map(|nid| ("nid", Tree::plain(nid))));
        rows.extend([
            ("connections", Tree::plain(export.connections)),
            ("heard_ago", seconds(export.heard_ms_ago)),
        ]);
        rows.extend(export.evicted_in_ms.map(|ms| ("evicted_in", seconds(ms))));
        rows.extend([
            ("in_flight", Tree::plain(export.in_work)),
            ("retained", Tree::plain(export.retained)),
            ("last_committed", Tree::plain(export.committed)),
        ]);
        Tree::map(rows)
    })
}

pub(crate) fn evictions(evictions: &[EvictionSnapshot]) -> Option<Tree> {
    document("evicted", evictions, |eviction| {
        Tree::map([
            ("target", Tree::plain(&eviction.target)),
            ("client", Tree::plain(&eviction.client)),
            ("reason", Tree::plain(&eviction.reason)),
            ("ago", seconds(eviction.ms_ago)),
        ])
    })
}

pub(crate) fn services(services: &[ServiceSnapshot]) -> Option<Tree> {
    document("service", services, |service| {
        let mut rows: Rows = vec![
            ("name", Tree::plain(&service.name)),
            ("portal", Tree::plain(service.portal)),
            ("policy", Tree::plain(&service.policy)),
        ];
        rows.extend(service.policy_high.as_ref().map(|p| ("policy_high", Tree::plain(p))));
        rows.extend([
            ("in_flight", Tree::plain(service.in_flight)),
            ("delayed", Tree::plain(service.delayed)),
            ("delayed_high", Tree::plain(service.delayed_high)),
            ("request_buffers", Tree::plain(service.posted)),
            ("estimate", seconds(service.estimate_ms)),
            ("worst", seconds(service.worst_ms)),
        ]);
        rows.extend(service.worst_ms_ago.map(|ago| ("worst_ago", seconds(ago))));
        if !service.bins_ms.is_empty() {
            let bins = service.bins_ms.iter().map(|ms| seconds(*ms)).collect();
            rows.push(("bins", Tree::List(bins)));
        }
        rows.extend(service.unhealthy_in_ms.map(|ms| ("unhealthy_in", seconds(ms))));
        rows.extend(service.behind_ms_ago.map(|ms| ("behind_ago", seconds(ms))));
        let histograms = [("queue_wait", &service.waited), ("service_time", &service.served)];
        let histograms = histograms.into_iter().filter(|(_, h)| h.count() > 0);
        rows.extend(histograms.map(|(key, h)| (key, histogram(h))));
        Tree::map(rows)
    })
}

pub(crate) fn faults(faults: &RpcFaults) -> Option<Tree> {
    let lose = faults.lose.iter().map(|(number, rule, lost)| {
        let opcode = rule.opcode.as_deref().unwrap_or("any");
        Tree::map([
            ("rule", Tree::plain(number)),
            ("opcode", Tree::plain(opcode)),
            ("part", Tree::plain(rule.part.name())),
            ("count", Tree::plain(rule.count)),
            ("lost", Tree::plain(lost)),
        ])
    });
    let delay = faults.delay.iter().map(|delay| {
        Tree::map([
            ("service", Tree::plain(&delay.service)),
            ("min", Tree::plain(delay.min_s)),
            ("max", Tree::plain(delay.max_s)),
            ("share", Tree::plain(delay.percent)),
        ])
    });
    let lists = [("lose", lose.collect::<Vec<_>>()), ("delay", delay.collect())];
    let lists = lists.into_iter().filter(|(_, rows)| !rows.is_empty());
    let rows: Rows = lists.map(|(key, rows)| (key, Tree::List(rows))).collect();
    (!rows.is_empty()).then(|| Tree::map([("fault_rpc", Tree::map(rows))]))
}

/// A time of so many milliseconds.
pub(super) fn seconds(millis: u64) -> Tree {
    Tree::plain(format_args!("{}.{:03}", millis / 1000, millis % 1000))
}
