//! Every recorded command against a stand-in that has the state of the recording.

use lnet_admin::{Ask, ClientError, Reply, Request};
use lnet_types::Errno;
use lnetctl::Session;

use super::rebuild::Recorded;
use super::vector::{FIXTURES, Vector, difference};
use super::verdict::{Verdict, list, needs_a_file, page};

/// What ours prints for a recorded command.
fn ours(vector: &Vector, words: &[String], strict: bool) -> (Vector, Vec<Request>) {
    let mut daemon = Recorded::from(vector);
    let mut session = Session::new(&mut daemon);
    session.strict = strict;
    let exit = lnetctl::run(&mut session, words) & 0xff;
    let (out, err) = (core::mem::take(&mut session.out), core::mem::take(&mut session.err));
    let got = Vector { out, err, exit, ..vector.clone() };
    (got, daemon.asked)
}

/// Where two outputs differ.
fn differences(recorded: &Vector, got: &Vector) -> Option<String> {
    if recorded.exit != got.exit {
        let (a, b) = (recorded.exit, got.exit);
        return Some(format!("exit code {b}, recorded {a}\n{}{}", got.out, got.err));
    }
    if recorded.out != got.out {
        return Some(format!("standard output, {}", difference(&recorded.out, &got.out)));
    }
    (recorded.err != got.err)
        .then(|| format!("standard error, {}", difference(&recorded.err, &got.err)))
}

#[test]
fn recorded_state_is_printed_to_the_byte() {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for (vector, verdict) in list() {
        let Some(words) = vector.words() else { continue };
        let equal = matches!(verdict, Verdict::Matched);
        if needs_a_file(&vector) || !equal {
            continue;
        }
        compared += 1;
        if let Some(difference) = differences(&vector, &ours(&vector, &words, false).0) {
            wrong.push(format!("{}: {difference}", vector.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 120, "only {compared} recordings were compared");
}

#[test]
fn a_hidden_mistake_is_an_error_and_silent_in_strict_compatibility() {
    let mut seen = 0;
    for (vector, verdict) in list() {
        let (Verdict::Strict(_), Some(words)) = (verdict, vector.words()) else { continue };
        seen += 1;
        let (strict, asked) = ours(&vector, &words, true);
        assert_eq!(differences(&vector, &strict), None, "{}", vector.name);
        assert_eq!(asked.len(), 1, "{}: strict compatibility goes on", vector.name);
        let (plain, asked) = ours(&vector, &words, false);
        assert_ne!(plain.exit, 0, "{}", vector.name);
        assert_eq!(plain.out, "", "{}", vector.name);
        let culprit = words.last().unwrap();
        let named = plain.err.contains(culprit.as_str())
            || plain.err.contains("values")
            || plain.err.contains("at least");
        assert!(named, "{}: {}", vector.name, plain.err);
        assert_eq!(asked, [], "{}: nothing is sent", vector.name);
    }
    assert_eq!(seen, 5);
}

#[test]
fn vectors_listed_as_different_differ() {
    for (vector, verdict) in list() {
        let (Verdict::Different(_), Some(words)) = (verdict, vector.words()) else {
            continue;
        };
        // These need the state of a live node to differ.
        let live = [
            "peer-show-final",
            "net-show-after-set",
            "import-del",
            "err-ping-timeout-unreachable",
            "err-net-set-absent-nid",
            "err-peer-set-absent",
        ];
        if live.contains(&vector.name.as_str()) || needs_a_file(&vector) {
            continue;
        }
        let got = ours(&vector, &words, false).0;
        assert!(differences(&vector, &got).is_some(), "{} is equal: say so", vector.name);
    }
}

#[test]
fn help_keeps_its_stream_and_its_exit_code() {
    let mut seen = 0;
    for (vector, verdict) in list() {
        let bare = ["err-set-noarg", "err-set-retry_count-noarg", "err-peer-add-no-arg"];
        // Recorded is an error in place of help.
        if vector.name == "help-service-id" {
            continue;
        }
        let asks = vector.name.starts_with("help-") || bare.contains(&vector.name.as_str());
        let (true, Verdict::Different(_), Some(words)) = (asks, verdict, vector.words()) else {
            continue;
        };
        seen += 1;
        let (got, asked) = ours(&vector, &words, false);
        assert_eq!(asked, [], "{}", vector.name);
        assert_eq!((got.exit, got.err.as_str()), (vector.exit, ""), "{}", vector.name);
        assert!(!got.out.is_empty(), "{}", vector.name);
    }
    assert!(seen > 20, "{seen}");
}

/// No daemon.
struct Absent(i32);

impl Ask for Absent {
    fn ask_within(&mut self, _: &Request, _: core::time::Duration) -> Result<Reply, ClientError> {
        Err(ClientError::Connect {
            path: "/run/x.sock".into(),
            source: std::io::Error::from_raw_os_error(self.0),
        })
    }
}

fn against_absent(errno: Errno, line: &str) -> (String, String, i32) {
    let mut daemon = Absent(errno.0);
    let mut session = Session::new(&mut daemon);
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let code = lnetctl::run(&mut session, &words) & 0xff;
    (session.out, session.err, code)
}

#[test]
fn g17_without_a_daemon_the_socket_is_named_once_and_the_errno_is_real() {
    let (out, err, code) = against_absent(Errno::ENOENT, "net show");
    let line = "lnetctl: cannot reach the daemon at /run/x.sock: No such file or directory\n";
    let document = "---\nshow:\n-     net:\n      errno: -2\n      descr: ! \"No such file or directory\"\n...\n";
    assert_eq!((out.as_str(), err, code), ("", format!("{line}{document}"), 254));
    for command in [
        "lnet configure",
        "lnet unconfigure",
        "net add --net tcp --if eth0",
        "net del --net tcp",
        "net set --all --health 1",
        "peer show",
        "peer list",
        "peer add --prim_nid 10.0.0.1@tcp",
        "peer del --prim_nid 10.0.0.1@tcp",
        "peer set --all --health 1",
        "set retry_count 1",
        "set numa_range 1",
        "ping 10.0.0.1@tcp",
        "discover 10.0.0.1@tcp",
        "global show",
        "stats show",
        "stats reset",
        "udsp add --src tcp",
        "udsp del --all",
        "udsp show",
        "fault drop add -s * -d * -r 1",
        "fault delay del -a",
        "fault drop show",
        "fault delay reset",
        "debug recovery --local",
        "explain 10.0.0.1@tcp",
        "explain --last 1",
        "export",
        "export --backup",
        "cpt-of-nid 10.0.0.1@tcp",
        "service-id",
    ] {
        let (out, err, code) = against_absent(Errno::ECONNREFUSED, command);
        assert_eq!((out.as_str(), code), ("", 145), "{command}");
        assert_eq!(err.matches("cannot reach the daemon").count(), 1, "{command}: {err}");
        assert_eq!(err.matches("errno: -111").count(), 1, "{command}: {err}");
    }
}

#[test]
fn the_page_of_transcripts_is_up_to_date() {
    let path = format!("{FIXTURES}/TRANSCRIPTS.md");
    if std::env::var_os("ULNET_BLESS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let (there, page) = (std::fs::read_to_string(&path).unwrap_or_default(), page());
    assert!(there == page, "ULNET_BLESS=1 writes it anew: {}", difference(&there, &page));
}
