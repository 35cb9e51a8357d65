//! The harness itself: hosts reach each other and no other host, obey their limits, and go away.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use netns::{Error, Host, Port, World, skipped};

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
fn a_pulled_cable_takes_the_carrier_of_one_host_only_and_its_addresses_stay() {
    let Some(world) = world("a pulled cable") else { return };
    let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
    let ports =
        [Port::new(&a, "eth0", &["10.77.0.2/24"]), Port::new(&b, "eth0", &["10.77.0.3/24"])];
    let switch = world.switch(&ports).unwrap();
    let carrier = |host: &Host| host.run(["cat", "/sys/class/net/eth0/carrier"]).unwrap().stdout;
    let listener = b.enter(|| TcpListener::bind("10.77.0.3:988")).unwrap();
    let connect = |wait| {
        let to = "10.77.0.3:988".parse().unwrap();
        a.enter(|| TcpStream::connect_timeout(&to, wait))
    };
    switch.unplug(0).unwrap();
    assert_eq!((carrier(&a), carrier(&b)), (b"0\n".to_vec(), b"1\n".to_vec()));
    connect(Duration::from_millis(100)).unwrap_err();
    switch.plug_in(0).unwrap();
    connect(WAIT).unwrap();
    listener.accept().unwrap();
    switch.unplug(2).unwrap_err();
}

#[test]
fn killed_connections_are_reset_at_both_ends() {
    let Some(world) = world("killed connections") else { return };
    let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
    world
        .segment(&[
            Port::new(&a, "eth0", &["10.77.0.2/24"]),
            Port::new(&b, "eth0", &["10.77.0.3/24"]),
        ])
        .unwrap();
    let listener = b.enter(|| TcpListener::bind("10.77.0.3:988")).unwrap();
    let mut near = a.enter(|| TcpStream::connect("10.77.0.3:988")).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    a.kill_connections("dst 10.77.0.9").unwrap();
    near.write_all(b"x").unwrap();
    far.read_exact(&mut [0]).unwrap();
    match a.kill_connections("dst 10.77.0.3") {
        Ok(()) => {}
        Err(why) => return skipped("killing connections", why),
    }
    for end in [&mut near, &mut far] {
        end.set_read_timeout(Some(WAIT)).unwrap();
        let kind = end.read(&mut [0]).unwrap_err().kind();
        let reset = [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted].contains(&kind);
        assert!(reset, "{kind}");
    }
}

#[test]
fn a_killed_process_leaves_no_host_behind() {
    if World::new("probe").map_err(|why| skipped("a killed process", why)).is_err() {
        return;
    }
    if std::env::var_os("NETNS_VICTIM").is_some() {
        let world = World::new("victim").unwrap();
        println!("{}", world.host("a").unwrap().namespace());
        std::thread::park();
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["a_killed_process_leaves_no_host_behind", "--exact", "--nocapture"]);
    command.env("NETNS_VICTIM", "1").stdout(std::process::Stdio::piped());
    let mut victim = command.spawn().unwrap();
    let out = std::io::BufReader::new(victim.stdout.take().unwrap());
    let line = std::io::BufRead::lines(out)
        .map_while(Result::ok)
        .find_map(|line| line.find("ulnet-").map(|at| line[at..].to_owned()))
        .unwrap();
    let path = format!("/run/netns/{line}");
    assert!(std::fs::exists(&path).unwrap(), "{path}");
    victim.kill().unwrap();
    victim.wait().unwrap();
    let deadline = std::time::Instant::now() + WAIT;
    while std::fs::exists(&path).unwrap() {
        assert!(std::time::Instant::now() < deadline, "{path} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
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
