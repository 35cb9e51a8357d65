//! Visits to recorded file systems: names, sizes and contents are those that the users of the recorded
//! clients saw, and requests that both send are the same.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use core::future::poll_fn;
use core::pin::pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};
use std::collections::BTreeMap;
use std::sync::Mutex;

use lnet_types::{ByteOrder, Errno};
use lustre_client::visitor::{
    Access, Attributes, End, FileKind, Moved, VisitConfig, VisitError, Visitor, Wire,
};
use lustre_wire::ldlm::{LockFlags, LockRequestHead};
use lustre_wire::mds::{CreateRecord, MdtBody};
use lustre_wire::{ConnectData, Fid, ImportKind, Layout, Opcode};
use ptlrpc::{Call, CallError, CallId, ImportConfig};
use rpc_interop::archive::{Archive, Same};
use rpc_interop::visit::{ROOT, capture, config, recorded, run};

const fn file(oid: u32) -> Fid {
    Fid { seq: 0x2_0000_0402, oid, ver: 0 }
}

fn begin<'a>(archive: &'a Archive, fsname: &str) -> Result<Visitor<&'a Archive>, VisitError> {
    let config = VisitConfig { fsname: fsname.to_owned(), ..config(Access::Read) };
    run(Visitor::begin(archive, config))
}

fn stat(visitor: &Visitor<&Archive>, path: &str) -> Result<Attributes, VisitError> {
    run(async {
        let node = visitor.find(path.as_bytes(), false).await?;
        visitor.attributes(&node).await
    })
}

fn cat(visitor: &Visitor<&Archive>, path: &str) -> Result<Vec<u8>, VisitError> {
    run(async {
        let node = visitor.find(path.as_bytes(), true).await?;
        let file = visitor.open_file(&node).await?;
        let mut bytes = Vec::new();
        // In parts that end within stripes.
        while let parts = visitor.read(&file, bytes.len() as u64, 300_001).await?
            && !parts.is_empty()
        {
            for part in parts {
                assert_eq!(part.offset, bytes.len() as u64);
                let end = bytes.len() + part.len as usize;
                bytes.extend(part.bytes);
                bytes.resize(end, 0);
            }
        }
        visitor.close(file).await?;
        Ok(bytes)
    })
}

fn ls(visitor: &Visitor<&Archive>, path: &str) -> Result<Vec<String>, VisitError> {
    run(async {
        let node = visitor.find(path.as_bytes(), true).await?;
        let mut dir = visitor.open_dir(&node).await?;
        let mut names = Vec::new();
        loop {
            let more = visitor.read_dir(&mut dir).await?;
            if more.is_empty() {
                names.sort();
                return Ok(names);
            }
            names.extend(more.into_iter().map(|name| String::from_utf8(name.name).unwrap()));
        }
    })
}

/// Flags of an open (C-77).
const OPEN_BY_FID: u32 = 0x80_0000;
const OWNER_OVERRIDE: u32 = 0x200_0000;
const OPEN_LOCK: u32 = 0x2000_0000;
const NO_RESTORE: u32 = 0x2;

/// The fields of a request in which a visitor may differ from the recorded client, set to nothing.
fn without_what_may_differ(opcode: Opcode, buffers: &[Vec<u8>]) -> Vec<Vec<u8>> {
    const LITTLE: ByteOrder = ByteOrder::Little;
    let mut buffers = buffers.to_vec();
    match opcode {
        // Room for the text of a link.
        Opcode::MDS_GETATTR => {
            let mut body = MdtBody::parse(LITTLE, &buffers[0]).unwrap();
            body.eadatasize = 0;
            buffers[0] = body.to_bytes(LITTLE);
        }
        Opcode::LDLM_ENQUEUE => {
            // The client's cookie, what it cancels with the request, and the version of a directory's
            // layout that it has not read; room for a default layout.
            buffers[0].truncate(88);
            buffers[0][4..8].fill(0);
            // A visitor wants no lock beside (C-66).
            let mut head = LockRequestHead::parse(LITTLE, &buffers[0]).unwrap();
            head.flags.remove(LockFlags::INTENT_ONLY);
            buffers[0] = head.to_bytes(LITTLE);
            let mut record = CreateRecord::parse(LITTLE, &buffers[2]).unwrap();
            record.head.parent_layout_version = 0;
            // A kernel node opens by FID what it has looked up before, may skip a check then, and keeps
            // handles in its cache.
            record.head.fid2 = Fid::default();
            record.flags_low &= !(OPEN_BY_FID | OWNER_OVERRIDE | OPEN_LOCK);
            // A visitor makes nothing, and waits for no archive.
            (record.time, record.umask) = (0, 0);
            record.flags_high &= !NO_RESTORE;
            buffers[2] = record.to_bytes(LITTLE);
            buffers[5].clear();
            buffers[6].clear();
        }
        _ => {}
    }
    buffers
}

