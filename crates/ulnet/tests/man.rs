//! The manual pages in `docs/man` are those that the programs make, and troff understands them.
//! `ULNET_BLESS=1` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man");

#[test]
fn the_pages_are_those_that_the_programs_make() {
    let dir = std::env::temp_dir().join(format!("ulnet-man-{}", std::process::id()));
    let dir = if std::env::var_os("ULNET_BLESS").is_some() { Path::new(PAGES) } else { &dir };
    fs::create_dir_all(dir).unwrap();
    assert!(Command::new(PROGRAM).arg("man").arg(dir).status().unwrap().success());
    let mut seen = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name();
        let kept = fs::read_to_string(Path::new(PAGES).join(&name)).unwrap_or_default();
        let made = fs::read_to_string(dir.join(&name)).unwrap();
        assert!(kept == made, "docs/man/{} is old: ULNET_BLESS=1 makes it", name.display());
        seen += 1;
    }
    assert!(seen >= 6);
    assert_eq!(fs::read_dir(PAGES).unwrap().count(), seen, "pages that nobody makes");
    if dir != Path::new(PAGES) {
        let _ = fs::remove_dir_all(dir);
    }
}

#[test]
fn troff_has_nothing_to_complain_about() {
    for name in ["lctl.8", "lnetctl.8", "lnetd.8", "lst.8", "routerstat.8", "ulnet.1"] {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-Tutf8", "-ww", "-P-cbou"]).arg(Path::new(PAGES).join(name));
        let Ok(o) = groff.stdin(Stdio::null()).output() else {
            eprintln!("\nSKIPPED: manual pages under groff: it is not installed");
            return;
        };
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(o.status.success() && said.is_empty(), "{name}: {said}");
        let text = String::from_utf8_lossy(&o.stdout);
        assert!(text.contains("NAME") && text.contains("DESCRIPTION"), "{name}");
    }
}

#[test]
fn shells_understand_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let o = Command::new(PROGRAM).args(["ctl", "completions", shell]).output().unwrap();
        assert!(o.status.success(), "{shell}");
        let script = std::env::temp_dir().join(format!("ulnet-complete-{}", std::process::id()));
        fs::write(&script, &o.stdout).unwrap();
        match Command::new(shell).arg("-n").arg(&script).output() {
            Ok(o) => assert!(o.status.success(), "{shell}: {}", String::from_utf8_lossy(&o.stderr)),
            Err(_) => eprintln!("\nSKIPPED: completions under {shell}: it is not installed"),
        }
        let _ = fs::remove_file(&script);
    }
    let o = Command::new(PROGRAM).args(["ctl", "completions", "tcsh"]).output().unwrap();
    assert!(
        !o.status.success() && String::from_utf8_lossy(&o.stderr).contains("bash, zsh or fish")
    );
}

#[test]
fn bash_completes_words_options_and_files() {
    let o = Command::new(PROGRAM).args(["ctl", "completions", "bash"]).output().unwrap();
    let script = String::from_utf8(o.stdout).unwrap();
    let complete = |words: &[&str]| {
        let all: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
        let line = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD={}; _lnetctl; echo \"${{COMPREPLY[*]}}\"",
            all.join(" "),
            words.len() - 1
        );
        let o = Command::new("bash").args(["-c", &line]).output().unwrap();
        let said = String::from_utf8_lossy(&o.stdout).trim().to_owned();
        said.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(complete(&["lnetctl", ""]).contains(&"doctor".to_owned()));
    assert_eq!(complete(&["lnetctl", "ne"]), ["net"]);
    assert_eq!(complete(&["lnetctl", "net", "a"]), ["add"]);
    assert_eq!(complete(&["lnetctl", "net", "add", "--peer-c"]), ["--peer-credits"]);
    assert_eq!(complete(&["lnetctl", "net", "add", "--if", "l"]), ["lo"]);
    assert_eq!(complete(&["lnetctl", "fault", "drop", "add", "--message", "PU"]), ["PUT"]);
    assert_eq!(complete(&["lnetctl", "completions", "z"]), ["zsh"]);
}
