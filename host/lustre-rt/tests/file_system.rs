//! A file system of our own over sockets: what a client has made in it a visitor lists and reads, also
//! after the server has begun again.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::time::Duration;

use lnet_rt::{Nid, NodeBuilder, NodeHandle};
use lnet_types::ByteOrder;
use lustre_rt::store::{DESCRIPTION, DirLock};
use lustre_rt::visitor::{Access, Changes, Create, FileKind, Identity, OpenHow, Whole, Wish};
use lustre_rt::{
    Call, ConnectData, ConnectFlags, ConnectFlags2, Fid, ImportConfig, ImportKind, Lose, MGS_UUID,
    Mount, MountConfig, ObjClient, Opcode, Part, Rpc, RpcNode, Site, TargetSpec, wait,
};
use lustre_wire::Buffers;
use lustre_wire::fid::{SeqOp, SeqRange};
use lustre_wire::ldlm::{Intent, LockDesc, LockFlags, LockKind, LockMode, LockRequest};
use lustre_wire::mds::{CreateRecord, Epoch, MdtBody, RecordHead, ReintOp, SetattrRecord};
use lustre_wire::striping::{Magic, StripeHead, Striping};

const LITTLE: ByteOrder = ByteOrder::Little;
const ROOT: Fid = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };
const PORT: u16 = 7996;
const SERVER: &str = "127.96.0.1";
/// The servers of the other tests.
const OTHER: &str = "127.96.1.1";
const THIRD: &str = "127.96.2.1";
const FOURTH: &str = "127.96.3.1";
const FIFTH: &str = "127.96.4.1";
const SIXTH: &str = "127.96.7.1";
const SEVENTH: &str = "127.96.8.1";
const EIGHTH: &str = "127.96.9.1";
const NINTH: &str = "127.96.11.1";
const MDT: &str = "lfs-MDT0000_UUID";
const STRIPE: usize = 64 << 10;

fn node(ip: &str) -> (NodeHandle, RpcNode) {
    let node = NodeBuilder::new().tcp(ip.parse().unwrap(), PORT).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    (node, rpc)
}

fn nid(server: &str) -> Nid {
    format!("{server}@tcp").parse().unwrap()
}

/// All targets of a file system below a folder.
fn serve(server: &str, dir: &std::path::Path) -> (NodeHandle, RpcNode) {
    let (node, rpc) = node(server);
    rpc.serve_targets().unwrap();
    let site = Site::on_one_node("lfs", 2, &[nid(server)]).unwrap();
    for (name, kind) in
        [("lfs-OST0000_UUID", "ost"), ("lfs-OST0001_UUID", "ost"), (MGS_UUID, "mgs"), (MDT, "mdt")]
    {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        if kind != "ost" {
            fs::write(dir.join(DESCRIPTION), site.to_string()).unwrap();
        }
        let spec: TargetSpec = format!("{name}={kind}:{}", dir.display()).parse().unwrap();
        rpc.start_target(&spec, DirLock::take(&dir).unwrap()).unwrap();
    }
    (node, rpc)
}

