//! The two examples as a user runs them, with the server killed in the middle.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::io::{BufRead as _, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Examples stand beside the tests; `cargo test -p lustre-rt` makes both.
fn example(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.is_file(), "{}: cargo build -p lustre-rt --examples", path.display());
    path
}

/// A process that ends with the test.
struct Running(Child, Lines<BufReader<ChildStdout>>);

impl Running {
    fn start(name: &str, args: &[&str]) -> Self {
        let mut child =
            Command::new(example(name)).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self(child, lines)
    }

    fn wait_for(&mut self, what: &str) {
        let line = self.1.by_ref().map_while(Result::ok).find(|line| line == what);
        assert!(line.is_some(), "it never said '{what}'");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_block_is_stored_once_although_the_server_is_killed() {
    let dir = std::env::temp_dir().join(format!("ulnet-shelf-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let args = ["127.87.0.1", "7987", dir.to_str().unwrap()];
    let mut server = Running::start("rpc_server", &args);
    server.wait_for("serving");
    let client = ["127.87.0.2", "7987", "127.87.0.1@tcp", "20"];
    let mut client = Running::start("rpc_client", &client);
    client.wait_for("block 5");
    // SIGKILL: nothing is written any more.
    drop(server);
    server = Running::start("rpc_server", &args);
    server.wait_for("serving");
    client.wait_for("block 19");
    assert!(client.0.wait().unwrap().success());
    drop(server);
    std::fs::remove_dir_all(&dir).unwrap();
}