#[track_caller]
fn requests_are_the_same(archive: &Archive, opcodes: &[Opcode]) {
    let same = archive.same();
    for Same { frame, opcode, buffers: (recorded, ours), .. } in &same {
        let recorded = without_what_may_differ(*opcode, recorded);
        let ours = without_what_may_differ(*opcode, ours);
        for (i, (recorded, ours)) in recorded.iter().zip(&ours).enumerate() {
            assert_eq!(recorded, ours, "{opcode} of frame {frame}: buffer {}", i + 1);
        }
        assert_eq!(recorded.len(), ours.len(), "{opcode} of frame {frame}");
    }
    for opcode in opcodes {
        assert!(same.iter().any(|same| same.opcode == *opcode), "{opcode} was not compared");
    }
}

#[test]
fn configuration_and_root_of_a_recorded_mount_are_read_with_its_requests() {
    let archive = Archive::default().with(&capture("fresh-mount"), u32::MAX);
    let visitor = begin(&archive, "lfs").unwrap();
    assert_eq!(visitor.root(), ROOT);
    let targets = run(visitor.space());
    let uuids: Vec<&str> = targets.iter().map(|target| target.uuid.as_str()).collect();
    assert_eq!(
        uuids,
        [
            "lfs-MDT0000_UUID",
            "lfs-MDT0001_UUID",
            "lfs-OST0000_UUID",
            "lfs-OST0001_UUID",
            "lfs-OST0002_UUID",
            "lfs-OST0003_UUID"
        ]
    );
    let root = stat(&visitor, "/").unwrap();
    assert_eq!((root.kind, root.mode & 0o7777), (FileKind::Dir, 0o755));
    assert_eq!((root.size, root.blocks, root.nlink), (4096, 8, 3));
    assert_eq!((root.inode(), root.btime), (144_115_188_193_296_385, Some(1_795_384_826)));
    assert_eq!(ls(&visitor, "/").unwrap(), Vec::<String>::new());
    requests_are_the_same(
        &archive,
        &[
            Opcode::LLOG_ORIGIN_HANDLE_CREATE,
            Opcode::LLOG_READ_HEADER,
            Opcode::LLOG_NEXT_BLOCK,
            Opcode::MGS_CONFIG_READ,
            Opcode::MDS_GET_ROOT,
            Opcode::MDS_STATFS,
            Opcode::FLD_QUERY,
            Opcode::MDS_READPAGE,
        ],
    );
}

#[test]
fn a_file_system_without_log_is_named_in_the_error() {
    let archive = Archive::default().with(&capture("fresh-mount"), u32::MAX);
    let e = begin(&archive, "nosuch").unwrap_err();
    assert_eq!(e, VisitError::NoFileSystem { fsname: "nosuch".to_owned() });
    assert_eq!(e.errno(), Errno::ENOENT);
}

