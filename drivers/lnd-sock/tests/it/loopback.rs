//! Over real sockets of this host: few, short, and only what streams in memory can't show.
#![expect(
    clippy::disallowed_methods,
    reason = "the shell's part is played here: it reads the clock"
)]

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::time::Instant as Wall;

use lnd_sock::{Kind, MioStreams, NiStart, SockConfig, SockDriver};
use lnet::Ready;
use lnet_types::{Instant, Net, Nid};

use crate::support::{Mem, Upstairs, ni};

/// A driver on sockets, with the loop that a shell would run.
struct Node {
    driver: SockDriver<MioStreams>,
    poll: mio::Poll,
    up: Upstairs,
    mem: Mem,
    nid: Nid,
    start: Wall,
}

const TOKENS: core::ops::Range<usize> = 100..1000;

impl Node {
    fn new(addr: IpAddr, port: u16, incarnation: u64) -> Self {
        Self::with(SockConfig::on_port(port), addr, incarnation)
    }

    fn with(config: SockConfig, addr: IpAddr, incarnation: u64) -> Self {
        let poll = mio::Poll::new().expect("a poller");
        let registry = poll.registry().try_clone().expect("its registry");
        let streams = MioStreams::new(registry, TOKENS);
        let mut driver = SockDriver::new(config, streams, 1);
        let nid = Nid::from_ip(Net::TCP, addr);
        let start = NiStart {
            namespace: None,
            ni: ni(1),
            nid,
            addr,
            interface: Some("lo".to_owned()),
            incarnation,
            conns_per_peer: 1,
            tos: -1,
            lnd_timeout: Duration::from_secs(10),
        };
        driver.ni_start(Instant::ZERO, start).expect("a free port");
        Self { driver, poll, up: Upstairs::default(), mem: Mem::default(), nid, start: Wall::now() }
    }

    fn now(&self) -> Instant {
        Instant::from_secs(1) + self.start.elapsed()
    }

    fn send(&mut self, to: Nid, number: u64, payload: &[u8]) {
        let transmit = self.up.transmit(&mut self.mem, ni(1), self.nid, to, number, payload);
        let msg = transmit.msg;
        if let Err(fault) = self.driver.send(self.now(), &transmit) {
            self.up.refused(msg, fault);
        }
    }

    fn turn(&mut self, spin: bool) {
        let mut events = mio::Events::with_capacity(64);
        self.poll.poll(&mut events, Some(Duration::from_millis(1))).expect("poll");
        let ready: Vec<Ready> = events
            .iter()
            .map(|e| Ready {
                token: e.token().0,
                readable: e.is_readable() || e.is_read_closed() || e.is_error(),
                writable: e.is_writable() || e.is_write_closed(),
            })
            .collect();
        let now = self.now();
        self.driver.turn(now, &ready, spin, &mut self.up, &mut self.mem);
        self.driver.flush(now, &mut self.up, &mut self.mem);
        if self.driver.poll_timeout().is_some_and(|at| at <= now) {
            self.driver.handle_timeout(now, &mut self.up, &mut self.mem);
            self.driver.flush(now, &mut self.up, &mut self.mem);
        }
    }
}

/// A port that was free a moment ago, for all addresses of a test.
fn free_port(addr: IpAddr) -> u16 {
    std::net::TcpListener::bind((addr, 0)).and_then(|l| l.local_addr()).expect("a port").port()
}

fn pair(net: u8) -> [Node; 2] {
    let addr = |n| IpAddr::V4(Ipv4Addr::new(127, 7, net, n));
    let port = free_port(addr(1));
    [Node::new(addr(1), port, 11), Node::new(addr(2), port, 12)]
}

fn run(nodes: &mut [Node; 2], spin: bool, until: impl Fn(&[Node; 2]) -> bool) {
    for _ in 0..10_000 {
        if until(nodes) {
            return;
        }
        nodes.iter_mut().for_each(|node| node.turn(spin));
    }
    panic!("it never happened; ended: {:?} {:?}", nodes[0].up.ended, nodes[1].up.ended);
}

#[test]
fn messages_of_all_sizes_cross_real_sockets() {
    let mut nodes = pair(1);
    let to = nodes[1].nid;
    let payloads: Vec<Vec<u8>> = [0, 8, 5000, 1 << 20, 1 << 20, 70_000]
        .iter()
        .map(|&len| (0..len).map(|i| (i * 7 + i / 251) as u8).collect())
        .collect();
    for (n, payload) in payloads.iter().enumerate() {
        nodes[0].send(to, n as u64, payload);
    }
    run(&mut nodes, false, |n| n[1].up.arrived().len() == 6 && n[0].up.ended.len() == 6);
    for (n, payload) in payloads.iter().enumerate() {
        assert_eq!(nodes[0].up.outcome(n as u64), Some(Ok(())));
        let got = nodes[1]
            .up
            .received
            .iter()
            .find(|r| crate::support::upstairs::number_of(&r.hdr) == n as u64);
        let got = nodes[1].mem.read(&got.expect("it arrived").place);
        assert!(got == *payload, "message {n}");
    }
    run(&mut nodes, false, |n| n[0].driver.connections().len() == 3);
    let kinds: Vec<Kind> = nodes[0].driver.connections().iter().map(|c| c.kind).collect();
    assert!(kinds.contains(&Kind::BulkIn), "{kinds:?}");
    assert!(nodes[0].driver.connections().iter().all(|c| c.buffers.0 > 0 && c.buffers.1 > 0));
}

