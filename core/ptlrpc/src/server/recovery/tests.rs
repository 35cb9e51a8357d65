//! Each stage with each fact, on the machine alone.

use core::time::Duration;

use lnet_types::{Errno, Instant};
use lustre_wire::{Body, BodyFlags, Opcode};

use super::*;

const A: u64 = 1;
const B: u64 = 2;
/// A client that is not known, but where a test says so.
const C: u64 = 3;
/// The last transaction that is committed.
const LAST: u64 = 10;

fn at(secs: u64) -> Instant {
    Instant::from_secs(secs)
}

fn served(n: u64) -> ServedId {
    n.into()
}

/// What the tests compare: orders without the reports of the stages.
#[derive(Debug, PartialEq, Eq)]
enum Did {
    Run(u64),
    Evict(u64),
    Unfit(u64),
    Answer(u64),
    Began,
    Requests,
    Locks,
    Done { recovered: usize, evicted: usize, replayed: u64 },
    Aborted { recovered: usize, evicted: usize },
}

struct Bench {
    machine: Recovery,
    now: u64,
}

impl Bench {
    fn new(clients: &[u64]) -> Self {
        let members: Vec<_> = clients.iter().map(|id| ExportId::from(*id)).collect();
        Self { machine: Recovery::new(&Tunables::default(), &members, LAST), now: 0 }
    }

    fn connect(&mut self, client: u64) -> Vec<Did> {
        self.machine.wanted(at(self.now), Duration::ZERO);
        self.machine.connected(client.into());
        self.orders()
    }

    /// A request of a client; its number names it.
    fn ask(&mut self, client: u64, number: u64, body: &Body) -> (Verdict, Vec<Did>) {
        let verdict = self.machine.judge(client.into(), body);
        if let Verdict::Queue(place) = verdict {
            if place == Place::Lock || place == Place::Final {
                self.machine.closes(client.into(), body.flags);
            }
            self.machine.queue(place, client.into(), served(number));
        }
        (verdict, self.orders())
    }

    fn replay(&mut self, client: u64, transno: u64) -> Vec<Did> {
        let (verdict, orders) = self.ask(client, transno, &replay(transno));
        assert_eq!(verdict, Verdict::Queue(Place::Request(transno)), "{client} {transno}");
        orders
    }

    fn lock(&mut self, client: u64, number: u64) -> Vec<Did> {
        let (verdict, orders) = self.ask(client, number, &lock());
        assert_eq!(verdict, Verdict::Queue(Place::Lock));
        orders
    }

    fn last(&mut self, client: u64, number: u64) -> Vec<Did> {
        let (verdict, orders) = self.ask(client, number, &last());
        assert_eq!(verdict, Verdict::Queue(Place::Final));
        orders
    }

    fn ended(&mut self, number: u64, done: bool) -> Vec<Did> {
        self.machine.ended(served(number), done);
        self.orders()
    }

    fn left(&mut self, client: u64) -> Vec<Did> {
        self.machine.left_by(client.into());
        self.orders()
    }

    /// The window is over as often as `times`.
    fn expire(&mut self, times: usize) -> Vec<Did> {
        let mut all = Vec::new();
        for _ in 0..times {
            let Some(due) = self.machine.due() else { break };
            self.now = due.saturating_since(at(0)).as_secs() + 1;
            self.machine.expire(at(self.now));
            all.extend(self.orders());
        }
        all
    }

    fn abort(&mut self) -> Vec<Did> {
        self.machine.abort(at(self.now));
        self.orders()
    }

