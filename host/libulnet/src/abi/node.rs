//! Nodes: start, stop, interfaces, tunables, peers, routes.

#![allow(unsafe_code, reason = "entries of a C library: the header says what callers keep to")]
#![allow(clippy::missing_safety_doc, reason = "the comments are those of the header")]

use core::ffi::{c_char, c_int};
use core::time::Duration;
use std::sync::Arc;

use lnet_rt::{Errno, Found, Net, Nid, NodeHandle, RouteSpec};

use super::config::{CONFIGS, interface};
use super::raw;
use super::types::{ulnet_config, ulnet_ni_options, ulnet_nid, ulnet_node, ulnet_peer};
use crate::failure::{Failure, entry};
use crate::table::Table;

pub(super) static NODES: Table<NodeHandle> = Table::new("node");

/// The node of a handle.
pub(super) fn node(handle: *const ulnet_node) -> Result<Arc<NodeHandle>, Failure> {
    NODES.get(raw::number(handle))
}

/// Starts a node on a thread of its own. The configuration can be used again, and freed. ulnet_node_stop
/// ends the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_node_start(
    config: *mut ulnet_config,
    node: *mut *mut ulnet_node,
) -> c_int {
    entry(|| {
        raw::place("node", node)?;
        let handle = CONFIGS.get(raw::number(config))?.start()?;
        let number = NODES.insert(Arc::new(handle));
        // SAFETY: looked at above; the header demands that it is writable.
        unsafe { raw::write(node, raw::handle(number)) };
        Ok(0)
    })
}

/// Stops a node and ends its handle: operations may finish within grace_ms, then they fail with
/// ESHUTDOWN; inboxes and attachments get ULNET_EVENT_CLOSED. Returns when its sockets are closed and it
/// uses no memory of the program any more. Handles of its inboxes and attachments still have to be closed.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_node_stop(node: *mut ulnet_node, grace_ms: u32) -> c_int {
    entry(|| {
        let node = NODES.remove(raw::number(node))?;
        node.stop(Duration::from_millis(grace_ms.into())).blocking();
        Ok(0)
    })
}

/// Adds an interface to a running node. options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_node_add_ni(
    node: *mut ulnet_node,
    nid: *const c_char,
    options: *const ulnet_ni_options,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        // SAFETY: the header demands a string.
        let nid = unsafe { raw::nid("nid", nid)? };
        // SAFETY: the header demands NULL or a structure whose strings end with NUL.
        let ni = unsafe { interface(nid, options)? };
        node.call(move |stack, _| stack.add_tcp_ni(ni)).blocking()??;
        Ok(0)
    })
}

/// Removes an interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_node_del_ni(node: *mut ulnet_node, nid: *const c_char) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        // SAFETY: the header demands a string.
        let nid = unsafe { raw::nid("nid", nid)? };
        let gone = node.call(move |stack, _| {
            let nets = stack.node().net_views();
            let ni = nets.iter().flat_map(|net| &net.nis).find(|ni| ni.nid == nid);
            ni.map(|ni| ni.id).ok_or(Errno::ENOENT).and_then(|ni| stack.del_ni(ni))
        });
        gone.blocking()?.map_err(|errno| Failure::new(errno, format!("nid {nid}: {errno}")))?;
        Ok(0)
    })
}

/// The own NIDs: writes number index, from 0, to nid. -ENOENT behind the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_node_nid(
    node: *mut ulnet_node,
    index: usize,
    nid: *mut ulnet_nid,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        raw::place("nid", nid)?;
        let own = node.call(move |stack, _| {
            let nets = stack.node().net_views();
            let nids = nets.iter().flat_map(|net| &net.nis).map(|ni| ni.nid);
            nids.filter(|nid| !nid.is_loopback()).nth(index)
        });
        let missing = || Failure::new(Errno::ENOENT, format!("index {index}: behind the last NID"));
        let own = own.blocking()?.ok_or_else(missing)?;
        // SAFETY: looked at above; the header demands that it is writable.
        unsafe { raw::write(nid, raw::nid_text(own)) };
        Ok(0)
    })
}

/// Sets a tunable of a running node, as ulnet_config_set does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_node_set(
    node: *mut ulnet_node,
    name: *const c_char,
    value: i64,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        // SAFETY: the header demands a string.
        let name = unsafe { raw::text("name", name)? }.to_owned();
        let set = node.call(move |stack, _| stack.set_tunables(&[(&name, value)]));
        set.blocking()??;
        Ok(0)
    })
}

/// Writes the value of a tunable to value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_node_value(
    node: *mut ulnet_node,
    name: *const c_char,
    value: *mut i64,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        raw::place("value", value)?;
        // SAFETY: the header demands a string.
        let name = unsafe { raw::text("name", name)? };
        let asked = name.to_owned();
        let found = node.call(move |stack, _| stack.node().tunables().value(&asked)).blocking()?;
        let unknown = || Failure::new(Errno::ENOENT, format!("no tunable is called '{name}'"));
        // SAFETY: looked at above; the header demands that it is writable.
        unsafe { raw::write(value, found.ok_or_else(unknown)?) };
        Ok(0)
    })
}

