//! Rails that are cut while traffic flows over real sockets, between two network namespaces: what
//! traffic moves at once after a report of netlink, else by suspicion (DEC-31). Order and
//! counters are asserted, no times.

use std::thread;
use std::time::Duration;

use lnet_rt::{AttachOptions, Attachment, Buffer, MatchEntry, Nid, NodeBuilder, NodeHandle};
use netns::{Host, Port, World};

const PORTAL: u32 = 5;
const A: [&str; 2] = ["10.78.0.2", "10.78.1.2"];
const B: [&str; 2] = ["10.78.0.3", "10.78.1.3"];

fn nid(ip: &str) -> Nid {
    format!("{ip}@tcp").parse().unwrap()
}

/// Two nodes with two rails, which know each other and have used both.
struct Pair {
    a: NodeHandle,
    b: NodeHandle,
    _inbox: Attachment,
    host_a: Host,
    host_b: Host,
    _world: World,
}

impl Pair {
    fn new(tag: &str, what: &str) -> Option<Self> {
        let world = match World::new(tag) {
            Ok(world) => world,
            Err(why) => {
                netns::skipped(what, why);
                return None;
            }
        };
        let (host_a, host_b) = (world.host("a").unwrap(), world.host("b").unwrap());
        for (n, device) in ["eth0", "eth1"].into_iter().enumerate() {
            let (a, b) = (format!("{}/24", A[n]), format!("{}/24", B[n]));
            world
                .segment(&[Port::new(&host_a, device, &[&a]), Port::new(&host_b, device, &[&b])])
                .unwrap();
        }
        let node = |host: &Host, ips: [&str; 2]| {
            let [one, two] = ips.map(|ip| ip.parse().unwrap());
            host.enter(|| NodeBuilder::new().tcp(one, 7988).tcp(two, 7988).start().unwrap())
        };
        let (a, b) = (node(&host_a, A), node(&host_b, B));
        let inbox = Buffer::zeroed(4 << 20);
        let inbox = b.attach(PORTAL, MatchEntry::bits(7), inbox, AttachOptions::PUT).unwrap();
        let pair = Self { a, b, _inbox: inbox, host_a, host_b, _world: world };
        let found = pair.a.discover(nid(B[0])).blocking().unwrap();
        assert_eq!(found.nids.len(), 2);
        pair.puts(32);
        assert!(pair.sent().iter().all(|n| *n > 0), "both rails are used: {:?}", pair.sent());
        Some(pair)
    }

    /// PUTs with ACK, one after the other; all of them succeed.
    fn puts(&self, n: usize) {
        for i in 0..n {
            let put = self.a.put(nid(B[0]), PORTAL, 7, vec![i as u8; 64]).ack();
            if let Err(e) = put.blocking() {
                let why = self.a.call(|stack, _| {
                    let node = stack.node();
                    format!("{}{}", node.suspicion(), node.explain(nid(B[0]), None, 64))
                });
                let to = self.sent_to();
                panic!(
                    "{i} of {n}: {e}; sent {:?} to {to:?}\n{}",
                    self.sent(),
                    why.blocking().unwrap()
                );
            }
        }
    }

    /// PUTs that have left each interface of `a`.
    fn sent(&self) -> [u32; 2] {
        let views = self.a.call(|stack, _| stack.node().net_views()).blocking().unwrap();
        A.map(|ip| {
            let mut nis = views.iter().flat_map(|v| &v.nis);
            nis.find(|v| v.nid == nid(ip)).map_or(0, |v| v.stats.sent.put)
        })
    }

    /// PUTs that have gone to each interface of `b`.
    fn sent_to(&self) -> [u32; 2] {
        let peer = self.a.call(|stack, _| stack.node().peer_view_of(nid(B[0]))).blocking().unwrap();
        B.map(|ip| {
            let mut nis = peer.iter().flat_map(|v| &v.nis);
            nis.find(|v| v.nid == nid(ip)).map_or(0, |v| v.stats.sent.put)
        })
    }