    /// Does what is ordered, as far as the machine has to hear of it.
    fn orders(&mut self) -> Vec<Did> {
        let mut did = Vec::new();
        while let Some(order) = self.machine.next(at(self.now), false) {
            did.push(match order {
                Order::Run(id) => Did::Run(id.into()),
                Order::Answer(id) => Did::Answer(id.into()),
                Order::Evict(id) => {
                    self.machine.left_by(id);
                    Did::Evict(id.into())
                }
                Order::EvictUnfit(id) => {
                    self.machine.left_by(id);
                    Did::Unfit(id.into())
                }
                Order::Report(change) => match change {
                    RecoveryChange::Began { .. } => Did::Began,
                    RecoveryChange::Requests => Did::Requests,
                    RecoveryChange::Locks => Did::Locks,
                    RecoveryChange::Done { outcome } => {
                        let RecoveryOutcome { recovered, evicted, replayed, .. } = outcome;
                        Did::Done { recovered, evicted, replayed }
                    }
                    RecoveryChange::Aborted { outcome } => {
                        let RecoveryOutcome { recovered, evicted, .. } = outcome;
                        Did::Aborted { recovered, evicted }
                    }
                    other => panic!("{other:?} is reported elsewhere"),
                },
            });
        }
        did
    }

    /// A machine of A and B at a stage: in `Requests` transaction 11 of A runs, in `Locks` a lock of
    /// A runs as 50.
    fn at_stage(stage: &str) -> Self {
        let mut bench = Self::new(&[A, B]);
        bench.connect(A);
        if stage == "waiting" {
            return bench;
        }
        bench.connect(B);
        if stage == "requests" {
            assert_eq!(bench.replay(A, 11), [Did::Run(11)]);
            return bench;
        }
        bench.lock(A, 50);
        let orders = bench.lock(B, 51);
        assert_eq!(orders, [Did::Locks, Did::Run(50)]);
        if stage == "locks" {
            return bench;
        }
        if stage == "aborted" {
            bench.abort();
            return bench;
        }
        assert_eq!(bench.ended(50, true), [Did::Run(51)]);
        assert_eq!(bench.ended(51, true), []);
        bench.last(A, 60);
        let done = Did::Done { recovered: 2, evicted: 0, replayed: 0 };
        assert_eq!(bench.last(B, 61), [done, Did::Answer(60), Did::Answer(61)]);
        bench
    }
}

fn replay(transno: u64) -> Body {
    let flags = BodyFlags::REPLAY;
    Body { opcode: Opcode::MDS_REINT, flags, transno, ..Body::default() }
}

fn lock() -> Body {
    let flags = BodyFlags::REQ_REPLAY_DONE;
    Body { opcode: Opcode::LDLM_ENQUEUE, flags, ..Body::default() }
}

fn last() -> Body {
    let flags = BodyFlags::REQ_REPLAY_DONE | BodyFlags::LOCK_REPLAY_DONE;
    Body { opcode: Opcode::OBD_PING, flags, ..Body::default() }
}

fn plain(opcode: Opcode) -> Body {
    Body { opcode, ..Body::default() }
}

#[test]
fn p150_each_row_of_what_becomes_of_a_request() {
    // With 11 as the next transaction.
    let bench = Bench::at_stage("waiting");
    let append = Opcode(20_000);
    let own = Body { opcode: append, ..replay(11) };
    let refused = |errno| Verdict::Refuse(errno);
    for (client, body, verdict) in [
        (A, plain(Opcode::MDS_DISCONNECT), Verdict::AtOnce),
        (A, plain(Opcode::OBD_IDX_READ), Verdict::AtOnce),
        (A, plain(Opcode::OST_READ), refused(Errno::EAGAIN)),
        (A, plain(Opcode::MDS_STATFS), refused(Errno::EAGAIN)),
        (A, plain(append), refused(Errno::EAGAIN)),
        (A, own, Verdict::Queue(Place::Request(11))),
        // Only what repeats is taken, whatever transaction it names.
        (A, Body { flags: BodyFlags::RESENT, ..own }, refused(Errno::EAGAIN)),
        (A, Body { opcode: append, ..lock() }, Verdict::Queue(Place::Lock)),
        (A, plain(Opcode::OBD_PING), Verdict::AtOnce),
        (A, plain(Opcode::OST_SYNC), Verdict::AtOnce),
        // What would change something before its turn.
        (A, plain(Opcode::OST_CREATE), refused(Errno::EAGAIN)),
        (A, plain(Opcode::LDLM_ENQUEUE), refused(Errno::EAGAIN)),
        (A, replay(LAST), Verdict::AtOnce),
        (A, replay(11), Verdict::Queue(Place::Request(11))),
        (A, replay(500), Verdict::Queue(Place::Request(500))),
        (A, replay(u64::MAX), refused(Errno::EPROTO)),
        (C, replay(11), refused(Errno::ENOTCONN)),
        (A, lock(), Verdict::Queue(Place::Lock)),
        (C, lock(), refused(Errno::ENOTCONN)),
        (A, last(), Verdict::Queue(Place::Final)),
        (C, last(), refused(Errno::ENOTCONN)),
        (A, Body { opcode: Opcode::MDS_REINT, ..last() }, refused(Errno::EPROTO)),
    ] {
        let found = bench.machine.judge(client.into(), &body);
        assert_eq!(found, verdict, "{client} {:?} {:?} {}", body.opcode, body.flags, body.transno);
    }
}