/// Adds a peer with its primary NID and count further NIDs. Peers need not be added: they are discovered
/// when they are first sent to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_node_add_peer(
    node: *mut ulnet_node,
    primary: *const c_char,
    nids: *const *const c_char,
    count: usize,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        // SAFETY: the header demands a string.
        let primary = unsafe { raw::nid("primary", primary)? };
        // SAFETY: the header demands `count` strings.
        let nids = unsafe { nid_list(nids, count)? };
        let added = node
            .call(move |stack, now| stack.node_mut().peer_add(now, primary, &nids, true, false));
        let failed = |errno| Failure::new(errno, format!("peer {primary}: {errno}"));
        added.blocking()?.map_err(failed)?;
        Ok(0)
    })
}

/// Removes a peer with all its NIDs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_node_del_peer(
    node: *mut ulnet_node,
    primary: *const c_char,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        // SAFETY: the header demands a string.
        let primary = unsafe { raw::nid("primary", primary)? };
        let gone = node.call(move |stack, now| stack.node_mut().peer_del(now, primary, &[], false));
        let failed = |errno| Failure::new(errno, format!("peer {primary}: {errno}"));
        gone.blocking()?.map_err(failed)?;
        Ok(0)
    })
}

/// # Safety
/// `nids` are `count` strings.
unsafe fn nid_list(nids: *const *const c_char, count: usize) -> Result<Vec<Nid>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    raw::place("nids", nids)?;
    let all = (0..count).map(|i| {
        // SAFETY: not NULL and aligned by the line above; within the caller's `count`.
        unsafe { raw::nid("nids", nids.add(i).read()) }
    });
    all.collect()
}

/// Adds a route to a network, such as "tcp7", by a gateway on a local network. hops from 1 to 255, 0 for
/// unknown; priority 0 is best.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_node_add_route(
    node: *mut ulnet_node,
    net: *const c_char,
    gateway: *const c_char,
    hops: u32,
    priority: u32,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        // SAFETY: the header demands strings.
        let (net, gateway) =
            unsafe { (parse_net(raw::text("net", net)?)?, raw::nid("gateway", gateway)?) };
        let hops = (hops != 0).then_some(hops);
        let spec = RouteSpec { net, gateway, hops, priority };
        node.call(move |stack, now| stack.node_mut().add_route(now, spec)).blocking()??;
        Ok(0)
    })
}

/// Removes a route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_node_del_route(
    node: *mut ulnet_node,
    net: *const c_char,
    gateway: *const c_char,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        // SAFETY: the header demands strings.
        let (net, gateway) =
            unsafe { (parse_net(raw::text("net", net)?)?, raw::nid("gateway", gateway)?) };
        let gone =
            node.call(move |stack, now| stack.node_mut().del_route(now, Some(net), Some(gateway)));
        gone.blocking()??;
        Ok(0)
    })
}

fn parse_net(name: &str) -> Result<Net, Failure> {
    name.parse().map_err(|e| Failure::argument(format!("net '{name}': {e}")))
}

/// Asks a node for its interfaces, within timeout_ms (0: 180 s), and writes what is known to peer, and the
/// first of its NIDs to nids, at most max. nids may be NULL if max is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_ping(
    node: *mut ulnet_node,
    target: *const c_char,
    timeout_ms: u32,
    peer: *mut ulnet_peer,
    nids: *mut ulnet_nid,
    max: usize,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        // SAFETY: the header demands a string.
        let target = unsafe { raw::target(target)? };
        places(peer, nids, max)?;
        let limit = Duration::from_millis(timeout_ms.into());
        let found = node.ping(target, limit).blocking();
        let found = found.map_err(|e| said("ping", target.nid, e))?;
        // SAFETY: looked at above; the header demands that they are writable.
        unsafe { write_peer(&found, peer, nids, max) };
        Ok(0)
    })
}

/// Discovers the peer that has a NID, as ulnet_ping does but with the outcome remembered: all its NIDs
/// are used from then on. With force not 0 also if nothing seems to have changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_discover(
    node: *mut ulnet_node,
    target: *const c_char,
    force: c_int,
    peer: *mut ulnet_peer,
    nids: *mut ulnet_nid,
    max: usize,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        // SAFETY: the header demands a string.
        let target = unsafe { raw::nid("target", target)? };
        places(peer, nids, max)?;
        let asked = if force == 0 { node.discover(target) } else { node.discover_again(target) };
        let found = asked.blocking().map_err(|e| said("discover", target, e))?;
        // SAFETY: looked at above; the header demands that they are writable.
        unsafe { write_peer(&found, peer, nids, max) };
        Ok(0)
    })
}

fn said(what: &str, target: Nid, error: lnet_rt::OpError) -> Failure {
    let failure = Failure::from(error);
    Failure { text: format!("{what} {target}: {}", failure.text), ..failure }
}

fn places(peer: *const ulnet_peer, nids: *const ulnet_nid, max: usize) -> Result<(), Failure> {
    raw::place("peer", peer)?;
    if max > 0 { raw::place("nids", nids) } else { Ok(()) }
}

/// # Safety
/// Both have passed [`places`] and are writable.
unsafe fn write_peer(found: &Found, peer: *mut ulnet_peer, nids: *mut ulnet_nid, max: usize) {
    let value = ulnet_peer {
        primary: raw::nid_text(found.primary),
        multi_rail: found.multi_rail.into(),
        nids: u32::try_from(found.nids.len()).unwrap_or(u32::MAX),
    };
    // SAFETY: the caller's promise.
    unsafe { raw::write(peer, value) };
    for (i, nid) in found.nids.iter().take(max).enumerate() {
        // SAFETY: within the `max` that the caller has room for.
        unsafe { raw::write(nids.add(i), raw::nid_text(*nid)) };
    }
}
