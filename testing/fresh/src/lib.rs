//! Paths and ports for tests. Tests of one binary run at once in one process, so that a name made of
//! the process' id is shared by any two of them that choose the same word; a port that the system
//! chose and that is not held may be chosen again by any connection, and one that two binaries looked
//! at in the same moment is free for both. What is handed out here is handed out once.
//!
//! No file is created, and none is removed: the test does both, but for a program that it
//! [copies](copy_program).

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports from which no system takes those of outgoing connections (Linux begins at 32768).
const PORTS: std::ops::Range<u32> = 20_000..32_000;

/// A path in the directory for temporary files that no file has. `name` is for people who look at
/// what a test has left behind.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ulnet-{}-{number}-{name}", process::id()));
        // A process of the same id, long ago.
        if path.symlink_metadata().is_err() {
            return path;
        }
    }
}

/// A TCP port that is free at all addresses of IPv4, and that no other process gets from here while
/// this one lives.
///
/// # Panics
///
/// If none of them is free.
#[must_use]
pub fn port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = process::id().wrapping_mul(61);
    for _ in PORTS {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = (PORTS.start + number % (PORTS.end - PORTS.start)) as u16;
        if claim(port) && TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port in {PORTS:?}");
}

/// Takes a port until the process ends, if no other one of this network namespace has it: the system
/// gives a name in the abstract space of its sockets once.
fn claim(port: u16) -> bool {
    static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let name = format!("ulnet-test-port-{port}");
    let claim = SocketAddr::from_abstract_name(name).and_then(|a| UnixListener::bind_addr(&a));
    let (Ok(claim), Ok(mut claims)) = (claim, CLAIMS.lock()) else { return false };
    claims.push(claim);
    true
}

/// Copies a program that is run afterwards. By a process of its own: one that another test begins
/// meanwhile would have the copy open for writing for a moment, and nothing runs such a file.
///
/// # Panics
///
/// If it can't be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.is_ok_and(|s| s.success()), "cp {} {}", from.display(), to.display());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;
    use std::thread;

    use super::{claim, path, port};

    #[test]
    fn threads_that_choose_the_same_word_get_different_paths() {
        let many = || thread::spawn(|| (0..100).map(|_| path("word")).collect::<Vec<_>>());
        let threads: Vec<_> = (0..4).map(|_| many()).collect();
        let paths: BTreeSet<_> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        assert_eq!(paths.len(), 400);
    }

    #[test]
    fn a_path_that_a_former_process_has_left_is_passed_over() {
        let next = path("left");
        let parts: Vec<&str> = next.to_str().unwrap().rsplitn(3, '-').collect();
        let number: u32 = parts[1].parse().unwrap();
        // Other tests take numbers meanwhile.
        let numbers = number..number + 1000;
        let left: Vec<_> = numbers.map(|n| format!("{}-{n}-left", parts[2])).collect();
        for name in &left {
            std::os::unix::fs::symlink("nowhere", name).unwrap();
        }
        let free = path("left");
        for name in &left {
            std::fs::remove_file(name).unwrap();
        }
        assert!(!left.iter().any(|name| free.as_os_str() == name.as_str()), "{free:?}");
    }

    #[test]
    fn a_port_is_handed_out_once_and_not_while_it_is_in_use() {
        let first = port();
        let held = TcpListener::bind(("127.0.0.1", first + 1));
        let ports: BTreeSet<_> = (0..200).map(|_| port()).collect();
        assert_eq!(ports.len(), 200);
        assert!(!ports.contains(&first));
        assert!(held.is_err() || !ports.contains(&(first + 1)));
        assert!(!claim(first), "another process could claim it, too");
    }
}
