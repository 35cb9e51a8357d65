//! Time-outs stand inside one another: a transmission within an operation and all its retries, a
//! gateway's answer within the time that a ping of it may take.

use super::{Finding, Level};
use crate::doctor::site::{Node, Site};

pub(super) const NAME: &str = "time-outs";

pub(super) fn check(site: &Site, found: &mut Vec<Finding>) {
    for node in &site.nodes {
        found.extend(transmission(node));
        found.extend(retries(node));
        found.extend(gateway(node));
    }
}

/// A time limit, seconds; who says so; what puts it back.
type Limit = (i64, String, String);

/// The longest limit that a driver was given; one that has none shows what follows from the tunables.
fn given(node: &Node) -> Option<Limit> {
    let derived = node.tunable("lnd_timeout");
    node.outward()
        .filter_map(|ni| {
            Some((ni.timeout_s.filter(|s| *s > 0 && Some(*s) != derived)?, ni.nid.net()))
        })
        .max_by_key(|(seconds, _)| *seconds)
        .map(|(seconds, net)| {
            let fix = format!("lnetctl net set --net {net} --lnd-timeout 0");
            (seconds, format!("the driver's limit on {net}"), fix)
        })
}

/// The longest that a driver tries one transmission.
fn longest(node: &Node) -> Option<Limit> {
    let of_node = node.tunable("lnd_timeout").map(|seconds| {
        let fix = "lnetctl set retry_count 2".to_owned();
        (seconds, "lnd_timeout".to_owned(), fix)
    });
    given(node).or(of_node)
}

fn transmission(node: &Node) -> Option<Finding> {
    let transaction = node.tunable("transaction_timeout")?;
    let (seconds, who, fix) = longest(node)?;
    if seconds <= transaction {
        return None;
    }
    let text = format!(
        "{}: one transmission may take {seconds} s ({who}), longer than a whole operation \
         (transaction_timeout {transaction} s): what fails is not sent again in time",
        node.name
    );
    Some(Finding::new(NAME, Level::Error, &[&node.name], text).fix(&node.name, fix))
}

fn retries(node: &Node) -> Option<Finding> {
    let transaction = node.tunable("transaction_timeout")?;
    let retries = node.tunable("retry_count")?;
    // What is derived from the two fits, or is the profile's own affair.
    let (seconds, who, fix) = given(node)?;
    let all = seconds.saturating_mul(retries.saturating_add(1));
    if seconds > transaction || retries == 0 || all <= transaction {
        return None;
    }
    let text = format!(
        "{}: {retries} retries of {seconds} s each ({who}) do not fit into transaction_timeout \
         {transaction} s: the last ones never happen",
        node.name
    );
    Some(Finding::new(NAME, Level::Warning, &[&node.name], text).fix(&node.name, fix))
}

fn gateway(node: &Node) -> Option<Finding> {
    if node.routes.as_ref().is_none_or(Vec::is_empty) {
        return None;
    }
    let patience = node.tunable("router_ping_timeout")?;
    let (seconds, who, _) = longest(node)?;
    if patience >= seconds {
        return None;
    }
    let text = format!(
        "{}: a gateway counts as dead after {patience} s (router_ping_timeout) although one \
         transmission to it may take {seconds} s ({who})",
        node.name
    );
    let fix = format!("lnetctl set router_ping_timeout {seconds}");
    Some(Finding::new(NAME, Level::Error, &[&node.name], text).fix(&node.name, fix))
}
