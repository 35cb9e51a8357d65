//! Objects of programs that cache, over sockets: a target on files, clients on nodes of their own.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod stage;

use std::time::Duration;

use lnet_rt::{Errno, NodeHandle, block_on};
use lustre_rt::{Mode, Object, ObjectId, Objects, ObjectsError, RpcNode};

use stage::Dir;

const PORT: u16 = 7919;

fn serve(dir: &Dir, ip: &str) -> (NodeHandle, RpcNode) {
    stage::serve(dir, ip, PORT, "ost-0=ost")
}

fn client(ip: &str, server: &str) -> (NodeHandle, RpcNode, Objects) {
    let (node, rpc) = stage::node(ip, PORT);
    let nids = vec![format!("{server}@tcp").parse().unwrap()];
    let objects = Objects::new(&rpc, "ost-0", ip, nids).unwrap();
    (node, rpc, objects)
}

/// An object, and a first write of it that is written through: it brings promises of space.
fn warm(objects: &Objects, id: ObjectId) -> Object {
    let object = objects.open(id);
    assert_eq!(object.write_at(0, vec![1; 4096]).blocking().unwrap(), 4096);
    object
}

fn read(object: &Object, offset: u64, len: usize) -> Vec<u8> {
    let (buffer, read) = object.read_at(offset, vec![0xEE; len]).blocking().unwrap();
    let mut bytes = buffer.into_vec();
    bytes.truncate(read);
    bytes
}

fn dirty(objects: &Objects) -> u64 {
    objects.stats().unwrap().2
}

fn failed(result: Result<u64, ObjectsError>) -> Errno {
    match result {
        Err(ObjectsError::Failed(errno)) => errno,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_cached_is_read_by_others_and_survives_an_fsync() {
    let dir = Dir::new("objects-cached");
    let _server = serve(&dir, "127.119.0.1");
    let (_a_node, a_rpc, a) = client("127.119.0.2", "127.119.0.1");
    let (_b_node, _b_rpc, b) = client("127.119.0.3", "127.119.0.1");
    let id = a.create().unwrap();
    let mine = warm(&a, id);
    mine.write_at(100_000, b"cached".to_vec()).blocking().unwrap();
    assert!(dirty(&a) > 0);
    let locks = a_rpc.object_locks().unwrap();
    assert!(locks.iter().any(|lock| lock.mode == Mode::Pw && lock.start <= 100_000), "{locks:?}");
    // The program of the first client does nothing: its node answers.
    let theirs = b.open(id);
    assert_eq!(theirs.size().blocking().unwrap(), 100_006);
    assert_eq!(read(&theirs, 100_000, 100), b"cached");
    assert_eq!(dirty(&a), 0);
    assert!(a_rpc.callbacks().unwrap().all > 0);
    // As futures, several at a time.
    let (one, two) = (mine.write_at(0, b"one".to_vec()), mine.write_at(8192, b"two".to_vec()));
    block_on(async {
        assert_eq!((one.await.unwrap(), two.await.unwrap()), (3, 3));
        mine.fsync().await.unwrap();
        let (buffer, read) = theirs.read_at(8192, vec![0; 3]).await.unwrap();
        assert_eq!((&buffer[..], read), (&b"two"[..], 3));
    });
    theirs.truncate(2).blocking().unwrap();
    assert_eq!(read(&mine, 0, 10), b"on");
    mine.close().blocking().unwrap();
    assert_eq!(a.disconnect().unwrap(), 0);
}

#[test]
fn eviction_is_said_once_by_fsync_and_once_by_close() {
    let dir = Dir::new("objects-evicted");
    let (_server, rpc) = serve(&dir, "127.119.1.1");
    let (_node, _rpc, objects) = client("127.119.1.2", "127.119.1.1");
    let id = objects.create().unwrap();
    let object = warm(&objects, id);
    object.write_at(8192, b"lost".to_vec()).blocking().unwrap();
    assert!(dirty(&objects) > 0);
    let export = rpc.exports().unwrap()[0].id;
    rpc.with(move |rpc| rpc.evict(export)).unwrap();
    assert_eq!(failed(object.fsync().blocking()), Errno::EIO);
    object.fsync().blocking().unwrap();
    assert_eq!(failed(object.clone().close().blocking()), Errno::EIO);
    object.clone().close().blocking().unwrap();
    let (stats, _, dirty) = objects.stats().unwrap();
    assert_eq!((stats.evicted, stats.lost, dirty), (1, 4, 0));
    // It goes on.
    object.write_at(8192, b"kept".to_vec()).blocking().unwrap();
    object.fsync().blocking().unwrap();
    assert_eq!(read(&object, 8192, 10), b"kept");
}

#[test]
fn memory_of_writes_is_given_back_when_the_target_has_the_bytes() {
    let dir = Dir::new("objects-memory");
    let _server = serve(&dir, "127.119.4.1");
    let (node, _rpc, objects) = client("127.119.4.2", "127.119.4.1");
    let object = warm(&objects, objects.create().unwrap());
    let regions = || node.call(|stack, _| stack.in_use().1).blocking().unwrap();
    let before = regions();
    // Beside each other, so that they go together.
    for n in 0..200 {
        object.write_at(n * 100, vec![7; 100]).blocking().unwrap();
    }
    let cached = regions();
    assert!(
        cached > before + 20,
        "{before} before, {cached} while bytes lie where they were written"
    );
    object.fsync().blocking().unwrap();
    // The node may have taken some for messages meanwhile.
    let after = regions();
    assert_eq!(read(&object, 0, 30_000), vec![7; 20_000]);
    assert!(after < before + 10, "{before} before, {cached} then, {after} now");
}

#[test]
fn operation_ends_at_its_limit_when_no_server_answers() {
    let (_node, _rpc, objects) = client("127.119.2.2", "127.119.2.1");
    let objects = objects.with_limit(Duration::from_millis(50));
    let object = objects.open(ObjectId::old(1));
    let write = object.write_at(0, b"x".to_vec()).blocking();
    assert!(matches!(write, Err(ObjectsError::LimitPassed)), "{write:?}");
    let read = object.read_at(0, vec![0; 4]).blocking();
    assert!(matches!(read, Err(ObjectsError::LimitPassed)), "{read:?}");
    let empty = object.write_at(0, Vec::new()).blocking();
    assert!(matches!(empty, Err(ObjectsError::Begin(_))), "{empty:?}");
}

#[test]
fn object_that_does_not_exist_is_refused_by_name() {
    let dir = Dir::new("objects-none");
    let _server = serve(&dir, "127.119.3.1");
    let (_node, _rpc, objects) = client("127.119.3.2", "127.119.3.1");
    let none = objects.open(ObjectId::old(77));
    assert_eq!(failed(none.size().blocking()), Errno::ENOENT);
    assert_eq!(failed(none.write_at(0, b"x".to_vec()).blocking()), Errno::ENOENT);
}
