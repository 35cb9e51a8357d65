//! What a target keeps of its clients, and what it knows of them after its death.

use lnet_types::Errno;

use super::bench::{APPEND, Bench, append_log, keeper};
use crate::{Event, Past, ReplyRecord};

#[test]
fn a_new_client_is_connected_when_its_record_is_stored() {
    let mut bench = Bench::with(keeper(), true);
    let call = bench.call(Bench::say(APPEND, "one"));
    let joining = bench.heard().remove(0);
    let Event::Joining { export, target, ref client, .. } = joining else { panic!("{joining:?}") };
    assert_eq!((target, client.as_str()), (bench.target, "client-1"));
    // The client comes again while it is being stored, and is one client.
    bench.secs(30);
    assert_eq!(bench.heard(), []);
    assert_eq!(bench.kept(), []);
    bench.rpc(bench.server, |rpc| rpc.admit(export, Err(Errno::ENOSPC)));
    bench.secs(30);
    let joining = bench.heard().remove(0);
    let Event::Joining { export, .. } = joining else { panic!("{joining:?}") };
    bench.rpc(bench.server, |rpc| rpc.admit(export, Ok(())));
    bench.secs(30);
    let connected = bench.heard().remove(0);
    assert!(matches!(connected, Event::Connected { again: false, .. }), "{connected:?}");
    assert_eq!(bench.kept().len(), 1);
    let served = bench.kept()[0].id;
    // Twice the same number, above all of lives before.
    let numbers = bench.rpc(bench.server, |rpc| (rpc.transno(served), rpc.transno(served)));
    assert_eq!(numbers, ((1 << 32) + 1, (1 << 32) + 1));
    let answer = crate::Answer { transno: numbers.0, status: 3, ..Default::default() };
    let record = bench.rpc(bench.server, |rpc| rpc.record(served, &answer)).unwrap();
    let (transno, xid) = (numbers.0, bench.kept()[0].xid);
    let stored = ReplyRecord { xid, transno, status: 3, ..ReplyRecord::default() };
    assert_eq!(record, ("client-1".to_owned(), stored));
    bench.rpc(bench.server, |rpc| rpc.reply(served, answer));
    bench.settle();
    assert_eq!(bench.end_of(call).unwrap().unwrap().status, 3);
    let import = bench.import;
    bench.rpc(bench.client, |rpc| rpc.disconnect(import));
    bench.settle();
    let gone = bench.heard().remove(0);
    let (target, client) = (bench.target, "client-1".to_owned());
    assert_eq!(gone, Event::Disconnected { export, target, client });
    // Its record is still there: it has no answer yet, and whatever else it asks is refused.
    let exports =
        |bench: &mut Bench| bench.party_of(bench.server, |p, _| p.ptlrpc.export_views().len());
    assert_eq!(exports(&mut bench), 1);
    assert!(bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import)).is_some());
    bench.rpc(bench.server, |rpc| rpc.left(export));
    bench.settle();
    assert_eq!(exports(&mut bench), 0);
    assert!(bench.states().ends_with(&[crate::ImportState::Closed]), "{:?}", bench.states());
}

#[test]
fn a_past_that_can_not_be_is_refused() {
    let mut bench = Bench::new(append_log());
    let client = |uuid: &str| crate::ClientRecord { uuid: uuid.to_owned(), ..Default::default() };
    let mut add = |replayable, clients: &[&str]| {
        let past = Past { last_transno: 7, clients: clients.iter().map(|u| client(u)).collect() };
        let (uuid, offer) = ("other".to_owned(), super::bench::data());
        let config = crate::TargetConfig { uuid, offer, replayable, past };
        bench.rpc(bench.server, |rpc| rpc.add_target(config))
    };
    assert_eq!(add(false, &["a"]), Err(Errno::EINVAL));
    assert_eq!(add(true, &["a", "a"]), Err(Errno::EINVAL));
    assert!(add(true, &["a", "b"]).is_ok());
    assert_eq!(add(true, &[]), Err(Errno::EEXIST));
}
