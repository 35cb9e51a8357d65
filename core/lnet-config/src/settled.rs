//! What a node makes of the values that it is given: it bounds some, has a default for others, and
//! writes patterns in one form. A configuration that is compared with a node is compared by these.
//! Tests of the daemon hold them to what the node does.

use lnet_types::{Net, NetType, NidRange, NumberSet};

use crate::{NiBlock, UdspRule};

/// The value of a tunable after it was set to `value`; `None`: it stays as it is, whatever the value.
pub fn settled_tunable(name: &str, value: i64) -> Option<i64> {
    Some(match (name, value) {
        // Deprecated: without effect (V-10).
        ("recovery_interval", _) => return None,
        ("discovery" | "drop_asym_route", _) => i64::from(value != 0),
        ("max_interfaces", ..16) => 4096,
        ("tiny_buffers", 0) => 2048,
        ("small_buffers", 0) => 16_384,
        ("large_buffers", 0) => 1024,
        _ => value,
    })
}

/// A pattern of networks or NIDs as nodes write it: `10.0.0.*@tcp0` is `10.0.0.[0-255]@tcp`. A text that
/// is none stays as it is: the node refuses it.
pub fn settled_pattern(text: &str) -> String {
    written(text).unwrap_or_else(|| text.to_owned())
}

fn written(text: &str) -> Option<String> {
    let (addresses, net) = match text.rsplit_once('@') {
        Some((addresses, net)) => (Some(addresses), net),
        None => (None, text),
    };
    // The longest name first, so that `o2ib3` keeps its digit.
    let named = NetType::NAMED.iter().filter(|(_, name)| net.starts_with(name));
    let &(kind, name) = named.max_by_key(|(_, name)| name.len())?;
    let number = net.strip_prefix(name).filter(|number| !number.is_empty()).unwrap_or("0");
    let numbers = NumberSet::parse(number, u16::MAX.into()).ok()?.to_string();
    let first = match addresses {
        Some(addresses) => format!("{addresses}@{name}").parse::<NidRange>().ok()?.to_string(),
        None => Net::new(kind, 0).to_string(),
    };
    Some(if numbers == "0" { first } else { first + &numbers })
}

impl UdspRule {
    /// The rule with its patterns as nodes write them, and the priority of one that says how good its
    /// networks or NIDs are.
    pub(crate) fn settled(&self) -> Self {
        let settled = |text: &Option<String>| text.as_deref().map(settled_pattern);
        let (src, dst, rte) = (settled(&self.src), settled(&self.dst), settled(&self.rte));
        let grades = matches!((&src, &dst, &rte), (Some(_), None, _) | (None, Some(_), None));
        let priority = self.priority.or_else(|| grades.then_some(0));
        Self { src, dst, rte, priority, ..*self }
    }
}

/// The depth of connections of o2ib: `peer_credits` forced into what the protocol has room for.
pub fn o2ib_depth(peer_credits: u32) -> u32 {
    peer_credits.clamp(8, 255)
}

/// Work requests of o2ib in hand at a time; 0 lets the depth decide.
pub fn o2ib_concurrent_sends(asked: u32, depth: u32) -> u32 {
    match asked {
        0 => depth,
        n => n.clamp(depth / 2, depth * 2),
    }
}

/// Credits owed at which o2ib returns them by a message of its own.
pub fn o2ib_peercredits_hiw(asked: u32, depth: u32) -> u32 {
    asked.clamp(depth / 2, depth.saturating_sub(1))
}

impl NiBlock {
    /// The values that the node makes of these in a net that is as `have` says. A value of 0 that leaves
    /// the choice to the node is whatever the node has.
    pub(crate) fn settled(&self, net: Net, have: &Self) -> Self {
        let mut ni = self.clone();
        let is_chosen = |n: &u32| *n != 0;
        let t = &mut ni.tunables;
        t.credits = t.credits.filter(is_chosen);
        // No peer has more credits than the interface.
        let most = t.credits.or(have.tunables.credits).unwrap_or(u32::MAX);
        let is_o2ib = net.kind == NetType::O2IB;
        let bounded = |n: u32| if is_o2ib { o2ib_depth(n.min(most)) } else { n.min(most) };
        t.peer_credits = t.peer_credits.filter(is_chosen).map(bounded);
        let depth = t.peer_credits.or(have.tunables.peer_credits).map(o2ib_depth);
        let lnd = &mut ni.lnd;
        lnd.conns_per_peer = lnd.conns_per_peer.filter(|n| *n != 0);
        if let Some(depth) = depth {
            let sends = |n: u32| o2ib_concurrent_sends(n, depth);
            lnd.concurrent_sends = lnd.concurrent_sends.map(sends);
            lnd.peercredits_hiw = lnd.peercredits_hiw.map(|n| o2ib_peercredits_hiw(n, depth));
        }
        ni
    }
}