#[test]
fn a_spinning_caller_needs_no_readiness() {
    let mut nodes = pair(2);
    let [a, b] = [nodes[0].nid, nodes[1].nid];
    nodes[0].send(b, 0, b"ping");
    run(&mut nodes, false, |n| {
        n[1].up.arrived().len() == 1 && n[0].driver.connections().len() == 3
    });
    nodes[1].send(a, 1, b"pong");
    run(&mut nodes, false, |n| n[0].up.arrived().len() == 1);
    // From now on the poller is not polled.
    for round in 2..100u64 {
        let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        let nid = nodes[to].nid;
        nodes[from].send(nid, round, &round.to_le_bytes());
        let before = nodes[to].up.arrived().len();
        let mut tries = 0;
        while nodes[to].up.arrived().len() == before {
            tries += 1;
            assert!(tries < 1_000_000, "round {round} never arrived");
            for node in &mut nodes {
                let now = node.now();
                node.driver.turn(now, &[], true, &mut node.up, &mut node.mem);
                node.driver.flush(now, &mut node.up, &mut node.mem);
            }
        }
    }
}

#[test]
fn a_peer_that_is_not_there_refuses_and_one_that_goes_is_noticed() {
    let mut nodes = pair(3);
    let absent = Nid::from_ip(Net::TCP, IpAddr::V4(Ipv4Addr::new(127, 7, 3, 99)));
    nodes[0].send(absent, 1, b"x");
    run(&mut nodes, false, |n| n[0].up.outcome(1).is_some());
    let fault = nodes[0].up.outcome(1).expect("it ended").expect_err("no listener is there");
    assert_eq!(fault.errno, lnet_types::Errno::ECONNREFUSED);
    assert_eq!(fault.status, lnet_types::HealthStatus::RemoteDropped);

    let to = nodes[1].nid;
    nodes[0].send(to, 2, b"x");
    run(&mut nodes, false, |n| n[0].driver.connections().len() == 3);
    let Node { driver, up, .. } = &mut nodes[1];
    driver.ni_stop(Instant::from_secs(2), ni(1), up);
    run(&mut nodes, false, |n| n[0].driver.connections().is_empty());
    assert_eq!(nodes[0].up.outcome(2), Some(Ok(())));
}

#[test]
fn bulk_connections_come_up_at_a_port_of_their_own() {
    let addr = |n| IpAddr::V4(Ipv4Addr::new(127, 7, 9, n));
    let port = free_port(addr(1));
    let bulk_port = free_port(addr(2));
    let config = || SockConfig { bulk_port, ..SockConfig::on_port(port) };
    let mut nodes = [Node::with(config(), addr(1), 11), Node::with(config(), addr(2), 12)];
    let to = nodes[1].nid;
    nodes[0].send(to, 1, &[7; 1 << 20]);
    run(&mut nodes, false, |n| n[1].up.arrived().len() == 1 && n[0].up.ended.len() == 1);
    run(&mut nodes, false, |n| n[0].driver.connections().len() == 3);
    for conn in nodes[0].driver.connections() {
        let at = if conn.kind == Kind::Control { port } else { bulk_port };
        assert_eq!(conn.remote.port(), at, "{:?}", conn.kind);
    }
    // Both are free again.
    let Node { driver, up, .. } = &mut nodes[1];
    driver.ni_stop(Instant::from_secs(2), ni(1), up);
    for port in [port, bulk_port] {
        assert!(std::net::TcpListener::bind((addr(2), port)).is_ok(), "{port}");
    }
}

#[test]
fn an_address_in_use_is_named() {
    let addr = IpAddr::V4(Ipv4Addr::new(127, 7, 4, 1));
    let port = free_port(addr);
    let taken = std::net::TcpListener::bind((addr, port)).expect("it was free");
    let poll = mio::Poll::new().expect("a poller");
    let streams = MioStreams::new(poll.registry().try_clone().expect("its registry"), TOKENS);
    let mut driver = SockDriver::new(SockConfig::on_port(port), streams, 1);
    let start =
        NiStart { addr, lnd_timeout: Duration::from_secs(1), ..crate::support::ni_start(1) };
    let error = driver.ni_start(Instant::ZERO, start).expect_err("it is taken");
    assert_eq!(error.errno(), lnet_types::Errno::EADDRINUSE);
    assert_eq!(error.to_string(), format!("can't listen on {addr}:{port}: Address already in use"));
    drop(taken);
}