#[test]
fn names_links_and_contents_of_a_recorded_directory_are_those_that_its_users_saw() {
    let dir = file(0x1461);
    let archive = recorded("namespace", 391, "f10", dir);
    let visitor = begin(&archive, "lfs").unwrap();
    let text = |path: &str| {
        run(async {
            let node = visitor.find(path.as_bytes(), false).await?;
            visitor.link_text(&node).await
        })
        .unwrap()
    };
    assert_eq!(text("/f10/s1"), b"short/target");
    assert_eq!(text("/f10/s2").len(), 4000);
    let hard = stat(&visitor, "/f10/hard").unwrap();
    assert_eq!((hard.nlink, hard.inode()), (2, 144_115_205_289_284_708));
    for (name, kind, rdev) in [
        ("fifo", FileKind::Fifo, 0),
        ("chr", FileKind::Char, 0x7c8),
        ("blk", FileKind::Block, 0x87a0),
    ] {
        let found = stat(&visitor, &format!("/f10/{name}")).unwrap();
        assert_eq!((found.kind, found.rdev), (kind, rdev), "{name}");
    }
    let missing = stat(&visitor, "/f10/missing").unwrap_err();
    assert_eq!(missing, VisitError::Path { path: b"/f10/missing".to_vec(), errno: Errno::ENOENT });
    // Its target does not exist.
    let e = cat(&visitor, "/f10/s1").unwrap_err();
    assert_eq!(e.errno(), Errno::EOPNOTSUPP, "not recorded: {e}");
    assert_eq!(cat(&visitor, "/f10/app").unwrap(), b"1 from K1\n2 from K2\n3 from K1\n");
    assert_eq!(cat(&visitor, "/f10/../f10/./app").unwrap().len(), 30);
    let through = stat(&visitor, "/f10/app/x").unwrap_err();
    assert_eq!(through.errno(), Errno::ENOTDIR);
    requests_are_the_same(&archive, &[Opcode::MDS_GETATTR]);

    let archive = recorded("namespace", u32::MAX, "f10", dir);
    let visitor = begin(&archive, "lfs").unwrap();
    assert_eq!(ls(&visitor, "/f10").unwrap(), ["app", "blk", "ee", "fifo", "s2"]);
    assert_eq!(stat(&visitor, "/f10/held").unwrap_err().errno(), Errno::ENOENT);
    requests_are_the_same(&archive, &[Opcode::MDS_READPAGE]);
}

#[test]
fn a_file_of_four_stripes_is_read_as_it_was_written() {
    let archive = recorded("striped-4-ost", u32::MAX, "f3", file(1));
    let visitor = begin(&archive, "lfs").unwrap();
    let found = stat(&visitor, "/f3/a").unwrap();
    assert_eq!((found.size, found.blocks), (1_048_592, 2056));
    assert_eq!(found.mtime, 1_795_385_064);
    let mut expected: Vec<u8> = (0..1_048_576u32).map(|i| ((i / 65_536) % 251) as u8).collect();
    expected.extend(b"tail-of-the-file");
    assert!(cat(&visitor, "/f3/a").unwrap() == expected);
    let reads = archive.asked().iter().filter(|opcode| **opcode == Opcode::OST_READ).count();
    // Parts of 300,001 bytes are in four objects each: what follows in one object is one request.
    assert_eq!(reads, 16);
    requests_are_the_same(&archive, &[]);
}

#[test]
fn data_on_the_metadata_target_and_behind_it_is_read_as_one_file() {
    let dir = file(7);
    let mut expected = b"hello, data on MDT\n".repeat(200);
    let archive = recorded("dom-64k", 111, "f6", dir);
    let visitor = begin(&archive, "lfs").unwrap();
    let found = stat(&visitor, "/f6/d").unwrap();
    assert_eq!((found.size, found.blocks), (3800, 1));
    assert!(cat(&visitor, "/f6/d").unwrap() == expected);
    requests_are_the_same(&archive, &[Opcode::LDLM_ENQUEUE]);

    let archive = recorded("dom-64k", 464, "f6", dir);
    let visitor = begin(&archive, "lfs").unwrap();
    let found = stat(&visitor, "/f6/d").unwrap();
    assert_eq!((found.size, found.blocks), (104_000, 208));
    expected.extend(b"second write of K1\n");
    expected.resize(4000, 0);
    expected.extend([b'G'; 100_000]);
    let bytes = cat(&visitor, "/f6/d").unwrap();
    assert_eq!(bytes.len(), expected.len());
    assert_eq!(bytes.iter().zip(&expected).position(|(is, should)| is != should), None);
}

