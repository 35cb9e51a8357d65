//! Routers over real sockets on loopback addresses: client on `tcp`, server on `tcp1`, and in
//! between one router or two.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lnet::{RouteSpec, RouteView, RoutingState, Tunables};
use lnet_rt::{AttachOptions, Buffer, MatchEntry, NodeBuilder, NodeHandle, Stack, Wait, block_on};
use lnet_types::{Net, NetType, Nid};

use crate::sockets::{address, free_port};

const PORTAL: u32 = 5;
const TCP1: Net = Net::new(NetType::TCP, 1);
/// Far more than anything here takes; running out of it is a failure.
const PATIENCE: Duration = Duration::from_secs(20);

fn nid(net: Net, ip: Ipv4Addr) -> Nid {
    Nid::from_ip(net, ip.into())
}

/// Gateways are asked once, when they are configured: what is known of them later comes from their
/// connections.
fn unchecked() -> Tunables {
    let mut tunables = Tunables::default();
    tunables.set("alive_router_check_interval", 3600).unwrap();
    tunables.set("large_buffers", 16).unwrap();
    tunables.set("small_buffers", 64).unwrap();
    tunables
}

/// A router that can be killed: its sockets close without a message, as those of a process do.
struct Router {
    handle: NodeHandle,
    killed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Router {
    fn new(left: Ipv4Addr, right: Ipv4Addr, port: u16) -> Self {
        let builder = NodeBuilder::new().tunables(unchecked()).tcp(left.into(), port).tcp_on(
            TCP1,
            right.into(),
            port,
        );
        let mut stack: Stack = builder.build().unwrap();
        stack.enable_routing().unwrap();
        let (handle, killed) = (stack.handle(), Arc::new(AtomicBool::new(false)));
        let end = Arc::clone(&killed);
        let thread = thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                stack.turn(Wait::Until(Duration::from_millis(5)));
            }
            drop(stack);
        });
        Self { handle, killed, thread: Some(thread) }
    }

    fn kill(&mut self) {
        self.killed.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Messages forwarded, messages it made itself.
    fn forwarded(&self) -> (u64, u64) {
        self.handle
            .call(|stack, _| {
                let stats = stack.node().stats();
                let row = |name| stats.rows().into_iter().find(|(n, _)| *n == name).unwrap().1;
                (row("route_count"), row("rst_alloc"))
            })
            .blocking()
            .unwrap()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.kill();
    }
}

fn add_route(node: &NodeHandle, net: Net, gateway: Nid) {
    let spec = RouteSpec { net, gateway, hops: None, priority: 0 };
    node.call(move |stack, now| stack.node_mut().add_route(now, spec)).blocking().unwrap().unwrap();
}

fn routes(node: &NodeHandle) -> Vec<RouteView> {
    node.call(|stack, _| stack.node().route_views()).blocking().unwrap()
}

/// Waits until `fits` says so of the node's routes.
fn wait_for(node: &NodeHandle, what: &str, fits: impl Fn(&[RouteView]) -> bool) {
    let begin = std::time::Instant::now();
    while !fits(&routes(node)) {
        assert!(begin.elapsed() < PATIENCE, "{what}: {:?}", routes(node));
        thread::sleep(Duration::from_millis(2));
    }
}

fn bytes(len: u32) -> Vec<u8> {
    (0..len).map(|i| ((i * 7) >> 3) as u8).collect()
}

/// A client, a server, their addresses, and a route each by every router of `gateways`.
fn ends(c: Ipv4Addr, s: Ipv4Addr, port: u16, gateways: &[(Ipv4Addr, Ipv4Addr)]) -> [NodeHandle; 2] {
    let mut patient = unchecked();
    patient.set("transaction_timeout", 30).unwrap();
    let builder = || NodeBuilder::new().tunables(patient.clone());
    let client = builder().tcp(c.into(), port).start().unwrap();
    let server = builder().tcp_on(TCP1, s.into(), port).start().unwrap();
    for (left, right) in gateways {
        add_route(&server, Net::TCP, nid(TCP1, *right));
        add_route(&client, TCP1, nid(Net::TCP, *left));
    }
    for node in [&client, &server] {
        wait_for(node, "all routes up", |r| r.len() == gateways.len() && r.iter().all(|r| r.up));
    }
    [client, server]
}

