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
        let dir = std::env::temp_dir().join(format!("ulnet-store-{name}-{}", std::process::id()));
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
    fs::create_dir_all(to.join("data")).unwrap();
    for dir in ["", "data"] {
        for entry in fs::read_dir(from.join(dir)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, to.join(dir).join(path.file_name().unwrap())).unwrap();
            }
        }
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
    store.order(StoreOrder::Sync { token: 5 }, &slate);
    rx.recv().unwrap();
    let fact = store.poll(&mut slate).unwrap();
    assert_eq!(fact, StoreFact::Done { token: 5, outcome: Ok(Outcome::Done) });
}

/// Applies a transaction, and expects that it is.
fn apply(disk: &mut Disk, id: u64, changes: Vec<Change>) {
    disk.order(StoreOrder::Apply(Txn { id, changes }), &Slate::default());
    loop {
        match disk.poll(&mut Slate::default()) {
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

fn write(disk: &mut Disk, data: DataId, bytes: &[u8]) {
    let mut slate = Slate(bytes.to_vec());
    let bytes = Slate::span(0, bytes.len());
    assert_eq!(
        done(disk, StoreOrder::Write { token: 1, data, bytes }, &mut slate),
        Ok(Outcome::Done)
    );
}

fn load(disk: &mut Disk, data: DataId, len: usize) -> Result<Vec<u8>, StoreError> {
    let mut slate = Slate(vec![0; len]);
    let from = Source::Data(data, Slate::span(0, len));
    done(disk, StoreOrder::Read { token: 1, from }, &mut slate).map(|_| slate.0)
}

#[test]
fn crash_between_any_two_orders_keeps_what_was_committed() {
    let scratch = Scratch::new("crash");
    for seed in 0..6 {
        let mut prng = Prng::new(seed);
        let (dir, image) = (scratch.join("live"), scratch.join("image"));
        let _ = fs::remove_dir_all(&dir);
        let mut disk = Disk::open(config(&dir)).unwrap();
        // After transaction n record `n` is data of n bytes, and `last` says n.
        let mut committed = 0;
        for n in 1..40u64 {
            let bytes = vec![n as u8; n as usize * 100];
            write(&mut disk, DataId(n), &bytes);
            let mut changes = vec![
                Change::Keep(DataId(n), bytes.len() as u64),
                Change::Put(Space::Objects, b"last".to_vec(), vec![n as u8]),
            ];
            if n > 5 {
                changes.push(Change::Drop(DataId(n - 5)));
            }
            apply(&mut disk, n, changes);
            if prng.next_u64().is_multiple_of(3) {
                disk.commit().unwrap();
                committed = n;
            }
            if !prng.next_u64().is_multiple_of(4) {
                continue;
            }
            copy(&dir, &image);
            let mut after = Disk::open(config(&image))
                .unwrap_or_else(|e| panic!("seed {seed}, transaction {n}: {e}"));
            let last = record(&mut after, b"last").map_or(0, |v| u64::from(v[0]));
            assert_eq!(last, committed, "seed {seed}, transaction {n}");
            for id in 1..=n {
                let expected = id <= last && id + 5 > last;
                let found = load(&mut after, DataId(id), id as usize * 100);
                assert_eq!(found.is_ok(), expected, "seed {seed}, data {id} of {last}: {found:?}");
            }
        }
    }
}

fn filled(dir: &Path) {
    let mut disk = Disk::open(config(dir)).unwrap();
    let bytes = vec![7; 100_000];
    write(&mut disk, DataId(1), &bytes);
    apply(
        &mut disk,
        1,
        vec![
            Change::Keep(DataId(1), 100_000),
            Change::Put(Space::Objects, b"key".to_vec(), vec![9; 1000]),
        ],
    );
    disk.commit().unwrap();
}

#[test]
fn directory_that_is_damaged_is_refused_by_name() {
    let scratch = Scratch::new("damage");
    let good = scratch.join("good");
    filled(&good);
    let data = "data/0000000000000001";
    let cut = |path: &Path, len| fs::File::options().write(true).open(path).unwrap().set_len(len);
    type Damage<'a> = (&'a str, Box<dyn Fn(&Path) + 'a>);
    let cases: Vec<Damage<'_>> = vec![
        ("records.redb", Box::new(|d| fs::remove_file(d.join("records.redb")).unwrap())),
        ("records.redb", Box::new(|d| cut(&d.join("records.redb"), 0).unwrap())),
        ("records.redb", Box::new(|d| cut(&d.join("records.redb"), 100).unwrap())),
        ("records.redb", Box::new(|d| cut(&d.join("records.redb"), 10_000).unwrap())),
        ("records.redb", Box::new(|d| fs::write(d.join("records.redb"), [0; 9000]).unwrap())),
        ("records.redb", Box::new(|d| fs::write(d.join("records.redb"), "text").unwrap())),
        (data, Box::new(|d| fs::remove_file(d.join(data)).unwrap())),
        (data, Box::new(|d| cut(&d.join(data), 99_999).unwrap())),
        ("format", Box::new(|d| fs::write(d.join("format"), "ulnet store 2\n").unwrap())),
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
    let mut bytes = fs::read(dir.join(data)).unwrap();
    bytes[5] ^= 1;
    fs::write(dir.join(data), bytes).unwrap();
    let mut disk = Disk::open(config(&dir)).unwrap();
    let found = load(&mut disk, DataId(1), 100_000);
    assert!(matches!(found, Err(StoreError::Damaged { .. })), "{:?}", found.map(|b| b.len()));
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
                assert_eq!(load(&mut disk, DataId(1), 100_000).map(|b| b.len()), Ok(100_000));
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
    let bytes = Slate::span(0, 10);
    let order = StoreOrder::Write { token: 1, data: DataId(2), bytes };
    assert_eq!(done(&mut disk, order, &mut slate), Err(StoreError::Full));
    let put = Change::Put(Space::Objects, b"more".to_vec(), vec![1]);
    disk.order(StoreOrder::Apply(Txn { id: 1, changes: vec![put] }), &slate);
    let refused = StoreFact::Applied { txn: 1, result: Err(StoreError::Full) };
    assert_eq!(disk.poll(&mut slate), Some(refused));
    // What makes room is taken.
    apply(&mut disk, 1, vec![Change::Delete(Space::Objects, b"key".to_vec())]);
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
