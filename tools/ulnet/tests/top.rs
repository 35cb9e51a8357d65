//! `lnetctl top` on a real terminal of 80 by 24, which is tmux's.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon, and a terminal in which `lnetctl top` runs.
struct Desk {
    dir: PathBuf,
    daemon: Child,
}

impl Desk {
    /// `None` without tmux.
    fn new(name: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            netns::skipped("lnetctl top on a terminal", "there is no tmux");
            return None;
        }
        let dir = fresh::path(&format!("top-{name}"));
        fs::create_dir_all(&dir).unwrap();
        let port = fresh::port();
        let daemon = Command::new(PROGRAM)
            .args(["daemon", "-q", "--port", &port.to_string(), "--socket"])
            .arg(dir.join("s"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let desk = Self { dir, daemon };
        let until = Instant::now() + PATIENCE;
        while UnixStream::connect(desk.dir.join("s")).is_err() {
            assert!(Instant::now() < until, "no daemon");
            std::thread::sleep(Duration::from_millis(20));
        }
        for words in [
            "lnet configure",
            // The gateway does not answer: doubts of it would come and go, with a column of their own.
            "set rail_suspicion 0",
            "net add --net tcp --if lo",
            "net add --net tcp7 --if lo",
            "peer add --prim_nid 10.9.8.7@tcp",
            "route add --net tcp9 --gateway 127.0.0.9@tcp7",
        ] {
            desk.ctl(words);
        }
        Some(desk)
    }

    fn ctl(&self, words: &str) -> Output {
        let mut ctl = Command::new(PROGRAM);
        ctl.arg("ctl").args(words.split_whitespace()).env("ULNET_SOCKET", self.dir.join("s"));
        ctl.stdin(Stdio::null()).output().unwrap()
    }

    fn tmux(&self, args: &[&str]) -> String {
        let o = Command::new("tmux")
            .arg("-S")
            .arg(self.dir.join("tmux"))
            .args(["-f", "/dev/null"])
            .args(args)
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        String::from_utf8_lossy(&o.stdout).into_owned()
    }

    /// Starts a shell line in the terminal. When it ends, its exit status stays on the screen.
    fn run(&self, environment: &str, line: &str) {
        let socket = self.dir.join("s");
        let line = format!(
            "LC_ALL=C.UTF-8 {environment} ULNET_SOCKET={} {PROGRAM} ctl {line}; echo ended $?; \
             exec sleep 60",
            socket.display()
        );
        self.tmux(&["new-session", "-d", "-x", "80", "-y", "24", &line]);
    }

    /// The screen, once it is as wished.
    fn screen(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            if fits(&screen) {
                return screen;
            }
            assert!(Instant::now() < until, "{what}; the screen is:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn top_fits_80_by_24_and_obeys_its_keys() {
    let Some(desk) = Desk::new("keys") else { return };
    desk.run("", "top");
    let screen = desk.screen("the first look", |s| s.contains("10.9.8.7@tcp"));
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines.len(), 24, "{screen}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{screen}");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let named = format!(" on {}  profile default", host.trim());
    assert!(lines[0].starts_with("lnetd ") && lines[0].contains(&named), "{screen}");
    for there in
        ["NETWORK INTERFACE", "127.0.0.1@tcp7", "████████ 1000", "PEER INTERFACE (", "ROUTE TO"]
    {
        assert!(screen.contains(there), "{there} is not in\n{screen}");
    }
    assert!(lines[23].starts_with("1:all") && lines[23].ends_with("q:quit"), "{screen}");

    desk.press(&["?"]);
    desk.screen("the help", |s| s.contains("any key goes back"));
    desk.press(&["x", "3", "/", "9.8.7", "Enter"]);
    let filtered = |s: &str| s.contains("PEER INTERFACE (1)") && s.contains("/:9.8.7");
    let screen = desk.screen("a filter", filtered);
    assert!(!screen.contains("NETWORK INTERFACE"), "{screen}");
    desk.press(&["s", "s"]);
    desk.screen("sorting", |s| s.contains("s:by device"));
    desk.press(&["<", "<"]);
    desk.screen("sorting back", |s| s.contains("s:by age"));
    desk.press(&["c", "Down", "Space", "Enter"]);
    desk.screen("a column less", |s| !s.contains("STATE") && s.contains("PEER INTERFACE (1)"));
    desk.press(&["c", "a", "Enter"]);
    let screen =
        desk.screen("all columns", |s| s.contains("STATE") && !s.contains("space chooses"));
    let peer = screen.lines().find(|line| line.contains("10.9.8.7@tcp"));
    assert!(peer.is_some_and(|line| line.contains("unknown")), "{screen}");
    desk.press(&["4"]);
    desk.screen("routes", |s| s.contains("ROUTE TO") && !s.contains("PEER INTERFACE"));
    // Something happens, and it is seen.
    desk.press(&["1", "Escape"]);
    desk.ctl("net set --nid 127.0.0.1@tcp --health 500");
    desk.screen("a change of health", |s| s.contains("████░░░░  500") || s.contains("degraded"));
    desk.press(&["q"]);
    desk.screen("the end", |s| s.contains("ended 0") && !s.contains("PEER INTERFACE"));
}

#[test]
fn colours_are_optional_and_an_interrupt_restores_the_terminal() {
    let Some(desk) = Desk::new("colour") else { return };
    let inks = ["38;5;", "[31m", "[32m", "[33m", "[36m", ";32m", ";36m"];
    let coloured = |s: &str| inks.iter().any(|ink| s.contains(ink));
    desk.run("", "top");
    desk.screen("the first look", |s| s.contains("10.9.8.7@tcp"));
    assert!(coloured(&desk.tmux(&["capture-pane", "-e", "-p"])));
    desk.press(&["C-c"]);
    desk.screen("the end", |s| s.contains("ended 0"));
    assert!(desk.tmux(&["display-message", "-p", "#{alternate_on}"]).starts_with('0'));
    // Another terminal: a server that is stopping may still take the next session with it.
    let Some(desk) = Desk::new("plain-ink") else { return };
    desk.run("NO_COLOR=1", "top");
    desk.screen("the first look", |s| s.contains("10.9.8.7@tcp"));
    assert!(!coloured(&desk.tmux(&["capture-pane", "-e", "-p"])));
}

#[test]
fn top_prints_text_without_a_terminal_and_fails_without_a_daemon() {
    let Some(desk) = Desk::new("plain") else { return };
    let o = desk.ctl("top --count 2");
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    assert!(o.status.success() && !text.contains('\u{1b}'), "{o:?}");
    assert_eq!(text.matches("PEER INTERFACE").count(), 2, "{text}");
    assert!(text.contains("10.9.8.7@tcp") && !text.contains("q:quit"), "{text}");
    let o = desk.ctl("top --interval 0");
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(!o.status.success() && said.contains("invalid interval value '0'"), "{said}");
    let mut ctl = Command::new(PROGRAM);
    let o = ctl.args(["ctl", "top"]).env("ULNET_SOCKET", "/nonexistent/s").output().unwrap();
    assert!(!o.status.success() && String::from_utf8_lossy(&o.stderr).contains("/nonexistent/s"));
}