/// Makes directory `d`, and in it file `f` with these bytes in stripes over two targets.
fn make(bytes: &[u8]) {
    let (_node, rpc) = node("127.96.0.2");
    let flags = ConnectFlags::VERSION
        | ConnectFlags::AT
        | ConnectFlags::FULL20
        | ConnectFlags::FID
        | ConnectFlags::IBITS
        | ConnectFlags::BULK_MBITS
        | ConnectFlags::FLAGS2;
    let flags2 = ConnectFlags2::REP_MBITS;
    let config = ImportConfig {
        kind: ImportKind::Mdc,
        target: MDT.to_owned(),
        client: "maker".to_owned(),
        nids: vec![nid(SERVER)],
        wanted: ConnectData { flags, flags2, ..ConnectData::default() },
    };
    let mdt = rpc.import(config).unwrap();
    let call = |opcode, buffers, lens: &[u32]| {
        let call = Call::new(opcode, buffers).answered_by(lens);
        mdt.call(call).unwrap().blocking().0.unwrap()
    };
    let buffers = Buffers::new().layout(&SeqOp::META).layout(&SeqRange::default());
    let reply = call(Opcode::SEQ_QUERY, buffers, &[24]);
    let seq = reply.msg().unwrap().get::<SeqRange>(1).unwrap().start;
    let record = |opcode, fid1, oid, mode, flags_low| {
        let fid2 = Fid { seq, oid, ver: 0 };
        let head = RecordHead { opcode, cap: u32::MAX, fid1, fid2, ..RecordHead::default() };
        CreateRecord { head, mode, time: 1_795_000_000, flags_low, ..CreateRecord::default() }
    };
    let dir = record(ReintOp::CREATE, ROOT, 1, 0o040_755, 0);
    let buffers = Buffers::new().layout(&dir).bytes(b"").bytes(b"d\0").bytes(b"").bytes(b"");
    call(Opcode::MDS_REINT, buffers, &[216, 0, 0]);
    let desc = LockDesc { kind: LockKind::IBITS, requested: LockMode::CR, ..LockDesc::default() };
    let lock = LockRequest::new(LockFlags::HAS_INTENT, 1, desc, &[1]);
    // For writing, to be made, with a layout.
    let open = record(ReintOp::OPEN, dir.head.fid2, 2, 0o100_640, 0x4000_0042);
    let (magic, stripe_size) = (Magic::V1, STRIPE as u32);
    let head = StripeHead { magic, stripe_size, stripe_count: 2, ..StripeHead::default() };
    let buffers = Buffers::from([lock.to_bytes(LITTLE)])
        .layout(&(Intent::OPEN | Intent::CREAT))
        .layout(&open)
        .bytes(b"")
        .bytes(b"")
        .bytes(b"f\0")
        .layout(&head);
    let buffers = buffers.up_to(11);
    let reply = call(Opcode::LDLM_ENQUEUE, buffers, &[112, 216, 4096, 0, 0, 0, 16]);
    let msg = reply.msg().unwrap();
    let body: MdtBody = msg.get(2).unwrap();
    let Striping::Plain(stripes) = Striping::parse(msg.buffer(3).unwrap()).unwrap() else {
        panic!("a plain layout");
    };
    assert_eq!(stripes.objects.len(), 2);
    for (i, object) in stripes.objects.iter().enumerate() {
        let uuid = format!("lfs-OST{:04x}_UUID", object.index);
        let objects = ObjClient::new(&rpc, &uuid, "maker", vec![nid(SERVER)]).unwrap();
        for (round, part) in bytes.chunks(STRIPE).skip(i).step_by(2).enumerate() {
            objects.write(object.id, (round * STRIPE) as u64, part).unwrap();
        }
        objects.disconnect().unwrap();
    }
    let opcode = ReintOp::SETATTR;
    let times = SetattrRecord { opcode, fid: body.fid1, ..SetattrRecord::default() };
    let handle = Epoch { handle: body.open_handle };
    let buffers = Buffers::new().layout(&handle).layout(&times).bytes(b"");
    call(Opcode::MDS_CLOSE, buffers, &[216, 0, 0, 0, 0]);
    mdt.disconnect().unwrap();
}

fn config(ip: &str, server: &str, access: Access) -> MountConfig {
    MountConfig {
        mgs: vec![nid(server)],
        fsname: "lfs".to_owned(),
        client: format!("visitor-{ip}"),
        who: Default::default(),
        access,
        limit: Duration::from_secs(60),
        interrupt: Default::default(),
        pace: Default::default(),
    }
}

/// A visit from a host of its own, and its node.
fn begin(ip: &str, server: &str, access: Access) -> (NodeHandle, RpcNode, Mount) {
    let (node, rpc) = node(ip);
    let mount = wait(Mount::begin(&rpc, config(ip, server, access))).unwrap();
    (node, rpc, mount)
}

