//! Records of the TCP driver and their deletion: `peer_list`, `conn_list`, `interface_list`,
//! `disconnect`, `del_peer` (K-7).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lnet_admin::{ClientError, DriverLine, DriverList, Reply, Request};
use lnet_types::{Net, NetType, Nid, Pid, ProcessId};

use super::{MISUSE, failed, order};
use crate::Session;
use crate::args::Args;
use crate::command::single_nid;
use crate::table::Command;

pub(super) fn peers(session: &mut Session<'_>, command: &Command, _: &Args) -> i32 {
    list(session, command, DriverList::Peers, "<no peers>")
}

pub(super) fn connections(session: &mut Session<'_>, command: &Command, _: &Args) -> i32 {
    list(session, command, DriverList::Connections, "<no connections>")
}

pub(super) fn interfaces(session: &mut Session<'_>, command: &Command, _: &Args) -> i32 {
    list(session, command, DriverList::Interfaces, "<no interfaces>")
}

/// The network of `--net`, which must be one of this driver.
fn network(session: &mut Session<'_>, command: &Command) -> Result<Net, i32> {
    let name = command.name;
    let Some(net) = session.net else {
        session.err_line(format_args!("You must run '--net <network>' command before '{name}'"));
        return Err(MISUSE);
    };
    if net.kind != NetType::TCP {
        session.err_line(format_args!("Command {name} not compatible with {net} NAL"));
        return Err(MISUSE);
    }
    Ok(net)
}

/// `disconnect [NID]`: the next message connects anew.
pub(super) fn disconnect(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let_go(session, command, args, false)
}

/// `del_peer [NID]`: also what waits for a connection, and how to connect, which is found anew.
pub(super) fn del_peer(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let_go(session, command, args, true)
}

fn let_go(session: &mut Session<'_>, command: &Command, args: &Args, forget: bool) -> i32 {
    let net = match network(session, command) {
        Ok(net) => net,
        Err(code) => return code,
    };
    let nid = match args.operands.first().map(String::as_str) {
        None | Some("_all_" | "*") => None,
        Some(word) => match single_nid(word) {
            Some(nid) if nid.net() == net => Some(nid),
            Some(nid) => {
                session.err_line(format_args!("{}: {nid} is not on {net}", command.name));
                return MISUSE;
            }
            None => {
                session.err_line(format_args!("Can't parse NID {word}"));
                return MISUSE;
            }
        },
    };
    order(session, command.name, &Request::DriverDisconnect { net, nid, forget })
}

fn list(session: &mut Session<'_>, command: &Command, list: DriverList, none: &str) -> i32 {
    let net = match network(session, command) {
        Ok(net) => net,
        Err(code) => return code,
    };
    let (mut from, mut any) = (None, false);
    loop {
        let page = match session.ask(&Request::DriverShow { list, from }) {
            Ok(Reply::Driver(page)) => page,
            Ok(_) => return failed(session, command.name, &ClientError::Unexpected),
            Err(e) => return failed(session, command.name, &e),
        };
        for line in page.lines.iter().filter(|line| nid(line).is_none_or(|n| n.net() == net)) {
            any = true;
            let line = text(line);
            session.out_line(line);
        }
        match page.next {
            None => break,
            // Pages only go forward.
            next if next <= from => return failed(session, command.name, &ClientError::Unexpected),
            next => from = next,
        }
    }
    if !any {
        session.out_line(none);
    }
    0
}

const fn nid(line: &DriverLine) -> Option<Nid> {
    match line {
        DriverLine::Peer { nid, .. } | DriverLine::Connection { nid, .. } => Some(*nid),
        DriverLine::Interface { .. } => None,
    }
}

fn text(line: &DriverLine) -> String {
    let id = |nid: Nid, pid| ProcessId { nid, pid: Pid(pid) }.to_string();
    match line {
        // The node keeps a record of every peer that it has an address for.
        DriverLine::Peer { nid, pid, own, addr, connections } => {
            format!("{:<20} [1]{own}->{}:{} #{connections}", id(*nid, *pid), addr.ip(), addr.port())
        }
        DriverLine::Connection { nid, pid, kind, own, addr, buffers: (tx, rx), nagle } => {
            let nagle = if *nagle { "nagle" } else { "nonagle" };
            format!(
                "{:<20} {kind}[0]{own}->{}:{} {tx}/{rx} {nagle}",
                id(*nid, *pid),
                addr.ip(),
                addr.port()
            )
        }
        DriverLine::Interface { addr, prefix, peers, connections } => {
            let mask = prefix.map_or_else(|| "?".to_owned(), |p| mask(*addr, p).to_string());
            format!("{addr}: ({addr}/{mask}) npeer {peers} nroute {connections}")
        }
    }
}

/// The mask of a network.
fn mask(addr: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match addr {
        IpAddr::V4(_) => {
            Ipv4Addr::from(u32::MAX.checked_shl(32u32.saturating_sub(prefix)).unwrap_or(0)).into()
        }
        IpAddr::V6(_) => {
            Ipv6Addr::from(u128::MAX.checked_shl(128u32.saturating_sub(prefix)).unwrap_or(0)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_as_long_as_their_prefix() {
        let of = |addr: &str, prefix| mask(addr.parse().unwrap(), prefix).to_string();
        assert_eq!(of("10.0.0.1", 24), "255.255.255.0");
        assert_eq!(
            (of("10.0.0.1", 0), of("10.0.0.1", 32)),
            ("0.0.0.0".into(), "255.255.255.255".into())
        );
        assert_eq!(
            (of("fd00::1", 64), of("fd00::1", 0)),
            ("ffff:ffff:ffff:ffff::".into(), "::".into())
        );
    }
}
