//! Progress of `ulnet lustre`: on a terminal each command that takes longer than a second shows how far it is, and
//! nothing of it is left; a pipe gets none.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use crate::stage::Stage;

/// What a command prints on a terminal.
fn on_terminal(stage: &Stage, last: u8, words: &[&str], behind: &str) -> String {
    let command = stage.command_at(last, words);
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    let line: Vec<&str> = all.map(|word| word.to_str().unwrap()).collect();
    let line = format!("{} {behind}", line.join(" "));
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]).current_dir(&stage.dir);
    for (name, value) in command.get_envs() {
        terminal.env(name, value.unwrap());
    }
    let o = terminal.stdin(Stdio::null()).output().unwrap();
    let out = String::from_utf8(o.stdout).unwrap();
    assert!(o.status.success(), "{words:?}: {out:?}");
    out
}

#[test]
fn commands_that_take_long_show_progress_on_a_terminal_alone() {
    if Command::new("script").arg("--version").output().is_err() {
        return netns::skipped("progress on a terminal", "there is no script");
    }
    let stage = Stage::new("progress", "127.75", |_| ());
    for name in ["d/in", "e", "g", "h"] {
        fs::create_dir_all(stage.dir.join(name)).unwrap();
        fs::write(stage.dir.join(name).join("f"), "some").unwrap();
    }
    stage.ok(&["cp", "-r", "./d", "./e", "./g", "./h", "/"]);
    stage.delay();
    let verbs: [(&[&str], &str); 7] = [
        (&["du", "-s", "/d"], "looked at"),
        (&["find", "/d", "-size", "+0"], "looked at"),
        (&["chmod", "-R", "700", "/d"], "changed"),
        (&["chown", "-R", "0", "/d"], "changed"),
        (&["mv", "/g", "/h", "/d/in"], "moved"),
        (&["rm", "-r", "/e"], "removed"),
        (&["cp", "./d/in/f", "/copy"], "files"),
    ];
    let blank = format!("\r{:60}\r", "");
    thread::scope(|scope| {
        for (last, (words, says)) in (3..).zip(verbs) {
            let (stage, blank) = (&stage, &blank);
            scope.spawn(move || {
                let out = on_terminal(stage, last, words, "");
                assert!(out.contains(" s ") && out.contains('\r'), "{words:?}: {out:?}");
                assert!(out.contains(says) || out.contains("waiting"), "{words:?}: {out:?}");
                let last = out.rfind(" s ").unwrap();
                assert!(out[last..].contains(blank.as_str()), "{words:?}: {out:?}");
            });
        }
    });
    // A pager has the terminal.
    let out = on_terminal(&stage, 2, &["find", "/d", "-size", "+0"], "| cat");
    assert!(out.contains("/d/in/f") && !out.contains(" s "), "{out:?}");
    let o = stage.command(&["find", "/d", "-size", "+0"]).output().unwrap();
    assert!(o.stderr.is_empty() && !o.stdout.contains(&b'\r'), "{o:?}");
    assert!(String::from_utf8(o.stdout).unwrap().contains("/d/in/f\n"));
}
