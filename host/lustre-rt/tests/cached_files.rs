//! Files whose data are cached under locks, beside visitors of the same file system.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::time::Duration;

use lnet_rt::{Errno, NodeBuilder, NodeHandle};
use lustre_rt::visitor::{
    Access, Changes, Create, Identity, OpenFile, OpenHow, Part, VisitError, Wish,
};
use lustre_rt::{CachedMount, MGS_UUID, Mount, MountConfig, Ost, OstLimits, RpcNode, Site, wait};
use lustre_target::{Commit, Mdt, MemoryStore, Mgs};

const PORT: u16 = 7990;
const STRIPE: u64 = 64 << 10;

/// A file system on a node of the test, with four object targets in memory.
fn serve(ip: &str) -> (NodeHandle, RpcNode) {
    let (node, rpc) = node(ip);
    rpc.serve_targets().unwrap();
    let site = Site::on_one_node("lfs", 4, &[format!("{ip}@tcp").parse().unwrap()]).unwrap();
    let store = || MemoryStore::new(Commit::AtOnce, 1 << 30);
    for n in 0..4 {
        let uuid = format!("lfs-OST000{n}_UUID");
        rpc.add_target_in_memory(&uuid, Ost::new(OstLimits::default()), store()).unwrap();
    }
    rpc.add_target_in_memory(MGS_UUID, Mgs::new(std::slice::from_ref(&site)), store()).unwrap();
    let mut names = store();
    let mdt = Mdt::load(site, &mut names).unwrap();
    rpc.add_target_in_memory("lfs-MDT0000_UUID", mdt, names).unwrap();
    (node, rpc)
}

fn node(ip: &str) -> (NodeHandle, RpcNode) {
    let node = NodeBuilder::new().tcp(ip.parse().unwrap(), PORT).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    (node, rpc)
}

fn config(ip: &str, server: &str) -> MountConfig {
    MountConfig {
        mgs: vec![format!("{server}@tcp").parse().unwrap()],
        fsname: "lfs".to_owned(),
        client: format!("client-{ip}"),
        who: Identity { umask: 0o22, ..Identity::default() },
        access: Access::Change,
        limit: Duration::from_secs(60),
        interrupt: Default::default(),
        pace: Default::default(),
    }
}

