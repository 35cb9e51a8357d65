//! The manual pages in `docs/man` are those that the programs make, and troff understands them.
//! `ULNET_BLESS=1` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/man");
/// Pages that no program makes; that the one of the C library is whole, `libulnet` sees to.
const BY_HAND: [&str; 1] = ["libulnet.3"];

#[test]
fn the_pages_are_those_that_the_programs_make() {
    let dir = fresh::path("man");
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
    let kept = fs::read_dir(PAGES).unwrap().map(|entry| entry.unwrap().file_name());
    let kept = kept.filter(|name| !BY_HAND.iter().any(|page| name == page)).count();
    let made = if dir == Path::new(PAGES) { seen - BY_HAND.len() } else { seen };
    assert_eq!(kept, made, "pages without a source");
    if dir != Path::new(PAGES) {
        let _ = fs::remove_dir_all(dir);
    }
}

#[test]
fn troff_has_nothing_to_complain_about() {
    let made = ["lctl.8", "lnetctl.8", "lnetd.8", "lst.8", "routerstat.8", "ulnet.1"];
    for name in made.into_iter().chain(BY_HAND) {
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
        let script = fresh::path("complete");
        fs::write(&script, &o.stdout).unwrap();
        match Command::new(shell).arg("-n").arg(&script).output() {
            Ok(o) => assert!(o.status.success(), "{shell}: {}", String::from_utf8_lossy(&o.stderr)),
            Err(_) => netns::skipped(&format!("completions in {shell}"), "it is not installed"),
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

/// The programs with completions.
const PROGRAMS: [&str; 6] = ["ulnet", "lnetd", "lnetctl", "lctl", "lst", "routerstat"];

#[test]
fn each_program_has_completions_that_each_shell_can_read() {
    for program in PROGRAMS {
        for shell in ["bash", "zsh", "fish"] {
            let o = Command::new(PROGRAM).args(["completions", shell, program]).output().unwrap();
            let script = String::from_utf8(o.stdout).unwrap();
            assert!(o.status.success() && script.contains(program), "{shell} {program}");
            let path = fresh::path(&format!("{shell}-{program}"));
            fs::write(&path, script).unwrap();
            if let Ok(o) = Command::new(shell).arg("-n").arg(&path).output() {
                assert!(o.status.success(), "{shell} {program}: {o:?}");
            } else {
                netns::skipped(&format!("completions in {shell}"), "it is not installed");
            }
            fs::remove_file(&path).unwrap();
        }
    }
    for (words, says) in [
        (&["tcsh"][..], "shell 'tcsh': expected bash, zsh or fish"),
        (&["bash", "ls"], "program 'ls': expected ulnet, lnetd"),
        (&[], "usage: ulnet completions"),
    ] {
        let o = Command::new(PROGRAM).arg("completions").args(words).output().unwrap();
        let err = String::from_utf8_lossy(&o.stderr).into_owned();
        assert_eq!((o.status.code(), err.contains(says)), (Some(2), true), "{words:?}: {err}");
    }
}

#[test]
fn bash_completes_commands_and_options_of_each_program() {
    let complete = |program: &str, words: &[&str]| {
        let o = Command::new(PROGRAM).args(["completions", "bash", program]).output().unwrap();
        let script = String::from_utf8(o.stdout).unwrap();
        let all: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let line = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD={}; _{program} '{program}' '{last}' '{before}'; \
             echo \"${{COMPREPLY[*]}}\"",
            all.join(" "),
            words.len() - 1
        );
        // From a file: it is longer than one argument may be.
        let file = fresh::path("bash");
        fs::write(&file, line).unwrap();
        let o = Command::new("bash").arg(&file).output().unwrap();
        fs::remove_file(&file).unwrap();
        String::from_utf8_lossy(&o.stdout).trim().to_owned()
    };
    assert_eq!(complete("ulnet", &["ulnet", "sim", "swe"]), "sweep");
    assert_eq!(complete("ulnet", &["ulnet", "sim", "sweep", "--resu"]), "--resume");
    assert_eq!(complete("ulnet", &["ulnet", "selftest", "new_s"]), "new_session");
    assert_eq!(complete("lnetd", &["lnetd", "--accept-f"]), "--accept-from");
    assert_eq!(complete("lst", &["lst", "new_s"]), "new_session");
    assert_eq!(complete("lst", &["lst", "new_session", "--for"]), "--force");
    assert_eq!(complete("lctl", &["lctl", "get_p"]), "get_param");
    assert_eq!(complete("lctl", &["lctl", "get_param", "--recu"]), "--recursive");
    assert_eq!(complete("routerstat", &["routerstat", "--soc"]), "--socket");
}

/// Whether a shell is installed; says on standard error if not.
fn is_there(shell: &str) -> bool {
    let there = Command::new(shell).args(["-c", "true"]).stdin(Stdio::null()).status().is_ok();
    if !there {
        netns::skipped(&format!("completions in {shell}"), "it is not installed");
    }
    there
}

/// A file with the completions for a shell, gone with it.
struct Script(std::path::PathBuf);

impl Script {
    fn of(shell: &str) -> Self {
        let o = Command::new(PROGRAM).args(["ctl", "completions", shell]).output().unwrap();
        let path = fresh::path(&format!("complete-{shell}"));
        fs::write(&path, &o.stdout).unwrap();
        Self(path)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn fish_completes_words_options_and_values() {
    if !is_there("fish") {
        return;
    }
    let script = Script::of("fish");
    let complete = |line: &str| {
        let ask = format!("source {}; complete -C '{line}'", script.0.display());
        let o = Command::new("fish").args(["--no-config", "-c", &ask]).output().unwrap();
        assert!(o.stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&o.stderr));
        let said = String::from_utf8_lossy(&o.stdout).into_owned();
        let words = said.lines().filter_map(|l| l.split('\t').next()).map(str::to_owned);
        words.collect::<Vec<_>>()
    };
    assert!(complete("lnetctl ").contains(&"doctor".to_owned()));
    assert_eq!(complete("lnetctl net a"), ["add"]);
    assert_eq!(complete("lnetctl net add --peer-c"), ["--peer-credits"]);
    assert_eq!(complete("lnetctl net add --if l"), ["lo"]);
    assert_eq!(complete("lnetctl fault drop add --message PU"), ["PUT"]);
    assert_eq!(complete("lnetctl completions z"), ["zsh"]);
}

/// What a line has become when the tab key was pressed at a real prompt, on a terminal that zsh makes
/// for itself.
const TAB: &str = r#"
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1=; autoload -Uz compinit; compinit -u -D; source $SCRIPT; compdef _lnetctl lnetctl
show() { zle complete-word; print -r -- "GOT:$BUFFER:END"; zle .kill-buffer }
zle -N show; bindkey "^I" show; print REA""DY'
while zpty -r z line; do [[ $line == *READY* ]] && break; done
zpty -w -n z "lnetctl $1"$'\t'
while zpty -r z line; do
    [[ $line == *GOT:*:END* ]] && { line=${line#*GOT:}; print -r -- "${line%:END*}"; break; }
done
zpty -d z
"#;

#[test]
fn zsh_completes_words_options_and_values() {
    if !is_there("zsh") {
        return;
    }
    let script = Script::of("zsh");
    for (typed, completed) in [
        ("net ad", "net add"),
        ("net add --peer-c", "net add --peer-credits"),
        ("net add --net tcp --if l", "net add --net tcp --if lo"),
        ("--socket /x net add --skip", "--socket /x net add --skip-mr-route-setup"),
        ("fault drop add --message PU", "fault drop add --message PUT"),
        ("completions z", "completions zsh"),
        ("doct", "doctor"),
    ] {
        let o = Command::new("timeout")
            .args(["60", "zsh", "-f", "-c", TAB, "tab", typed])
            .env("SCRIPT", &script.0)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let got = String::from_utf8_lossy(&o.stdout);
        assert_eq!(got.trim(), format!("lnetctl {completed}"), "{typed}");
    }
}