/// What a visitor sees: the names of `d` with kind and size, and the bytes of `d/f`, which it opens by
/// the listing alone.
fn visit(ip: &str) -> (Vec<(String, FileKind, u64)>, Vec<u8>) {
    let (_node, _rpc, mount) = begin(ip, SERVER, Access::Read);
    wait(async {
        let node = mount.find(b"/d", true).await.unwrap();
        let mut dir = mount.open_dir(&node).await.unwrap();
        let names = mount.read_dir(&mut dir).await.unwrap();
        let listed = mount.list(&node, &names).await.into_iter().map(|one| one.unwrap().unwrap());
        let named = names.iter().map(|name| String::from_utf8(name.name.clone()).unwrap());
        let seen = named.zip(listed).map(|(name, one)| (name, one.kind, one.size)).collect();
        let file = mount.open_listed(&node, &names[0]).await.unwrap();
        let mut bytes = Vec::new();
        for part in mount.read(&file, 0, 1 << 30).await.unwrap() {
            assert_eq!(part.offset, bytes.len() as u64);
            bytes.extend(part.bytes);
        }
        mount.close(file).await.unwrap();
        mount.end().await.unwrap();
        (seen, bytes)
    })
}

#[test]
fn what_a_client_has_made_is_listed_and_read_also_after_a_restart_of_the_server() {
    let dir = fresh::path("file-system");
    let bytes: Vec<u8> = (0..500_000u32).map(|i| (i / 7 % 251) as u8).collect();
    let (server, rpc) = serve(SERVER, &dir);
    make(&bytes);
    let expected = vec![("f".to_owned(), FileKind::File, bytes.len() as u64)];
    let (seen, read) = visit("127.96.0.3");
    assert_eq!(seen, expected);
    assert!(read == bytes);
    rpc.stop_targets().unwrap();
    server.stop(Duration::from_secs(1)).blocking();
    let (_server, _rpc) = serve(SERVER, &dir);
    let (seen, read) = visit("127.96.0.4");
    assert_eq!(seen, expected);
    assert!(read == bytes);
    let _ = fs::remove_dir_all(&dir);
}

/// Objects say the time of the last change that their writes have said, as readers take the latest of
/// all (C-51, C-120).
#[test]
fn file_gets_the_time_that_it_is_to_have_in_the_end_from_each_write() {
    const THEN: i64 = 1_600_000_000;
    let dir = fresh::path("file-times");
    let (_server, _rpc) = serve(OTHER, &dir);
    let (_node, rpc, mount) = begin("127.96.1.2", OTHER, Access::Change);
    wait(async {
        let root = mount.root_node().await.unwrap();
        let layout = Wish { count: Some(2), size: Some(STRIPE as u64), ..Wish::default() };
        let layout = layout.bytes().unwrap();
        let create = Create { mode: 0o644, exclusive: false, layout, ..Create::default() };
        let how = OpenHow { read: false, write: true, truncate: true };
        // The second one is there already: its objects have later times of before.
        for (round, kept) in [(0, true), (1, false)] {
            let mut file = mount.create(&root, b"f", how, &create).await.unwrap();
            assert_eq!(file.created(), kept, "round {round}");
            file.keep_mtime(THEN);
            mount.write(&file, 0, vec![7; 3 * STRIPE]).await.unwrap();
            let mode = Some(0o600);
            let changes =
                Changes { mtime: Some(THEN), atime: Some(THEN + 1), mode, ..Changes::default() };
            mount.close_with_changes(file, &changes).await.unwrap();
            let node = mount.find(b"/f", true).await.unwrap();
            let found = mount.attributes(&node).await.unwrap();
            let times = (found.mtime, found.atime, found.mode & 0o7777, found.size);
            assert_eq!(times, (THEN, THEN + 1, 0o600, 3 * STRIPE as u64), "round {round}");
            for (ost, id) in mount.objects_of(&node).unwrap() {
                let uuid = format!("lfs-OST{ost:04x}_UUID");
                let objects = ObjClient::new(&rpc, &uuid, "looker", vec![nid(OTHER)]).unwrap();
                assert_eq!(objects.stat(id).unwrap().mtime, THEN, "round {round}");
                objects.disconnect().unwrap();
            }
        }
        mount.end().await.unwrap();
    });
    let _ = fs::remove_dir_all(&dir);
}

