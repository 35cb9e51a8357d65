//! `ulnet rpc ping`: connects to a target of any Lustre server, pings it, disconnects; takes no lock.
//! Prints what the server granted and how long it took.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use lnet_rt::{Errno, Nid, NodeHandle};
use lustre_rt::{
    Buffers, Call, CallError, ConnectData, ConnectFlags, ConnectFlags2, Import, ImportConfig,
    ImportKind, ImportState, ImportView, Opcode, Portal, RpcError, RpcNode,
};
use serde_json::json;

use crate::client::{nid, sources};
use crate::rails::{self, Routes, Source};
use crate::stop::Stop;

/// Which server is pinged, and how.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet rpc ping 10.0.0.1@tcp\n  \
    ulnet rpc ping 10.0.0.1@tcp --target lfs-OST0000_UUID --count 5\n  \
    ulnet rpc ping 10.0.0.1@tcp --target lfs-MDT0000_UUID --portal 23\n  \
    ulnet rpc ping 10.0.9.1@tcp1 --route tcp1=10.0.0.9@tcp\n\n\
    The port is listened on as well: beside a running lnetd, use another address of the machine \
    (--source). Beside a server on the loopback a command takes another one of 127.0.0.0/8 itself.")]
pub(crate) struct Options {
    /// NID of the server
    #[arg(value_parser = nid)]
    nid: Nid,
    /// Uuid of the target; its kind follows from MGS, -MDT or -OST in it
    #[arg(long, default_value = "MGS")]
    target: String,
    /// Request portal of the service that is pinged; that of the target's kind if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..64))]
    portal: Option<u32>,
    /// Pings to send
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
    /// Give up after so many seconds without an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Addresses of this machine to send from; the one that the system would use if not given
    #[arg(long, value_name = "IP[@NET],…", value_delimiter = ',')]
    source: Vec<Source>,
    #[command(flatten)]
    routes: Routes,
    /// TCP port of both nodes
    #[arg(long, default_value_t = 988)]
    port: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Between two looks at an import that connects.
const LOOK: Duration = Duration::from_millis(1);
/// How long the answer to a connect is waited for after a failure, so that its client is let go of.
const LEAVE: Duration = Duration::from_secs(1);

/// The kind of a target, by its uuid.
pub(crate) fn kind_of(target: &str) -> ImportKind {
    if target == "MGS" {
        ImportKind::Mgc
    } else if target.contains("-MDT") {
        ImportKind::Mdc
    } else {
        ImportKind::Osc
    }
}

/// What a visitor asks for: nothing that makes a server keep something for it.
pub(crate) fn wanted(kind: ImportKind) -> ConnectData {
    let mut data = ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    };
    match kind {
        ImportKind::Mgc => {}
        ImportKind::Mdc => {
            data.flags |= ConnectFlags::FID | ConnectFlags::ATTRFID | ConnectFlags::IBITS;
            data.ibits_known = 0x7f;
        }
        _ => {
            data.flags |= ConnectFlags::FID | ConnectFlags::BRW_SIZE;
            data.brw_size = 1 << 20;
        }
    }
    data
}

/// The address that the system would send from.
pub(crate) fn source_towards(nid: Nid, port: u16) -> Result<IpAddr> {
    let to = nid.ip().ok_or_else(|| anyhow!("'{nid}' has no IP address: expected one on tcp"))?;
    let any: IpAddr = if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    let found = UdpSocket::bind(SocketAddr::new(any, 0))
        .and_then(|socket| {
            socket.connect(SocketAddr::new(to, port))?;
            socket.local_addr()
        })
        .with_context(|| format!("no address of this machine leads to '{nid}'"))?;
    Ok(found.ip())
}

/// Runs the command.
///
/// # Errors
/// No way to the server, no answer within the time, or a refusal.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { nid, target, port, .. } = options;
    rails::address(*nid)?;
    let kind = kind_of(target);
    let rails = sources(*nid, &options.source, *port)?;
    let node = rails::start(&rails, *port, &options.routes, "rpc-ping")?;
    let rpc = RpcNode::start(&node, Default::default())?;
    let stop = Stop::of(&rpc)?;
    let import = rpc.import(ImportConfig {
        kind,
        target: target.clone(),
        client: client_uuid(),
        nids: vec![*nid],
        wanted: wanted(kind),
    })?;
    let asked = ask(&node, &import, options);
    // A server waits for each client that it knows whenever it recovers, also for one whose ping failed.
    match &asked {
        Ok(()) => import.disconnect()?,
        Err(_) => import.disconnect_within(LEAVE)?,
    }
    node.stop(Duration::from_secs(1)).blocking();
    asked.map_err(|e| stop.explain(e))
}

