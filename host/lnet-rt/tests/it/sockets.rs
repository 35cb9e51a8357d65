//! Real sockets on loopback addresses: few and short.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::Duration;

use lnet_rt::{
    AttachOptions, Buffer, Errno, MatchEntry, NiError, Nid, NodeBuilder, TcpNi, Wait, block_on,
};

#[path = "../../examples/echo_server.rs"]
#[allow(clippy::print_stdout)]
mod echo_server;
#[path = "../../examples/put_get.rs"]
#[allow(clippy::print_stdout)]
mod put_get;

const PORTAL: u32 = 5;

/// Addresses of this process alone, so that tests at the same time do not meet: 127.x.y.last.
pub(crate) fn address(last: u8) -> Ipv4Addr {
    let pid = std::process::id();
    Ipv4Addr::new(127, 64 | (pid >> 8) as u8, pid as u8, last)
}

/// A port without a listener at any of these addresses.
pub(crate) fn free_port(addresses: &[Ipv4Addr]) -> u16 {
    for _ in 0..100 {
        let listener = TcpListener::bind((addresses[0], 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        if addresses[1..].iter().all(|a| TcpListener::bind((*a, port)).is_ok()) {
            return port;
        }
    }
    panic!("no free port at {addresses:?}");
}

fn nid(ip: Ipv4Addr) -> Nid {
    format!("{ip}@tcp").parse().unwrap()
}

#[test]
fn the_example_of_put_and_get_runs() {
    // `main` is this on a fixed port, which may be taken here.
    let _: fn() -> _ = put_get::main;
    put_get::run(free_port(&[Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)])).unwrap();
}

#[test]
fn the_example_of_an_echo_server_runs() {
    let _: fn() -> _ = echo_server::main;
    echo_server::run(free_port(&[Ipv4Addr::new(127, 0, 0, 4), Ipv4Addr::new(127, 0, 0, 5)]))
        .unwrap();
}

#[test]
fn a_mebibyte_goes_over_two_rails_and_back() {
    let (a1, a2, b1, b2) = (address(1), address(2), address(3), address(4));
    let port = free_port(&[a1, a2, b1, b2]);
    let node = |one: Ipv4Addr, two: Ipv4Addr| {
        NodeBuilder::new().tcp(one.into(), port).tcp(two.into(), port).start().unwrap()
    };
    let (a, b) = (node(a1, a2), node(b1, b2));
    let found = a.discover(nid(b1)).blocking().unwrap();
    assert_eq!((found.multi_rail, found.nids.len()), (true, 2), "{found:?}");
    let data: Vec<u8> = (0..1u32 << 20).map(|i| ((i * 7) >> 3) as u8).collect();
    let inbox =
        b.attach(PORTAL, MatchEntry::bits(7), Buffer::zeroed(4 << 20), AttachOptions::PUT).unwrap();
    let _shelf = b.attach(PORTAL, MatchEntry::bits(8), data.clone(), AttachOptions::GET).unwrap();
    let puts: Vec<_> =
        (0..4).map(|_| a.put(nid(b1), PORTAL, 7, data.clone()).ack().into_future()).collect();
    for put in puts {
        assert_eq!(block_on(put).unwrap().mlength, 1 << 20);
        assert!(inbox.recv_blocking().unwrap()[..] == data[..], "bytes differ");
    }
    let got = a.get(nid(b2), PORTAL, 8, Buffer::zeroed(1 << 20)).blocking().unwrap();
    assert!(got.buffer[..] == data[..], "bytes differ");
    let used = b
        .call(|stack, _| {
            stack.tcp().unwrap().connections().iter().map(|c| c.ni).collect::<Vec<_>>()
        })
        .blocking()
        .unwrap();
    assert!(used.iter().any(|ni| *ni != used[0]), "one rail only: {used:?}");
}

#[test]
fn a_peer_that_is_not_there_is_an_error_in_time() {
    let (a, absent) = (address(5), address(6));
    let port = free_port(&[a, absent]);
    let node = NodeBuilder::new().tcp(a.into(), port).start().unwrap();
    let put = node.put(nid(absent), PORTAL, 7, "unheard").ack();
    let e = put.timeout(Duration::from_millis(300)).blocking().unwrap_err();
    assert_eq!(e.buffer.unwrap()[..], *b"unheard");
}

#[test]
fn an_interface_that_can_not_listen_is_undone_in_the_node() {
    let (mine, theirs) = (address(7), address(8));
    let port = free_port(&[mine, theirs]);
    let taken = TcpListener::bind((theirs, port)).unwrap();
    let mut stack = NodeBuilder::new().tcp(mine.into(), port).build().unwrap();
    let nets = |stack: &lnet_rt::Stack| {
        stack.node().net_views().iter().map(|n| n.nis.len()).collect::<Vec<_>>()
    };
    let before = nets(&stack);
    let e = stack.add_tcp_ni(TcpNi::new(nid(theirs))).unwrap_err();
    assert_eq!((e.errno(), nets(&stack)), (Errno::EADDRINUSE, before.clone()), "{e}");
    assert!(e.to_string().contains(&theirs.to_string()), "{e}");
    drop(taken);
    let ni = stack.add_tcp_ni(TcpNi::new(nid(theirs))).unwrap();
    stack.turn(Wait::None);
    stack.del_ni(ni).unwrap();
    assert_eq!(nets(&stack), before);
    TcpListener::bind((theirs, port)).expect("the port is free again");
}

#[test]
fn interfaces_that_make_no_sense_are_refused_by_name() {
    let a = address(9);
    let ip = IpAddr::from(a);
    let e = NodeBuilder::new().tcp(ip, 7001).tcp(ip, 7002).build().unwrap_err();
    assert!(matches!(e, NiError::Port { asked: 7002, port: 7001, .. }), "{e}");
    let mut stack = NodeBuilder::new().build().unwrap();
    for not_tcp in ["10.0.0.1@o2ib", "0@lo", "1@gni"] {
        let e = stack.add_tcp_ni(TcpNi::new(not_tcp.parse().unwrap())).unwrap_err();
        assert!(matches!(e, NiError::NotTcp(_)), "{e}");
    }
}

#[test]
fn stopping_frees_the_port() {
    let a = address(10);
    let port = free_port(&[a]);
    for _ in 0..3 {
        let node = NodeBuilder::new().tcp(a.into(), port).start().unwrap();
        node.stop(Duration::ZERO).blocking();
    }
}