/// A request beyond what objects have is refused, and the file can be used as before.
#[test]
fn write_beyond_any_file_or_object_is_an_error_of_its_own() {
    let dir = fresh::path("file-too-large");
    let (_server, _rpc) = serve(FOURTH, &dir);
    let (_node, _, mount) = begin("127.96.3.2", FOURTH, Access::Change);
    wait(async {
        let root = mount.root_node().await.unwrap();
        let mut file = mount.create(&root, b"f", OpenHow::WRITE, &Create::default()).await.unwrap();
        // The first two are beyond what our servers have, the others beyond what a file may have.
        for at in [1 << 56, 1 << 60, i64::MAX as u64, u64::MAX - 1, u64::MAX] {
            let e = mount.write_at(&mut file, at, b"x").await.unwrap_err();
            assert_eq!(e.errno(), lnet_rt::Errno::EFBIG, "{at}: {e}");
        }
        for size in [1 << 63, u64::MAX] {
            let e = mount.truncate(&mut file, size).await.unwrap_err();
            assert_eq!(e.errno(), lnet_rt::Errno::EFBIG, "{size}: {e}");
        }
        mount.write_at(&mut file, 0, b"some").await.unwrap();
        mount.truncate(&mut file, 3).await.unwrap();
        mount.close(file).await.unwrap();
        let node = mount.find(b"/f", true).await.unwrap();
        assert_eq!(mount.attributes(&node).await.unwrap().size, 3);
        mount.end().await.unwrap();
    });
    let _ = fs::remove_dir_all(&dir);
}

#[test]
fn file_that_is_made_where_a_symbolic_link_is_gets_the_place_that_the_link_names() {
    let (server, dir) = ("127.96.6.1", fresh::path("file-behind-link"));
    let (_server, _rpc) = serve(server, &dir);
    let (_node, _, mount) = begin("127.96.6.2", server, Access::Change);
    wait(async {
        let root = mount.root_node().await.unwrap();
        let sub = mount.make_dir(&root, b"sub", 0o755, &[]).await.unwrap();
        let to_sub: &[u8] = b"sub";
        for (at, name, to) in [
            (&root, &b"dir"[..], to_sub),
            (&sub, b"up", b"../made"),
            (&root, b"twice", b"dir/up"),
            (&root, b"loop", b"loop"),
            (&root, b"out", b"/etc/passwd"),
            (&root, b"nowhere", b"none/f"),
            (&root, b"slash", b"sub/"),
        ] {
            mount.make_link(at, name, to).await.unwrap();
        }
        for path in ["/made", "/twice", "/dir/up", "/sub/../twice", "//./made"] {
            let (at, name) = mount.find_place(path.as_bytes()).await.unwrap();
            let how = OpenHow::WRITE;
            let file = mount.create(&at, &name, how, &Create::default()).await.unwrap();
            assert_eq!(file.created(), path == "/made", "{path}");
            assert_eq!(name, b"made", "{path}");
            mount.close(file).await.unwrap();
        }
        // A file that is there, or may be made.
        for (path, expected) in [("/dir/new", "new"), ("/sub", "sub")] {
            assert_eq!(mount.find_place(path.as_bytes()).await.unwrap().1, expected.as_bytes());
        }
        use lnet_rt::Errno;
        for (path, errno) in [
            ("/loop", Errno::ELOOP),
            ("/out", Errno::EXDEV),
            ("/nowhere", Errno::ENOENT),
            ("/slash", Errno::EISDIR),
            ("/made/f", Errno::ENOTDIR),
            ("/sub/..", Errno::EISDIR),
            ("/new/", Errno::EISDIR),
            ("/", Errno::EISDIR),
        ] {
            let e = mount.find_place(path.as_bytes()).await.unwrap_err();
            assert_eq!(e.errno(), errno, "{path}: {e}");
        }
        mount.end().await.unwrap();
    });
    let _ = fs::remove_dir_all(&dir);
}

