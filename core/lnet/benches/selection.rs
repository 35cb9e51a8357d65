//! What rules of the administrator cost when a path is chosen (MRD-031): messages to a peer of four
//! interfaces from a node of four, without rules and with a hundred, in turns, so that whatever else
//! the machine does meets both alike.
//!
//! `cargo bench -p lnet --bench selection`. Prints nanoseconds per message for both, and their ratio.
#![allow(clippy::unwrap_used, reason = "a benchmark ends where it fails")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures")]

use lnet::{MdSpec, NetTunables, NiSpec, Node, NodeConfig, Output, Put, Rule, Tunables};
use lnet_types::{Instant, IoVec, MdId, Nid, ProcessId};

const RAILS: u8 = 4;
const BATCH: u32 = 20_000;
const ROUNDS: usize = 41;

fn nid(rail: u8, host: u8) -> Nid {
    format!("10.77.{rail}.{host}@tcp").parse().unwrap()
}

/// A node, and the descriptor that it sends from.
struct Sender {
    node: Node,
    md: MdId,
}

impl Sender {
    /// With rules that make every interface as good as the others, by their NIDs, and for the rest
    /// about others.
    fn new(rules: u8) -> Self {
        let config =
            NodeConfig { seed: 1, interface_cookie: 1, ping_seq: 0, tunables: Tunables::default() };
        let now = Instant::from_secs(1);
        let mut node = Node::new(config, now);
        node.set_tunables(now, &[("discovery", 0)]).unwrap();
        for rail in 0..RAILS {
            let tunables = NetTunables { credits: 1024, peer_credits: 512, ..NetTunables::SOCK };
            let nid = nid(rail, 2);
            node.add_ni(now, NiSpec { nid, interface: None, tunables, lnd_timeout: None }).unwrap();
        }
        let others: Vec<Nid> = (1..RAILS).map(|rail| nid(rail, 3)).collect();
        node.peer_add(now, nid(0, 3), &others, true, false).unwrap();
        for i in 0..rules {
            let (rail, host) = (i % RAILS, 3 + i / RAILS);
            let dst = Some(nid(rail, host).to_string().parse().unwrap());
            node.udsp_add(now, Rule::new(None, dst, None, Some(5), None).unwrap(), None).unwrap();
        }
        let md = node.bind(MdSpec::new(IoVec::new(), 7)).unwrap();
        Self { node, md }
    }

    /// Sends a batch, each message done before the next; returns nanoseconds per message.
    fn batch(&mut self) -> f64 {
        let begin = std::time::Instant::now();
        for n in 0..BATCH {
            let now = Instant::from_secs(2 + u64::from(n / 1000));
            let put = Put {
                md: self.md,
                ack: false,
                src: None,
                target: ProcessId::lustre(nid(0, 3)),
                portal: 5,
                match_bits: 1,
                offset: 0,
                hdr_data: 0,
                timeout: None,
            };
            self.node.put(now, put).unwrap();
            while let Some(output) = self.node.poll_output() {
                if let Output::Send(transmit) = output {
                    self.node.tx_done(now, transmit.msg, Ok(()));
                }
            }
            while self.node.poll_event().is_some() {}
            while self.node.poll_notice().is_some() {}
        }
        begin.elapsed().as_nanos() as f64 / f64::from(BATCH)
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let (mut without, mut with) = (Sender::new(0), Sender::new(100));
    let (mut ones, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (one, other) = (without.batch(), with.batch());
        ones.push(one);
        others.push(other);
        ratios.push(other / one);
    }
    println!("without rules    {:7.1} ns per message", median(ones));
    println!("with 100 rules   {:7.1} ns per message", median(others));
    println!("ratio            {:7.3} (median of {ROUNDS} pairs)", median(ratios));
}
