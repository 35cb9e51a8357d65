//! Stores on files: what every store promises, crashes at any point, and directories that hold
//! something else than was written.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lnet_types::Prng;
use lustre_target::conformance::{Slate, Subject, check};
use lustre_target::store::{
    Change, DataId, Outcome, Source, Space, Store, StoreError, StoreFact, StoreOrder, Txn,
};

use super::{Disk, DiskConfig, FileStore, OpenError};

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = fresh::path(&format!("store-{name}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config(dir: &Path) -> DiskConfig {
    DiskConfig { reserve: 0, ..DiskConfig::new(dir) }
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Lives of a store: a crash is a copy of its directory, made while the store has it open.
struct OnDisk {
    scratch: Scratch,
    life: u32,
}

impl OnDisk {
    fn dir(&self) -> PathBuf {
        self.scratch.join(&self.life.to_string())
    }

    fn next(&mut self) {
        let from = self.dir();
        self.life += 1;
        copy(&from, &self.dir());
    }
}

impl Subject for OnDisk {
    type Store = Disk;

    fn open(&mut self) -> Result<Disk, String> {
        Disk::open(config(&self.dir())).map_err(|e| e.to_string())
    }

    fn crash(&mut self, store: Disk) {
        self.next();
        drop(store);
    }

    fn wait(&mut self, store: &mut Disk) {
        store.commit().unwrap();
    }
}

#[test]
fn store_on_files_conforms() {
    check(&mut OnDisk { scratch: Scratch::new("conforms"), life: 0 }).unwrap();
}

struct Threaded(OnDisk);

impl Subject for Threaded {
    type Store = FileStore;

    fn open(&mut self) -> Result<FileStore, String> {
        let disk = self.0.open()?;
        FileStore::start(disk, Box::new(|_| {})).map_err(|e| e.to_string())
    }

    fn crash(&mut self, store: FileStore) {
        self.0.next();
        drop(store);
    }

    fn wait(&mut self, _: &mut FileStore) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn store_on_a_thread_of_its_own_conforms() {
    let scratch = Scratch::new("threaded");
    check(&mut Threaded(OnDisk { scratch, life: 0 })).unwrap();
}

#[test]
fn database_that_panics_on_what_it_finds_ends_an_order_and_not_its_thread() {
    let found = super::total(
        || -> Result<(), StoreError> { panic!("a page is damaged") },
        super::db_damaged,
    );
    let why = found.unwrap_err().to_string();
    assert!(why.contains("records.redb"), "{why}");
}

#[test]
fn lost_wake_up_is_repeated() {
    let scratch = Scratch::new("wake");
    let (tx, rx) = std::sync::mpsc::channel();
    let lost = std::sync::atomic::AtomicU32::new(0);
    let wake = move |up: super::WakeUp| {
        // The first three never arrive.
        if lost.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 3 {
            up.arrived();
            tx.send(()).unwrap();
        }
    };
    let disk = Disk::open(config(&scratch.join("s"))).unwrap();
    let mut store = FileStore::start(disk, Box::new(wake)).unwrap();
    let mut slate = Slate::default();
    let (after, prefix) = (Vec::new(), Vec::new());
    let list = StoreOrder::List { token: 5, space: Space::Objects, after, prefix, max: 1 };
    store.order(list, &mut slate);
    rx.recv().unwrap();
    let outcome = Ok(Outcome::Listed { entries: Vec::new(), more: false });
    assert_eq!(store.poll(&mut slate).unwrap(), StoreFact::Done { token: 5, outcome });
}

/// A write of a transaction, which reads the slate from `at` on.
fn write(data: DataId, offset: u64, at: usize, len: usize) -> Change {
    Change::Write { data, offset, bytes: Slate::span(at, len) }
}

/// Applies a transaction, and expects that it is.
fn apply(disk: &mut Disk, id: u64, slate: &mut Slate, changes: Vec<Change>) {
    disk.order(StoreOrder::Apply(Txn { id, changes, must: false }), slate);
    loop {
        match disk.poll(slate) {
            Some(StoreFact::Applied { result, .. }) => return assert_eq!(result, Ok(())),
            Some(_) => {}
            None => panic!("transaction {id} was not applied"),
        }
    }
}

fn done(disk: &mut Disk, order: StoreOrder, slate: &mut Slate) -> Result<Outcome, StoreError> {
    disk.order(order, slate);
    loop {
        match disk.poll(slate) {
            Some(StoreFact::Done { outcome, .. }) => return outcome,
            Some(_) => {}
            None => panic!("no outcome"),
        }
    }
}

fn record(disk: &mut Disk, key: &[u8]) -> Option<Vec<u8>> {
    let from = Source::Record(Space::Objects, key.to_vec());
    match done(disk, StoreOrder::Read { token: 1, from }, &mut Slate::default()) {
        Ok(Outcome::Record(record)) => record,
        other => panic!("{other:?}"),
    }
}

fn load(disk: &mut Disk, data: DataId, len: usize) -> Result<Vec<u8>, StoreError> {
    let mut slate = Slate(vec![0xee; len]);
    let from = Source::Data { data, offset: 0, into: Slate::span(0, len) };
    done(disk, StoreOrder::Read { token: 1, from }, &mut slate).map(|_| slate.0)
}

#[test]
fn crash_between_any_two_orders_keeps_what_was_committed_and_no_more() {
    let scratch = Scratch::new("crash");
    for seed in 0..6 {
        let mut prng = Prng::new(seed);
        let (dir, image) = (scratch.join("live"), scratch.join("image"));
        let _ = fs::remove_dir_all(&dir);
        let mut disk = Disk::open(config(&dir)).unwrap();
        // Transaction n says so in `last`, and writes a range of the same data, or cuts it.
        let mut model = vec![0; 300_000];
        let mut committed = (0, model.clone());
        for n in 1..40u64 {
            let at = prng.next_u64() as usize % 250_000;
            let len = 1 + prng.next_u64() as usize % 50_000;
            let mut slate = Slate(vec![n as u8; len]);
            let change = if prng.next_u64().is_multiple_of(4) {
                model[at..].fill(0);
                Change::Cut { data: DataId(1), from: at as u64 }
            } else {
                model[at..at + len].fill(n as u8);
                write(DataId(1), at as u64, 0, len)
            };
            let put = Change::Put(Space::Objects, b"last".to_vec(), vec![n as u8]);
            apply(&mut disk, n, &mut slate, vec![change, put]);
            // A batch may be on its way while orders go on, and the crash comes before its end or
            // after.
            match prng.next_u64() % 4 {
                0 => {
                    disk.commit().unwrap();
                    committed = (n, model.clone());
                }
                1 => {
                    let batch = disk.freeze().unwrap();
                    committed = (n, model.clone());
                    let result = batch.commit();
                    disk.settle(result);
                }
                _ => {}
            }
            assert!(load(&mut disk, DataId(1), 300_000).unwrap() == model, "seed {seed}, {n}");
            if !prng.next_u64().is_multiple_of(4) {
                continue;
            }
            copy(&dir, &image);
            let mut after = Disk::open(config(&image))
                .unwrap_or_else(|e| panic!("seed {seed}, transaction {n}: {e}"));
            let last = record(&mut after, b"last").map_or(0, |v| u64::from(v[0]));
            assert_eq!(last, committed.0, "seed {seed}, transaction {n}");
            let found = load(&mut after, DataId(1), 300_000).unwrap();
            assert!(found == committed.1, "seed {seed}, transaction {n}: bytes");
        }
    }
}

#[test]
fn orders_are_carried_out_while_a_batch_is_committed() {
    let scratch = Scratch::new("meanwhile");
    let mut disk = Disk::open(config(&scratch.join("s"))).unwrap();
    let put = |key: &str, n| Change::Put(Space::Objects, key.into(), vec![n]);
    let mut slate = Slate(vec![7; 200_000]);
    let first = vec![put("a", 1), put("b", 1), write(DataId(1), 0, 0, 200_000)];
    apply(&mut disk, 1, &mut slate, first);
    let batch = disk.freeze().unwrap();
    assert!(disk.freeze().is_none(), "one batch at a time");
    // Nothing of it is committed yet, and all of it is seen.
    assert_eq!(record(&mut disk, b"a"), Some(vec![1]));
    let cut = Change::Cut { data: DataId(1), from: 70_000 };
    let gone = Change::Delete(Space::Objects, b"b".to_vec());
    apply(&mut disk, 2, &mut slate, vec![put("a", 2), gone, put("c", 2), cut]);
    let seen = |disk: &mut Disk| {
        assert_eq!(record(disk, b"a"), Some(vec![2]));
        assert_eq!(record(disk, b"b"), None);
        let bytes = load(disk, DataId(1), 200_000).unwrap();
        assert!(bytes[..70_000].iter().all(|b| *b == 7) && bytes[70_000..].iter().all(|b| *b == 0));
        let (space, after, prefix, max) = (Space::Objects, vec![], vec![], 10);
        let order = StoreOrder::List { token: 1, space, after, prefix, max };
        let entries = vec![(b"a".to_vec(), vec![2]), (b"c".to_vec(), vec![2])];
        let listed = Outcome::Listed { entries, more: false };
        assert_eq!(done(disk, order, &mut Slate::default()), Ok(listed));
    };
    seen(&mut disk);
    let result = batch.commit();
    disk.settle(result);
    assert_eq!(disk.poll(&mut slate), Some(StoreFact::Committed { up_to: 1 }));
    seen(&mut disk);
    disk.commit().unwrap();
    seen(&mut disk);
}

#[test]
fn slots_of_data_that_is_gone_are_used_again() {
    let scratch = Scratch::new("slots");
    let dir = scratch.join("s");
    let mut disk = Disk::open(config(&dir)).unwrap();
    let mut slate = Slate(vec![3; 1 << 20]);
    let size = || fs::metadata(dir.join("blocks")).unwrap().len();
    for n in 0..20 {
        let data = DataId(n);
        apply(&mut disk, 2 * n + 1, &mut slate, vec![write(data, 0, 0, 1 << 20)]);
        disk.commit().unwrap();
        apply(&mut disk, 2 * n + 2, &mut slate, vec![Change::Cut { data, from: 0 }]);
        disk.commit().unwrap();
    }
    assert_eq!(size(), 1 << 20);
    drop(disk);
    // Nothing of it is needed any more.
    drop(Disk::open(config(&dir)).unwrap());
    assert_eq!(size(), 0);
}

fn filled(dir: &Path) {
    let mut disk = Disk::open(config(dir)).unwrap();
    let put = Change::Put(Space::Objects, b"key".to_vec(), vec![9; 1000]);
    let changes = vec![write(DataId(1), 0, 0, 100_000), put];
    apply(&mut disk, 1, &mut Slate(vec![7; 100_000]), changes);
    disk.commit().unwrap();
}

#[test]
fn directory_that_is_damaged_is_refused_by_name() {
    let scratch = Scratch::new("damage");
    let good = scratch.join("good");
    filled(&good);
    let cut = |path: &Path, len| fs::File::options().write(true).open(path).unwrap().set_len(len);
    type Damage<'a> = (&'a str, Box<dyn Fn(&Path) + 'a>);
    let cases: Vec<Damage<'_>> = vec![
        ("records.redb", Box::new(|d| fs::remove_file(d.join("records.redb")).unwrap())),
        ("records.redb", Box::new(|d| cut(&d.join("records.redb"), 0).unwrap())),
        ("records.redb", Box::new(|d| cut(&d.join("records.redb"), 100).unwrap())),
        ("records.redb", Box::new(|d| cut(&d.join("records.redb"), 10_000).unwrap())),
        ("records.redb", Box::new(|d| fs::write(d.join("records.redb"), [0; 9000]).unwrap())),
        ("records.redb", Box::new(|d| fs::write(d.join("records.redb"), "text").unwrap())),
        ("blocks", Box::new(|d| fs::remove_file(d.join("blocks")).unwrap())),
        ("blocks", Box::new(|d| cut(&d.join("blocks"), 99_999).unwrap())),
        ("format", Box::new(|d| fs::write(d.join("format"), "ulnet store 1\n").unwrap())),
        ("format file", Box::new(|d| fs::remove_file(d.join("format")).unwrap())),
    ];
    for (i, (name, damage)) in cases.iter().enumerate() {
        let dir = scratch.join(&i.to_string());
        copy(&good, &dir);
        damage(&dir);
        match Disk::open(config(&dir)) {
            Ok(_) => panic!("case {i}, {name}: was opened"),
            Err(e) => assert!(e.to_string().contains(name), "case {i}, {name}: {e}"),
        }
    }
    // The bytes of data are compared when they are read.
    let dir = scratch.join("bytes");
    copy(&good, &dir);
    let mut bytes = fs::read(dir.join("blocks")).unwrap();
    bytes[70_005] ^= 1;
    fs::write(dir.join("blocks"), bytes).unwrap();
    let mut disk = Disk::open(config(&dir)).unwrap();
    assert!(load(&mut disk, DataId(1), 65_536).is_ok(), "the first block is as it was");
    let found = load(&mut disk, DataId(1), 65_537);
    assert!(matches!(found, Err(StoreError::Damaged { .. })), "{:?}", found.map(|b| b.len()));
    // A part of that block is not written over bytes that are not known.
    let changes = vec![write(DataId(1), 70_000, 0, 1)];
    let mut slate = Slate(vec![1]);
    disk.order(StoreOrder::Apply(Txn { id: 1, changes, must: false }), &mut slate);
    assert!(matches!(disk.poll(&mut slate), Some(StoreFact::Failed(StoreError::Damaged { .. }))));
    let result = Err(StoreError::OutOfService);
    assert_eq!(disk.poll(&mut slate), Some(StoreFact::Applied { txn: 1, result }));
}

#[test]
fn record_file_with_changed_bytes_is_never_read_as_good() {
    let scratch = Scratch::new("bits");
    let good = scratch.join("good");
    filled(&good);
    let len = fs::metadata(good.join("records.redb")).unwrap().len() as usize;
    let (mut refused, mut prng) = (0, Prng::new(5));
    for _ in 0..60 {
        let dir = scratch.join("bad");
        copy(&good, &dir);
        let mut bytes = fs::read(dir.join("records.redb")).unwrap();
        for _ in 0..64 {
            bytes[prng.next_u64() as usize % len] ^= 0x55;
        }
        fs::write(dir.join("records.redb"), bytes).unwrap();
        match Disk::open(config(&dir)) {
            Ok(mut disk) => {
                assert_eq!(record(&mut disk, b"key"), Some(vec![9; 1000]));
                assert_eq!(load(&mut disk, DataId(1), 100_000), Ok(vec![7; 100_000]));
            }
            Err(e) => {
                assert!(matches!(e, OpenError::Damaged { .. }), "{e}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn second_process_is_refused_with_the_name_of_the_first() {
    let scratch = Scratch::new("lock");
    let dir = scratch.join("s");
    let first = Disk::open(config(&dir)).unwrap();
    let second = Disk::open(config(&dir)).unwrap_err();
    let holder = format!("in use by process {}", std::process::id());
    assert!(second.to_string().contains(&holder), "{second}");
    drop(first);
    Disk::open(config(&dir)).unwrap();
}

#[test]
fn file_system_without_room_refuses_what_needs_some() {
    let scratch = Scratch::new("full");
    let dir = scratch.join("s");
    filled(&dir);
    let config = DiskConfig { reserve: u64::MAX, ..DiskConfig::new(&dir) };
    let mut disk = Disk::open(config).unwrap();
    let mut slate = Slate(vec![1; 10]);
    let changes = vec![write(DataId(2), 0, 0, 10)];
    disk.order(StoreOrder::Apply(Txn { id: 1, changes, must: false }), &mut slate);
    let refused = StoreFact::Applied { txn: 1, result: Err(StoreError::Full) };
    assert_eq!(disk.poll(&mut slate), Some(refused));
    let put = Change::Put(Space::Objects, b"more".to_vec(), vec![1]);
    disk.order(StoreOrder::Apply(Txn { id: 1, changes: vec![put], must: false }), &mut slate);
    let refused = StoreFact::Applied { txn: 1, result: Err(StoreError::Full) };
    assert_eq!(disk.poll(&mut slate), Some(refused));
    // What its target has counted on is taken.
    let put = Change::Put(Space::Objects, b"must".to_vec(), vec![1]);
    disk.order(StoreOrder::Apply(Txn { id: 1, changes: vec![put], must: true }), &mut slate);
    assert_eq!(disk.poll(&mut slate), Some(StoreFact::Applied { txn: 1, result: Ok(()) }));
    // So is what makes room.
    apply(&mut disk, 2, &mut slate, vec![Change::Delete(Space::Objects, b"key".to_vec())]);
    disk.commit().unwrap();
    assert_eq!(record(&mut disk, b"key"), None);
}

#[test]
fn directory_with_other_files_is_not_made_a_store() {
    let scratch = Scratch::new("foreign");
    let dir = scratch.join("home");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("letter.txt"), "dear").unwrap();
    let refused = Disk::open(config(&dir)).unwrap_err();
    assert!(refused.to_string().contains("letter.txt"), "{refused}");
    assert_eq!(fs::read(dir.join("letter.txt")).unwrap(), b"dear");
}