#[test]
fn put_get_and_ping_of_every_size_cross_a_router_that_only_forwards() {
    let [c, l, r, s] = [11, 12, 13, 14].map(address);
    let port = free_port(&[c, l, r, s]);
    let router = Router::new(l, r, port);
    let [client, server] = ends(c, s, port, &[(l, r)]);
    let target = nid(TCP1, s);
    let found = client.ping(target, PATIENCE).blocking().unwrap();
    assert_eq!(found.nids, [target]);
    let inbox = server
        .attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(8 << 20), AttachOptions::PUT)
        .unwrap();
    // No payload, one page, just above, the largest: every pool of buffers and both its edges.
    for len in [0, 1, 4096, 4097, 1 << 20] {
        let data = bytes(len);
        let shelf =
            server.attach(PORTAL, MatchEntry::bits(8), data.clone(), AttachOptions::GET).unwrap();
        let moved = client.put(target, PORTAL, 7, data.clone()).ack().blocking().unwrap();
        assert_eq!(moved.mlength, len);
        let got = inbox.recv_blocking().unwrap();
        assert_eq!(got.event.initiator.nid, nid(Net::TCP, c), "the source stays as it was");
        assert!(got[..] == data[..], "{len} bytes differ");
        let buffer = Buffer::zeroed(len as usize);
        let got = client.get(target, PORTAL, 8, buffer).blocking().unwrap();
        assert!(got.buffer[..] == data[..], "{len} bytes differ");
        drop(shelf);
    }
    let (forwarded, tracked) = router.forwarded();
    assert!(forwarded >= 22, "ping, reply, 5 × (PUT, ACK, GET, REPLY): {forwarded}");
    assert_eq!(tracked, 0, "a router waits for no response");
    let state = router.handle.call(|stack, _| stack.node().routing_view()).blocking().unwrap();
    assert_eq!(state.state, RoutingState::Enabled);
    for pool in state.pools {
        assert_eq!(pool.credits, pool.nbuffers as i32, "{:?}: every buffer is back", pool.kind);
        assert!(pool.mincredits < pool.credits, "{:?}: never used", pool.kind);
    }
}

#[test]
fn a_killed_router_is_left_for_the_other_by_its_closed_connections_alone() {
    let [c, l1, r1, l2, r2, s] = [15, 16, 17, 18, 19, 20].map(address);
    let port = free_port(&[c, l1, r1, l2, r2, s]);
    let mut first = Router::new(l1, r1, port);
    let second = Router::new(l2, r2, port);
    let [client, server] = ends(c, s, port, &[(l1, r1), (l2, r2)]);
    let target = nid(TCP1, s);
    let data = bytes(5000);
    let _shelf =
        server.attach(PORTAL, MatchEntry::bits(8), data.clone(), AttachOptions::GET).unwrap();
    let get = || {
        let got = client.get(target, PORTAL, 8, Buffer::zeroed(5000)).blocking().unwrap();
        assert!(got.buffer[..] == data[..], "bytes differ");
    };
    // Each takes part once its gateway is known.
    let both = (0..1000).map(|_| {
        get();
        [first.forwarded().0, second.forwarded().0]
    });
    let takes_turns = |both: &[u64; 2]| both.iter().all(|n| *n > 0);
    assert!(both.skip(7).any(|both| takes_turns(&both)), "equal routes take turns");

    first.kill();
    let dead = nid(Net::TCP, l1);
    for (node, gateway) in [(&client, dead), (&server, nid(TCP1, r1))] {
        wait_for(node, "the dead one is left", |routes| {
            routes.iter().all(|route| route.up == (route.gateway != gateway))
        });
    }
    let before = second.forwarded().0;
    (0..8).for_each(|_| get());
    let through = second.forwarded().0 - before;
    assert!(through >= 16, "all requests and replies go by the other router: {through}");

    // It comes back with the same addresses, and is found out without being configured again.
    let again = Router::new(l1, r1, port);
    wait_for(&client, "it is back", |routes| routes.iter().all(|route| route.up));
    wait_for(&server, "it is back", |routes| routes.iter().all(|route| route.up));
    // Its rails were in doubt, and are used when they have been sound for a second.
    let carries = (0..200).any(|_| {
        get();
        thread::sleep(Duration::from_millis(50));
        again.forwarded().0 > 0
    });
    assert!(carries, "it carries messages again");
}

#[test]
fn buffers_are_lent_taken_back_and_resized_while_messages_pass() {
    let [c, l, r, s] = [21, 22, 23, 24].map(address);
    let port = free_port(&[c, l, r, s]);
    let router = Router::new(l, r, port);
    let [client, server] = ends(c, s, port, &[(l, r)]);
    let target = nid(TCP1, s);
    let inbox = server
        .attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(64 << 20), AttachOptions::PUT)
        .unwrap();
    let data = bytes(1 << 20);
    let put = || client.put(target, PORTAL, 7, data.clone()).ack().into_future();
    // Far more than the router may have inside at once: the rest waits in its connections.
    let puts: Vec<_> = (0..32).map(|_| put()).collect();
    for large in [1, 40, 2] {
        router
            .handle
            .call(move |stack, _| {
                stack.set_tunables(&[("large_buffers", large)]).unwrap();
                stack.fit_router_buffers().unwrap();
            })
            .blocking()
            .unwrap();
    }
    for put in puts {
        assert_eq!(block_on(put).unwrap().mlength, 1 << 20);
        assert!(inbox.recv_blocking().unwrap()[..] == data[..], "bytes differ");
    }
    let (_, regions) = router.handle.call(|stack, _| stack.in_use()).blocking().unwrap();
    assert!(regions > 0);
    router.handle.call(|stack, _| stack.disable_routing()).blocking().unwrap().unwrap();
    let begin = std::time::Instant::now();
    let regions = || router.handle.call(|stack, _| stack.in_use().1).blocking().unwrap();
    while regions() > 0 {
        assert!(begin.elapsed() < PATIENCE, "buffers are not given back: {} left", regions());
        thread::sleep(Duration::from_millis(20));
    }
    wait_for(&client, "the route is down", |routes| routes.iter().all(|route| !route.up));
}
