//! The container: what its recipe names is there, and a static program runs as a node in a root
//! directory that holds nothing but what the last stage of the recipe does.
//!
//! `ULNET_STATIC` names the program that `packaging/static` has built; without it that part is skipped.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const RECIPE: &str = include_str!("../../../packaging/Containerfile");
const PATIENCE: Duration = Duration::from_secs(30);

/// The names of the program, as the recipe links them.
fn links() -> Vec<&'static str> {
    let line = RECIPE.lines().find(|line| line.contains("for name in ")).unwrap();
    let names = line.split("for name in ").nth(1).unwrap();
    names.split(';').next().unwrap().split_whitespace().collect()
}

#[test]
fn the_recipe_builds_by_the_script_and_links_every_name_that_the_package_has() {
    assert!(RECIPE.contains("$(packaging/static)"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/static");
    assert!(fs::read_to_string(script).unwrap().contains("+crt-static"));
    let package = include_str!("../../../packaging/tree");
    assert!(package.contains(&format!("for name in {}; do", links().join(" "))));
    let main = include_str!("../src/main.rs");
    for name in links() {
        assert!(main.contains(&format!("(\"{name}\", \"")), "{name}");
    }
}

/// A root directory with nothing in it but what the container has.
struct Root {
    dir: PathBuf,
    daemon: Option<Child>,
}

impl Root {
    fn new(program: &Path) -> Self {
        let dir = fresh::path("scratch");
        for below in ["usr/sbin", "run/ulnet", "etc/ulnet"] {
            fs::create_dir_all(dir.join(below)).unwrap();
        }
        fresh::copy_program(program, dir.join("usr/sbin/ulnet"));
        for name in links() {
            symlink("ulnet", dir.join("usr/sbin").join(name)).unwrap();
        }
        Self { dir, daemon: None }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("chroot");
        command
            .arg(&self.dir)
            .arg(Path::new("/usr/sbin").join(program))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().unwrap());
        command.args(words).env("ULNET_SOCKET", "/run/ulnet/lnetd.sock").output().unwrap()
    }

    fn says(&self, line: &str) -> String {
        let o = self.run(line);
        let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
        assert!(o.status.success(), "{line}: {} {out}{err}", o.status);
        out.into_owned()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn a_static_program_is_a_node_where_there_is_nothing_else() {
    let what = "a static program in an empty root directory";
    let Some(program) = std::env::var_os("ULNET_STATIC").map(PathBuf::from) else {
        return netns::skipped(what, "packaging/static builds one, and ULNET_STATIC names it");
    };
    if !Command::new("chroot").args(["/", "/bin/true"]).output().is_ok_and(|o| o.status.success()) {
        return netns::skipped(what, "it needs root and chroot");
    }
    let mut root = Root::new(&program);
    let port = fresh::port();
    let config = "net:\n- net type: tcp\n  local NI(s):\n  - interfaces: {0: lo}\n";
    fs::write(root.dir.join("etc/ulnet/node.yaml"), config).unwrap();
    let daemon = root
        .command("lnetd")
        .args(["-q", "--config", "/etc/ulnet/node.yaml", "--socket", "/run/ulnet/lnetd.sock"])
        .args(["--port", &port.to_string()])
        .spawn()
        .unwrap();
    root.daemon = Some(daemon);
    let begun = Instant::now();
    while !root.run("lnetctl net show").status.success() {
        assert!(begun.elapsed() < PATIENCE, "no daemon: {:?}", root.run("lnetctl net show"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(root.says("lnetctl net show").contains("nid: 127.0.0.1@tcp"));
    assert!(root.says("lnetctl ping 127.0.0.1@tcp").contains("primary nid: 127.0.0.1@tcp"));
    assert!(root.says("lnetctl export --backup").contains("0: lo"));
    assert_eq!(root.says("lctl list_nids"), "127.0.0.1@tcp\n");
    assert!(root.says("routerstat").starts_with('M'));
    assert!(root.says("lst --list-commands").contains("new_session"));
    // Names of hosts are looked up by what is linked in: there is a file, there is no server.
    fs::write(root.dir.join("etc/hosts"), "127.0.0.1 here\n").unwrap();
    assert!(root.says("lnetctl ping here@tcp").contains("primary nid: 127.0.0.1@tcp"));
    let o = root.run("lnetctl ping no-such-host.invalid@tcp");
    assert_eq!(o.status.code(), Some(234), "{o:?}");
}
