//! What the `lst` commands behind the selftest captures were, for a console of ours.

use std::thread;
use std::time::Duration;

use lnet_selftest::{Answer, Brw, Check, Command, Kind, Report, Target, TestSpec};
use lnetd::selftest::Selftest;

const KEY: u32 = 4242;
const LIMIT: Duration = Duration::from_secs(60);

fn order(lst: &Selftest, command: Command) -> Answer {
    let shown = format!("{command:?}");
    lst.command(KEY, command, LIMIT).unwrap_or_else(|e| panic!("{shown}: {e}"))
}

/// A new session: A is client, `server` server, a batch with `kinds` as its tests, `repeat` times
/// each; and off it goes.
fn begin(lst: &Selftest, server: &str, kinds: &[Kind], repeat: u32) {
    let new =
        Command::NewSession { name: "gold".to_owned(), timeout_s: 300, force: false, features: 1 };
    order(lst, new);
    for (name, nid) in [("clients", "10.77.0.2@tcp"), ("servers", server)] {
        order(lst, Command::AddGroup { name: name.to_owned() });
        let nids = vec![nid.parse().expect("a NID")];
        order(lst, Command::AddNodes { group: name.to_owned(), nids });
    }
    order(lst, Command::AddBatch { name: "b1".to_owned() });
    for kind in kinds {
        let spec = TestSpec {
            batch: "b1".to_owned(),
            from: "clients".to_owned(),
            to: "servers".to_owned(),
            repeat: Some(repeat),
            concurrency: 1,
            clients: 1,
            servers: 1,
            kind: *kind,
        };
        order(lst, Command::AddTest(spec));
    }
    order(lst, Command::Run { batch: "b1".to_owned(), timeout_s: 0 });
}

/// Waits for the batch, asks the server for its counters so many times, and the session is over.
fn end(lst: &Selftest, stats: u32) {
    loop {
        let batch = "b1".to_owned();
        let query = Command::Query { batch, test: 0, server: false, timeout_s: 5 };
        let Answer::Nodes(nodes) = order(lst, query) else { panic!("nodes were asked") };
        if nodes.iter().all(|n| n.outcome == Ok(Report::Active(0))) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..stats {
        let target = Target::Group("servers".to_owned());
        order(lst, Command::Stat { target, timeout_s: 5 });
    }
    order(lst, Command::EndSession);
}

/// A session from its beginning to its end, with the server next door.
fn session(lst: &Selftest, kind: Kind, repeat: u32) {
    begin(lst, "10.77.0.3@tcp", &[kind], repeat);
    end(lst, 1);
}

const fn brw(write: bool, size: u32, check: Check) -> Kind {
    Kind::Brw(Brw { write, size, offset: 0, check })
}

/// selftest-ping.
pub(crate) fn ping(lst: &Selftest) {
    session(lst, Kind::Ping, 2);
}

/// selftest-brw-small: two sessions.
pub(crate) fn brw_small(lst: &Selftest) {
    session(lst, brw(true, 4096, Check::Simple), 2);
    session(lst, brw(false, 4096, Check::Full), 2);
}

/// version-0.1-server: the same, with rates by `lst stat`, which take two counts.
pub(crate) fn brw_small_with_rates(lst: &Selftest) {
    for kind in [brw(true, 4096, Check::Simple), brw(false, 4096, Check::Full)] {
        begin(lst, "10.77.0.3@tcp", &[kind], 2);
        end(lst, 2);
    }
}

/// selftest-brw-read-1m.
pub(crate) fn brw_read(lst: &Selftest) {
    session(lst, brw(false, 1 << 20, Check::Simple), 1);
}

/// routed-selftest up to its tests; what follows comes after word from the router.
pub(crate) fn routed(lst: &Selftest) {
    let size = 64 << 10;
    let kinds = [brw(true, size, Check::None), brw(false, size, Check::None)];
    begin(lst, "10.77.1.3@tcp1", &kinds, 1);
}

/// The rest of routed-selftest.
pub(crate) fn routed_end(lst: &Selftest) {
    end(lst, 1);
}
