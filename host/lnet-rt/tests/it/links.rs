//! Interfaces of the node follow those of the machine, here of a network namespace.

use std::thread;
use std::time::Duration;

use lnet_rt::{NodeBuilder, NodeHandle};
use lnet_types::{Net, Nid};
use netns::{Host, Port, Switch, World};

const PATIENCE: Duration = Duration::from_secs(30);

/// Whether an interface is up, as the node sees it.
fn up(node: &NodeHandle, nid: &str) -> bool {
    let nid = nid.parse().unwrap();
    node.call(move |stack, _| {
        let nets = stack.node().net_views();
        nets.iter().flat_map(|n| &n.nis).find(|ni| ni.nid == nid).map(|ni| !ni.fatal)
    })
    .blocking()
    .unwrap()
    .expect("no such interface")
}

fn becomes(node: &NodeHandle, nid: &str, expected: bool) {
    for _ in 0..2000 {
        if up(node, nid) == expected {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{nid} did not become {}", if expected { "up" } else { "down" });
}

/// A world of its own, with two hosts; says what is skipped where there can be none.
fn two_hosts(name: &str, what: &str) -> Option<(World, Host, Host)> {
    match World::new(name) {
        Ok(world) => {
            let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
            Some((world, a, b))
        }
        Err(why) => {
            netns::skipped(what, why);
            None
        }
    }
}

#[test]
fn links_and_addresses_that_come_and_go_are_reported_to_the_node() {
    let Some((world, a, b)) = two_hosts("links", "interfaces follow their links") else { return };
    let (nid, ip, cidr) = ("10.78.0.2@tcp", "10.78.0.2", "10.78.0.2/24");
    world
        .segment(&[Port::new(&a, "eth0", &[cidr]), Port::new(&b, "eth0", &["10.78.0.3/24"])])
        .unwrap();
    let node = a.enter(|| NodeBuilder::new().tcp(ip.parse().unwrap(), 7988).start().unwrap());
    becomes(&node, nid, true);
    a.link_down("eth0").unwrap();
    becomes(&node, nid, false);
    a.link_up("eth0").unwrap();
    becomes(&node, nid, true);
    b.link_down("eth0").unwrap();
    becomes(&node, nid, false);
    b.link_up("eth0").unwrap();
    becomes(&node, nid, true);
    a.address_del("eth0", cidr).unwrap();
    becomes(&node, nid, false);
    a.address_add("eth0", cidr).unwrap();
    becomes(&node, nid, true);
    let seen = node.call(|stack, _| stack.interfaces()).blocking().unwrap().unwrap();
    let eth0 = seen.named("eth0").unwrap();
    assert_eq!(eth0.addresses.iter().filter(|a| a.ip.to_string() == ip).count(), 1, "{eth0:?}");
}

/// Two hosts on two rails, each an IP network of its own.
fn two_rails(world: &World, a: &Host, b: &Host) -> [Switch; 2] {
    ["eth0", "eth1"].map(|device| {
        let rail = device.trim_start_matches("eth");
        let cidr = |host| format!("10.78.{rail}.{host}/24");
        let (one, two) = (cidr(2), cidr(3));
        let switch = world.switch(&[Port::new(a, device, &[&one]), Port::new(b, device, &[&two])]);
        switch.unwrap()
    })
}

fn node(host: &Host, nis: &[(&str, &str)]) -> NodeHandle {
    let mut builder = NodeBuilder::new();
    for (net, ip) in nis {
        builder = builder.tcp_on(net.parse().unwrap(), ip.parse().unwrap(), 7988);
    }
    host.enter(|| builder.start().unwrap())
}

/// Whether a stream of the first rail's interface stays on its device, as the system says it.
fn stays_on_its_device(host: &Host) -> bool {
    let listed = host.run(["ss", "-Htn"]).unwrap();
    String::from_utf8(listed.stdout).unwrap().contains("10.78.0.2%eth0")
}

/// Waits for a condition.
fn comes(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{what} did not come");
}

/// A black hole, which no link shows.
#[test]
fn a_silent_rail_costs_no_way_of_an_interface_beside_it() {
    let Some((world, a, b)) = two_hosts("holes", "streams leave a silent rail") else { return };
    let _rails = two_rails(&world, &a, &b);
    let near = node(&a, &[("tcp", "10.78.0.2"), ("tcp1", "10.78.1.2")]);
    // One address on both networks: one rail is the second one, one goes to it from the first interface.
    let far = node(&b, &[("tcp", "10.78.1.3"), ("tcp1", "10.78.1.3")]);
    let (beside, silent): (Nid, Nid) =
        ("10.78.1.3@tcp".parse().unwrap(), "10.78.1.3@tcp1".parse().unwrap());
    let back: Nid = "10.78.0.2@tcp".parse().unwrap();
    // Over one network each: no other way is tried.
    for net in [&near, &far] {
        net.call(|stack, _| stack.set_tunables(&[("discovery", 0)])).blocking().unwrap().unwrap();
    }
    let answered = |why: &str| {
        near.ping(beside, PATIENCE).blocking().unwrap_or_else(|e| panic!("{why}: {e}"));
        far.ping(back, PATIENCE).blocking().unwrap_or_else(|e| panic!("{why}, back: {e}"));
    };
    near.ping(silent, PATIENCE).blocking().unwrap();
    answered("all is up");
    assert!(!stays_on_its_device(&a));
    a.nft(
        "table inet hole {
           chain i { type filter hook input priority 0; iifname eth1 drop; }
           chain o { type filter hook output priority 0; oifname eth1 drop; }
         }",
    )
    .unwrap();
    let lost = near.ping(silent, PATIENCE);
    comes("the detour", || stays_on_its_device(&a));
    answered("the second rail is a black hole");
    a.nft("delete table inet hole").unwrap();
    lost.blocking().expect("the rail is back");
    comes("the end of the detour", || !stays_on_its_device(&a));
    answered("the second rail is back");
}

/// A black hole on the way out, and nothing under way on the rail whose device it is.
#[test]
fn a_way_that_alone_is_silent_leaves_its_route_for_a_while() {
    let Some((world, a, b)) = two_hosts("alone", "streams leave a silent route") else { return };
    let _rails = two_rails(&world, &a, &b);
    let near = node(&a, &[("tcp", "10.78.0.2"), ("tcp", "10.78.1.2")]);
    let far = node(&b, &[("tcp", "10.78.1.3")]);
    for net in [&near, &far] {
        net.call(|stack, _| stack.set_tunables(&[("discovery", 0)])).blocking().unwrap().unwrap();
    }
    let from: Nid = "10.78.0.2@tcp".parse().unwrap();
    let to: Nid = "10.78.1.3@tcp".parse().unwrap();
    let answered = |why: &str| {
        near.ping_from(from, to, PATIENCE).blocking().unwrap_or_else(|e| panic!("{why}: {e}"));
    };
    answered("all is up");
    assert!(!stays_on_its_device(&a));
    a.nft(
        "table inet hole {
           chain o { type filter hook output priority 0; oifname eth1 drop; }
         }",
    )
    .unwrap();
    answered("nothing leaves by the second device");
    assert!(stays_on_its_device(&a));
    // It answers there, so that it is above doubt before long.
    answered("by its own device");
    a.nft("delete table inet hole").unwrap();
    comes("the end of the detour", || !stays_on_its_device(&a));
    answered("by its route again");
}

