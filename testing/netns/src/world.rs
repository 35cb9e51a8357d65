//! Worlds: sets of hosts that live and die together, and the segments that join them.

use std::fs;
use std::io;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::janitor::Janitor;
use crate::process::{ip, run};
use crate::switch::Switch;
use crate::{Error, Host, Unavailable};

/// The longest name of an interface, bytes (IFNAMSIZ less the final zero).
const INTERFACE_NAME_MAX: usize = 15;
/// The longest name of a host, bytes: our own limit, keeps namespace names readable.
const HOST_NAME_MAX: usize = 32;
/// The longest that links may take to come up.
const UP_MAX: Duration = Duration::from_secs(10);
/// First part of every namespace name.
const PREFIX: &str = "ulnet-";

static WORLDS: AtomicU32 = AtomicU32::new(0);

/// A set of hosts. Dropping it removes them and ends what runs in them.
#[derive(Debug)]
pub struct World {
    prefix: String,
    namespaces: Mutex<Vec<String>>,
    /// After the namespaces: it has nothing to do when this goes away in order.
    _janitor: Janitor,
}

/// One host's place on a segment: an interface with its addresses in CIDR form.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    host: &'a Host,
    interface: &'a str,
    addresses: &'a [&'a str],
}

impl<'a> Port<'a> {
    /// The interface `interface` of `host`, to be made, with `addresses` such as `10.77.0.2/24`.
    pub fn new(host: &'a Host, interface: &'a str, addresses: &'a [&'a str]) -> Self {
        Self { host, interface, addresses }
    }
}

impl World {
    /// An empty world. `tag` goes into the names, for those who look with `ip netns`.
    ///
    /// # Errors
    /// Not root, no `ip`, or a kernel that makes no namespaces: reasons to skip a test.
    pub fn new(tag: &str) -> Result<Self, Unavailable> {
        let user = geteuid();
        if !user.is_root() {
            return Err(Unavailable::NotRoot(user.as_raw()));
        }
        match run({
            let mut version = Command::new("ip");
            version.arg("-V");
            version
        }) {
            Ok(_) => {}
            Err(_) => return Err(Unavailable::Missing("ip")),
        }
        sweep();
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let tag: String = tag.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
        let prefix = format!("{PREFIX}{}-{number}-{tag}", std::process::id());
        let janitor = Janitor::hire(&prefix);
        let world = Self { prefix, namespaces: Mutex::new(Vec::new()), _janitor: janitor };
        // The first namespace tells whether we may; it serves as the place of the bridges.
        world.namespace("fabric").map_err(|e| Unavailable::Refused(e.to_string()))?;
        Ok(world)
    }

    /// A new host with nothing but its loopback interface, which is up.
    ///
    /// # Errors
    /// A name that cannot be one or is taken; `ip` fails.
    pub fn host(&self, name: &str) -> Result<Host, Error> {
        check_name("host", name, HOST_NAME_MAX)?;
        let host = Host::new(self.namespace(name)?, name);
        host.ip(["link", "set", "lo", "up"])?;
        Ok(host)
    }

