//! The rules: one file each, pure, over a [`Site`]. Each finding names the nodes, says what is wrong
//! and what follows from it, and gives the commands that put it right and where to run them.

mod age;
mod arp;
mod asymmetric;
mod gateways;
mod imports;
mod interfaces;
mod losses;
mod mtu;
mod peers;
mod rails;
mod rdma;
mod rdma_ends;
mod reach;
mod request_times;
mod request_tunables;
mod router_checks;
mod routes;
mod rp_filter;
mod services;
mod subnets;
mod timeouts;
mod tunables;
mod twice;

use serde::Serialize;

use super::site::Site;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Something does not work.
    Error,
    /// It works, but not as well or as safely as it should.
    Warning,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The rule that found it.
    pub(crate) rule: &'static str,
    pub(crate) level: Level,
    /// The nodes that it is about.
    pub(crate) nodes: Vec<String>,
    /// What is wrong and what follows from it.
    pub(crate) text: String,
    /// What puts it right.
    pub(crate) fixes: Vec<Fix>,
}

/// A command and the node to run it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fix {
    pub(crate) node: String,
    pub(crate) command: String,
}

impl Finding {
    fn new(rule: &'static str, level: Level, nodes: &[&str], text: String) -> Self {
        let nodes = nodes.iter().map(|n| (*n).to_owned()).collect();
        Self { rule, level, nodes, text, fixes: Vec::new() }
    }

    fn fix(mut self, node: &str, command: impl Into<String>) -> Self {
        self.fixes.push(Fix { node: node.to_owned(), command: command.into() });
        self
    }
}

/// A rule.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    /// What it looks for.
    pub(crate) about: &'static str,
    check: fn(&Site, &mut Vec<Finding>),
}

/// All rules. What a later one finds may follow from what an earlier one found.
pub(crate) const RULES: &[Rule] = &[
    Rule { name: twice::NAME, about: "a NID on two nodes", check: twice::check },
    Rule {
        name: interfaces::NAME,
        about: "interfaces that are down or degraded",
        check: interfaces::check,
    },
    Rule {
        name: rdma::NAME,
        about: "RDMA ports that are not active or slower than others, memory that cannot be locked",
        check: rdma::check,
    },
    Rule {
        name: rdma_ends::NAME,
        about: "RDMA ports of one network that differ in fabric, RoCE version, partition, packet size or \
                rate, and keepalives longer than a router waits",
        check: rdma_ends::check,
    },
    Rule { name: gateways::NAME, about: "routes that lead nowhere", check: gateways::check },
    Rule {
        name: routes::NAME,
        about: "routes that are down, gateways that do not forward",
        check: routes::check,
    },
    Rule {
        name: peers::NAME,
        about: "peers never reached, that do not recover, or that come and go",
        check: peers::check,
    },
    Rule { name: rails::NAME, about: "rails that are not trusted now", check: rails::check },
    Rule { name: losses::NAME, about: "losses and refusals that rise", check: losses::check },
    Rule { name: age::NAME, about: "files that are old, clocks that differ", check: age::check },
    Rule { name: reach::NAME, about: "nodes that cannot reach each other", check: reach::check },
    Rule {
        name: asymmetric::NAME,
        about: "routes that lead there and not back, or back another way",
        check: asymmetric::check,
    },
    Rule { name: timeouts::NAME, about: "time-outs in the wrong order", check: timeouts::check },
    Rule {
        name: router_checks::NAME,
        about: "routers that expect pings more often than they get them",
        check: router_checks::check,
    },
    Rule { name: tunables::NAME, about: "tunables that differ", check: tunables::check },
    Rule {
        name: subnets::NAME,
        about: "interfaces in one IP network without source routing",
        check: subnets::check,
    },
    Rule {
        name: rp_filter::NAME,
        about: "packets that a strict reverse path filter loses",
        check: rp_filter::check,
    },
    Rule { name: arp::NAME, about: "ARP answers from the wrong interface", check: arp::check },
    Rule {
        name: request_times::NAME,
        about: "times of the request layer in the wrong order",
        check: request_times::check,
    },
    Rule {
        name: request_tunables::NAME,
        about: "tunables of the request layer that differ",
        check: request_tunables::check,
    },
    Rule {
        name: imports::NAME,
        about: "connections to targets that stay broken, replies without room",
        check: imports::check,
    },
    Rule { name: services::NAME, about: "services that do not keep up", check: services::check },
    Rule {
        name: services::EVICTION,
        about: "clients that were evicted lately",
        check: services::check_evictions,
    },
    Rule { name: mtu::NAME, about: "MTUs that differ in one IP network", check: mtu::check },
];

/// Everything that is wrong, worst first.
pub(crate) fn check(site: &Site) -> Vec<Finding> {
    let mut found = Vec::new();
    for rule in RULES {
        (rule.check)(site, &mut found);
    }
    found.sort_by_key(|finding| finding.level);
    found
}

/// The value that most have; of equally many the smallest.
fn usual<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts = std::collections::BTreeMap::<T, usize>::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    counts.into_iter().find(|(_, n)| *n == most).map(|(value, _)| value)
}