/// The metadata target knows of the file still: that an object of it is gone is an error of its data.
#[test]
fn object_that_is_gone_is_no_file_that_is_gone() {
    let dir = fresh::path("file-object-gone");
    let (_server, _rpc) = serve(THIRD, &dir);
    let (_node, rpc, mount) = begin("127.96.2.2", THIRD, Access::Change);
    wait(async {
        let root = mount.root_node().await.unwrap();
        let file = mount.create(&root, b"f", OpenHow::WRITE, &Create::default()).await.unwrap();
        mount.write(&file, 0, vec![7; STRIPE]).await.unwrap();
        let node = mount.find(b"/f", true).await.unwrap();
        for (ost, id) in mount.objects_of(&node).unwrap() {
            let uuid = format!("lfs-OST{ost:04x}_UUID");
            let objects = ObjClient::new(&rpc, &uuid, "remover", vec![nid(THIRD)]).unwrap();
            objects.remove(id, 1).unwrap();
            objects.disconnect().unwrap();
        }
        let written = mount.write(&file, 0, vec![8; STRIPE]).await.unwrap_err();
        assert_eq!(written.errno(), lnet_rt::Errno::EIO, "{written}");
        let read = mount.read(&file, 0, 9).await.unwrap_err();
        assert_eq!(read.errno(), lnet_rt::Errno::EIO, "{read}");
        mount.close(file).await.unwrap();
        mount.end().await.unwrap();
    });
    let _ = fs::remove_dir_all(&dir);
}

/// The owner has opened it before: permissions that it has now do not count (C-77, C-78).
#[test]
fn read_only_file_is_written_by_its_owner_after_an_eviction() {
    let (server, dir) = ("127.96.10.1", fresh::path("file-read-only"));
    let (_server, server_rpc) = serve(server, &dir);
    let (_root, _, by_root) = begin("127.96.10.2", server, Access::Change);
    let (_node, rpc) = node("127.96.10.3");
    let who = Identity { uid: 1000, gid: 1000, ..Identity::default() };
    let config = MountConfig { who, ..config("127.96.10.3", server, Access::Change) };
    wait(async {
        let root = by_root.root_node().await.unwrap();
        by_root.make_dir(&root, b"open", 0o777, &[]).await.unwrap();
        let mount = Mount::begin(&rpc, config).await.unwrap();
        let sub = mount.find(b"/open", true).await.unwrap();
        let create = Create { mode: 0o444, ..Create::default() };
        let mut file = mount.create(&sub, b"f", OpenHow::WRITE, &create).await.unwrap();
        mount.write_at(&mut file, 0, b"some").await.unwrap();
        mount.fsync(&file).await.unwrap();
        let ours = |e: &lustre_rt::ExportView| e.client == "visitor-127.96.10.3" && e.target == MDT;
        for export in server_rpc.exports().unwrap().into_iter().filter(ours) {
            server_rpc.with(move |rpc| rpc.evict(export.id)).unwrap();
        }
        // A call learns of it.
        while mount.find(b"/open", true).await.is_err() {}
        mount.write_at(&mut file, 4, b" more").await.unwrap();
        mount.close(file).await.unwrap();
        let node = mount.find(b"/open/f", true).await.unwrap();
        assert_eq!(mount.attributes(&node).await.unwrap().size, 9);
        // Its permissions count for an open that is not the same one.
        assert_eq!(
            mount.open_for(&node, OpenHow::WRITE).await.unwrap_err().errno(),
            lnet_rt::Errno::EACCES
        );
        mount.end().await.unwrap();
        by_root.end().await.unwrap();
    });
    let _ = fs::remove_dir_all(&dir);
}

/// A program that has mounted a file system outlives its servers.
#[test]
fn target_that_was_away_for_longer_than_the_limit_is_used_again_when_it_is_back() {
    let dir = fresh::path("file-away");
    let (server, server_rpc) = serve(FIFTH, &dir);
    let (_node, rpc) = node("127.96.4.2");
    let limit = Duration::from_secs(3);
    let config = MountConfig { limit, ..config("127.96.4.2", FIFTH, Access::Change) };
    wait(async {
        let mount = Mount::begin(&rpc, config).await.unwrap();
        let root = mount.root_node().await.unwrap();
        let file = mount.create(&root, b"f", OpenHow::WRITE, &Create::default()).await.unwrap();
        mount.write(&file, 0, vec![7; STRIPE]).await.unwrap();
        mount.close(file).await.unwrap();
        server_rpc.stop_targets().unwrap();
        drop(server_rpc);
        server.stop(Duration::from_secs(1)).blocking();
        let e = mount.find(b"/f", true).await.unwrap_err();
        assert_eq!(e.errno(), lnet_rt::Errno::ETIMEDOUT, "{e}");
        let (_server, _rpc) = serve(FIFTH, &dir);
        let mut found = mount.find(b"/f", true).await;
        for _ in 0..120 {
            if found.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(500));
            found = mount.find(b"/f", true).await;
        }
        let file = mount.open_file(&found.unwrap()).await.unwrap();
        let parts = mount.read(&file, 0, 1 << 20).await.unwrap();
        assert!(parts.into_iter().flat_map(|part| part.bytes).eq(vec![7; STRIPE]));
        mount.close(file).await.unwrap();
        mount.end().await.unwrap();
    });
    let _ = fs::remove_dir_all(&dir);
}

