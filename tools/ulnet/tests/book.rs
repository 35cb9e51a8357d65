//! The pages of the book (`docs/book`) and the README, tried: what a page tells the reader to type is typed, and what
//! it says comes out must come out.
//!
//! A block fenced as `console` holds commands behind `$ ` (continued behind `> `) and, below each, what
//! it prints on both streams. `…` in a line stands for anything, a line of it alone for any lines. All
//! blocks of a page are one session of bash in a directory of its own, with the programs under their
//! names in the path; every command must succeed. Port 7988 is another one in each test, so pages are
//! tried side by side. With `ULNET_BLESS=1` a page is given what came out where that is not what it
//! says: read the difference.
//!
//! Blocks fenced as `rust` are tests of the documentation of `lnet-rt`, which includes the page.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lnet_admin::{Ask as _, Client, Reply, Request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The page of the repository itself.
const README: &str = "README";
/// What the pages call their port.
const PORT: &str = "7988";
/// Longer than any page takes; what hangs ends here.
const LIMIT: &str = "120";
/// Stands before what each command has printed, with its exit status.
const MARK: &str = "\u{1}done ";

/// A command, and what the page says it prints.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    /// Where it begins: a line of the page, from 0.
    line: usize,
    command: String,
    /// Where what it prints begins, and its lines.
    prints_at: usize,
    prints: Vec<String>,
}

fn page(name: &str) -> PathBuf {
    let dir = if name == README { "" } else { "docs/book" };
    Path::new(ROOT).join(dir).join(format!("{name}.md"))
}

/// The commands of a page, in their order.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // Within a block: whether a command of it was seen.
    let mut inside = None;
    for (n, line) in text.lines().enumerate() {
        match (inside, line) {
            (None, "```console") => inside = Some(false),
            (Some(_), "```") => inside = None,
            (Some(_), _) if line.starts_with("$ ") => {
                let command = line[2..].to_owned();
                steps.push(Step { line: n, command, prints_at: n + 1, prints: Vec::new() });
                inside = Some(true);
            }
            (Some(true), _) => {
                let step = steps.last_mut().unwrap();
                match line.strip_prefix("> ") {
                    Some(more) if step.prints.is_empty() => {
                        step.command += "\n";
                        step.command += more;
                        step.prints_at = n + 1;
                    }
                    _ => step.prints.push(line.to_owned()),
                }
            }
            (Some(false), _) => panic!("line {}: a block begins with a command", n + 1),
            (None, _) => {}
        }
    }
    steps
}

/// The commands as one session, exactly as they stand: after each a mark with its exit status.
fn script(steps: &[Step]) -> String {
    let mut script = "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n".to_owned();
    for step in steps {
        let _ = writeln!(script, "{}", step.command);
        let _ = writeln!(script, "printf '{MARK}%s\\n' $?");
    }
    script
}

/// Ends the daemons that a page has left in the background: those that answer at a socket in its
/// directory.
fn end_daemons(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "sock") {
            continue;
        }
        let Ok(mut client) = Client::connect(&path) else { continue };
        if let Ok(Reply::Status(status)) = client.ask(&Request::Status) {
            let ended = Command::new("kill").arg(status.pid.to_string()).status();
            assert!(ended.unwrap().success());
        }
    }
}