/// Connects, pings, and prints what came of both.
fn ask(node: &NodeHandle, import: &Import, options: &Options) -> Result<()> {
    let Options { nid, target, .. } = options;
    let limit = Duration::from_secs(options.timeout);
    let begun = Instant::now();
    let view = connect(node, import, options, begun + limit)?;
    let connected = begun.elapsed();
    let mut pings = Vec::new();
    // Each service of a target answers on the reply portal of the target's kind.
    let (request, reply) = kind_of(target).portals();
    let portal = options.portal.map_or(request, Portal);
    for _ in 0..options.count {
        let begun = Instant::now();
        let portals = Some((portal, reply));
        let ping =
            Call { limit: Some(limit), portals, ..Call::new(Opcode::OBD_PING, Buffers::new()) };
        let (end, _) = import.call(ping)?.blocking();
        end.map_err(|e| anyhow!("{target} at {nid}, portal {}: ping: {}", portal.0, said(&e)))?;
        pings.push(begun.elapsed());
    }
    // Replies to pings say more than that to the connect: what is committed, and how long it took.
    let view = import.view()?.unwrap_or(view);
    print(options, &view, portal, connected, &pings);
    Ok(())
}

/// A refusal of a connect: its number, its text, and what it means where that is not plain.
pub(crate) fn refused(errno: Errno) -> String {
    let why = match errno {
        Errno::EBUSY => " (in recovery, or at its limit of clients: no new client for now)",
        Errno::EAGAIN => " (takes no connections yet)",
        _ => "",
    };
    format!("{}: {errno}{why}", errno.negative())
}

/// The text of an error, with its number where it is the server's.
pub(crate) fn said(e: &RpcError) -> String {
    match e {
        RpcError::Call(CallError::Refused(errno)) => {
            format!("the server answered {}: {errno}", errno.negative())
        }
        e => e.to_string(),
    }
}

/// A uuid that no other client has.
pub(crate) fn client_uuid() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map(|s| s.as_nanos() as u64).unwrap_or_default();
    format!("ulnet-{nanos:x}-{}", std::process::id())
}

/// Waits for the connection, or for the reason why there is none.
fn connect(
    node: &NodeHandle,
    import: &Import,
    options: &Options,
    until: Instant,
) -> Result<ImportView> {
    let Options { nid, target, .. } = options;
    import.connect()?;
    let mut last = None;
    while Instant::now() < until {
        let view = import.view()?.ok_or_else(|| anyhow!("the import was closed"))?;
        match view.refusal {
            _ if view.state == ImportState::Full => return Ok(view),
            Some(CallError::Refused(Errno::ENODEV)) => {
                bail!("{nid} answered: it has no target '{target}' (-19)");
            }
            Some(CallError::Refused(errno)) if !matches!(errno, Errno::EAGAIN | Errno::EBUSY) => {
                bail!("{nid} refused a connect to '{target}' with {}: {errno}", errno.negative());
            }
            _ => {}
        }
        last = Some(view);
        thread::sleep(LOOK);
    }
    let (state, tried) = last.as_ref().map_or(("NEW", 0), |v| (v.state.name(), v.conn_cnt));
    let why = match last.and_then(|view| view.refusal) {
        Some(CallError::Refused(errno)) => format!("the last was refused with {}", refused(errno)),
        _ => crate::probe::reached(node, *nid),
    };
    bail!(
        "{target} at {nid}: no connection within {} s (connects tried: {tried}, state {state}); {why}",
        options.timeout
    )
}

fn print(
    options: &Options,
    view: &ImportView,
    portal: Portal,
    connected: Duration,
    pings: &[Duration],
) {
    let Options { nid, target, .. } = options;
    let data = &view.granted;
    let byte = |shift: u32| data.version >> shift & 0xff;
    let version = format!("{}.{}.{}", byte(24), byte(16), byte(8));
    let ms = |d: &Duration| d.as_secs_f64() * 1000.0;
    let of_portal = view.services.iter().find(|(known, _)| *known == portal.0);
    let service = of_portal.map_or(0, |(_, e)| e.as_secs());
    if options.json {
        let value = json!({
            "target": target,
            "nid": nid.to_string(),
            "portal": portal.0,
            "version": version,
            "instance": data.instance,
            "connect_ms": ms(&connected),
            "ping_ms": pings.iter().map(ms).collect::<Vec<_>>(),
            "granted": data.flags.to_string(),
            "granted2": data.flags2.to_string(),
            "replayable": view.replayable,
            "last_committed": view.committed,
            "service_estimate_s": service,
            "net_estimate_s": view.net.as_secs(),
        });
        println!("{value:#}");
        return;
    }
    println!("{target} at {nid}: connected in {:.1} ms", ms(&connected));
    for ping in pings {
        println!("  ping {:.2} ms", ms(ping));
    }
    println!("  version {version}, instance {}", data.instance);
    println!("  granted {}", data.flags);
    if !data.flags2.is_empty() {
        println!("  granted {} (second word)", data.flags2);
    }
    let replayable = if view.replayable { "keeps transactions" } else { "keeps no transactions" };
    println!("  {replayable}, last committed {}", view.committed);
    println!("  estimates: service {service} s, net {} s", view.net.as_secs());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_target_is_in_its_name() {
        for (target, kind) in [
            ("MGS", ImportKind::Mgc),
            ("lfs-MDT0000_UUID", ImportKind::Mdc),
            ("lfs-OST0001_UUID", ImportKind::Osc),
            ("shelf-1", ImportKind::Osc),
        ] {
            assert_eq!(kind_of(target), kind, "{target}");
        }
    }

    #[test]
    fn a_uuid_of_a_client_fits_into_its_field() {
        assert!(client_uuid().len() <= 38);
    }
}