#[test]
fn p150_1_and_2_each_opcode_that_is_handled_or_taken_while_a_target_recovers() {
    use Opcode as O;
    let bench = Bench::at_stage("waiting");
    let taken = [
        (O::OBD_PING, "reads"),
        (O::LDLM_ENQUEUE, "may change"),
        (O::OST_WRITE, "changes"),
        (O::OST_PUNCH, "changes"),
        (O::OST_CREATE, "changes"),
        (O::OST_DESTROY, "changes"),
        (O::OST_SETATTR, "changes"),
        (O::OST_SYNC, "reads"),
        (O::OST_FALLOCATE, "changes"),
        (O::MDS_REINT, "changes"),
        (O::MDS_CLOSE, "changes"),
        (O::MDS_SYNC, "reads"),
        (O::MDS_BATCH, "reads"),
        (O::MDS_HSM_PROGRESS, "changes"),
        (O::MDS_HSM_STATE_SET, "changes"),
        (O::MDS_HSM_REQUEST, "changes"),
        (O::MDS_HSM_DATA_VERSION, "reads"),
        (O::OUT_UPDATE, "changes"),
        (O::SEQ_QUERY, "reads"),
        (O::FLD_QUERY, "reads"),
        (O::FLD_READ, "reads"),
    ];
    let at_once = [O::OST_DISCONNECT, O::MDS_DISCONNECT, O::MGS_DISCONNECT, O::OBD_IDX_READ];
    let (again, queued) = (Verdict::Refuse(Errno::EAGAIN), Verdict::Queue(Place::Request(11)));
    for opcode in (0..1200).map(Opcode).filter(|o| o.row().is_some() && !o.is_connect()) {
        let own = bench.machine.judge(A.into(), &plain(opcode));
        let repeated = bench.machine.judge(A.into(), &Body { opcode, ..replay(11) });
        let row = taken.iter().find(|(taken, _)| *taken == opcode);
        let expected = match row {
            _ if at_once.contains(&opcode) => (Verdict::AtOnce, Verdict::AtOnce),
            Some((_, "reads")) => (Verdict::AtOnce, queued),
            Some(_) => (again, queued),
            None => (again, again),
        };
        assert_eq!((own, repeated), expected, "{opcode}");
    }
}

