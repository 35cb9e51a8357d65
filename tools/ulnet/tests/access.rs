//! Who may do what: at the control socket by user and group, at the TCP port by address and NID.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
/// A user without an account.
const STRANGER: u32 = 54321;
const ADMINS: u32 = 54001;
const READERS: u32 = 54002;

struct Daemon {
    dir: PathBuf,
    port: u16,
    child: Child,
}

impl Daemon {
    fn start(name: &str, args: &[&str]) -> Self {
        let dir = fresh::path(&format!("access-{name}"));
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let port = fresh::port();
        let mut child = Command::new(PROGRAM)
            .arg("daemon")
            .args(["--socket", dir.join("s").to_str().unwrap(), "--port", &port.to_string()])
            .args(args)
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert_ne!(
                log.read_line(&mut line).unwrap(),
                0,
                "the daemon ended before it was ready"
            );
        }
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { dir, port, child }
    }

    fn mode(&self) -> u32 {
        fs::metadata(self.dir.join("s")).unwrap().permissions().mode() & 0o777
    }

    fn ctl(&self, words: &str) -> Output {
        self.ctl_by(&mut Command::new(PROGRAM), words)
    }

    /// As the stranger, who belongs to the groups as well.
    fn ctl_as(&self, groups: &[u32], words: &str) -> Output {
        let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={STRANGER}")).arg(format!("--regid={STRANGER}"));
        match groups.is_empty() {
            true => command.arg("--clear-groups"),
            false => command.arg(format!("--groups={}", groups.join(","))),
        };
        self.ctl_by(command.arg(self.dir.join("ulnet")), words)
    }

    fn ctl_by(&self, command: &mut Command, words: &str) -> Output {
        command
            .arg("ctl")
            .args(words.split_whitespace())
            .env("ULNET_SOCKET", self.dir.join("s"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// Whether processes of other users can be made.
fn can_be_others(what: &str) -> bool {
    let able = Command::new("setpriv")
        .args([&format!("--reuid={STRANGER}"), "--clear-groups", "true"])
        .output()
        .is_ok_and(|o| o.status.success());
    if !able {
        netns::skipped(what, "it needs root and setpriv");
    }
    able
}

#[test]
fn readers_look_administrators_change_and_strangers_do_neither() {
    if !can_be_others("groups at the control socket") {
        return;
    }
    let (admins, readers) = (ADMINS.to_string(), READERS.to_string());
    let d = Daemon::start("groups", &["--group-admin", &admins, "--group-read", &readers]);
    // The stranger may not be able to reach the place where this was built.
    fresh::copy_program(PROGRAM, d.dir.join("ulnet"));
    assert_eq!(d.mode(), 0o666, "a file has one group only: the daemon decides");

    let o = d.ctl_as(&[READERS, ADMINS], "lnet configure");
    assert!(o.status.success(), "{}", err(&o));
    let o = d.ctl_as(&[ADMINS], "net add --net tcp --if lo");
    assert!(o.status.success(), "{}", err(&o));
    for words in ["net show -v 5", "export", "global show", "peer show", "stats show", "doctor"] {
        let o = d.ctl_as(&[READERS], words);
        assert!(!err(&o).contains("Operation not permitted"), "{words}: {}", err(&o));
    }
    assert!(out(&d.ctl_as(&[READERS], "net show")).contains("127.0.0.1@tcp"));
    for (words, what) in [
        ("net del --net tcp", "net del"),
        ("ping 127.0.0.1@tcp", "ping"),
        ("set retry_count 5", "set"),
        ("peer add --prim_nid 127.0.0.9@tcp", "peer add"),
        ("lnet unconfigure", "lnet unconfigure"),
        ("stats reset", "stats reset"),
    ] {
        let o = d.ctl_as(&[READERS], words);
        assert!(!o.status.success(), "{words}");
        let said = out(&o) + &err(&o);
        assert!(said.contains("Operation not permitted"), "{words}: {said}");
        // Who and what it takes: for people, and in the log.
        let who = format!("uid {STRANGER}");
        let takes = format!("group {ADMINS}");
        for part in [who.as_str(), &format!("'{what}'"), &takes] {
            assert!(said.contains(part), "{words}: {part} in {said}");
        }
    }
    assert!(out(&d.ctl("net show")).contains("127.0.0.1@tcp"), "nothing has changed");
    let o = d.ctl_as(&[], "net show");
    assert!(!o.status.success());
    assert!(err(&o).contains("Operation not permitted"), "{}", err(&o));
}

#[test]
fn without_groups_the_socket_is_its_owners_whatever_the_file_says() {
    if !can_be_others("strangers at the control socket") {
        return;
    }
    let d = Daemon::start("alone", &[]);
    fresh::copy_program(PROGRAM, d.dir.join("ulnet"));
    assert_eq!(d.mode(), 0o600);
    let o = d.ctl_as(&[], "net show");
    assert!(err(&o).contains("Permission denied"), "the file keeps it out: {}", err(&o));
    // The file is open to all; the credentials still count.
    fs::set_permissions(d.dir.join("s"), fs::Permissions::from_mode(0o666)).unwrap();
    let o = d.ctl_as(&[], "net show");
    assert!(err(&o).contains("Operation not permitted"), "{}", err(&o));
    assert!(d.ctl("lnet configure").status.success());
}

/// Whether the daemon reads from a connection from this loopback address, or closes it at once.
fn is_heard(d: &Daemon, from: &str) -> bool {
    use std::net::{IpAddr, SocketAddr};
    let from: IpAddr = from.parse().unwrap();
    let socket = rustix_socket(from);
    let to = SocketAddr::from(([127, 0, 0, 1], d.port));
    let mut stream: TcpStream = connect(socket, to);
    stream.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    // Who is let in waits for us to speak.
    match stream.read(&mut [0; 8]) {
        Ok(0) => false,
        Ok(n) => panic!("{n} bytes before anything was said"),
        Err(e) => e.kind() == std::io::ErrorKind::WouldBlock,
    }
}

fn rustix_socket(from: std::net::IpAddr) -> rustix::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketType, bind, socket};
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &std::net::SocketAddr::new(from, 0)).unwrap();
    fd
}

