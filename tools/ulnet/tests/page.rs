//! `--html`: the page of a run, as it is written and as a browser shows it.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory of its own for one test, gone with it.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = fresh::path(&format!("page-{name}"));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server that dies and comes back, and a rail that is cut.
const WORLD: &str = r#"
name = "a page <of> its own"
duration = "15s"
[[net]]
name = "tcp"
[[node]]
name = "client"
count = 2
rails = ["tcp", "tcp"]
[[node]]
name = "server"
rails = ["10.9.0.1@tcp", "10.9.0.2@tcp"]
[[workload]]
kind = "request"
from = "client"
to = "server"
every = "100ms"
size = "4KiB"
reply = "4KiB"
timeout = "3s"
[[fault]]
kind = "cut"
on = "server/1"
at = "2s"
for = "2s"
[[fault]]
kind = "kill"
on = "server"
at = "6s"
for = "3s"
"#;

/// Runs `ulnet sim` on the world and gives the page.
fn page(dir: &Dir, args: &[&str]) -> PathBuf {
    let (world, page) = (dir.0.join("world.toml"), dir.0.join("page.html"));
    fs::write(&world, WORLD).unwrap();
    let o = Command::new(env!("CARGO_BIN_EXE_ulnet"))
        .args(["sim", args[0]])
        .arg(&world)
        .args(&args[1..])
        .arg("--html")
        .arg(&page)
        .output()
        .unwrap();
    assert!(o.status.success(), "{o:?}");
    page
}

#[test]
fn a_page_needs_nothing_from_outside_and_names_are_texts() {
    let dir = Dir::new("alone");
    for args in [&["run"][..], &["what-if", "--kill", "server", "--at", "3s"]] {
        let html = fs::read_to_string(page(&dir, args)).unwrap();
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "the page needs something from outside: {outside}");
        }
        assert!(html.contains("a page &lt;of&gt; its own"), "{args:?}");
        assert!(html.contains("default-src 'none'"));
    }
}

/// What a browser makes of a page.
fn shown(dir: &Dir, browser: &str, page: &Path, fragment: &str) -> String {
    let mut run = Command::new(browser);
    run.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    run.arg(format!("--user-data-dir={}", dir.0.join("browser").display()));
    run.args(["--window-size=1100,2200", "--virtual-time-budget=2000"]);
    let address = format!("file://{}#{fragment}", page.display());
    // A picture for people, where they ask for one.
    if let Some(picture) = std::env::var_os("ULNET_PICTURE") {
        if std::env::var_os("ULNET_DARK").is_some() {
            run.arg("--blink-settings=preferredColorScheme=0");
        }
        run.arg(format!("--screenshot={}", Path::new(&picture).display()));
        assert!(run.arg(&address).output().unwrap().status.success());
        return String::new();
    }
    let o = run.args(["--dump-dom", &address]).output().unwrap();
    assert!(o.status.success(), "{o:?}");
    String::from_utf8_lossy(&o.stdout).into_owned()
}

#[test]
fn the_page_of_a_run_shows_health_traffic_stalls_and_moments_in_a_browser() {
    let Some(browser) = crate::browser::program() else {
        return netns::skipped("the page of a run in a browser", "there is no chromium");
    };
    let dir = Dir::new("run");
    let page = page(&dir, &["run"]);
    let dom = shown(&dir, browser, &page, "server");
    if dom.is_empty() {
        return;
    }
    for shown in [
        ">server 10.9.0.1@tcp<",
        "dead, 6.0 to 9.",
        "<title>cut (line ",
        "Messages sent, per second",
        "Payload sent, bytes per second",
        "Stalls: how long exchanges took",
        "99 of 100",
        "*** kill (line ",
        "class=\"cursor\"",
    ] {
        assert!(dom.contains(shown), "{shown} is not in the page:\n{dom}");
    }
    // The filter of the address was applied by the page's own script.
    let count = dom.split("id=\"count\">").nth(1).unwrap().split('<').next().unwrap();
    let (some, all) = count.strip_suffix(" moments").unwrap().split_once(" of ").unwrap();
    let (some, all): (u32, u32) = (some.parse().unwrap(), all.parse().unwrap());
    assert!(0 < some && some < all, "{count}");
    assert_eq!(dom.matches("<tr hidden=\"\"").count() as u32, {
        all - some - dom.matches("<tr class=\"fault\" hidden=\"\"").count() as u32
    });
}

#[test]
fn the_page_of_what_if_shows_the_answer_and_the_healthy_stalls_in_a_browser() {
    let Some(browser) = crate::browser::program() else {
        return netns::skipped("the page of what-if in a browser", "there is no chromium");
    };
    let dir = Dir::new("what-if");
    let page = page(&dir, &["what-if", "--cut", "10.9.0.2@tcp", "--at", "3s"]);
    let dom = shown(&dir, browser, &page, "");
    for shown in ["WHO STALLS", "the longest, healthy", "suspected, 3.", ">server 10.9.0.2@tcp<"] {
        assert!(dom.is_empty() || dom.contains(shown), "{shown} is not in the page:\n{dom}");
    }
}
