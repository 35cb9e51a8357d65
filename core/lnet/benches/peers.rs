//! What the record of a peer takes that was discovered and says nothing: a node of four interfaces on four
//! networks discovers peers of as many, one after the other, each gone as soon as it has answered.
//!
//! `cargo bench -p lnet --bench peers [-- PEERS]` (10,000). Prints bytes of resident memory for each peer: what
//! the process has grown by from the first half of them to the second, so that tables that grow by doubling
//! are in it as they are.
#![allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]

use std::env;

use lnet::{NetTunables, NiSpec, Node, NodeConfig, Output, Payload, Rx, Tunables, Verdict};
use lnet_types::{Instant, NiId, Nid, Pid, RxId};

const RAILS: u32 = 4;
const PEERS: u32 = 10_000;
const NOW: Instant = Instant::from_secs(1);

/// The interface of a host on a rail.
fn nid(rail: u32, host: u32) -> Nid {
    let [_, a, b, c] = host.to_be_bytes();
    format!("{}.{a}.{b}.{c}@tcp{rail}", 10 + rail).parse().unwrap()
}

struct Host {
    node: Node,
    nis: Vec<(NiId, Nid)>,
}

impl Host {
    fn new(host: u32) -> Self {
        let seed = host.into();
        let tunables = Tunables::default();
        let config = NodeConfig { seed, interface_cookie: 1 + seed, ping_seq: 0, tunables };
        let mut node = Node::new(config, NOW);
        let nis = (0..RAILS).map(|rail| {
            let (nid, tunables) = (nid(rail, host), NetTunables::SOCK);
            let spec = NiSpec { nid, interface: None, tunables, lnd_timeout: None };
            (node.add_ni(NOW, spec).unwrap(), nid)
        });
        let nis = nis.collect();
        Self { node, nis }
    }

    /// Gives what the node sends to the other one. Whether there was anything.
    fn deliver(&mut self, to: &mut Self) -> bool {
        let mut any = false;
        while let Some(output) = self.node.poll_output() {
            let Output::Send(t) = output else { continue };
            any = true;
            // A node's own pings carry what they say themselves.
            let bytes: &[u8] = if let Payload::Bytes(bytes) = &t.payload { bytes } else { &[] };
            let (_, from) = *self.nis.iter().find(|(ni, _)| *ni == t.ni).unwrap();
            let (ni, _) = *to.nis.iter().find(|(_, nid)| *nid == t.to.nid).unwrap();
            let rx = Rx { ni, from, from_pid: Pid::LUSTRE, peer_ni: None, id: RxId(1) };
            if let Verdict::Deliver { msg, .. } = to.node.rx_header(NOW, rx, &t.hdr) {
                to.node.rx_done(NOW, msg, Ok(bytes));
            }
            self.node.tx_done(NOW, t.msg, Ok(()));
        }
        while self.node.poll_event().is_some() {}
        while self.node.poll_notice().is_some() {}
        while self.node.poll_report().is_some() {}
        any
    }
}

/// Bytes of this process in memory.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0
}

fn main() {
    let peers = env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(PEERS);
    let mut hub = Host::new(0);
    let mut half = 0.0;
    for host in 1..=peers {
        let mut peer = Host::new(host);
        hub.node.discover(NOW, nid(0, host), false);
        loop {
            let any = hub.deliver(&mut peer);
            if !peer.deliver(&mut hub) && !any {
                break;
            }
        }
        if host == peers / 2 {
            half = resident();
        }
    }
    let (known, interfaces) = hub.node.peer_count();
    let each = (resident() - half) / f64::from(peers - peers / 2);
    println!("{known} peers of {interfaces} interfaces known, {each:.0} bytes each");
}