/// Streams from the first rail's interface to the second rail's address leave, by the routes, over the
/// second rail.
#[test]
fn a_lost_link_costs_no_way_of_an_interface_whose_own_link_is_up() {
    let Some((world, a, b)) = two_hosts("detours", "streams stay on the device of their interface")
    else {
        return;
    };
    let rails = two_rails(&world, &a, &b);
    // One way in all: between a's first rail and b's second one. The other network is there to be lost.
    let near = node(&a, &[("tcp", "10.78.0.2"), ("tcp1", "10.78.1.2")]);
    let far = node(&b, &[("tcp", "10.78.1.3")]);
    let to: Nid = "10.78.1.3@tcp".parse().unwrap();
    let back: Nid = "10.78.0.2@tcp".parse().unwrap();
    let answered = |why: &str| {
        near.ping(to, PATIENCE).blocking().unwrap_or_else(|e| panic!("{why}: {e}"));
        far.ping(back, PATIENCE).blocking().unwrap_or_else(|e| panic!("{why}, back: {e}"));
    };
    let kept = || stays_on_its_device(&a);
    answered("both links are up");
    let second = "10.78.1.2@tcp1";
    for round in 0..2 {
        a.link_down("eth1").unwrap();
        becomes(&near, second, false);
        answered("the other link is lost");
        assert!(kept());
        // New streams as well.
        near.call(|stack, now| stack.disconnect_tcp(now, Net::TCP, None, false))
            .blocking()
            .unwrap();
        answered("the other link is lost, and streams are new");
        near.call(|stack, now| stack.disconnect_tcp(now, Net::TCP, None, false))
            .blocking()
            .unwrap();
        // The first ones may meet a stream that has just been closed.
        comes("a peer that connects while the other link is lost", || {
            let pinged = far.ping(back, Duration::from_secs(10)).blocking();
            pinged.inspect_err(|e| eprintln!("pinged back: {e}")).is_ok()
        });
        a.link_up("eth1").unwrap();
        becomes(&near, second, true);
        assert!(!kept());
        answered("the link is back");
        // The port of the switch: routes stay, carrier goes.
        rails[1].unplug(0).unwrap();
        becomes(&near, second, false);
        answered(if round == 0 { "no carrier" } else { "no carrier again" });
        rails[1].plug_in(0).unwrap();
        becomes(&near, second, true);
    }
}