/// Recorded answers that each take a round trip, as a connection to a target does.
struct Rounds<'a> {
    archive: &'a Archive,
    now: AtomicU32,
    /// When each target is connected.
    connected: Mutex<BTreeMap<String, u32>>,
    /// Calls that were answered: when they began and ended.
    calls: Mutex<Vec<(Opcode, u32, u32)>>,
}

impl Rounds<'_> {
    /// When a target is connected: it begins now, unless it has.
    fn connects(&self, link: &(String, ImportKind)) -> u32 {
        let now = self.now.load(Ordering::SeqCst);
        *self.connected.lock().unwrap().entry(link.0.clone()).or_insert(now + 1)
    }

    async fn until(&self, round: u32) {
        poll_fn(|cx| match self.now.load(Ordering::SeqCst) >= round {
            true => Poll::Ready(()),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
    }
}

impl Wire for &Rounds<'_> {
    type Link = (String, ImportKind);

    fn link(&self, config: ImportConfig) -> Result<Self::Link, CallError> {
        Ok((config.target, config.kind))
    }

    fn connect(&self, link: &Self::Link) {
        self.connects(link);
    }

    async fn call(&self, link: &Self::Link, call: Call, moved: Moved) -> End {
        let (connected, now) = (self.connects(link), self.now.load(Ordering::SeqCst));
        let end = connected.max(now) + 1;
        self.until(end).await;
        self.calls.lock().unwrap().push((call.opcode, now, end));
        self.archive.call(&link.1, call, moved).await
    }

    async fn handle(&self, _: &Self::Link, _: CallId) -> Option<u64> {
        None
    }

    async fn terms(&self, link: &Self::Link) -> ConnectData {
        self.archive.terms(&link.1).await
    }

    async fn close(&self, link: &Self::Link) {
        let connected = self.connected.lock().unwrap().contains_key(&link.0);
        if connected {
            let now = self.now.load(Ordering::SeqCst);
            self.until(now + 1).await;
        }
    }

    async fn pause(&self, _: u32) {}

    fn now(&self) -> i64 {
        self.archive.now()
    }
}

/// Reads the first bytes of a file: how many, and when which call began and was answered.
fn first_bytes(archive: &Archive, path: &str) -> (u64, Vec<(Opcode, u32, u32)>) {
    let (now, connected) = (AtomicU32::new(0), Mutex::default());
    let rounds = &Rounds { archive, now, connected, calls: Mutex::default() };
    let mut cat = pin!(async {
        let visitor = Visitor::begin(rounds, config(Access::Read)).await?;
        let node = visitor.find(path.as_bytes(), true).await?;
        let file = visitor.open_file(&node).await?;
        visitor.read(&file, 0, 4096).await
    });
    let parts = loop {
        match cat.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(parts) => break parts.unwrap(),
            Poll::Pending => _ = rounds.now.fetch_add(1, Ordering::SeqCst),
        }
    };
    let calls = rounds.calls.lock().unwrap().clone();
    (parts.iter().map(|part| part.len).sum(), calls)
}

#[test]
fn first_bytes_of_a_file_come_after_twelve_round_trips() {
    let archive = recorded("striped-4-ost", u32::MAX, "f3", file(1));
    let (len, calls) = first_bytes(&archive, "/f3/a");
    assert_eq!((len, calls.last().unwrap().2), (4096, 12), "{calls:?}");
}

#[test]
fn data_on_the_metadata_target_is_asked_for_its_size_when_the_lock_of_its_open_is_gone() {
    let archive = recorded("dom-64k", 111, "f6", file(7));
    let (len, calls) = first_bytes(&archive, "/f6/d");
    let opened = calls.iter().position(|call| call.0 == Opcode::LDLM_CANCEL).unwrap();
    let [cancel, glimpse, ..] = calls[opened..] else { panic!("{calls:?}") };
    assert_eq!((len, glimpse.0), (3800, Opcode::LDLM_ENQUEUE), "{calls:?}");
    assert!(glimpse.1 >= cancel.2, "{calls:?}");
}
