//! C programs, compiled and run against both libraries as `packaging/libulnet` installs them: the example,
//! and one that checks what can be done right and wrong.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use netns::skipped;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const STRICT: [&str; 6] = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"];

/// An installation below a directory, gone with it.
struct Installed(PathBuf);

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Installed {
    fn new(name: &str) -> Self {
        let to = fresh::path(&format!("c-{name}"));
        // Beside this program are the libraries that it was built with.
        let build = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let mut install = Command::new(Path::new(ROOT).join("packaging/libulnet"));
        let output = install.arg(build).arg(&to).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(to)
    }

    /// Compiles a program of this crate.
    fn compile(&self, source: &str, linkage: &[String]) -> PathBuf {
        let name = Path::new(source).file_stem().unwrap();
        let program = self.0.join(name);
        let mut cc = Command::new("cc");
        cc.args(STRICT).arg("-D_POSIX_C_SOURCE=200809L").arg("-I").arg(self.0.join("include"));
        cc.arg(Path::new(HERE).join(source)).arg("-o").arg(&program).arg("-pthread").args(linkage);
        let output = cc.output().unwrap();
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
        program
    }

    fn shared(&self) -> Vec<String> {
        vec![format!("-L{}", self.0.join("lib").display()), "-lulnet".to_owned()]
    }

    /// The archive, with what the pkg-config file says it needs.
    fn archive(&self) -> Vec<String> {
        let pc = fs::read_to_string(self.0.join("lib/pkgconfig/ulnet.pc")).unwrap();
        let private = pc.lines().find_map(|l| l.strip_prefix("Libs.private: ")).unwrap();
        let archive = self.0.join("lib/libulnet.a").display().to_string();
        [archive].into_iter().chain(private.split_whitespace().map(str::to_owned)).collect()
    }

    fn run(&self, program: &Path) -> Output {
        self.run_with_log(program, None)
    }

    fn run_with_log(&self, program: &Path, level: Option<&str>) -> Output {
        let port = fresh::port();
        let mut run = Command::new(program);
        run.arg(port.to_string()).env("LD_LIBRARY_PATH", self.0.join("lib"));
        run.env_remove("ULNET_LOG").envs(level.map(|level| ("ULNET_LOG", level)));
        run.stdin(Stdio::null()).output().unwrap()
    }
}

/// Whether programs can be compiled here.
fn has(compiler: &str, what: &str) -> bool {
    let there = Command::new(compiler).arg("--version").output().is_ok();
    if !there {
        skipped(what, format_args!("no {compiler}"));
    }
    there
}

fn assert_ran(output: &Output, says: &str) {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    assert_eq!(out.trim_end(), says, "{err}");
}

const EXAMPLE_SAYS: &str = "\
alice: bob took 10 bytes
bob: \"hello, bob\" from 127.0.0.2@tcp, header data 42
alice: read \"a book on bob's shelf\"";

#[test]
fn the_example_runs_with_the_shared_library() {
    if has("cc", "the example in C") {
        let installed = Installed::new("example-so");
        let program = installed.compile("examples/put_get.c", &installed.shared());
        assert_ran(&installed.run(&program), EXAMPLE_SAYS);
        // Programs ask for the library by its numbered name.
        fs::remove_file(installed.0.join("lib/libulnet.so")).unwrap();
        assert_ran(&installed.run(&program), EXAMPLE_SAYS);
        fs::remove_file(installed.0.join("lib/libulnet.so.0")).unwrap();
        assert!(!installed.run(&program).status.success());
    }
}

#[test]
fn a_program_sees_the_log_lines_that_the_environment_asks_for() {
    if has("cc", "log lines in C") {
        let installed = Installed::new("log");
        let program = installed.compile("examples/put_get.c", &installed.shared());
        let lines = |level| {
            let output = installed.run_with_log(&program, level);
            assert_ran(&output, EXAMPLE_SAYS);
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        assert_eq!(lines(None), "");
        assert_eq!(lines(Some("off")), "");
        let warned = lines(Some("loud"));
        assert!(warned.contains("ulnet  WARN") && warned.contains("must be one of"), "{warned}");
    }
}

#[test]
fn the_example_runs_with_the_archive() {
    if has("cc", "the example in C") {
        let installed = Installed::new("example-a");
        let program = installed.compile("examples/put_get.c", &installed.archive());
        fs::remove_file(installed.0.join("lib/libulnet.so.0")).unwrap();
        assert_ran(&installed.run(&program), EXAMPLE_SAYS);
    }
}

#[test]
fn right_and_wrong_use_end_as_the_header_says() {
    if has("cc", "checks in C") {
        let installed = Installed::new("checks");
        let program = installed.compile("tests/c/checks.c", &installed.shared());
        assert_ran(&installed.run(&program), "all checks hold");
    }
}

#[test]
fn the_header_is_cxx_as_well() {
    if has("c++", "the header in C++") {
        let installed = Installed::new("cxx");
        let source = installed.0.join("only.cc");
        fs::write(&source, "#include <ulnet.h>\nint main() { return *ulnet_version() == 0; }\n")
            .unwrap();
        let program = installed.0.join("only");
        let mut cxx = Command::new("c++");
        cxx.args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-I"]);
        cxx.arg(installed.0.join("include")).arg(&source).arg("-o").arg(&program);
        let output = cxx.args(installed.shared()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_ran(&installed.run(&program), "");
    }
}

#[test]
fn pkg_config_names_the_installation() {
    if has("pkg-config", "the pkg-config file") {
        let installed = Installed::new("pkg-config");
        let ask = |args: &[&str]| {
            let mut ask = Command::new("pkg-config");
            ask.env("PKG_CONFIG_PATH", installed.0.join("lib/pkgconfig")).args(args).arg("ulnet");
            let output = ask.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(ask(&["--modversion"]), env!("CARGO_PKG_VERSION"));
        assert_eq!(ask(&["--cflags"]), format!("-I{}/include", installed.0.display()));
        assert_eq!(ask(&["--libs"]), format!("-L{}/lib -lulnet", installed.0.display()));
        assert!(ask(&["--libs", "--static"]).contains("-lpthread"));
    }
}

#[test]
fn the_manual_page_names_every_entry_and_event() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/man/libulnet.3")).unwrap();
    let header = fs::read_to_string(Path::new(HERE).join("include/ulnet.h")).unwrap();
    let words = header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut seen = 0;
    let mut missing: Vec<&str> = words
        .filter(|word| word.starts_with("ulnet_") || word.starts_with("ULNET_"))
        .filter(|word| *word != "ULNET_H" && *word != "ULNET_STAGE_" && *word != "ULNET_ATTACH_")
        .inspect(|_| seen += 1)
        .filter(|word| !page.contains(*word))
        .collect();
    missing.sort_unstable();
    missing.dedup();
    assert!(seen > 100, "only {seen} names in the header");
    assert!(missing.is_empty(), "not in docs/man/libulnet.3: {missing:?}");
}