fn connect(fd: rustix::fd::OwnedFd, to: std::net::SocketAddr) -> TcpStream {
    rustix::net::connect(&fd, &to).unwrap();
    TcpStream::from(fd)
}

#[test]
fn peers_that_are_not_on_the_list_are_turned_away_counted_and_shown() {
    let d = Daemon::start("list", &["--accept-from", "127.0.0.[1-9]@tcp"]);
    assert!(d.ctl("lnet configure").status.success());
    assert!(d.ctl("net add --net tcp --if lo").status.success());
    assert!(is_heard(&d, "127.0.0.5"));
    assert!(!is_heard(&d, "127.0.0.66"));
    assert!(!is_heard(&d, "127.0.0.66"));
    let shown = out(&d.ctl("net show --net tcp -v 5"));
    for line in
        ["127.0.0.[1-9]@tcp", "address: 127.0.0.66", "reason: address_not_accepted", "count: 2"]
    {
        assert!(shown.contains(line), "{line} in\n{shown}");
    }
    assert!(!out(&d.ctl("net show -v 4")).contains("refused"), "recorded levels stay as they are");
    // A new list, at once; then all peers again.
    assert!(d.ctl("net set --net tcp --accept-from 127.0.0.66@tcp").status.success());
    assert!(is_heard(&d, "127.0.0.66") && !is_heard(&d, "127.0.0.5"));
    for (list, why) in [
        ("frog", "pattern 'frog'"),
        ("10.0.0.1@tcp7", "is not about net tcp"),
        (",", "expected networks or NIDs, any or default"),
    ] {
        let o = d.ctl(&format!("net set --net tcp --accept-from {list}"));
        assert!(!o.status.success() && err(&o).contains(why), "{list}: {}", err(&o));
    }
    assert!(!is_heard(&d, "127.0.0.5"), "what is refused changes nothing");
    // It is part of what an export configures again.
    let backup = d.dir.join("backup.yaml");
    fs::write(&backup, out(&d.ctl("export --backup"))).unwrap();
    assert!(out(&d.ctl("export")).contains("accept from:\n      -     127.0.0.66@tcp\n"));
    assert!(d.ctl("net del --net tcp").status.success());
    assert!(d.ctl("net set --net tcp --accept-from default").status.success());
    let o = d.ctl(&format!("import {}", backup.display()));
    assert!(o.status.success(), "{}", err(&o));
    assert!(is_heard(&d, "127.0.0.66") && !is_heard(&d, "127.0.0.5"));
    let o = d.ctl("net set --net tcp --accept-from default");
    assert!(o.status.success() && is_heard(&d, "127.0.0.5") && !is_heard(&d, "127.0.0.66"));
    assert!(d.ctl("net set --net tcp --accept-from any").status.success());
    assert!(is_heard(&d, "127.0.0.5") && is_heard(&d, "127.0.0.66"));
    assert!(
        out(&d.ctl("export --backup")).contains("-     any\n"),
        "it is more than the option lets in"
    );
}