    /// The health of the interfaces of `a`.
    fn health(&self) -> [u32; 2] {
        let views = self.a.call(|stack, _| stack.node().net_views()).blocking().unwrap();
        A.map(|ip| {
            let mut nis = views.iter().flat_map(|v| &v.nis);
            nis.find(|v| v.nid == nid(ip)).map_or(0, |v| v.health)
        })
    }

    /// Whether `node` suspects the rail `n`.
    fn suspects(node: &NodeHandle, from: &'static str, to: &'static str) -> bool {
        let view = node.call(|stack, _| stack.node().suspicion()).blocking().unwrap();
        view.rails.iter().any(|r| (r.local, r.peer) == (nid(from), nid(to)))
    }
}

/// Waits for what must come.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..4000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("this did not happen: {what}");
}

#[test]
fn traffic_leaves_an_interface_whose_cable_is_pulled_and_comes_back_with_it() {
    let Some(pair) = Pair::new("cable", "traffic leaves a pulled cable") else { return };
    let fatal = |node: &NodeHandle| {
        let views = node.call(|stack, _| stack.node().net_views()).blocking().unwrap();
        views.iter().flat_map(|v| &v.nis).filter(|v| v.fatal).count()
    };
    pair.host_a.link_down("eth0").unwrap();
    until("both ends have the report", || fatal(&pair.a) == 1 && fatal(&pair.b) == 1);
    let before = pair.sent();
    pair.puts(50);
    let after = pair.sent();
    assert_eq!(after[0], before[0], "nothing goes there");
    assert!(
        after[1] - before[1] >= 50,
        "everything goes here, with what the node itself has to say"
    );
    pair.host_a.link_up("eth0").unwrap();
    until("the first rail carries again", || {
        pair.puts(4);
        pair.sent()[0] > after[0]
    });
}

#[test]
fn traffic_leaves_a_rail_that_swallows_everything_in_silence_and_comes_back_when_it_heals() {
    let Some(pair) = Pair::new("hole", "traffic leaves a black hole") else { return };
    pair.host_b.nft("add table inet hole").unwrap();
    pair.host_b
        .nft("add chain inet hole in { type filter hook input priority 0 ; policy accept ; }")
        .unwrap();
    pair.host_b.nft("add rule inet hole in iifname eth0 drop").unwrap();
    // What is on its way when the rail goes is not waited for.
    let mut lost = Vec::new();
    until("the rail is suspected", || {
        let put = pair.a.put(nid(B[0]), PORTAL, 7, vec![0; 64]).ack();
        lost.push(put.into_future());
        Pair::suspects(&pair.a, A[0], B[0])
    });
    assert_eq!(pair.health(), [1000, 1000], "suspicion is not failure");
    // Whatever leads to the interface behind the hole is dead, from wherever.
    let before = pair.sent_to();
    pair.puts(50);
    let after = pair.sent_to();
    assert_eq!(after[0], before[0], "nothing goes there");
    assert!(after[1] - before[1] >= 50, "everything goes here, with what was taken back before");
    pair.host_b.nft("flush chain inet hole in").unwrap();
    until("the rail is trusted again", || {
        !A.iter().any(|from| Pair::suspects(&pair.a, from, B[0]))
    });
    until("it carries again", || {
        pair.puts(4);
        pair.sent_to()[0] > after[0]
    });
    drop(lost);
}

#[test]
fn resets_of_idle_connections_cost_no_message() {
    let Some(pair) = Pair::new("reset", "messages survive resets") else { return };
    for _ in 0..5 {
        pair.host_a.kill_connections(&format!("src {}", A[0])).unwrap();
        pair.puts(20);
    }
    let before = pair.sent();
    until("the rail carries again", || {
        pair.puts(2);
        pair.sent()[0] > before[0]
    });
}
