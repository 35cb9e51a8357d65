//! `ulnet sim run`, as it is called.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::process::{Command, Output};

fn ulnet(args: &[&str]) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Command::new(env!("CARGO_BIN_EXE_ulnet")).current_dir(root).args(args).output().unwrap()
}

#[test]
fn a_scenario_is_played_and_its_bars_decide_the_exit_status() {
    let out = ulnet(&["sim", "run", "scenarios/carrier-down.toml"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{text}");
    assert!(text.contains("*** carrier (line"), "{text}");
    assert!(text.contains("0 failed"), "{text}");
    let held = "bars held    errors, duplicates, stall_max, recovery_max\n";
    assert!(text.ends_with(held), "{text}");

    let dir = fresh::path("sim");
    std::fs::create_dir_all(&dir).unwrap();
    let strict = dir.join("strict.toml");
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scenarios/carrier-down.toml"
    ));
    let text = text.unwrap().replace("errors = 0", "errors = 0\ncompleted = 100000000");
    std::fs::write(&strict, text).unwrap();
    let out = ulnet(&["sim", "run", strict.to_str().unwrap(), "--seed", "3", "--json"]);
    assert_eq!(out.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(document["seed"], 3);
    let missed = document["missed"].as_array().unwrap();
    let of_ours = |m: &serde_json::Value| m.as_str().unwrap().starts_with("completed:");
    assert!(missed.iter().any(of_ours), "{document}");
    let held = document["held"].as_array().unwrap();
    assert!(held.contains(&"errors".into()) && !held.contains(&"completed".into()), "{document}");
    assert!(document["replay"].as_str().unwrap().ends_with("--seed 3"), "{document}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn bars_of_a_scenario_hold_with_other_seeds_too() {
    let out = ulnet(&["sim", "sweep", "scenarios/carrier-down.toml", "--seeds", "3"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{text}");
    assert!(text.contains("3/3"), "{text}");
}

#[test]
fn an_invalid_scenario_is_reported_with_its_line() {
    let dir = fresh::path("sim-bad");
    std::fs::create_dir_all(&dir).unwrap();
    let bad = dir.join("bad.toml");
    std::fs::write(&bad, "name = \"bad\"\nduration = \"-3s\"\n").unwrap();
    let out = ulnet(&["sim", "run", bad.to_str().unwrap()]);
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2), "{error}");
    assert!(error.contains("bad.toml:2:12: duration is \"-3s\": expected a time"), "{error}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_swarm_says_what_it_played_and_finds_out_first_whether_it_can_write() {
    let dir = fresh::path("sim-swarm");
    let new = dir.join("not/there/yet");
    let swarm = |out: &std::path::Path| {
        let out = out.to_str().unwrap();
        ulnet(&["sim", "swarm", "--minutes", "0.0001", "--seed", "1", "--out", out])
    };
    let out = swarm(&new);
    let printed = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{printed}");
    assert!(
        printed.starts_with("swarm        seed 1, shard 1/1\nplayed       1 rounds in "),
        "{printed}"
    );
    assert!(new.is_dir());

    let file = dir.join("file");
    std::fs::write(&file, "").unwrap();
    let out = swarm(&file.join("below"));
    let error = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), out.stdout.is_empty()), (Some(2), true), "{error}");
    assert!(error.contains("file/below: can't make this folder"), "{error}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_swarm_prints_one_document_when_json_is_asked_for() {
    let read = |more: &[&str]| -> serde_json::Value {
        let out =
            ulnet(&[&["sim", "swarm", "--floor", "rpc", "--seed", "1", "--json"], more].concat());
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let all = read(&["--minutes", "0.0001"]);
    assert_eq!(
        (&all["seed"], &all["rounds"], &all["floor"]),
        (&1.into(), &1.into(), &"rpc".into())
    );
    assert_eq!((&all["holds"], &all["violations"]), (&true.into(), &serde_json::json!([])));
    let one = read(&["--one"]);
    assert_eq!((&one["seed"], &one["violation"]), (&1.into(), &serde_json::Value::Null));
    assert!(one["scenario"].as_str().unwrap().contains("[[target]]"), "{one}");
    assert!(one["summary"]["rpc"]["answered"].as_u64().unwrap() > 0, "{one}");
}

#[test]
fn paper_writes_a_page_with_its_tables_and_time_lines() {
    let dir = fresh::path("paper");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("paper.html");
    let html = ["--html", file.to_str().unwrap()];
    let out = ulnet(&[&["sim", "paper", "locks"][..], &html[..]].concat());
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{text}");
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("lost AST, ast_resend 0: evicted after"), "{page}");
    assert!(page.contains(" s: holder evicted") && page.contains(" s: lock granted"), "{page}");

    let out = ulnet(
        &[&["sim", "paper", "cabinets", "--clients", "8", "--jobs", "2"][..], &html[..]].concat(),
    );
    let text = String::from_utf8(out.stdout).unwrap();
    for line in
        ["nineteen cabinets: 8 clients and 5 that crash, 4 routers", "the paper measured 140 s"]
    {
        assert!(text.contains(line), "{text}");
    }
    for arm in ["A", "B", "C", "D"] {
        assert!(text.contains(&format!("two quiesces, {arm}, 1 ")), "{text}");
    }
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("two quiesces, seed 1: connections that are lost"), "{page}");

    let one = ["--clients", "8", "--arm", "c", "--event", "link-event"];
    let out = ulnet(&[&["sim", "paper", "cabinets"][..], &one[..], &html[..]].concat());
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{text}");
    let plays = text.lines().filter(|line| line.contains(", C, 1 ") || line.contains(", A, "));
    assert_eq!(plays.count(), 1, "{text}");
    assert!(!text.contains("a router dies"), "{text}");
    for (option, value, expected) in [
        ("--arm", "E", "expected A, B, C or D"),
        ("--event", "quiesce", "expected router-dies, router-far-side or link-event"),
    ] {
        let out = ulnet(&["sim", "paper", "cabinets", option, value]);
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.code() == Some(2) && text.contains(expected), "{text}");
    }

    // A table of another form has a line above its columns.
    let text = String::from_utf8(ulnet(&["sim", "paper", "loss"]).stdout).unwrap();
    let head: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(head.first(), Some(&"loss: calls while a share of all messages is lost"), "{text}");
    assert!(head.get(1).is_some_and(|line| line.starts_with("lost  calls/s")), "{text}");

    let nowhere = ["sim", "paper", "tuning", "--html", "/no/such/dir/x.html"];
    let out = ulnet(&nowhere);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8(out.stderr).unwrap().contains("can't write /no/such/dir/x.html"));
    std::fs::remove_dir_all(dir).unwrap();
}
