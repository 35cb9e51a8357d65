//! Targets that die with what was not committed. What the clients of a key-value target bring back fits to
//! what the others have lost; what does not fit is the end of a client.

use core::time::Duration;

use lnet_types::Errno;
use lustre_wire::connect::{ConnectData, ConnectFlags};
use ptlrpc::{Answer, Call, CallError, Served, ServedId};

use super::ost_recovery::Shelf;
use super::world::{Client, World};
use crate::journal::{Cx, When};
use crate::kv::wire::{Ask, Operation, call};
use crate::store::{Change, Outcome, StoreError};
use crate::{Commit, Kind, Kv};

fn wanted() -> ConnectData {
    let flags = ConnectFlags::VERSION | ConnectFlags::AT | ConnectFlags::FULL20;
    ConnectData { flags, ..ConnectData::default() }
}

fn put(value: &[u8]) -> Call {
    call(Operation::Put, Ask::default(), b"key", value)
}

/// The value, or how it failed, up to 800 s later.
fn value(world: &mut World, client: Client) -> Result<Vec<u8>, CallError> {
    let get = world.begin(client, call(Operation::Get, Ask::default(), b"key", b""));
    let end = (0..40).find_map(|_| {
        world.pass(Duration::from_secs(20));
        world.end_of(client, get)
    });
    let reply = end.expect("an end")?;
    Ok(reply.msg().unwrap().buffer(2).unwrap_or_default().to_vec())
}

/// Two clients of a target with a value. What comes before a client joins is committed with that.
fn two_clients() -> (World, Shelf, [Client; 2]) {
    let shelf = Shelf::new(Commit::Ordered, None);
    let mut world = World::new(Kv::new(), shelf.clone());
    let clients = [(); 2].map(|()| world.client(wanted()));
    for client in clients {
        world.call(client, put(b"first")).unwrap();
    }
    (world, shelf, clients)
}

#[test]
fn a_client_that_changes_what_another_one_may_lose_is_not_evicted_when_it_is_lost() {
    for dies in [false, true] {
        let (mut world, shelf, [mine, other]) = two_clients();
        world.lose_reply(Operation::Put.opcode());
        let lost = world.begin(other, put(b"of the other"));
        assert!(world.end_of(other, lost).is_none(), "its answer is lost");
        world.call(mine, put(b"mine")).unwrap();
        if dies {
            world.kill(other);
        }
        world.restart(Kv::new(), shelf.survivor());
        assert_eq!(value(&mut world, mine), Ok(b"mine".to_vec()), "the other dies: {dies}");
    }
}

#[test]
fn a_client_that_changes_a_key_twice_at_a_time_is_not_evicted_when_the_first_answer_is_lost() {
    let (mut world, shelf, [mine, _]) = two_clients();
    world.lose_reply(Operation::Put.opcode());
    let lost = world.begin(mine, put(b"second"));
    assert!(world.end_of(mine, lost).is_none(), "its answer is lost");
    world.call(mine, put(b"third")).unwrap();
    world.restart(Kv::new(), shelf.survivor());
    assert_eq!(value(&mut world, mine), Ok(b"third".to_vec()));
}

#[test]
fn changes_of_one_client_that_has_the_answers_wait_for_no_commit() {
    let (mut world, shelf, [mine, other]) = two_clients();
    let mut orders = |client| {
        let before = shelf.orders();
        world.call(client, put(b"next")).unwrap();
        shelf.orders() - before
    };
    // The value is another client's.
    let synced = orders(mine);
    let alone = orders(mine);
    assert_eq!((orders(mine), orders(mine)), (alone, alone));
    assert_eq!((orders(other), synced), (alone + 1, alone + 1), "one is a commit");
}

/// A target to which nothing fits that is repeated.
struct Unfit;

impl Kind for Unfit {
    fn name(&self) -> &'static str {
        "unfit"
    }

    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        if served.replay.is_some() {
            return cx.unfit(&served);
        }
        cx.commit(&served, Answer::default(), Vec::new(), When::Applied);
    }

    fn bulk_done(&mut self, _: ServedId, _: Result<(), Errno>, _: &mut Cx<'_, '_, '_>) -> bool {
        false
    }

    fn stored(&mut self, _: u64, _: Result<Outcome, StoreError>, _: &mut Cx<'_, '_, '_>) {}
}

#[test]
fn p152_a_client_whose_change_is_lost_is_not_taken_back_by_a_target_that_dies_before_its_eviction()
{
    let shelf = Shelf::new(Commit::Ordered, None);
    let mut world = World::new(Unfit, shelf.clone());
    let [mine, other] = [(); 2].map(|()| world.client(wanted()));
    for client in [other, mine] {
        world.call(client, put(b"changed")).unwrap();
    }
    // As long as it is awaited no client is evicted.
    world.kill(other);
    let shelf = shelf.survivor();
    world.restart(Unfit, shelf.clone());
    assert_eq!(value(&mut world, mine), Err(CallError::Evicted));
    let (mut records, mut gone) = (Vec::new(), 0);
    for change in shelf.of_clients() {
        match change {
            Change::Put(_, client, record) => records.push((client, record)),
            // Of the other one first.
            _ => gone += 1,
        }
    }
    let [(client, record), (again, admitted)] = &records[..] else { panic!("{records:?}") };
    assert_eq!((client, gone), (again, 2), "its record changes, and goes, and it joins");
    assert_ne!(record, admitted);
}
