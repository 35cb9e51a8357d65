//! An object target whose store fails or forgets: each order of a run fails once, servers die with what
//! was not committed, and clients bring it back.

#![allow(clippy::disallowed_types, reason = "a store outlives its server, and tests look into it")]

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use lnet_types::{Errno, IoVec, Memory};
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::ost::{NiobufFlags, Obdo};
use lustre_wire::{Checksum, Opcode};
use ptlrpc::{Bulk, Call, CallError, CallId, Direction, Reply};

use super::ost::{body, object, ost, pattern, results, write_call};
use super::world::{Client, World};
use crate::ost::wire;
use crate::store::{Change, Space, Store, StoreError, StoreFact, StoreOrder};
use crate::{Commit, MemoryStore};

/// How an order fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The store is out of service with it.
    Io,
    /// A transaction finds no room.
    Full,
}

pub(super) struct Inside {
    store: MemoryStore,
    /// Orders since the start of the target.
    orders: usize,
    fails: Option<(usize, Failure)>,
    broken: bool,
    /// It refuses the next transaction.
    refuses: bool,
    facts: Vec<StoreFact>,
    /// It stands still; what it is ordered meanwhile it does afterwards, one after the other.
    stands: bool,
    waiting: VecDeque<StoreOrder>,
    /// What was ordered of the records of clients.
    clients: Vec<Change>,
}

/// A store that survives its server.
#[derive(Clone)]
pub(super) struct Shelf(Arc<Mutex<Inside>>);

impl Shelf {
    pub(super) fn new(commit: Commit, fails: Option<(usize, Failure)>) -> Self {
        let store = MemoryStore::new(commit, 1 << 26);
        Self::of(store, fails)
    }

    fn of(store: MemoryStore, fails: Option<(usize, Failure)>) -> Self {
        let (facts, clients) = (Vec::new(), Vec::new());
        let (orders, broken, stands, waiting) = (0, false, false, VecDeque::new());
        let refuses = false;
        let inside =
            Inside { store, orders, fails, broken, refuses, facts, stands, waiting, clients };
        Self(Arc::new(Mutex::new(inside)))
    }

    pub(super) fn orders(&self) -> usize {
        self.0.lock().unwrap().orders
    }

    fn commit(&self) {
        self.0.lock().unwrap().store.commit();
    }

    pub(super) fn stand(&self, stands: bool) {
        self.0.lock().unwrap().stands = stands;
    }

    /// The next transaction finds no room.
    pub(super) fn refuse(&self) {
        self.0.lock().unwrap().refuses = true;
    }

    /// What was ordered of the records of clients.
    pub(super) fn of_clients(&self) -> Vec<Change> {
        self.0.lock().unwrap().clients.clone()
    }

    /// What a server finds that starts after the one before has died.
    pub(super) fn survivor(&self) -> Self {
        let mut inside = self.0.lock().unwrap();
        let empty = MemoryStore::new(Commit::Ordered, 0);
        let store = core::mem::replace(&mut inside.store, empty).crashed();
        Self::of(store, None)
    }
}

impl Store for Shelf {
    fn order(&mut self, order: StoreOrder, memory: &mut dyn Memory) {
        let mut inside = self.0.lock().unwrap();
        let number = inside.orders;
        inside.orders += 1;
        if let StoreOrder::Apply(txn) = &order {
            let of_clients = |change: &&Change| {
                matches!(
                    change,
                    Change::Put(Space::Clients, ..) | Change::Delete(Space::Clients, _)
                )
            };
            inside.clients.extend(txn.changes.iter().filter(of_clients).cloned());
        }
        if inside.stands || !inside.waiting.is_empty() {
            return inside.waiting.push_back(order);
        }
        let failure = inside.fails.filter(|(at, _)| *at == number).map(|(_, failure)| failure);
        let failure = if inside.broken { Some(Failure::Io) } else { failure };
        let refused = matches!(order, StoreOrder::Apply(_)) && core::mem::take(&mut inside.refuses);
        let failure = if refused { Some(Failure::Full) } else { failure };
        let error = match failure {
            None => return inside.store.order(order, memory),
            Some(Failure::Io) if inside.broken => StoreError::OutOfService,
            Some(Failure::Io) => {
                let e = StoreError::Io { what: "test".to_owned(), why: "broken".to_owned() };
                inside.broken = true;
                inside.facts.push(StoreFact::Failed(e.clone()));
                e
            }
            Some(Failure::Full) if matches!(order, StoreOrder::Apply(_)) => StoreError::Full,
            Some(Failure::Full) => return inside.store.order(order, memory),
        };
        let fact = match order {
            StoreOrder::Apply(txn) => StoreFact::Applied { txn: txn.id, result: Err(error) },
            StoreOrder::Read { token, .. }
            | StoreOrder::Sync { token }
            | StoreOrder::Checksum { token, .. }
            | StoreOrder::Space { token }
            | StoreOrder::List { token, .. } => StoreFact::Done { token, outcome: Err(error) },
        };
        inside.facts.insert(0, fact);
    }

