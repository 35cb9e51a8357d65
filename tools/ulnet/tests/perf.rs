//! `ulnet perf` as it is run: two processes over loopback. Nothing here looks at a figure but to see
//! that there is one.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::process::Command;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ulnet");

fn port() -> String {
    fresh::port().to_string()
}

#[test]
fn calls_and_bulk_data_are_measured_beside_puts_and_gets_of_the_same_stacks() {
    for way in [&["--inline"][..], &[]] {
        let mut command = Command::new(PROGRAM);
        command.args(["perf", "rpc", "--json", "--seconds", "0.05", "--size", "5M", "--port"]);
        let output = command.arg(port()).args(way).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let table: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = table["rows"].as_array().unwrap();
        let of = |row: &Value| (row["what"].as_str().unwrap().to_owned(), row["size"].as_u64());
        let found: Vec<_> = rows.iter().map(of).collect();
        let expected = [("round-trip", 0), ("rate", 0), ("write", 5 << 20), ("read", 5 << 20)];
        assert_eq!(found, expected.map(|(what, size)| (what.to_owned(), Some(size))));
        for row in rows {
            assert!(row["per_second"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["ratio"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn a_size_that_is_too_large_is_refused_by_name() {
    let output = Command::new(PROGRAM).args(["perf", "rpc", "--size", "17M"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("size '17M': expected 1 to 16M bytes"), "{said}");
}

#[test]
fn what_an_rdma_network_lacks_is_named() {
    for (words, what) in [
        ("client --net o2ib", "net o2ib: expected --if or --addr: RDMA has no loopback addresses"),
        ("client --net o2ib --addr 127.0.0.1", "interface at 127.0.0.1"),
        ("client --net o2ib --addr 127.0.0.1 --bare", "--bare: expected a tcp network, not o2ib"),
        ("local --net o2ib --if lo", "--if: expected the server's interface and the client's"),
        ("local --net o2ib --if lo,lo --baseline", "--baseline: expected a tcp network, not o2ib"),
    ] {
        let words = words.split_whitespace();
        let output = Command::new(PROGRAM).arg("perf").args(words.clone()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(what), "{words:?}: {said}");
    }
}

#[test]
fn interfaces_are_named_instead_of_addresses() {
    let port = port();
    let mut server = Command::new(PROGRAM)
        .args(["perf", "server", "--if", "lo", "--port", &port, "--until-eof"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(server.stdout.as_mut().unwrap()),
        &mut line,
    )
    .unwrap();
    let client = ["perf", "client", "--server", "127.0.0.1", "--test", "put", "--size", "8"];
    let output = Command::new(PROGRAM)
        .args(client)
        .args(["--seconds", "0.05", "--json", "--port", &port])
        .output()
        .unwrap();
    drop(server.stdin.take());
    server.wait().unwrap();
    assert_eq!(line, "ready 127.0.0.1@tcp\n");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