#[test]
fn the_cost_of_one_address_is_limited() {
    let d = Daemon::start("cost", &["--pending-per-address", "2"]);
    assert!(d.ctl("lnet configure").status.success());
    assert!(d.ctl("net add --net tcp --if lo").status.success());
    let at = std::net::SocketAddr::from(([127, 0, 0, 1], d.port));
    let kept: Vec<_> = (0..2).map(|_| connect(rustix_socket([127, 0, 0, 7].into()), at)).collect();
    assert!(!is_heard(&d, "127.0.0.7"));
    assert!(is_heard(&d, "127.0.0.8"), "others are not held to it");
    assert!(out(&d.ctl("net show -v 5")).contains("reason: too_many_pending"));
    drop(kept);
    for (option, value) in
        [("--connections-per-address", "0"), ("--memory-per-address", "5"), ("--accept-from", "x")]
    {
        let o = Command::new(PROGRAM).args(["daemon", option, value]).output().unwrap();
        assert!(!o.status.success() && err(&o).contains(option), "{}", err(&o));
    }
}

/// The socket at which [`connections_of_a_reader`] opens connections.
const HOLD: &str = "ULNET_TEST_HOLD";
const HELD: usize = 300;

/// No test of its own: the process of a reader that opens connections and keeps them until its
/// standard input ends.
#[test]
fn connections_of_a_reader() {
    let Some(socket) = std::env::var_os(HOLD) else { return };
    let connect = || std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let held: Vec<_> = (0..HELD).map(|_| connect()).collect();
    println!("held");
    let _ = std::io::stdin().read(&mut [0]);
    drop(held);
}

#[test]
fn idle_connections_of_a_reader_keep_neither_root_nor_other_readers_out() {
    if !can_be_others("limits at the control socket") {
        return;
    }
    let readers = READERS.to_string();
    let d = Daemon::start("held", &["--group-read", &readers]);
    let this = d.dir.join("test");
    fresh::copy_program(std::env::current_exe().unwrap(), &this);
    let mut holder = Command::new("setpriv")
        .args([&format!("--reuid={STRANGER}"), "--clear-groups", &format!("--regid={readers}")])
        .arg(&this)
        .args(["--exact", "access::connections_of_a_reader", "--nocapture"])
        .env(HOLD, d.dir.join("s"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("held") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "no connections");
    }
    for _ in 0..20 {
        let o = d.ctl("lnet configure");
        assert!(o.status.success(), "root: {}", err(&o));
    }
    // Another member of the group.
    fresh::copy_program(PROGRAM, d.dir.join("ulnet"));
    let mut other = Command::new("setpriv");
    other.args([&format!("--reuid={}", STRANGER + 1), "--clear-groups"]);
    other.arg(format!("--regid={readers}")).arg(d.dir.join("ulnet"));
    let o = d.ctl_by(&mut other, "net show");
    assert!(o.status.success(), "another reader: {}", err(&o));
    drop(holder.stdin.take());
    let _ = holder.wait();
}