    fn poll(&mut self, memory: &mut dyn Memory) -> Option<StoreFact> {
        let mut inside = self.0.lock().unwrap();
        if !inside.facts.is_empty() {
            return Some(inside.facts.remove(0));
        }
        if !inside.stands
            && inside.store.peek().is_none()
            && let Some(order) = inside.waiting.pop_front()
        {
            inside.store.order(order, memory);
        }
        inside.store.poll(memory)
    }
}

/// Calls of one client, one after the other; each is awaited, however often the server has to start.
struct Run {
    world: World,
    client: Client,
    shelf: Shelf,
    restarts: u32,
    /// Calls that were refused for want of space, and made again.
    full: u32,
}

impl Run {
    fn new(commit: Commit, fails: Option<(usize, Failure)>) -> Self {
        let shelf = Shelf::new(commit, fails);
        let mut inside = shelf.0.lock().unwrap();
        // The start of the target is not counted.
        let fails = inside.fails.take();
        drop(inside);
        let mut world = World::new(ost(), shelf.clone());
        inside = shelf.0.lock().unwrap();
        (inside.orders, inside.fails) = (0, fails);
        drop(inside);
        let client = world.client(wire::wanted());
        Self { world, client, shelf, restarts: 0, full: 0 }
    }

    fn restart(&mut self) {
        self.shelf = self.shelf.survivor();
        self.world.restart(ost(), self.shelf.clone());
        self.restarts += 1;
    }

    fn wait(&mut self, call: CallId) -> Result<Reply, CallError> {
        for _ in 0..3 {
            for _ in 0..40 {
                if let Some(end) = self.world.end_of(self.client, call) {
                    return end;
                }
                if self.shelf.0.lock().unwrap().broken {
                    break;
                }
                self.world.pass(Duration::from_secs(20));
            }
            self.restart();
        }
        panic!("no end");
    }