/// A call may wait for the lock of a client that is no more for longer than its limit.
#[test]
fn target_that_is_connected_is_asked_again_after_a_call_that_was_not_answered_in_time() {
    let dir = fresh::path("file-slow");
    let (_server, server_rpc) = serve(EIGHTH, &dir);
    let (_node, rpc) = node("127.96.9.2");
    let limit = Duration::from_secs(3);
    let config = MountConfig { limit, ..config("127.96.9.2", EIGHTH, Access::Change) };
    wait(async {
        let mount = Mount::begin(&rpc, config).await.unwrap();
        mount.root_node().await.unwrap();
        let reply = Lose { opcode: None, part: Part::Reply, count: 1 };
        server_rpc.with(move |rpc| rpc.lose(reply)).unwrap().unwrap();
        let e = mount.find(b"/none", true).await.unwrap_err();
        assert_eq!(e.errno(), lnet_rt::Errno::ETIMEDOUT, "{e}");
        let e = mount.find(b"/none", true).await.unwrap_err();
        assert_eq!(e.errno(), lnet_rt::Errno::ENOENT, "{e}");
        mount.end().await.unwrap();
    });
    let _ = fs::remove_dir_all(&dir);
}

/// C-40: what an eviction leaves of a sequence may be another client's.
#[test]
fn files_of_after_an_eviction_have_fids_of_another_sequence() {
    let dir = fresh::path("file-sequence");
    let (_server, server_rpc) = serve(NINTH, &dir);
    let (_node, _rpc, mount) = begin("127.96.11.2", NINTH, Access::Change);
    wait(async {
        let root = mount.root_node().await.unwrap();
        let made = async |name: &[u8]| {
            mount.make_dir(&root, name, 0o755, &[]).await.map(|node| node.fid.seq)
        };
        let before = made(b"a").await.unwrap();
        assert_eq!(made(b"b").await.unwrap(), before);
        let exports = server_rpc.exports().unwrap();
        let evict = move |rpc: &mut Rpc<'_, '_>| exports.iter().for_each(|e| rpc.evict(e.id));
        server_rpc.with(evict).unwrap();
        // The first call finds out; the eviction is counted when all calls of before have ended.
        let mut is_new = false;
        for name in 0..50u8 {
            let seq = made(&[b'c', name + b'0']).await;
            is_new |= seq.is_ok_and(|seq| seq != before);
        }
        assert!(is_new, "all files have FIDs of the sequence of before");
        let _ = mount.end().await;
    });
    let _ = fs::remove_dir_all(&dir);
}

