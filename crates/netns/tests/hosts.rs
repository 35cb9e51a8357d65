//! The harness itself: hosts reach each other and nobody else, obey their limits, and go away.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use netns::{Error, Port, World, skipped};

const WAIT: Duration = Duration::from_secs(10);

fn world(what: &str) -> Option<World> {
    World::new("hosts").map_err(|why| skipped(what, why)).ok()
}

#[test]
fn two_hosts_talk_over_their_veth_pair_from_within_one_process() {
    let Some(world) = world("two hosts talk") else { return };
    let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
    world
        .segment(&[
            Port::new(&a, "eth0", &["10.77.0.2/24", "fd77::2/64"]),
            Port::new(&b, "eth0", &["10.77.0.3/24", "fd77::3/64"]),
        ])
        .unwrap();
    for address in ["10.77.0.3:988", "[fd77::3]:988"] {
        let listener = b.enter(|| TcpListener::bind(address)).unwrap();
        let mut client = a.enter(|| TcpStream::connect(address)).unwrap();
        client.set_read_timeout(Some(WAIT)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"over the wire").unwrap();
        drop(server);
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        assert_eq!(got, "over the wire");
    }
}

#[test]
fn three_hosts_share_a_segment() {
    let Some(world) = world("three hosts share a segment") else { return };
    let hosts = ["a", "b", "c"].map(|name| world.host(name).unwrap());
    let addresses = [["10.77.0.2/24"], ["10.77.0.3/24"], ["10.77.0.4/24"]];
    let ports: Vec<Port<'_>> =
        hosts.iter().zip(&addresses).map(|(host, a)| Port::new(host, "eth0", a)).collect();
    world.segment(&ports).unwrap();
    let listener = hosts[2].enter(|| TcpListener::bind("10.77.0.4:7000")).unwrap();
    for host in &hosts[..2] {
        host.enter(|| TcpStream::connect_timeout(&"10.77.0.4:7000".parse().unwrap(), WAIT))
            .unwrap();
        listener.accept().unwrap();
    }
}

#[test]
fn a_filter_and_a_downed_link_stop_traffic() {
    let Some(world) = world("filters") else { return };
    let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
    world
        .segment(&[
            Port::new(&a, "eth0", &["10.77.0.2/24"]),
            Port::new(&b, "eth0", &["10.77.0.3/24"]),
        ])
        .unwrap();
    let listener = b.enter(|| TcpListener::bind("10.77.0.3:988")).unwrap();
    a.rate_limit("eth0", "1gbit").unwrap();
    a.qdisc_clear("eth0").unwrap();
    let connect = || {
        a.enter(|| {
            TcpStream::connect_timeout(
                &"10.77.0.3:988".parse().unwrap(),
                Duration::from_millis(300),
            )
        })
    };
    connect().unwrap();
    listener.accept().unwrap();
    let reject = "table inet t {\n chain out {\n type filter hook output priority 0\n \
                  tcp dport 988 reject with tcp reset\n }\n }\n";
    match a.nft(reject) {
        Ok(()) => {
            connect().unwrap_err();
            a.nft("flush ruleset").unwrap();
            connect().unwrap();
        }
        Err(why) if why.to_string().contains("exec of \"nft\"") => skipped("nft filters", why),
        Err(why) => panic!("{why}"),
    }
    a.link_down("eth0").unwrap();
    connect().unwrap_err();
    a.link_up("eth0").unwrap();
    connect().unwrap();
}

#[test]
fn hosts_and_what_runs_in_them_are_gone_with_the_world() {
    let Some(world) = world("hosts are gone with the world") else { return };
    let host = world.host("a").unwrap();
    let mut sleep = host.command("sleep");
    sleep.arg("600");
    let mut child = sleep.spawn().unwrap();
    let namespace = format!("/run/netns/{}", host.namespace());
    assert!(std::fs::exists(&namespace).unwrap());
    // The child has to be in the namespace before it is looked for there.
    while !std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap().contains("sleep")
    {
        std::thread::yield_now();
    }
    drop(world);
    assert!(!std::fs::exists(&namespace).unwrap());
    assert!(!child.wait().unwrap().success(), "killed, not ended");
}

#[test]
fn mistakes_are_named() {
    let Some(world) = world("mistakes are named") else { return };
    let host = world.host("a").unwrap();
    assert!(matches!(world.host("no spaces"), Err(Error::Name { what: "host", .. })));
    assert!(matches!(world.host("a"), Err(Error::Failed { .. })), "taken");
    let long = Port::new(&host, "a-name-of-16-chr", &[]);
    assert!(matches!(world.segment(&[long, long]), Err(Error::Name { what: "interface", .. })));
    assert!(matches!(world.segment(&[]), Err(Error::System { .. })));
    let error = host.link_down("eth9").unwrap_err().to_string();
    assert!(error.contains("eth9") && error.contains("Cannot find device"), "{error}");
    let error = host.nft("nonsense").map_err(|e| e.to_string());
    assert!(error.is_err_and(|e| e.contains("nonsense") || e.contains("exec of \"nft\"")));
}