    fn call(&mut self, mut call: impl FnMut(&mut World) -> Call) -> Reply {
        loop {
            let made = call(&mut self.world);
            let id = self.world.begin(self.client, made);
            match self.wait(id) {
                Ok(reply) => return reply,
                Err(CallError::Refused(Errno::ENOSPC)) => self.full += 1,
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// Every kind of request, and what is there at the end.
    fn all(&mut self) -> Vec<u8> {
        let flags = NiobufFlags::WRITE;
        self.call(|_| wire::create(object(3)));
        let bytes = pattern(9000, 3);
        let sum = Checksum::Crc32c.of(&bytes);
        let written = self.call(|world| {
            let ranges = [wire::range(100, 3996, flags), wire::range(8192, 5004, flags)];
            write_call(world, object(1), &ranges, &bytes, |body| {
                let asked = wire::data_body(object(1), false, Some(Checksum::Crc32c), sum);
                *body = Obdo { uid: 5, valid: asked.valid | Valid::UID, ..asked };
            })
        });
        assert_eq!((results(&written), body(&written).nlink), (vec![0, 0], sum));
        self.call(|_| {
            let asked = wire::data_body(object(2), true, None, 0);
            wire::data(Opcode::OST_WRITE, &asked, &[wire::range(5, 4, flags)], Some(b"data"))
        });
        self.call(|_| {
            let mut asked = Obdo { gid: 9, ..wire::named(object(2)) };
            asked.valid |= Valid::GID;
            wire::object(Opcode::OST_SETATTR, &asked)
        });
        self.call(|_| wire::punch(object(1), 8200));
        self.call(|_| wire::sync(Some(object(1))));
        self.call(|_| wire::statfs());
        self.call(|_| wire::destroy(object(3), 1));
        self.call(|_| wire::last_id());
        let mut seen = self.read(object(1), Some(Checksum::Crc32));
        seen.extend(self.read(object(2), None));
        for oid in [1, 2] {
            let has = body(&self.call(|_| wire::get_attributes(object(oid))));
            seen.extend(format!("{} {} {}", has.size, has.uid, has.gid).bytes());
        }
        let gone = self.world.begin(self.client, wire::get_attributes(object(3)));
        assert_eq!(self.wait(gone), Err(CallError::Refused(Errno::ENOENT)));
        seen
    }

    fn read(&mut self, id: ObjectId, kind: Option<Checksum>) -> Vec<u8> {
        let mut into = IoVec::new();
        let reply = self.call(|world| {
            let asked = wire::data_body(id, false, kind, 0);
            let ranges = [wire::range(0, 20_000, NiobufFlags::READ)];
            let mut call = wire::data(Opcode::OST_READ, &asked, &ranges, None);
            into = world.memory(&[0xEE; 20_000]);
            call.bulk = Some(Bulk { direction: Direction::Read, memory: into.clone() });
            call
        });
        let mut bytes = self.world.bytes(&into);
        bytes.truncate(reply.status as usize);
        if let Some(kind) = kind {
            assert_eq!(body(&reply).nlink, kind.of(&bytes));
        }
        bytes
    }
}

#[test]
fn store_that_fails_at_any_order_loses_nothing_and_repeats_nothing() {
    for commit in [Commit::AtOnce, Commit::Ordered] {
        let mut quiet = Run::new(commit, None);
        let expected = quiet.all();
        let orders = quiet.shelf.orders();
        assert!(orders >= 40, "{orders}");
        for at in 0..orders {
            let mut run = Run::new(commit, Some((at, Failure::Io)));
            let seen = run.all();
            assert!(seen == expected, "order {at} of {orders}, {commit:?}");
            // After the last ones nothing is awaited that needs the store.
            assert!(run.restarts == 1 || at + 2 > orders, "order {at}: {} restarts", run.restarts);
        }
    }
}

#[test]
fn store_that_is_full_for_any_transaction_refuses_it_and_goes_on() {
    let mut quiet = Run::new(Commit::AtOnce, None);
    let expected = quiet.all();
    let mut refused = 0;
    for at in 0..quiet.shelf.orders() {
        let mut run = Run::new(Commit::AtOnce, Some((at, Failure::Full)));
        assert!(run.all() == expected, "order {at}");
        assert_eq!(run.restarts, 0, "order {at}");
        refused += run.full;
    }
    // Create, two writes, setattr, punch, destroy; the client's record is tried again by its connect.
    assert_eq!(refused, 6);
}

#[test]
fn changes_that_a_server_loses_are_brought_back_with_their_versions() {
    let mut run = Run::new(Commit::Ordered, None);
    run.call(|_| wire::create(object(3)));
    run.call(|_| wire::sync(None));
    run.call(|_| wire::create(object(5)));
    run.call(|_| wire::punch(object(4), 70_000));
    let mut given = Obdo { uid: 4, ..wire::named(object(4)) };
    given.valid |= Valid::UID;
    let set = run.call(|_| wire::object(Opcode::OST_SETATTR, &given));
    run.call(|_| wire::destroy(object(1), 1));
    run.restart();
    let found = run.call(|_| wire::get_attributes(object(4)));
    let has = body(&found);
    assert_eq!((has.size, has.uid, has.data_version), (70_000, 4, set.transno));
    run.call(|_| wire::get_attributes(object(5)));
    let gone = run.world.call(run.client, wire::get_attributes(object(1)));
    assert_eq!(gone.unwrap_err(), CallError::Refused(Errno::ENOENT));
}

#[test]
fn changes_that_a_full_store_refuses_to_take_again_are_repeated_until_it_takes_them() {
    let mut orders = 0;
    for at in 0..40 {
        let mut run = Run::new(Commit::Ordered, None);
        run.call(|_| wire::create(object(3)));
        run.call(|_| wire::sync(None));
        run.call(|_| wire::create(object(5)));
        run.call(|_| wire::punch(object(4), 70_000));
        run.restart();
        let mut inside = run.shelf.0.lock().unwrap();
        (inside.orders, inside.fails) = (0, Some((at, Failure::Full)));
        drop(inside);
        let found = run.call(|_| wire::get_attributes(object(4)));
        assert_eq!(body(&found).size, 70_000, "order {at}");
        run.call(|_| wire::get_attributes(object(5)));
        assert_eq!((run.full, run.restarts), (0, 1), "order {at}");
        orders = run.shelf.orders();
    }
    assert!((4..40).contains(&orders), "{orders}: the recovery is in reach");
}

#[test]
fn p152_change_of_an_object_is_brought_back_whatever_others_did_to_it_before() {
    // Both clients change the object, and the target dies with that. The one knows nothing of its change:
    // its answer got lost, so it makes it anew when the other one has repeated its own. Or it is dead.
    for dies in [false, true] {
        let mut run = Run::new(Commit::Ordered, None);
        run.call(|_| wire::create(object(3)));
        run.call(|_| wire::sync(None));
        let other = run.world.client(wire::wanted());
        let range = wire::range(5, 4, NiobufFlags::WRITE | NiobufFlags::ASYNC);
        let asked = wire::data_body(object(1), true, None, 0);
        let write = wire::data(Opcode::OST_WRITE, &asked, &[range], Some(b"data"));
        run.world.lose_reply(Opcode::OST_WRITE);
        let lost = run.world.begin(other, write);
        assert_eq!(run.world.end_of(other, lost).map(|end| end.is_ok()), None);
        run.call(|_| wire::punch(object(1), 70_000));
        if dies {
            run.world.kill(other);
        }
        run.restart();
        assert_eq!(body(&run.call(|_| wire::get_attributes(object(1)))).size, 70_000, "{dies}");
        if !dies {
            assert!(run.world.end_of(other, lost).unwrap().is_ok());
            assert_eq!(run.read(object(1), None)[5..9], *b"data");
        }
    }
}

#[test]
fn changes_that_were_committed_before_the_client_knew_are_there_once() {
    let mut run = Run::new(Commit::Ordered, None);
    run.call(|_| wire::create(object(3)));
    run.call(|_| wire::punch(object(2), 10));
    run.call(|_| wire::punch(object(2), 500));
    run.call(|_| wire::punch(object(1), 7));
    run.call(|_| wire::destroy(object(1), 1));
    let before = body(&run.call(|_| wire::get_attributes(object(2))));
    // It is committed, and its client has not heard of that: it learns so when it connects again.
    run.shelf.commit();
    run.restart();
    let after = body(&run.call(|_| wire::get_attributes(object(2))));
    assert_eq!((after.size, after.data_version), (500, before.data_version));
    let last = run.call(|_| wire::create(object(3)));
    assert_eq!(body(&last).id, object(3));
}

#[test]
fn p70_kept_changes_that_are_committed_are_repeated_without_effect() {
    let mut run = Run::new(Commit::Ordered, None);
    let kept = |call: Call| Call { keep: true, ..call };
    let given = |uid| {
        let mut body = Obdo { uid, ..wire::named(object(2)) };
        body.valid |= Valid::UID;
        wire::object(Opcode::OST_SETATTR, &body)
    };
    let write = |bytes: &[u8]| {
        let asked = wire::data_body(object(4), true, None, 0);
        let range = wire::range(0, bytes.len() as u32, NiobufFlags::WRITE);
        wire::data(Opcode::OST_WRITE, &asked, &[range], Some(bytes))
    };
    run.call(|_| kept(wire::create(object(4))));
    run.call(|_| kept(wire::punch(object(2), 10)));
    run.call(|_| kept(given(5)));
    run.call(|_| kept(write(b"first")));
    run.call(|_| kept(wire::destroy(object(3), 1)));
    // Later changes, which those that are repeated leave as they are.
    run.call(|_| wire::punch(object(2), 500));
    run.call(|_| given(6));
    run.call(|_| write(b"later, and longer"));
    run.call(|_| wire::create(object(6)));
    let state = |run: &mut Run| {
        let of = |run: &mut Run, oid| {
            let has = body(&run.call(|_| wire::get_attributes(object(oid))));
            (has.size, has.uid, has.data_version)
        };
        let (two, four) = (of(run, 2), of(run, 4));
        let last = run.call(|_| wire::last_id()).message;
        let last = lustre_wire::Msg::parse(&last).unwrap().buffer(1).unwrap().to_vec();
        (two, four, run.read(object(4), None), last)
    };
    let before = state(&mut run);
    run.shelf.commit();
    run.restart();
    assert_eq!(state(&mut run), before);
    assert_eq!(run.world.replayed(run.client), 5);
    let gone = run.world.call(run.client, wire::get_attributes(object(3)));
    assert_eq!(gone.unwrap_err(), CallError::Refused(Errno::ENOENT));
}

#[test]
fn p75_change_is_not_overtaken_by_a_later_one_that_is_committed() {
    let mut run = Run::new(Commit::Ordered, None);
    let overwrite = |bytes: &[u8]| {
        let asked = wire::data_body(object(2), true, None, 0);
        let range = wire::range(0, bytes.len() as u32, NiobufFlags::WRITE);
        wire::data(Opcode::OST_WRITE, &asked, &[range], Some(bytes))
    };
    run.call(|_| wire::create(object(3)));
    run.call(|_| overwrite(b"data"));
    run.call(|_| wire::punch(object(1), 500));
    run.call(|_| wire::sync(None));
    // The one asks for the accounts of two owners; the other one asks for none, and is committed before it is
    // answered.
    let mut given = Obdo { uid: 5, ..wire::named(object(1)) };
    given.valid |= Valid::UID;
    run.shelf.stand(true);
    let calls = [wire::object(Opcode::OST_SETATTR, &given), overwrite(b"more")];
    let calls = calls.map(|call| run.world.begin(run.client, call));
    run.shelf.stand(false);
    run.call(|_| wire::statfs());
    let [set, written] = calls.map(|call| run.wait(call).unwrap().transno);
    assert!(0 < set && set < written, "{set} {written}");
    run.restart();
    assert_eq!(body(&run.call(|_| wire::get_attributes(object(1)))).uid, 5);
    assert!(run.read(object(2), None).starts_with(b"more"));
}