/// The close of a file that is made as a whole says all that it is to have, as far as a close can.
#[test]
fn whole_file_takes_three_calls_and_has_its_times_and_permissions() {
    const THEN: i64 = 1_600_000_000;
    let dir = fresh::path("file-whole");
    let (_server, _rpc) = serve(SIXTH, &dir);
    let (_node, rpc) = node("127.96.7.2");
    let who = Identity { umask: 0o077, ..Identity::default() };
    let config = MountConfig { who, ..config("127.96.7.2", SIXTH, Access::Change) };
    wait(async {
        let mount = Mount::begin(&rpc, config).await.unwrap();
        let root = mount.root_node().await.unwrap();
        let calls = || rpc.client_stats().unwrap().calls;
        // The first two connect their targets, and FIDs are asked for.
        for (name, size, atime, more) in [
            ("first", 9, THEN - 5, None),
            ("second", 9, THEN - 5, None),
            ("read-before", 9, THEN - 5, Some(0)),
            ("as-old", 9, THEN, Some(0)),
            ("empty", 0, THEN - 5, Some(0)),
            ("read-since", 9, THEN + 3600, Some(0)),
            // A close lets no time of access be newer by less than a minute.
            ("read-soon", 9, THEN + 5, Some(1)),
        ] {
            let mode = 0o666;
            let whole = Some(Whole { size, atime, mtime: THEN });
            let create = Create { mode, exclusive: true, whole, ..Create::default() };
            let how = OpenHow { read: false, write: true, truncate: true };
            let before = calls();
            let file = mount.create(&root, name.as_bytes(), how, &create).await.unwrap();
            if size > 0 {
                mount.write(&file, 0, vec![7; 9]).await.unwrap();
            }
            let (atime, mtime) = (Some(atime), Some(THEN));
            let changes = Changes { mode: Some(mode), atime, mtime, ..Changes::default() };
            mount.close_with_changes(file, &changes).await.unwrap();
            if let Some(more) = more {
                assert_eq!(calls() - before, 2 + u64::from(size > 0) + more, "{name}");
            }
            let node = mount.find(format!("/{name}").as_bytes(), true).await.unwrap();
            let found = mount.attributes(&node).await.unwrap();
            let times = (Some(found.atime), Some(found.mtime), found.mode & 0o7777, found.size);
            assert_eq!(times, (atime, mtime, 0o666, size), "{name}");
            assert!(found.ctime > THEN + 3600, "{name}");
        }
        mount.end().await.unwrap();
    });
    let _ = fs::remove_dir_all(&dir);
}

/// What a server is left with that dies: its folder at that time.
fn image(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() { image(&path, &to) } else { _ = fs::copy(&path, &to).unwrap() }
    }
}

/// Its close is answered before its data are committed (C-261): they are repeated to a server that has lost
/// them, and what waits for all changes waits for them.
#[test]
fn whole_file_that_a_crash_undoes_is_there_when_its_visit_has_settled() {
    let (dir, left) = (fresh::path("file-undone"), fresh::path("file-undone-left"));
    let (server, server_rpc) = serve(SEVENTH, &dir);
    let (_node, rpc, mount) = begin("127.96.8.2", SEVENTH, Access::Change);
    wait(async {
        let root = mount.root_node().await.unwrap();
        let names = ["a", "b", "c", "d"];
        let mut files = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let whole = Some(Whole { size: 9, atime: at as i64, mtime: at as i64 });
            let create = Create { mode: 0o644, exclusive: true, whole, ..Create::default() };
            files
                .push(mount.create(&root, name.as_bytes(), OpenHow::WRITE, &create).await.unwrap());
        }
        mount.settle().await.unwrap();
        // Each target has answered something: it is connected, and has this client on record.
        assert!(mount.space().await.iter().all(|target| target.space.is_ok()));
        image(&dir, &left);
        for file in &files {
            mount.write(file, 0, b"some data").await.unwrap();
        }
        for file in files {
            mount.close(file).await.unwrap();
        }
        server_rpc.stop_targets().unwrap();
        drop(server_rpc);
        server.stop(Duration::from_secs(1)).blocking();
        let (_server, _rpc) = serve(SEVENTH, &left);
        mount.settle().await.unwrap();
        assert!(rpc.client_stats().unwrap().replayed >= 8);
        for (at, name) in names.iter().enumerate() {
            let node = mount.find(format!("/{name}").as_bytes(), true).await.unwrap();
            let file = mount.open_file(&node).await.unwrap();
            assert_eq!(file.attributes().mtime, at as i64, "{name}");
            let parts = mount.read(&file, 0, 99).await.unwrap();
            assert!(parts.into_iter().flat_map(|part| part.bytes).eq(*b"some data"), "{name}");
            mount.close(file).await.unwrap();
        }
        mount.end().await.unwrap();
    });
    for dir in [dir, left] {
        let _ = fs::remove_dir_all(&dir);
    }
}
