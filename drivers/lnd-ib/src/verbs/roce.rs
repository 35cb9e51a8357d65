//! The version of RoCE that connections of an interface use, as the system has it: its files are read,
//! no call is made.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::fs;
use std::path::Path;

/// Where the system lists the identifiers of ports.
const DEVICES: &str = "/sys/class/infiniband";
/// What the connection manager has been set to, where it has been looked at or set.
const MANAGER: &str = "/sys/kernel/config/rdma_cm";

/// The version, 1 or 2; 0 for none, or if it is not known.
///
/// An address has one identifier in each version that its device speaks. The connection manager takes
/// that of its default version: the one that `cma_roce_mode` has set, else the highest.
pub(super) fn version(device: &str, port: u8, addr: Ipv4Addr) -> u8 {
    found(Path::new(DEVICES), Path::new(MANAGER), (device, port), addr)
}

fn found(devices: &Path, manager: &Path, (device, port): (&str, u8), addr: Ipv4Addr) -> u8 {
    let of_port = |root: &Path| root.join(device).join("ports").join(port.to_string());
    let (own, types) = (of_port(devices), of_port(devices).join("gid_attrs/types"));
    let entries = fs::read_dir(own.join("gids")).into_iter().flatten().flatten();
    let spoken: Vec<u8> = entries
        .filter(|entry| gid(&entry.path()) == Some(addr.to_ipv6_mapped()))
        .filter_map(|entry| named(&types.join(entry.file_name())))
        .collect();
    match named(&of_port(manager).join("default_roce_mode")) {
        Some(set) => Some(set).filter(|set| spoken.contains(set)).unwrap_or(0),
        None => spoken.into_iter().max().unwrap_or(0),
    }
}

fn gid(file: &Path) -> Option<Ipv6Addr> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The version that a file names. Places without an identifier can't be read.
fn named(file: &Path) -> Option<u8> {
    match fs::read_to_string(file).ok()?.trim() {
        "IB/RoCE v1" => Some(1),
        "RoCE v2" => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_was_set_or_the_highest_of_the_address() {
        let root = fresh::path("roce");
        let (devices, manager) = (root.join("devices"), root.join("manager"));
        let write = |dir: &Path, name: &str, text: &str| {
            fs::create_dir_all(dir).expect("a directory");
            fs::write(dir.join(name), text).expect("a file");
        };
        let port = devices.join("rxe0/ports/1");
        let mapped = "0000:0000:0000:0000:0000:ffff:0a00:0001\n";
        let all = [
            ("0", "fe80:0000:0000:0000:5054:00ff:fe00:0001\n", "IB/RoCE v1\n"),
            ("1", "fe80:0000:0000:0000:5054:00ff:fe00:0001\n", "RoCE v2\n"),
            ("2", mapped, "IB/RoCE v1\n"),
        ];
        for (n, gid, kind) in all {
            write(&port.join("gids"), n, gid);
            write(&port.join("gid_attrs/types"), n, kind);
        }
        // An empty place has no type.
        write(&port.join("gids"), "4", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        let own = Ipv4Addr::new(10, 0, 0, 1);
        let now = |addr| found(&devices, &manager, ("rxe0", 1), addr);
        assert_eq!((now(own), now(Ipv4Addr::new(10, 0, 0, 2))), (1, 0));
        write(&port.join("gids"), "3", mapped);
        write(&port.join("gid_attrs/types"), "3", "RoCE v2\n");
        assert_eq!(now(own), 2);
        let set = manager.join("rxe0/ports/1");
        write(&set, "default_roce_mode", "IB/RoCE v1\n");
        assert_eq!(now(own), 1);
        fs::remove_file(port.join("gids/2")).expect("it goes");
        assert_eq!(now(own), 0, "set to a version that the address does not have");
        assert_eq!(found(&devices, &manager, ("rxe1", 1), own), 0);
    }
}