/// Whether a line is what the page says, with `…` for anything.
fn is_like(says: &str, line: &str) -> bool {
    let mut parts = says.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Whether the lines are what the page says, with a line `…` for any lines.
fn are_like(says: &[String], lines: &[&str]) -> bool {
    let Some((first, more)) = says.split_first() else { return lines.is_empty() };
    if first.trim() == "…" {
        return (0..=lines.len()).any(|n| are_like(more, &lines[n..]));
    }
    lines.split_first().is_some_and(|(line, rest)| is_like(first, line) && are_like(more, rest))
}

/// Runs a page, and says what does not come out as it says.
fn tried(name: &str) {
    let path = page(name);
    let text = fs::read_to_string(&path).unwrap();
    let steps = steps(&text);
    let code = text.contains("\n```rust\n");
    assert!(code || !steps.is_empty(), "{}: nothing in it is tried", path.display());
    let dir = fresh::path(&format!("book-{name}"));
    let bin = dir.join("bin");
    fs::create_dir_all(&bin).unwrap();
    for program in ["ulnet", "lnetd", "lnetctl", "lctl", "lst", "routerstat"] {
        symlink(PROGRAM, bin.join(program)).unwrap();
    }
    let root = fs::canonicalize(ROOT).unwrap();
    for place in ["scenarios", "README.md"] {
        symlink(root.join(place), dir.join(place)).unwrap();
    }
    let port = fresh::port().to_string();
    let typed = format!("exec 2>&1\n{}", script(&steps)).replace(PORT, &port);
    fs::write(bin.join("typed"), typed).unwrap();
    let output = Command::new("timeout")
        .args([LIMIT, "bash", "bin/typed"])
        .current_dir(&dir)
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .env_remove("ULNET_SOCKET")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    end_daemons(&dir);
    let _ = fs::remove_dir_all(&dir);
    let printed = String::from_utf8_lossy(&output.stdout).replace(&port, PORT);
    let mut outcomes = Vec::new();
    let mut lines = Vec::new();
    for line in printed.lines() {
        match line.split_once(MARK) {
            Some((before, code)) => {
                lines.extend((!before.is_empty()).then_some(before));
                outcomes.push((core::mem::take(&mut lines), code));
            }
            None => lines.push(line),
        }
    }
    let mut wrong = String::new();
    let mut new: Vec<String> = text.lines().map(str::to_owned).collect();
    for (n, step) in steps.iter().enumerate().rev() {
        let (line, command) = (step.line + 1, &step.command);
        let Some((lines, code)) = outcomes.get(n) else {
            let _ = writeln!(wrong, "line {line}: never came to: {command}\n{}", lines.join("\n"));
            continue;
        };
        if *code != "0" {
            let _ = writeln!(wrong, "line {line}: exit status {code}: {command}");
        }
        if !are_like(&step.prints, lines) {
            let says = step.prints.join("\n");
            let _ =
                writeln!(wrong, "line {line}: {command}\n{}\n-- page:\n{says}", lines.join("\n"));
            let end = step.prints_at + step.prints.len();
            new.splice(step.prints_at..end, lines.iter().map(|l| (*l).to_owned()));
        }
    }
    if std::env::var_os("ULNET_BLESS").is_some() && !wrong.is_empty() {
        fs::write(&path, new.join("\n") + "\n").unwrap();
    }
    assert!(wrong.is_empty(), "{}:\n{wrong}", path.display());
}

/// A test for each page.
macro_rules! pages {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                tried($name);
            }
        )*

        #[test]
        fn every_page_is_tried_and_is_in_the_index() {
            let index = fs::read_to_string(Path::new(ROOT).join("docs/README.md")).unwrap();
            let mut tested = [$($name),*];
            tested.sort_unstable();
            let mut pages: Vec<String> = fs::read_dir(Path::new(ROOT).join("docs/book"))
                .unwrap()
                .map(|e| e.unwrap().path())
                .map(|p| p.file_stem().unwrap().to_string_lossy().into_owned())
                .collect();
            pages.sort();
            assert_eq!(pages, tested);
            for page in pages {
                assert!(index.contains(&format!("(book/{page}.md)")), "{page} is not in the index");
            }
        }
    };
}

pages! {
    five_minutes_are_enough_to_start: "start";
    the_operating_page_shows_the_real_output: "operating";
    the_multi_rail_page_shows_the_real_output: "multi-rail";
    the_health_page_shows_the_real_output: "health";
    the_routing_page_shows_the_real_output: "routing";
    the_policies_page_shows_the_real_output: "policies";
    the_faults_page_shows_the_real_output: "faults";
    the_simulation_page_shows_the_real_output: "simulation";
    the_kernel_nodes_page_shows_the_real_output: "kernel-nodes";
    the_rpc_page_shows_the_real_output: "rpc";
    the_locks_page_shows_the_real_output: "locks";
    the_objects_page_shows_the_real_output: "objects";
    the_lustre_page_shows_the_real_output: "lustre";
    the_tuning_page_shows_the_real_output: "tuning";
    the_wire_page_shows_the_real_output: "wire";
    the_library_page_shows_the_real_output: "library";
}

#[test]
fn the_readme_shows_the_real_output() {
    tried(README);
}

#[test]
fn rust_of_a_page_is_compiled_with_the_library() {
    let lib = fs::read_to_string(Path::new(ROOT).join("host/lnet-rt/src/lib.rs")).unwrap();
    for entry in fs::read_dir(Path::new(ROOT).join("docs/book")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let included = lib.contains(&format!("docs/book/{name}"));
        assert_eq!(fs::read_to_string(&path).unwrap().contains("\n```rust\n"), included, "{name}");
    }
}

#[test]
fn the_output_blocks_of_a_page_are_compared_with_the_output() {
    let text = "# x\n```console\n$ a \\\n> b\none\n…\nlast …!\n$ c\n```\n$ no command\n";
    let got = steps(text);
    let lines = |all: &[&str]| all.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
    let prints = lines(&["one", "…", "last …!"]);
    let first = Step { line: 2, command: "a \\\nb".to_owned(), prints_at: 4, prints };
    let second = Step { line: 7, command: "c".to_owned(), prints_at: 8, prints: Vec::new() };
    assert_eq!(got, [first, second]);
    assert!(are_like(&got[0].prints, &["one", "last word!"]));
    assert!(are_like(&got[0].prints, &["one", "two", "three", "last !"]));
    for other in [&["one"][..], &["one", "last word"], &["two", "last !"], &["one", "last !", "x"]]
    {
        assert!(!are_like(&got[0].prints, other), "{other:?}");
    }
    assert!(is_like("a … b … c", "a 1 b 2 c") && !is_like("a … b … c", "a 1 2 c"));
    assert!(!is_like("exact", "exactly") && is_like("", ""));
}