fn bytes(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|n| ((n ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn whole(parts: Vec<Part>) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        assert_eq!(part.offset, all.len() as u64, "parts have no gap");
        let end = all.len() + part.len as usize;
        all.extend(part.bytes);
        all.resize(end, 0);
    }
    all
}

async fn create(mount: &Mount, name: &str, wish: Wish) -> OpenFile {
    let root = mount.root_node().await.unwrap();
    let layout = wish.bytes().unwrap();
    let create = Create { mode: 0o644, exclusive: true, layout, ..Create::default() };
    mount.create(&root, name.as_bytes(), OpenHow::WRITE, &create).await.unwrap()
}

/// What a visitor finds in a file: where it ends, and its bytes.
async fn visited(mount: &Mount, path: &str) -> (u64, Vec<u8>) {
    let node = mount.find(path.as_bytes(), true).await.unwrap();
    let file = mount.open_file(&node).await.unwrap();
    let found = whole(mount.read(&file, 0, 1 << 30).await.unwrap());
    let size = mount.attributes(&node).await.unwrap().size;
    mount.close(file).await.unwrap();
    (size, found)
}

#[test]
fn what_is_cached_is_found_by_visitors_and_what_they_write_by_those_that_cache() {
    let server = "127.90.1.1";
    let (_node, _rpc) = serve(server);
    let ((_a, one), (_b, other)) = (node("127.90.1.2"), node("127.90.1.3"));
    wait(async {
        let cached = CachedMount::begin(&one, config("127.90.1.2", server)).await.unwrap();
        let visitor = Mount::begin(&other, config("127.90.1.3", server)).await.unwrap();
        let two = Wish { count: Some(2), size: Some(STRIPE), ..Wish::default() };
        let mut file = create(&cached, "striped", two).await;
        let mut expected = bytes(300_000, 1);
        cached.write_at(&mut file, 0, expected.clone()).await.unwrap();
        cached.write_at(&mut file, 1_000_000, b"end".to_vec()).await.unwrap();
        expected.resize(1_000_000, 0);
        expected.extend(b"end");
        // The program that caches does nothing meanwhile.
        assert!(visited(&visitor, "/striped").await == (1_000_003, expected.clone()));

        let node = visitor.find(b"/striped", true).await.unwrap();
        let mut there = visitor.open_for(&node, OpenHow::WRITE).await.unwrap();
        let patch = bytes(100_000, 2);
        visitor.write_at(&mut there, 50_000, &patch).await.unwrap();
        visitor.close(there).await.unwrap();
        expected.splice(50_000..150_000, patch);
        assert!(whole(cached.read(&file, 0, u64::MAX).await.unwrap()) == expected);
        let last = cached.read(&file, 999_999, 100).await.unwrap();
        assert_eq!(last.iter().map(|part| part.len).sum::<u64>(), 4);

        assert_eq!(cached.append(&mut file, b"more".to_vec()).await.unwrap(), 1_000_003);
        assert_eq!(cached.size(&file).await.unwrap(), 1_000_007);
        cached.truncate(&mut file, 70_000).await.unwrap();
        cached.write_at(&mut file, 70_001, b"x".to_vec()).await.unwrap();
        expected.truncate(70_000);
        expected.extend(b"\0x");
        assert!(whole(cached.read(&file, 0, u64::MAX).await.unwrap()) == expected);
        cached.fsync(&file).await.unwrap();
        assert!(visited(&visitor, "/striped").await == (70_002, expected.clone()));
        let mtime = Changes { mtime: Some(1_000_000_000), ..Changes::default() };
        cached.close_with_changes(file, &mtime).await.unwrap();
        let node = visitor.find(b"/striped", true).await.unwrap();
        assert_eq!(visitor.attributes(&node).await.unwrap().mtime, 1_000_000_000);
        cached.end().await.unwrap();
        assert!(visited(&visitor, "/striped").await == (70_002, expected));
        visitor.end().await.unwrap();
    });
}

#[test]
fn data_on_the_metadata_target_go_beside_the_cache() {
    let server = "127.90.2.1";
    let (_node, _rpc) = serve(server);
    let ((_a, one), (_b, other)) = (node("127.90.2.2"), node("127.90.2.3"));
    wait(async {
        let cached = CachedMount::begin(&one, config("127.90.2.2", server)).await.unwrap();
        let visitor = Mount::begin(&other, config("127.90.2.3", server)).await.unwrap();
        let wish = Wish { on_mdt: Some(STRIPE), ..Wish::default() };
        let mut file = create(&cached, "both", wish).await;
        let expected = bytes(200_000, 3);
        cached.write_at(&mut file, 0, expected.clone()).await.unwrap();
        assert!(visited(&visitor, "/both").await == (200_000, expected.clone()));
        assert_eq!(cached.size(&file).await.unwrap(), 200_000);
        assert!(whole(cached.read(&file, 0, u64::MAX).await.unwrap()) == expected);
        cached.close(file).await.unwrap();
        cached.end().await.unwrap();
        visitor.end().await.unwrap();
    });
}

#[test]
fn what_an_eviction_has_lost_is_said_once_by_fsync_and_once_by_close() {
    let server = "127.90.3.1";
    let (_node, rpc) = serve(server);
    let (_a, one) = node("127.90.3.2");
    let errno = |result: Result<(), VisitError>| result.unwrap_err().errno();
    wait(async {
        let cached = CachedMount::begin(&one, config("127.90.3.2", server)).await.unwrap();
        let mut file = create(&cached, "f", Wish::default()).await;
        cached.write_at(&mut file, 0, vec![1; 100]).await.unwrap();
        cached.fsync(&file).await.unwrap();
        cached.write_at(&mut file, 4096, vec![2; 100]).await.unwrap();
        for export in rpc.exports().unwrap().into_iter().filter(|e| e.client.ends_with("+c")) {
            rpc.with(move |rpc| rpc.evict(export.id)).unwrap();
        }
        assert_eq!(errno(cached.fsync(&file).await), Errno::EIO);
        cached.fsync(&file).await.unwrap();
        cached.write_at(&mut file, 100, vec![3; 100]).await.unwrap();
        assert_eq!(errno(cached.close(file).await), Errno::EIO);
        let (size, found) = visited(&cached, "/f").await;
        assert_eq!((size, &found[..]), (200, &[vec![1; 100], vec![3; 100]].concat()[..]));
        cached.end().await.unwrap();
    });
}

#[test]
fn c261_end_brings_data_of_open_files_to_their_targets_or_names_the_files_that_have_lost_some() {
    let server = "127.90.6.1";
    let (_node, rpc) = serve(server);
    let ((_a, one), (_b, other)) = (node("127.90.6.2"), node("127.90.6.3"));
    wait(async {
        for evicts in [false, true] {
            let client = format!("127.90.6.2-{evicts}");
            let cached = CachedMount::begin(&one, config(&client, server)).await.unwrap();
            let four = Wish { count: Some(4), size: Some(STRIPE), ..Wish::default() };
            let mut kept = create(&cached, &format!("kept-{evicts}"), four).await;
            let mut open = create(&cached, &format!("open-{evicts}"), Wish::default()).await;
            // What is said by a close is not said again.
            let mut closed = create(&cached, &format!("closed-{evicts}"), Wish::default()).await;
            cached.write_at(&mut kept, 0, bytes(300_000, 6)).await.unwrap();
            cached.fsync(&kept).await.unwrap();
            for file in [&mut open, &mut closed] {
                cached.write_at(file, 0, vec![1; 100]).await.unwrap();
                cached.fsync(file).await.unwrap();
                cached.write_at(file, 100, vec![2; 100]).await.unwrap();
            }
            let caching = |e: &lustre_rt::ExportView| e.client.ends_with("+c");
            if evicts {
                for export in rpc.exports().unwrap().into_iter().filter(caching) {
                    rpc.with(move |rpc| rpc.evict(export.id)).unwrap();
                }
            }
            let fid = open.attributes().fid;
            assert_eq!(cached.close(closed).await.is_err(), evicts);
            let ended = cached.end().await;
            let lost = Err(VisitError::DataLost { files: vec![(fid, Errno::EIO)] });
            assert_eq!(ended, if evicts { lost } else { Ok(()) });
            let visitor = Mount::begin(&other, config("127.90.6.3", server)).await.unwrap();
            let expected = if evicts { 100 } else { 200 };
            assert_eq!(visited(&visitor, &format!("/open-{evicts}")).await.0, expected);
            assert_eq!(visited(&visitor, &format!("/kept-{evicts}")).await.0, 300_000);
            visitor.end().await.unwrap();
        }
    });
}

#[test]
fn c263_file_is_opened_again_by_its_fid_when_its_metadata_target_has_evicted_its_client() {
    let server = "127.90.7.1";
    let (_node, rpc) = serve(server);
    let ((_a, one), (_b, other)) = (node("127.90.7.2"), node("127.90.7.3"));
    wait(async {
        let visitor = Mount::begin(&one, config("127.90.7.2", server)).await.unwrap();
        let foreign = Mount::begin(&other, config("127.90.7.3", server)).await.unwrap();
        let mut files = Vec::new();
        for name in ["kept", "closed", "gone"] {
            let mut file = create(&visitor, name, Wish::default()).await;
            visitor.write_at(&mut file, 0, &[1; 100]).await.unwrap();
            visitor.fsync(&file).await.unwrap();
            files.push(file);
        }
        let [mut kept, closed, mut gone] = files.try_into().unwrap();
        let of_mdt =
            |e: &lustre_rt::ExportView| e.client == "client-127.90.7.2" && e.target.contains("MDT");
        for export in rpc.exports().unwrap().into_iter().filter(of_mdt) {
            rpc.with(move |rpc| rpc.evict(export.id)).unwrap();
        }
        // A call learns of it.
        while visitor.find(b"/kept", true).await.is_err() {}
        let remove = async |name: &str| {
            let node = foreign.find(name.as_bytes(), true).await.unwrap();
            foreign.remove(&node).await.unwrap();
        };
        // No open is left of this one.
        remove("/gone").await;
        assert_eq!(visitor.write_at(&mut gone, 0, &[2]).await.unwrap_err().errno(), Errno::EIO);
        visitor.close(gone).await.unwrap();
        visitor.write_at(&mut kept, 100, &[2; 100]).await.unwrap();
        remove("/kept").await;
        let found = whole(visitor.read(&kept, 0, 1000).await.unwrap());
        assert_eq!(found, [vec![1; 100], vec![2; 100]].concat());
        visitor.close(kept).await.unwrap();
        assert!(visitor.find(b"/kept", true).await.is_err());
        visitor.close(closed).await.unwrap();
        assert_eq!(visited(&foreign, "/closed").await.0, 100);
        foreign.end().await.unwrap();
        visitor.end().await.unwrap();
    });
}

#[test]
fn file_that_is_not_open_for_writing_is_not_written_and_none_is_longer_than_offsets() {
    let server = "127.90.4.1";
    let (_node, _rpc) = serve(server);
    let (_a, one) = node("127.90.4.2");
    wait(async {
        let cached = CachedMount::begin(&one, config("127.90.4.2", server)).await.unwrap();
        let mut file = create(&cached, "f", Wish::default()).await;
        let far = cached.write_at(&mut file, u64::MAX - 1, vec![1; 100]).await;
        assert_eq!(far.unwrap_err().errno(), Errno::EFBIG);
        let behind = cached.write_at(&mut file, u64::MAX - 100, vec![1; 100]).await;
        assert_eq!(behind.unwrap_err().errno(), Errno::EFBIG);
        cached.close(file).await.unwrap();
        let node = cached.find(b"/f", true).await.unwrap();
        let mut file = cached.open_file(&node).await.unwrap();
        let refused = cached.write_at(&mut file, 0, vec![1; 100]).await;
        assert_eq!(refused.unwrap_err().errno(), Errno::EBADF);
        assert_eq!(cached.size(&file).await.unwrap(), 0);
        cached.close(file).await.unwrap();
        cached.end().await.unwrap();
    });
}

#[test]
fn pa022_a_file_of_four_stripes_costs_one_lock_on_each_of_four_targets() {
    let server = "127.90.5.1";
    let (_node, rpc) = serve(server);
    let (_a, one) = node("127.90.5.2");
    let asked = || -> Vec<(String, u64)> {
        // An open brings a lock that is not asked for, and that is given back at once.
        let rows = rpc.namespaces().unwrap().into_iter().filter(|row| row.target.contains("-OST"));
        rows.map(|row| (row.target, row.stats.enqueues)).collect()
    };
    wait(async {
        let cached = CachedMount::begin(&one, config("127.90.5.2", server)).await.unwrap();
        let four = Wish { count: Some(4), size: Some(STRIPE), ..Wish::default() };
        let mut file = create(&cached, "f", four).await;
        cached.write_at(&mut file, 0, bytes(8 * STRIPE as usize, 4)).await.unwrap();
        cached.write_at(&mut file, 10, bytes(8 * STRIPE as usize, 5)).await.unwrap();
        assert_eq!(whole(cached.read(&file, 0, u64::MAX).await.unwrap()).len(), 8 * 65_536 + 10);
        assert_eq!(asked(), (0..4).map(|n| (format!("lfs-OST000{n}_UUID"), 1)).collect::<Vec<_>>());
        cached.close(file).await.unwrap();
        cached.end().await.unwrap();
    });
}
