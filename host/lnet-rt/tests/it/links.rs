//! Interfaces of the node follow those of the machine, here of a network namespace.

use std::thread;
use std::time::Duration;

use lnet_rt::{NodeBuilder, NodeHandle};
use netns::{Port, World};

/// Whether the interface with address `ip` is up, as the node sees it.
fn up(node: &NodeHandle, ip: &str) -> bool {
    let nid = format!("{ip}@tcp").parse().unwrap();
    node.call(move |stack, _| {
        let nets = stack.node().net_views();
        nets.iter().flat_map(|n| &n.nis).find(|ni| ni.nid == nid).map(|ni| !ni.fatal)
    })
    .blocking()
    .unwrap()
    .expect("no such interface")
}

fn becomes(node: &NodeHandle, ip: &str, expected: bool) {
    for _ in 0..2000 {
        if up(node, ip) == expected {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{ip} did not become {}", if expected { "up" } else { "down" });
}

#[test]
fn links_and_addresses_that_come_and_go_are_reported_to_the_node() {
    let world = match World::new("links") {
        Ok(world) => world,
        Err(why) => return netns::skipped("interfaces follow their links", why),
    };
    let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
    let (ip, cidr) = ("10.78.0.2", "10.78.0.2/24");
    world
        .segment(&[Port::new(&a, "eth0", &[cidr]), Port::new(&b, "eth0", &["10.78.0.3/24"])])
        .unwrap();
    let node = a.enter(|| NodeBuilder::new().tcp(ip.parse().unwrap(), 7988).start().unwrap());
    becomes(&node, ip, true);
    a.link_down("eth0").unwrap();
    becomes(&node, ip, false);
    a.link_up("eth0").unwrap();
    becomes(&node, ip, true);
    b.link_down("eth0").unwrap();
    becomes(&node, ip, false);
    b.link_up("eth0").unwrap();
    becomes(&node, ip, true);
    a.address_del("eth0", cidr).unwrap();
    becomes(&node, ip, false);
    a.address_add("eth0", cidr).unwrap();
    becomes(&node, ip, true);
    let seen = node.call(|stack, _| stack.interfaces()).blocking().unwrap().unwrap();
    let eth0 = seen.named("eth0").unwrap();
    assert_eq!(eth0.addresses.iter().filter(|a| a.ip.to_string() == ip).count(), 1, "{eth0:?}");
}
