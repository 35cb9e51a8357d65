//! Servers that say anything. Clients that do are in `hostile.rs`.

use core::time::Duration;

use lnet_types::Prng;
use lustre_wire::{ConnectData, ImportKind, Layout, OpFlags, Opcode};

use super::bench::{APPEND, Bench, ECHO, data};
use super::script::{Said, config, scripted, serving};
use crate::{Call, CallError, ImportState as S, ImportView, Tunables};

const LIMIT: Duration = Duration::from_secs(30);

fn view(bench: &mut Bench) -> Option<ImportView> {
    let import = bench.import;
    bench.party_of(bench.client, |p, _| p.ptlrpc.import_view(import))
}

fn limited(opcode: Opcode) -> Call {
    Call { limit: Some(LIMIT), ..Bench::say(opcode, "limited") }
}

/// An answer with up to four of its bytes changed.
fn spoilt(said: &Said, opcode: Opcode, prng: &mut Prng) -> Said {
    let mut bytes = said.bytes(opcode);
    for _ in 0..1 + prng.below(4) {
        let at = prng.below(bytes.len() as u64) as usize;
        bytes[at] = prng.next_u64() as u8;
    }
    if prng.below(8) == 0 {
        bytes.truncate(prng.below(bytes.len() as u64) as usize + 1);
    }
    Said { raw: Some(bytes), ..said.clone() }
}

#[test]
fn reply_of_any_bytes_ends_its_call_within_the_limit_and_later_calls_are_answered() {
    let mut prng = Prng::new(11);
    let mut bench = serving(Tunables::default(), move |asked| {
        let mut said = Said::status(0);
        said.body.transno = u64::from(asked.body.opcode == APPEND);
        let early = Said { early: prng.below(4) == 0, ..said };
        vec![spoilt(&early, asked.body.opcode, &mut prng)]
    });
    for n in 0..2000 {
        let call = bench.call(limited(if n % 2 == 0 { ECHO } else { APPEND }));
        for _ in 0..LIMIT.as_secs() {
            if bench.end_of(call).is_some() {
                break;
            }
            bench.secs(1);
        }
        assert!(bench.end_of(call).is_some(), "call {n}: {:?}", view(&mut bench));
    }
    bench.play(|asked| vec![if asked.connects() { again() } else { Said::status(0) }]);
    bench.secs(100);
    let call = bench.call(Bench::say(ECHO, "later"));
    bench.secs(30);
    assert!(matches!(bench.end_of(call), Some(Ok(_))), "{:#?}", view(&mut bench));
    assert_eq!(bench.client_descriptors(), 0);
}

/// The answer to a client that is known.
fn again() -> Said {
    Said::connected(7, OpFlags::RECONNECT, data())
}

#[test]
fn answer_of_any_bytes_to_a_connect_ends_the_calls_within_their_limits() {
    let mut prng = Prng::new(12);
    let mut ends = [0; 2];
    for n in 0..400 {
        let seed = prng.next_u64();
        let mut prng = Prng::new(seed);
        let play = move |asked: &super::script::Asked| match asked.connects() {
            true => {
                let said = Said::connected(7, OpFlags::empty(), data());
                vec![spoilt(&said, asked.body.opcode, &mut prng)]
            }
            false => vec![Said::status(0)],
        };
        let mut bench = scripted(Tunables::default(), config(ImportKind::Osc, data()), play);
        let call = bench.call(limited(ECHO));
        bench.secs(LIMIT.as_secs());
        let end = bench.end_of(call);
        assert!(end.is_some(), "{n}, seed {seed}: {:?}", view(&mut bench));
        ends[usize::from(end.is_some_and(|end| end.is_ok()))] += 1;
        let import = bench.import;
        bench.rpc(bench.client, |rpc| rpc.disconnect(import));
        bench.secs(60);
        assert_eq!((bench.client_descriptors(), view(&mut bench).is_none()), (0, true), "{seed}");
    }
    assert!(ends.iter().all(|n| *n > 20), "failed and answered: {ends:?}");
}

#[test]
fn connect_data_of_an_answer_may_be_shorter_or_longer() {
    let good = Said::connected(7, OpFlags::empty(), data());
    let states = |len: usize| {
        let mut said = good.clone();
        said.buffers[0].resize(len, 0);
        let play = move |_: &super::script::Asked| vec![said.clone()];
        let mut bench = scripted(Tunables::default(), config(ImportKind::Osc, data()), play);
        let import = bench.import;
        bench.rpc(bench.client, |rpc| rpc.connect(import));
        bench.settle();
        bench.states()[1]
    };
    for (len, state) in [
        // The flags are half there.
        (4, S::Full),
        (72, S::Full),
        (ConnectData::LEN, S::Full),
        (ConnectData::LEN + 8, S::Full),
        // More than there is room for.
        (8 * ConnectData::LEN, S::Disconnected),
    ] {
        assert_eq!(states(len), state, "{len} bytes");
    }
}

#[test]
fn early_replies_that_ask_for_ever_end_with_the_limit_of_the_call() {
    for timeout in [0, 1, u32::MAX] {
        let mut bench = serving(Tunables::default(), move |asked| {
            // Pings are answered.
            vec![if asked.body.opcode == ECHO { Said::early(timeout) } else { Said::status(0) }]
        });
        let call = bench.call(Call { limit: Some(LIMIT), ..Bench::say(ECHO, "for ever") });
        for _ in 0..LIMIT.as_secs() {
            assert_eq!(bench.end_of(call), None, "{timeout}");
            for asked in bench.asked_for(ECHO) {
                bench.say_late(&asked, Said::early(timeout));
            }
            bench.secs(1);
        }
        assert_eq!(bench.end_of(call), Some(Err(CallError::LimitPassed)), "{timeout}");
        assert_eq!(bench.client_descriptors(), 0, "{timeout}");
    }
}

#[test]
fn replies_to_a_call_that_has_ended_do_nothing() {
    let mut bench = serving(Tunables::default(), |_| vec![Said::status(3)]);
    let call = bench.call(Bench::say(ECHO, "one"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().status, 3);
    let before = view(&mut bench).unwrap();
    for asked in bench.asked() {
        for said in [Said::status(-5), Said::early(40), again()] {
            bench.say_late(&asked, said);
        }
    }
    assert_eq!(bench.end_of(call).unwrap().unwrap().status, 3, "its end stays");
    let after = view(&mut bench).unwrap();
    assert_eq!((after.state, after.conn_cnt), (before.state, before.conn_cnt));
    let call = bench.call(Bench::say(ECHO, "two"));
    assert!(bench.end_of(call).unwrap().is_ok());
}
