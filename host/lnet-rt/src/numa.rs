//! Where memory, devices and the node's thread are, as the system tells it in `/sys`: what the node is
//! given for the choice of the nearest interface (S-42; MR-snd-010), and how its CPUs are parted. A
//! machine that does not say, or has one NUMA node, is one place, and everything is equally near
//! (MR-snd-015).

use std::fs;
use std::path::Path;

use lnet::Node;
use lnet_types::{CptError, CptTable, CpuPattern, NiId, Topology};

use crate::affinity;

/// Where the system tells it.
const SYS: &str = "/sys";

/// The most NUMA nodes that are asked for; the node keeps to a limit of its own.
const NODES_MAX: usize = 1024;

/// Distances between NUMA nodes, by their numbers: `[a][b]` from memory at `a` to `b`. Numbers that
/// are not in use are as far as can be. Empty if the system does not say, or contradicts itself.
fn distances(sys: &Path) -> Vec<Vec<u32>> {
    let dir = sys.join("devices/system/node");
    let number = |name: &str| name.strip_prefix("node")?.parse::<usize>().ok();
    let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
    let mut online: Vec<usize> = entries
        .filter_map(|e| number(e.file_name().to_str()?))
        .filter(|n| *n < NODES_MAX)
        .collect();
    online.sort_unstable();
    let Some(last) = online.last() else { return Vec::new() };
    let mut all = vec![vec![u32::MAX; last + 1]; last + 1];
    for &from in &online {
        let text = fs::read_to_string(dir.join(format!("node{from}/distance"))).unwrap_or_default();
        // One for each node in use, in their order.
        let row: Option<Vec<u32>> = text.split_whitespace().map(|w| w.parse().ok()).collect();
        let Some(row) = row.filter(|row| row.len() == online.len()) else { return Vec::new() };
        for (&to, distance) in online.iter().zip(row) {
            if let Some(cell) = all.get_mut(from).and_then(|row| row.get_mut(to)) {
                *cell = distance;
            }
        }
    }
    all
}

/// The NUMA node that a network device is attached to.
fn node_of_device(sys: &Path, device: &str) -> Option<u32> {
    let path = sys.join("class/net").join(device).join("device/numa_node");
    // -1 stands for unknown.
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The NUMA node of a processor.
fn node_of_cpu(sys: &Path, cpu: u32) -> Option<u32> {
    let dir = fs::read_dir(sys.join(format!("devices/system/cpu/cpu{cpu}"))).ok()?;
    let number = |name: &str| name.strip_prefix("node")?.parse().ok();
    dir.flatten().find_map(|e| number(e.file_name().to_str()?))
}

/// The CPUs that this thread may run on, each with its NUMA node: node 0 where there are none.
fn topology(sys: &Path, allowed: impl IntoIterator<Item = u32>) -> Topology {
    allowed.into_iter().map(|cpu| (cpu, node_of_cpu(sys, cpu).unwrap_or(0))).collect()
}

/// The CPU partitions that a pattern makes of this machine, as far as this thread may use it.
///
/// # Errors
/// [`CptError`]: what the machine has not.
pub fn cpt_table(pattern: &CpuPattern) -> Result<CptTable, CptError> {
    CptTable::new(pattern, &topology(Path::new(SYS), affinity::allowed()))
}

/// How far partitions are from each other, as [`lnet::cpt_distances`] says, on this machine.
pub fn cpt_distances(cpts: &CptTable) -> Vec<Vec<Option<u32>>> {
    lnet::cpt_distances(cpts, &distances(Path::new(SYS)))
}

/// Tells a new node how the machine is parted, how far things are from each other, and where it
/// runs. Where there is one place only, there are no distances to tell.
pub(crate) fn introduce(node: &mut Node) {
    let sys = Path::new(SYS);
    match cpt_table(&CpuPattern::default()).map(|table| node.set_cpts(table)) {
        Ok(Ok(())) => {}
        Ok(Err(errno)) => tracing::warn!("CPU partitions: {errno}"),
        Err(e) => tracing::warn!("one CPU partition: {e}"),
    }
    let distances = distances(sys);
    if distances.len() < 2 {
        return;
    }
    if let Err(errno) = node.set_numa_distances(distances) {
        tracing::warn!("distances between NUMA nodes: {errno}");
        return;
    }
    node.set_numa_home(here(sys));
}

/// The NUMA node that this thread runs on.
fn here(sys: &Path) -> Option<u32> {
    let cpu = u32::try_from(rustix::thread::sched_getcpu()).ok()?;
    node_of_cpu(sys, cpu)
}

/// Tells a node that its thread may have moved.
pub(crate) fn settle(node: &mut Node) {
    node.set_numa_home(here(Path::new(SYS)));
}

/// Tells the node where the device of an interface is.
pub(crate) fn introduce_device(node: &mut Node, ni: NiId, device: &str) {
    if let Some(at) = node_of_device(Path::new(SYS), device)
        && let Err(errno) = node.set_ni_numa_node(ni, Some(at))
    {
        tracing::warn!("NUMA node {at} of {device}: {errno}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A made-up `/sys`, gone with the test.
    struct Sys(PathBuf);

    impl Sys {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let dir = fresh::path(&format!("numa-{name}"));
            for (file, text) in files {
                let path = dir.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(dir)
        }
    }

    impl Drop for Sys {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn distances_and_homes_of_devices_are_read_as_the_system_gives_them() {
        let sys = Sys::new(
            "two",
            &[
                ("devices/system/node/node0/distance", "10 21\n"),
                ("devices/system/node/node2/distance", "21 10\n"),
                ("devices/system/node/has_cpu", "0,2\n"),
                ("devices/system/cpu/cpu5/node2/x", ""),
                ("class/net/ib0/device/numa_node", "2\n"),
                ("class/net/eth0/device/numa_node", "-1\n"),
            ],
        );
        let far = u32::MAX;
        assert_eq!(distances(&sys.0), [vec![10, far, 21], vec![far; 3], vec![21, far, 10]]);
        assert_eq!(node_of_device(&sys.0, "ib0"), Some(2));
        assert_eq!(node_of_device(&sys.0, "eth0"), None);
        assert_eq!((node_of_cpu(&sys.0, 5), node_of_cpu(&sys.0, 6)), (Some(2), None));
        assert_eq!(topology(&sys.0, [5, 6]), [(5, 2), (6, 0)].into_iter().collect());
        let broken = Sys::new("odd", &[("devices/system/node/node0/distance", "10 21\n")]);
        assert!(distances(&broken.0).is_empty(), "two distances, and one node");
    }

    #[test]
    fn a_machine_without_numa_files_is_one_place() {
        let sys = Sys::new("none", &[("class/net/eth0/mtu", "1500\n")]);
        assert!(distances(&sys.0).is_empty());
        assert_eq!((node_of_device(&sys.0, "eth0"), node_of_cpu(&sys.0, 0)), (None, None));
        assert!(distances(Path::new("/nonexistent")).is_empty());
        let table = CptTable::new(&CpuPattern::default(), &topology(&sys.0, [0, 1])).unwrap();
        let one: Vec<_> = table.iter().map(|cpt| (cpt.cpus.len(), cpt.numa_nodes.len())).collect();
        assert_eq!(one, [(2, 1)]);
    }
}
