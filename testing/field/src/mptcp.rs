//! Multipath TCP for comparison: whether this kernel has it, and path managers that make a subflow
//! for each rail.

use std::net::IpAddr;

use lnet_scenario::NodeId;
use lnet_types::Nid;

use crate::stage::{Nic, Stage};

/// Whether the kernel has it and lets us, and if not, why.
///
/// # Errors
/// A sentence for the table.
pub fn available() -> Result<(), String> {
    let path = "/proc/sys/net/mptcp/enabled";
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim() == "1" => Ok(()),
        Ok(text) => Err(format!("{path} is {}", text.trim())),
        Err(e) => Err(format!("{path}: {e}")),
    }
}

/// Tells the path managers of both hosts about the rails. The client makes the subflows: from each
/// of its rails to the rail of the server that has the same number.
pub(crate) fn prepare(stage: &Stage, client: NodeId, server: NodeId) -> anyhow::Result<()> {
    for node in [client, server] {
        let host = stage.host(node)?;
        host.run(["ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8"])?;
        let mut nics: Vec<&Nic> = stage.used(node).collect();
        nics.sort_by(|a, b| a.device.cmp(&b.device));
        // The first is that of the connection itself.
        for nic in nics.iter().skip(1) {
            let kind = if node == client { "subflow" } else { "signal" };
            add(stage, node, nic.address, &nic.device, kind)?;
        }
    }
    Ok(())
}

/// An interface of a host comes into use, or goes out of it.
pub(crate) fn endpoint(stage: &Stage, server: NodeId, nid: Nid, on: bool) -> anyhow::Result<()> {
    let nic = stage.nic(nid)?;
    let kind = if nic.node == server { "signal" } else { "subflow" };
    if on {
        return add(stage, nic.node, nic.address, &nic.device, kind);
    }
    let host = stage.host(nic.node)?;
    let shown = host.run(["ip", "mptcp", "endpoint", "show"])?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let address = nic.address.to_string();
    let line = shown.lines().find(|l| l.split_whitespace().next() == Some(&address));
    let id = line.and_then(|l| {
        let mut words = l.split_whitespace().skip_while(|w| *w != "id");
        words.nth(1).map(str::to_owned)
    });
    match id {
        Some(id) => host.run(["ip", "mptcp", "endpoint", "delete", "id", &id])?,
        // That of the connection itself has no endpoint; id 0 means it.
        None => host.run(["ip", "mptcp", "endpoint", "delete", "id", "0", &address])?,
    };
    Ok(())
}

fn add(
    stage: &Stage,
    node: NodeId,
    address: IpAddr,
    device: &str,
    kind: &str,
) -> anyhow::Result<()> {
    let address = address.to_string();
    stage.host(node)?.run(["ip", "mptcp", "endpoint", "add", &address, "dev", device, kind])?;
    Ok(())
}
