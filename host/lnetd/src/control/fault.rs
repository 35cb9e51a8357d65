//! `fault`: rules that drop and delay messages, between the control protocol and the node.

use std::time::Duration;

use lnet::{
    DelayRule, DropRule, Errors, FaultRuleError, FaultStats, Kinds, NidMatch, Node, Traffic, When,
};
use lnet_admin::{
    AdminError, FaultAction, FaultDel, FaultKind, FaultRule, FaultSnapshot, KindCounts, Reply,
};
use lnet_types::{Errno, Instant, Net, Nid};

use super::Control;

impl Control {
    pub(super) fn fault_add(&self, rule: FaultRule) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            add(stack.node_mut(), now, &rule).map(|()| Reply::Done)
        })
    }

    pub(super) fn fault_del(&self, which: FaultDel) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            del(stack.node_mut(), now, &which).map(|()| Reply::Done)
        })
    }

    pub(super) fn fault_show(&self, kind: FaultKind) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| Ok(Reply::Faults(show(stack.node(), kind))))
    }

    pub(super) fn fault_reset(&self, kind: FaultKind) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            reset(stack.node_mut(), now, kind);
            Ok(Reply::Done)
        })
    }
}

/// Adds a rule (C-fault-1).
fn add(node: &mut Node, now: Instant, rule: &FaultRule) -> Result<(), AdminError> {
    let refused = |e: FaultRuleError| AdminError::errno(e.errno()).because(e);
    let invalid = |what: &str| AdminError::errno(Errno::EINVAL).because(what);
    let traffic = Traffic {
        src: rule.src.into(),
        dst: rule.dst.into(),
        local: rule.local,
        portals: rule.portals,
        kinds: Kinds::from_bits(rule.kinds).ok_or_else(|| invalid("unknown kinds of messages"))?,
    };
    let (rate, interval, times) = (rule.rate, rule.interval_s, rule.times);
    match rule.action {
        FaultAction::Drop { random, all, errors } => {
            let when = When::new(rate, interval, random).map_err(refused)?;
            let errors = Errors::from_bits_retain(errors);
            node.add_drop_rule(now, DropRule { traffic, when, all, errors, times })
        }
        FaultAction::Delay { latency_s } => {
            let when = When::new(rate, interval, false).map_err(refused)?;
            let latency = Duration::from_secs(latency_s.into());
            node.add_delay_rule(now, DelayRule { traffic, when, latency, times })
        }
    }
    .map_err(refused)
}

/// Removes rules; that there is none is an error (C-fault-3).
fn del(node: &mut Node, now: Instant, del: &FaultDel) -> Result<(), AdminError> {
    let (src, dst) = (NidMatch::from(del.src), NidMatch::from(del.dst));
    let removed = match del.kind {
        FaultKind::Drop => node.del_drop_rules(now, src, dst),
        FaultKind::Delay => node.del_delay_rules(now, src, dst),
    };
    match removed {
        0 => {
            let none = AdminError::errno(Errno::ENOENT);
            Err(match (src, dst) == (NidMatch::Any, NidMatch::Any) {
                true => none.because("there is no rule"),
                false => none.because(format_args!("no rule from {src} to {dst}")),
            })
        }
        _ => Ok(()),
    }
}

/// Zeroes the counters of a list.
fn reset(node: &mut Node, now: Instant, kind: FaultKind) {
    match kind {
        FaultKind::Drop => node.reset_drop_rules(now),
        FaultKind::Delay => node.reset_delay_rules(now),
    }
}

/// The rules of a list, newest first.
pub(crate) fn show(node: &Node, kind: FaultKind) -> Vec<FaultSnapshot> {
    match kind {
        FaultKind::Drop => {
            let action = |r: &DropRule| FaultAction::Drop {
                random: matches!(r.when, When::Random(_)),
                all: r.all,
                errors: r.errors.bits(),
            };
            let rules = node.drop_rules();
            rules.map(|(r, s)| view(&r.traffic, r.when, r.times, action(r), &s)).collect()
        }
        FaultKind::Delay => {
            // Rules come from here, in whole seconds.
            let seconds = |d: Duration| u32::try_from(d.as_secs()).unwrap_or(u32::MAX);
            let action = |r: &DelayRule| FaultAction::Delay { latency_s: seconds(r.latency) };
            let rules = node.delay_rules();
            rules.map(|(r, s)| view(&r.traffic, r.when, r.times, action(r), &s)).collect()
        }
    }
}

fn view(
    traffic: &Traffic,
    when: When,
    times: Option<core::num::NonZeroU32>,
    action: FaultAction,
    stats: &FaultStats,
) -> FaultSnapshot {
    let k = &stats.kinds;
    FaultSnapshot {
        rule: FaultRule {
            src: stored(traffic.src),
            dst: stored(traffic.dst),
            local: traffic.local,
            portals: traffic.portals,
            kinds: traffic.kinds.bits(),
            rate: when.rate(),
            interval_s: when.interval(),
            times,
            action,
        },
        matched: stats.matched,
        acted: stats.acted,
        kinds: KindCounts { put: k.put, get: k.get, reply: k.reply, ack: k.ack, hello: 0 },
    }
}

/// As kernels store it (C-fault-5).
fn stored(nids: NidMatch) -> Nid {
    let all = |net: Net| Nid::new(net, u32::MAX);
    match nids {
        NidMatch::Any => Nid::ANY,
        NidMatch::Net(net) => all(net),
        NidMatch::Nid(nid) => nid,
    }
}