#[test]
fn each_stage_answers_each_fact() {
    type Fact = fn(&mut Bench) -> Vec<Did>;
    let facts: [(&str, Fact); 9] = [
        ("A connects again", |b| b.connect(A)),
        ("B connects", |b| b.connect(B)),
        ("a stranger connects", |b| b.connect(C)),
        ("B closes all", |b| match b.ask(B, 61, &last()).0 {
            Verdict::Queue(Place::Final) => b.orders(),
            other => panic!("{other:?}"),
        }),
        ("A's turn was answered", |b| {
            b.machine.ended(served(11), true);
            b.ended(50, true)
        }),
        ("A's turn was not answered", |b| {
            b.machine.ended(served(11), false);
            b.ended(50, false)
        }),
        ("A leaves", |b| b.left(A)),
        ("the window is over", |b| b.expire(1)),
        ("it is aborted", Bench::abort),
    ];
    let aborted = |recovered, evicted| Did::Aborted { recovered, evicted };
    let expected: [(&str, [Vec<Did>; 9]); 5] = [
        (
            "waiting",
            [
                vec![],
                vec![Did::Requests],
                vec![],
                vec![],
                vec![],
                vec![],
                // B is still missing.
                vec![],
                vec![Did::Evict(B), Did::Requests],
                vec![Did::Evict(A), Did::Evict(B), aborted(0, 2)],
            ],
        ),
        (
            "requests",
            [
                vec![],
                vec![],
                vec![],
                vec![],
                vec![],
                vec![],
                vec![],
                // A's is at work, B has nothing to do.
                vec![Did::Evict(B)],
                vec![Did::Evict(A), Did::Evict(B), aborted(0, 2)],
            ],
        ),
        (
            "locks",
            [
                vec![],
                vec![],
                vec![],
                vec![],
                vec![Did::Run(51)],
                vec![Did::Run(51)],
                vec![Did::Run(51)],
                vec![],
                vec![Did::Evict(A), Did::Evict(B), aborted(0, 2)],
            ],
        ),
        ("done", Default::default()),
        ("aborted", Default::default()),
    ];
    for (stage, orders) in expected {
        for ((fact, happens), orders) in facts.iter().zip(orders) {
            let mut bench = Bench::at_stage(stage);
            if matches!(stage, "done" | "aborted") && *fact == "B closes all" {
                // No request is judged by what is over.
                assert!(bench.machine.is_over());
                continue;
            }
            assert_eq!(happens(&mut bench), orders, "{stage}: {fact}");
        }
    }
}

#[test]
fn replays_run_one_at_a_time_in_the_order_of_their_transactions() {
    let mut bench = Bench::new(&[A, B]);
    assert_eq!(bench.connect(A), [Did::Began]);
    assert_eq!(bench.replay(A, 12), [], "before all are back nothing is repeated");
    assert_eq!(bench.connect(B), [Did::Requests]);
    assert_eq!(bench.replay(B, 11), [Did::Run(11)]);
    // Claims of what is taken are dropped.
    assert_eq!(bench.ask(B, 90, &replay(11)).0, Verdict::Drop);
    assert_eq!(bench.ask(B, 91, &replay(12)).0, Verdict::Drop);
    assert_eq!(bench.replay(B, 14), [], "another waits beside what runs");
    assert_eq!(bench.ended(11, true), [Did::Run(12)]);
    assert_eq!(bench.ask(B, 92, &replay(11)).0, Verdict::AtOnce, "it was done");
    // One that was not answered comes again, and none overtakes it.
    assert_eq!(bench.ended(12, false), []);
    assert_eq!(bench.replay(B, 13), []);
    assert_eq!(bench.replay(A, 12), [Did::Run(12)]);
    assert_eq!(bench.ended(12, true), [Did::Run(13)]);
}

#[test]
fn a_gap_is_accepted_when_no_client_can_fill_it() {
    let mut bench = Bench::new(&[A, B]);
    bench.connect(A);
    bench.connect(B);
    assert_eq!(bench.replay(A, 15), [], "B may have 11 to 14");
    assert_eq!(bench.replay(B, 17), [Did::Run(15)]);
    assert_eq!(bench.ended(15, true), [], "A may have 16");
    // P-151: A has no more.
    assert_eq!(bench.lock(A, 50), [Did::Run(17)]);
    // What A says now comes too late.
    assert_eq!(bench.ask(A, 93, &replay(18)).0, Verdict::Refuse(Errno::EPROTO));
}

#[test]
fn a_gap_lasts_until_the_clients_that_could_fill_it_are_evicted() {
    let mut bench = Bench::new(&[A, B]);
    bench.connect(A);
    bench.connect(B);
    assert_eq!(bench.replay(A, 15), []);
    assert_eq!(bench.expire(1), [Did::Evict(B), Did::Run(15)]);
    assert_eq!(bench.ended(15, true), []);
    assert_eq!(bench.replay(A, 19), [Did::Run(19)]);
    assert_eq!(bench.ended(19, true), []);
    let done = Did::Done { recovered: 1, evicted: 1, replayed: 2 };
    assert_eq!(bench.last(A, 60), [Did::Locks, done, Did::Answer(60)]);
}

