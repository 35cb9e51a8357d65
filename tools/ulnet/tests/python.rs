//! The Python package: a wheel is built as `python/` says, and its own tests are run with it and with this
//! program. Where Python, maturin or the crates that it needs are missing, that is said.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use netns::skipped;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python");
const WHAT: &str = "the Python package";

/// Where it is built, kept from run to run.
fn place() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("python")
}

/// Runs a command to its end; what it says if it fails.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(out.into_owned()) } else { Err(format!("{out}{err}")) }
}

fn python(args: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(args);
    command
}

/// maturin: the one that is installed, else one that pip fetches.
fn maturin() -> Result<OsString, String> {
    if run(Command::new("maturin").arg("--version")).is_ok() {
        return Ok("maturin".into());
    }
    let tools = place().join("tools");
    let fetched = tools.join("bin/maturin");
    if !fetched.exists() {
        let mut pip = python(&["-m", "pip", "install", "--quiet", "--target"]);
        let said = run(pip.arg(&tools).arg("maturin>=1.7,<2"));
        said.map_err(|e| format!("no maturin, and pip can't fetch it: {e}"))?;
    }
    Ok(fetched.into())
}

/// What is needed to build it; else why not.
fn tools() -> Result<OsString, String> {
    let old = "import sys; sys.exit(sys.version_info < (3, 9))";
    run(&mut python(&["-c", old])).map_err(|e| format!("no python3 from 3.9 on {e}"))?;
    let mut fetch = Command::new(env!("CARGO"));
    fetch.args(["fetch", "--manifest-path"]).arg(Path::new(PACKAGE).join("Cargo.toml"));
    run(&mut fetch).map_err(|e| format!("its crates can't be fetched: {e}"))?;
    maturin()
}

#[test]
fn the_wheel_is_built_and_its_tests_pass() {
    let maturin = match tools() {
        Ok(maturin) => maturin,
        Err(why) => return skipped(WHAT, why.trim()),
    };
    let (place, wheels) = (place(), place().join("wheels"));
    let _ = fs::remove_dir_all(&wheels);
    let mut build = Command::new(maturin);
    build.current_dir(PACKAGE).env("CARGO_TARGET_DIR", &place);
    build.args(["build", "--profile", "dev", "--compatibility", "linux", "--out"]);
    run(build.arg(&wheels)).unwrap_or_else(|e| panic!("{e}"));
    let built: Vec<_> = fs::read_dir(&wheels).unwrap().map(|e| e.unwrap().path()).collect();
    let [wheel] = built.as_slice() else { panic!("expected one wheel: {built:?}") };
    // One for all versions of Python.
    assert!(wheel.to_string_lossy().contains("-cp39-abi3-"), "{}", wheel.display());

    let installed = wheels.join("installed");
    let mut unpack = python(&["-m", "zipfile", "-e"]);
    run(unpack.arg(wheel).arg(&installed)).unwrap_or_else(|e| panic!("{e}"));
    let mut tests =
        python(&["-B", "-W", "error", "-m", "unittest", "discover", "-t", ".", "tests"]);
    tests.env("PYTHONPATH", &installed).env("ULNET", PROGRAM);
    // Beside the package's sources, whose directory of its name would be found first.
    let copy = place.join("checkout");
    let _ = fs::remove_dir_all(&copy);
    for below in ["tests", "examples"] {
        fs::create_dir_all(copy.join(below)).unwrap();
        for entry in fs::read_dir(Path::new(PACKAGE).join(below)).unwrap() {
            let from = entry.unwrap().path();
            if from.is_file() {
                fs::copy(&from, copy.join(below).join(from.file_name().unwrap())).unwrap();
            }
        }
    }
    let mut tests = tests.current_dir(&copy).spawn().unwrap();
    assert!(tests.wait().unwrap().success(), "the tests of the package fail: see above");
}

#[test]
fn the_package_has_the_version_and_licence_of_the_workspace() {
    let root = fs::read_to_string(Path::new(PACKAGE).join("../Cargo.toml")).unwrap();
    let here = fs::read_to_string(Path::new(PACKAGE).join("Cargo.toml")).unwrap();
    for field in ["version = ", "edition = ", "rust-version = ", "license = "] {
        let line = |text: &str| text.lines().find(|l| l.starts_with(field)).map(str::to_owned);
        assert!(line(&root).is_some() && line(&root) == line(&here), "{field}");
    }
}
