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