#[test]
fn after_the_window_was_over_no_change_overtakes_one_that_is_on_its_way() {
    let mut bench = Bench::new(&[A, B, C]);
    bench.connect(A);
    bench.connect(B);
    bench.replay(A, 11);
    bench.replay(B, 13);
    assert_eq!(bench.expire(1), [Did::Evict(C), Did::Requests, Did::Run(11)]);
    assert_eq!(bench.ended(11, true), [], "A may have 12");
    assert_eq!(bench.replay(A, 12), [Did::Run(12)]);
    assert_eq!(bench.ended(12, true), [Did::Run(13)]);
}

#[test]
fn clients_whose_versions_differ_are_evicted_when_requests_are_done() {
    let mut bench = Bench::new(&[A, B]);
    bench.connect(A);
    bench.connect(B);
    bench.replay(A, 11);
    bench.machine.version_failed(A.into());
    assert_eq!(bench.ended(11, true), []);
    bench.last(A, 60);
    let done = Did::Done { recovered: 1, evicted: 1, replayed: 1 };
    assert_eq!(bench.last(B, 61), [Did::Unfit(A), Did::Locks, done, Did::Answer(61)]);
}

#[test]
fn a_second_final_ping_takes_the_place_of_the_first() {
    let mut bench = Bench::new(&[A, B]);
    bench.connect(A);
    bench.connect(B);
    bench.last(A, 60);
    let replaced = bench.machine.queue(Place::Final, A.into(), served(61));
    assert_eq!(replaced, Some(served(60)));
    let orders = bench.last(B, 62);
    assert_eq!(orders[2..], [Did::Answer(61), Did::Answer(62)]);
}

#[test]
fn at_its_hard_end_a_recovery_goes_on_without_those_that_have_not_finished() {
    let mut bench = Bench::new(&[A, B]);
    bench.connect(A);
    bench.connect(B);
    bench.last(A, 60);
    assert_eq!(bench.replay(B, 11), [Did::Run(11)]);
    // B's request is never answered: nine obd_timeouts.
    let orders = bench.expire(20);
    let aborted = Did::Aborted { recovered: 1, evicted: 1 };
    assert_eq!(orders, [Did::Evict(B), aborted, Did::Answer(60)]);
    assert_eq!(bench.now, 901);
    assert!(bench.machine.is_over());
}

#[test]
fn at_its_hard_end_a_recovery_goes_on_without_those_whose_versions_differ() {
    let mut bench = Bench::new(&[A, B]);
    bench.connect(A);
    bench.connect(B);
    bench.machine.version_failed(A.into());
    bench.last(A, 60);
    assert_eq!(bench.replay(B, 11), [Did::Run(11)]);
    let orders = bench.expire(20);
    let aborted = Did::Aborted { recovered: 0, evicted: 2 };
    assert_eq!(orders, [Did::Unfit(A), Did::Evict(B), aborted]);
}

#[test]
fn a_recovery_ends_when_all_of_its_clients_are_gone() {
    let mut bench = Bench::new(&[A, B]);
    bench.connect(A);
    assert_eq!(bench.left(B), [Did::Requests]);
    let done = Did::Done { recovered: 0, evicted: 2, replayed: 0 };
    assert_eq!(bench.left(A), [Did::Locks, done]);
}

#[test]
fn new_transactions_are_above_all_that_were_repeated() {
    // P-153.
    let mut bench = Bench::new(&[A]);
    bench.connect(A);
    let transno = (3 << 32) + 7;
    bench.replay(A, transno);
    bench.ended(transno, true);
    bench.last(A, 60);
    let RecoveryStage::Done(outcome) = bench.machine.stage() else { panic!("not done") };
    assert_eq!(outcome.last_transno, 4 << 32);
}

#[test]
fn p147_client_that_repeats_locks_has_time_for_the_next_one() {
    let mut bench = Bench::new(&[A, B]);
    bench.connect(A);
    bench.lock(A, 1);
    assert!(bench.machine.members[&A.into()].requests_done);
    let due = bench.machine.due().unwrap();
    bench.machine.prolong(at(bench.now), A.into(), Duration::from_secs(800));
    assert!(bench.machine.due().unwrap() > due);
}