    /// Joins hosts by one Ethernet segment: two by a veth pair, more by a bridge. The interfaces
    /// are made, get their addresses and are up and usable on return.
    ///
    /// # Errors
    /// Fewer than two ports or an interface name that cannot be one or is taken; `ip` fails.
    pub fn segment(&self, ports: &[Port<'_>]) -> Result<(), Error> {
        check_ports(ports)?;
        match ports {
            [one, other] => {
                veth(
                    (one.host.namespace(), one.interface),
                    (other.host.namespace(), other.interface),
                )?;
                configure(ports)
            }
            _ => self.switch(ports).map(drop),
        }
    }

    /// Joins hosts by a bridge, however few they are, and gives the bridge: pulling the cable of
    /// one host leaves the carrier of the others, as a switch does.
    ///
    /// # Errors
    /// As [`Self::segment`].
    pub fn switch(&self, ports: &[Port<'_>]) -> Result<Switch, Error> {
        check_ports(ports)?;
        let fabric = format!("{}-fabric", self.prefix);
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let bridge = format!("br{number}");
        ip(["-n", &fabric, "link", "add", &bridge, "type", "bridge"])?;
        ip(["-n", &fabric, "link", "set", &bridge, "up"])?;
        let mut plugs = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let plug = format!("p{number}-{index}");
            veth((port.host.namespace(), port.interface), (&fabric, &plug))?;
            ip(["-n", &fabric, "link", "set", &plug, "master", &bridge, "up"])?;
            plugs.push(plug);
        }
        configure(ports)?;
        Ok(Switch::new(Host::new(fabric, "fabric"), plugs))
    }

    fn namespace(&self, name: &str) -> Result<String, Error> {
        let namespace = format!("{}-{name}", self.prefix);
        ip(["netns", "add", &namespace])?;
        let mut all = self.namespaces.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        all.push(namespace.clone());
        Ok(namespace)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let all = self.namespaces.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        all.iter().for_each(|namespace| remove(namespace));
    }
}

fn check_ports(ports: &[Port<'_>]) -> Result<(), Error> {
    for port in ports {
        check_name("interface", port.interface, INTERFACE_NAME_MAX)?;
    }
    if ports.len() >= 2 {
        return Ok(());
    }
    Err(Error::System {
        what: format!("a segment of {} hosts", ports.len()),
        source: io::Error::new(io::ErrorKind::InvalidInput, "expected two or more"),
    })
}

/// Gives the ends of a segment their addresses, brings them up, and waits until they are: the kernel
/// says so up to a second after it is true, and a node that starts meanwhile finds its links down.
fn configure(ports: &[Port<'_>]) -> Result<(), Error> {
    for port in ports {
        for address in port.addresses {
            port.host.address_add(port.interface, address)?;
        }
        port.host.link_up(port.interface)?;
    }
    let begin = Instant::now();
    for Port { host, interface, .. } in ports {
        while !is_up(host, interface)? {
            if begin.elapsed() > UP_MAX {
                return Err(Error::System {
                    what: format!("{interface} of {}", host.name()),
                    source: io::Error::new(io::ErrorKind::TimedOut, "its link does not come up"),
                });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

fn is_up(host: &Host, interface: &str) -> Result<bool, Error> {
    let shown = ip(["-n", host.namespace(), "-o", "link", "show", "dev", interface])?;
    Ok(String::from_utf8_lossy(&shown.stdout).contains(" state UP "))
}

/// A pair of interfaces, one in each namespace. The index of the second is unlike any that the kernel
/// gives of itself: it hurries with news of links whose ends have different ones.
fn veth(one: (&str, &str), other: (&str, &str)) -> Result<(), Error> {
    static INDEX: AtomicU32 = AtomicU32::new(1000);
    let ((ns1, if1), (ns2, if2)) = (one, other);
    let index = INDEX.fetch_add(1, Ordering::Relaxed).to_string();
    let peer = ["type", "veth", "peer", "name", if2, "index", &index, "netns", ns2];
    ip(["link", "add", if1, "netns", ns1].into_iter().chain(peer)).map(drop)
}

/// Ends what runs in a namespace and removes it. Best effort: it is called from `drop`.
fn remove(namespace: &str) {
    if let Ok(output) = ip(["netns", "pids", namespace]) {
        for word in String::from_utf8_lossy(&output.stdout).split_whitespace() {
            let pid = word.parse().ok().and_then(Pid::from_raw);
            // A thread of this very process may be in there (`Host::enter`): not ours to kill.
            if let Some(pid) = pid.filter(|pid| *pid != rustix::process::getpid()) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
    let _ = ip(["netns", "del", namespace]);
}

/// Removes the namespaces of processes that are no more: they were killed before they could.
fn sweep() {
    let Ok(entries) = fs::read_dir("/run/netns") else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let Some(owner) = owner.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if !fs::exists(format!("/proc/{owner}")).unwrap_or(true) {
            remove(&name);
        }
    }
}

fn check_name(what: &'static str, name: &str, max: usize) -> Result<(), Error> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if !name.is_empty() && name.len() <= max && name.chars().all(fine) {
        return Ok(());
    }
    Err(Error::Name { what, name: name.to_owned(), max })
}
