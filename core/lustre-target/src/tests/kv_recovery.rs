//! A key-value target that dies with what was not committed: what clients bring back must fit to the
//! versions that it has.

use core::time::Duration;

use lustre_wire::connect::{ConnectData, ConnectFlags};
use ptlrpc::CallError;

use super::ost_recovery::Shelf;
use super::world::World;
use crate::kv::wire::{Ask, Operation, call};
use crate::store::Change;
use crate::{Commit, Kv};

#[test]
fn p152_a_client_whose_change_is_lost_is_not_taken_back_by_a_target_that_dies_before_its_eviction()
{
    let shelf = Shelf::new(Commit::Ordered, None);
    let mut world = World::new(Kv::new(), shelf.clone());
    let flags = ConnectFlags::VERSION | ConnectFlags::AT | ConnectFlags::FULL20;
    let wanted = ConnectData { flags, ..ConnectData::default() };
    let [mine, other] = [(); 2].map(|()| world.client(wanted));
    let put = |value: &[u8]| call(Operation::Put, Ask::default(), b"key", value);
    // What comes before a client joins is committed with that.
    for client in [mine, other] {
        world.call(client, put(b"first")).unwrap();
    }
    world.call(other, put(b"of the other")).unwrap();
    world.call(mine, put(b"mine")).unwrap();
    // What the one had met goes with the other.
    world.kill(other);
    let shelf = shelf.survivor();
    world.restart(Kv::new(), shelf.clone());
    let get = world.begin(mine, call(Operation::Get, Ask::default(), b"key", b""));
    let end = (0..40).find_map(|_| {
        world.pass(Duration::from_secs(20));
        world.end_of(mine, get)
    });
    assert_eq!(end.unwrap().unwrap_err(), CallError::Evicted);
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
