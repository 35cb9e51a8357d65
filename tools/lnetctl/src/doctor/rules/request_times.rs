//! Times of the request layer stand inside and outside of others: LNet's within a request's, two pings
//! within the silence after which a client is evicted, a lost callback within the time of a lock.

use lustre_tuning::EnqueueMin;

use super::{Finding, Level};
use crate::doctor::site::{Node, Site};

pub(super) const NAME: &str = "request times";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    let slowest = site.nodes.iter().filter_map(|node| {
        let rpc = node.rpc.as_ref().filter(|rpc| rpc.in_use)?;
        Some((rpc.tunable("ping_interval")?, node))
    });
    let slowest = slowest.max_by_key(|(seconds, _)| *seconds);
    for node in &site.nodes {
        found.extend(lnet_outlives_request(node));
        found.extend(one_loss_evicts(node));
        found.extend(slowest.and_then(|slowest| evicted_too_soon(node, slowest)));
    }
}

/// The time of the first request, seconds: nothing has been learnt yet.
fn first_deadline(node: &Node) -> Option<i64> {
    let at_min = node.rpc.as_ref()?.tunable("at_min")?;
    let server = at_min.saturating_add(at_min / 4 + 5);
    Some(server.saturating_add(at_min))
}

/// RS-051. Elsewhere LNet has no more time for a request than the request itself.
fn lnet_outlives_request(node: &Node) -> Option<Finding> {
    let rpc = node.rpc.as_ref().filter(|rpc| rpc.in_use && rpc.by_kernel_rules)?;
    let transaction = node.tunable("transaction_timeout")?;
    let deadline = first_deadline(node)?;
    if transaction < deadline || rpc.tunable("at_max") == Some(0) {
        return None;
    }
    let text = format!(
        "{}: LNet may try a message for {transaction} s (transaction_timeout), the first deadline of a \
         request is {deadline} s: requests are sent again while LNet still tries the first copy",
        node.name
    );
    let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
    Some(finding.fix(&node.name, format!("lnetctl set transaction_timeout {}", deadline - 1)))
}

/// A client misses a ping, and the next one is lost: it is still there.
fn evicted_too_soon(node: &Node, (interval, client): (i64, &Node)) -> Option<Finding> {
    let rpc = node.rpc.as_ref().filter(|rpc| rpc.in_use && !rpc.by_kernel_rules)?;
    let timeout = rpc.tunable("timeout")?;
    let silence = timeout.saturating_mul(rpc.tunable("evict_factor")?) / 10;
    let needed = interval.saturating_mul(2).saturating_add(first_deadline(client)?);
    if silence >= needed {
        return None;
    }
    let text = format!(
        "{}: evicts a client after {silence} s of silence, and {} pings every {interval} s: two pings \
         and a request take {needed} s",
        node.name, client.name
    );
    let factor = needed.saturating_mul(10).checked_div(timeout.max(1)).unwrap_or(0) + 1;
    let finding = Finding::new(NAME, Level::Error, &[&node.name], text);
    Some(finding.fix(&node.name, format!("lctl set_param evict_factor={factor}")))
}

/// L-64: the time of a lock that is called back covers a lost message, a reconnect and a resend.
fn one_loss_evicts(node: &Node) -> Option<Finding> {
    let rpc = node.rpc.as_ref().filter(|rpc| rpc.in_use)?;
    let (at_min, own) = (rpc.tunable("at_min")?, rpc.tunable("ldlm_enqueue_min")?);
    let needed = i64::from(EnqueueMin::least(u32::try_from(at_min).ok()?)?);
    if own >= needed || rpc.tunable("at_max") == Some(0) {
        return None;
    }
    let text = format!(
        "{}: ldlm_enqueue_min is {own} s, at_min {at_min} s: a lost message, a reconnect and a resend take \
         {needed} s, so one loss may evict a client",
        node.name
    );
    let finding = Finding::new(NAME, Level::Warning, &[&node.name], text);
    Some(finding.fix(&node.name, format!("lctl set_param ldlm_enqueue_min={needed}")))
}
