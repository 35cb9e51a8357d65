//! Whatever dies and whenever: each call ends once, is executed at most once, and what was answered
//! is there. The model is a plain map that applies the log in the order of its transactions.

use std::collections::{BTreeMap, BTreeSet};

use lnet::upper::UpperId;
use lustre_wire::ImportKind;
use proptest::prelude::*;

use super::bench::{APPEND, Bench};
use crate::{CallError, CallId, Event, ImportId, Reply};

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client changes a key.
    Set { client: usize, key: u8 },
    /// Seconds pass.
    Pass(u64),
    /// Transactions are committed.
    Commit(usize),
    /// Requests are held back from now on, or no longer.
    Slow(bool),
    /// Requests that are held back are served.
    Serve(usize),
    /// Of the next messages on the portals of requests and replies, each of these is lost.
    Lose(u16),
    /// The server dies with what is not committed, and begins again.
    Crash,
    /// A client dies, and another one takes its place.
    Replace(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..3, 0u8..3).prop_map(|(client, key)| Step::Set { client, key }),
        3 => (0u64..40).prop_map(Step::Pass),
        1 => (100u64..400).prop_map(Step::Pass),
        3 => (1usize..6).prop_map(Step::Commit),
        1 => any::<bool>().prop_map(Step::Slow),
        2 => (1usize..5).prop_map(Step::Serve),
        2 => any::<u16>().prop_map(Step::Lose),
        2 => Just(Step::Crash),
        1 => (0usize..3).prop_map(Step::Replace),
    ]
}

struct Caller {
    upper: UpperId,
    import: ImportId,
    /// Calls with the text of each.
    calls: Vec<(CallId, String)>,
    /// Its process has died.
    dead: bool,
}

struct Storm {
    bench: Bench,
    callers: Vec<Caller>,
    /// Which caller is the client of this number now.
    place: [usize; 3],
    texts: u32,
}

impl Storm {
    fn new() -> Self {
        let bench = Bench::stored();
        let first =
            Caller { upper: bench.client, import: bench.import, calls: Vec::new(), dead: false };
        let mut storm = Self { bench, callers: vec![first], place: [0, 1, 2], texts: 0 };
        storm.join();
        storm.join();
        storm
    }

    fn join(&mut self) -> usize {
        let number = self.callers.len();
        let (upper, import) = self.bench.new_client(&format!("client-{}", number + 1));
        self.callers.push(Caller { upper, import, calls: Vec::new(), dead: false });
        number
    }

    fn set(&mut self, client: usize, key: u8) {
        self.texts += 1;
        let text = format!("{key}={}", self.texts);
        let caller = &mut self.callers[self.place[client]];
        let (upper, import) = (caller.upper, caller.import);
        let call = Bench::say(APPEND, &text);
        let call = self.bench.rpc(upper, |rpc| rpc.call(import, call)).unwrap();
        caller.calls.push((call, text));
        self.bench.settle();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Set { client, key } => self.set(client, key),
            Step::Pass(secs) => self.bench.secs(secs),
            Step::Commit(count) => self.bench.store(|store, rpc| store.commit(rpc, count)),
            Step::Slow(slow) => self.bench.store(|store, rpc| {
                store.slow = slow;
                if !slow {
                    store.serve_held(rpc, usize::MAX);
                }
            }),
            Step::Serve(count) => self.bench.store(|store, rpc| store.serve_held(rpc, count)),
            Step::Lose(mask) => {
                let (request, reply) = ImportKind::Osc.portals();
                self.bench.lose(move |portal, n| {
                    (portal == request.0 || portal == reply.0)
                        && n <= 16
                        && mask >> (n - 1) & 1 == 1
                });
            }
            Step::Crash => self.bench.crash_server(),
            Step::Replace(client) => {
                let old = self.place[client];
                self.callers[old].dead = true;
                self.bench.kill(self.callers[old].upper);
                self.place[client] = self.join();
            }
        }
    }

    /// The faults are over, and all that is to come has come.
    fn calm(&mut self) {
        self.bench.loses = None;
        self.step(Step::Slow(false));
        self.bench.secs(1400);
        // Each is connected, and works.
        for client in 0..3 {
            self.set(client, 9);
        }
        self.bench.secs(1400);
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let log = self.bench.store(|store, _| store.now().log.clone());
        let map = self.bench.store(|store, _| store.now().map.clone());
        // The model.
        let mut model = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for change in log.values() {
            let text = format!("{}={}", change.key, change.value);
            prop_assert!(seen.insert(text.clone()), "{text} was executed twice");
            let old: Option<String> = model.insert(change.key.clone(), change.value.clone());
            prop_assert_eq!(old.unwrap_or_default(), change.old.clone(), "before {}", text);
        }
        let values = map.into_iter().map(|(key, (value, _))| (key, value)).collect();
        prop_assert_eq!(model, values);
        for number in 0..self.callers.len() {
            let Caller { upper, ref calls, dead, .. } = self.callers[number];
            if dead {
                continue;
            }
            let evicted = self.bench.party_of(upper, |party, _| {
                party.events.iter().any(|event| matches!(event, Event::Invalidated { .. }))
            });
            for (call, text) in calls.clone() {
                let end: Option<Result<Reply, CallError>> = self.bench.end_at(upper, call);
                let Some(end) = end else {
                    return Err(TestCaseError::fail(format!("{text} has no end")));
                };
                match end {
                    Ok(reply) => {
                        // An eviction may take with it what was not committed.
                        let Some(change) = log.get(&reply.transno) else {
                            prop_assert!(evicted, "{text} was answered, and is gone");
                            continue;
                        };
                        let made = format!("{}={}", change.key, change.value);
                        if evicted && made != text {
                            continue;
                        }
                        prop_assert_eq!(&made, &text, "has transaction {:#x}", reply.transno);
                        let old = reply.msg().unwrap().buffer(1).unwrap_or_default().to_vec();
                        prop_assert_eq!(String::from_utf8(old).unwrap(), change.old.clone());
                    }
                    // With or without something cached: it may have been executed, or not.
                    Err(e) => prop_assert_eq!(e, CallError::Evicted, "{}", text),
                }
            }
        }
        Ok(())
    }
}

proptest! {
    // Each case is hours of virtual time.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 16,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_call_ends_once_and_what_was_answered_is_there(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut storm = Storm::new();
        for step in steps {
            storm.step(step);
        }
        storm.calm();
        storm.check()?;
    }
}
