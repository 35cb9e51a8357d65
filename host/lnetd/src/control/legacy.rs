//! What `lctl` has beyond `lnetctl`: distances, records of the TCP driver and their deletion,
//! reports about gateways, peers and interfaces that fail on purpose.

use core::net::IpAddr;
use core::num::NonZeroU32;

use lnet::{Link, NidMatch};
use lnet_admin::{AdminError, DRIVER_LINES_PER_PAGE, DriverLine, DriverList, DriverPage, Reply};
use lnet_rt::{Interfaces, Stack};
use lnet_types::{Errno, Instant, Net, Nid};

use super::Control;

impl Control {
    pub(super) fn peer_fail(&self, nid: Nid, times: Option<u32>) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, now| fail_peer(stack, now, nid, times))
    }

    pub(super) fn driver_disconnect(
        &self,
        net: Net,
        nid: Option<Nid>,
        forget: bool,
    ) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, now| disconnect(stack, now, net, nid, forget))
    }

    pub(super) fn peer_notify(&self, nid: Nid, up: bool, ago_s: u64) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, now| notify(stack, now, nid, up, ago_s))
    }

    pub(super) fn link_simulate(&self, nid: Nid, up: bool) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, now| simulate_link(stack, now, nid, up))
    }

    pub(super) fn cpt_of_nid(&self, nids: Vec<Nid>) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| {
            let node = stack.node();
            Ok(Reply::Cpts(nids.into_iter().map(|nid| node.cpt_of_nid(nid)).collect()))
        })
    }

    pub(super) fn distance(&self, nids: Vec<Nid>) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| Ok(distances(stack, &nids)))
    }

    pub(super) fn driver_show(
        &self,
        list: DriverList,
        from: Option<u64>,
    ) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| Ok(listing(stack, list, from)))
    }

    /// A line in the log, of one line: a warning, as kernels print it, so that quiet logs have it too.
    pub(super) fn mark(text: &str) -> Reply {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        tracing::warn!("DEBUG MARKER: {text}");
        Reply::Done
    }
}

/// F-40.
fn fail_peer(
    stack: &mut Stack,
    now: Instant,
    nid: Nid,
    times: Option<u32>,
) -> Result<Reply, AdminError> {
    let who = NidMatch::from(nid);
    match times.map(NonZeroU32::new) {
        Some(None) => stack.node_mut().mend_peer(now, who),
        times => stack
            .node_mut()
            .fail_peer(now, who, times.flatten())
            .map_err(|e| AdminError::errno(e.errno()).because(e))?,
    }
    Ok(Reply::Done)
}

/// HL-dbg-020, HL-dbg-025.
fn simulate_link(stack: &mut Stack, now: Instant, nid: Nid, up: bool) -> Result<Reply, AdminError> {
    let link = if up { Link::Up } else { Link::Down };
    stack.node_mut().simulate_link(now, nid, link).map(|()| Reply::Done).map_err(|errno| {
        let why = match errno {
            Errno::EINVAL => "the loopback interface has no link",
            _ => "this node has no such interface",
        };
        AdminError::errno(errno).because(format_args!("{nid}: {why}"))
    })
}

///
fn notify(
    stack: &mut Stack,
    now: Instant,
    nid: Nid,
    up: bool,
    ago_s: u64,
) -> Result<Reply, AdminError> {
    // What was seen before this node began is as old as can be.
    let when = Instant(now.0.saturating_sub(ago_s.saturating_mul(1_000_000_000)));
    let done = stack.node_mut().notify(now, nid, up, when);
    done.map(|()| Reply::Done)
        .map_err(|errno| AdminError::errno(errno).because(format_args!("peer {nid}: {errno}")))
}

/// K-7.
fn disconnect(
    stack: &mut Stack,
    now: Instant,
    net: Net,
    nid: Option<Nid>,
    forget: bool,
) -> Result<Reply, AdminError> {
    match (stack.disconnect_tcp(now, net, nid, forget), nid) {
        (0, Some(nid)) => {
            let what = if forget { "no record of" } else { "no connection to" };
            Err(AdminError::errno(Errno::ENOENT)
                .because(format_args!("the driver has {what} {nid} on {net}")))
        }
        _ => Ok(Reply::Done),
    }
}

/// How far NIDs are (M-51).
fn distances(stack: &Stack, nids: &[Nid]) -> Reply {
    let far = |nid: &Nid| stack.node().distance(*nid).ok().map(|d| (d.hops, d.order));
    Reply::Distances(nids.iter().map(far).collect())
}

/// The records of the TCP driver (K-7 of the tools' reference).
fn listing(stack: &mut Stack, list: DriverList, from: Option<u64>) -> Reply {
    let all = match list {
        DriverList::Peers => peers(stack),
        DriverList::Connections => connections(stack),
        DriverList::Interfaces => interfaces(stack),
    };
    let from = from.map_or(0, |f| usize::try_from(f).unwrap_or(usize::MAX)).min(all.len());
    let to = from.saturating_add(DRIVER_LINES_PER_PAGE).min(all.len());
    let next = (to < all.len()).then_some(to as u64);
    let lines = all.into_iter().skip(from).take(to - from).collect();
    Reply::Driver(DriverPage { lines, next })
}

fn peers(stack: &Stack) -> Vec<DriverLine> {
    let Some(tcp) = stack.tcp() else { return Vec::new() };
    let own = |ni| stack.node().ni_view(ni).and_then(|v| v.nid.ip());
    let peers = tcp.peers();
    let lines = peers.iter().filter_map(|p| {
        Some(DriverLine::Peer {
            nid: p.id.nid,
            pid: p.id.pid.0,
            own: own(p.ni)?,
            addr: p.addr,
            connections: p.connections as u64,
        })
    });
    lines.collect()
}

fn connections(stack: &Stack) -> Vec<DriverLine> {
    use lnd_sock::Kind;
    let Some(tcp) = stack.tcp() else { return Vec::new() };
    let line = |c: lnd_sock::ConnInfo| DriverLine::Connection {
        nid: c.peer.nid,
        pid: c.peer.pid.0,
        kind: match c.kind {
            Kind::Any => 'A',
            Kind::Control => 'C',
            Kind::BulkIn => 'I',
            Kind::BulkOut => 'O',
        },
        own: c.local.ip(),
        addr: c.remote,
        buffers: c.buffers,
        nagle: c.nagle,
    };
    tcp.connections().into_iter().map(line).collect()
}

fn prefix(machine: &Interfaces, addr: IpAddr) -> Option<u8> {
    let on = machine.with_address(addr)?;
    on.addresses.iter().find(|a| a.ip == addr).map(|a| a.prefix)
}

fn interfaces(stack: &mut Stack) -> Vec<DriverLine> {
    let machine = stack.interfaces().unwrap_or_default();
    let Some(tcp) = stack.tcp() else { return Vec::new() };
    let (peers, conns) = (tcp.peers(), tcp.connections());
    let views = stack.node().net_views();
    let nis = views.iter().flat_map(|net| &net.nis).filter(|ni| tcp.ni_traffic(ni.id).is_some());
    let lines = nis.filter_map(|ni| {
        let addr = ni.nid.ip()?;
        Some(DriverLine::Interface {
            addr,
            prefix: prefix(&machine, addr),
            peers: peers.iter().filter(|p| p.ni == ni.id).count() as u64,
            connections: conns.iter().filter(|c| c.ni == ni.id).count() as u64,
        })
    });
    lines.collect()
}
