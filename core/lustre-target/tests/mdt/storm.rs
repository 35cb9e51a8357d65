//! Two clients change names at random, the server dies at random moments with what it has not committed,
//! and what the clients have heard is there after each recovery: names, kinds, links, and objects that no
//! two files share.

use std::collections::BTreeMap;

use lnet_types::{Errno, Prng};
use lustre_target::Commit;
use lustre_wire::Fid;

use super::{Bench, Client, OPEN_CREATE, OPEN_WRITE, ROOT, opened};

const HAS_EA: u32 = 0x4000_0000;
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A file of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
struct File {
    fid: Fid,
    is_dir: bool,
    /// Target and number of each object.
    objects: Vec<(u32, u32)>,
}

/// Sequence and number of a file's FID.
type Id = (u64, u32);

const fn id(fid: Fid) -> Id {
    (fid.seq, fid.oid)
}

const fn fid((seq, oid): Id) -> Fid {
    Fid { seq, oid, ver: 0 }
}

/// A directory, and a name in it.
type Place = (Id, &'static str);
type Model = BTreeMap<Place, File>;

struct Storm {
    bench: Bench,
    clients: [Client; 2],
    oids: [u32; 2],
    model: Model,
    dirs: Vec<Id>,
    random: Prng,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut bench = Bench::with(3, Commit::Ordered);
        let clients = ["c", "d"].map(|name| bench.client(name, 0));
        bench.commit();
        Self {
            bench,
            clients,
            oids: [0; 2],
            model: Model::new(),
            dirs: vec![id(ROOT)],
            random: Prng::new(seed),
        }
    }

    fn pick(&mut self, below: usize) -> usize {
        self.random.below(below as u64) as usize
    }

    fn place(&mut self) -> Place {
        let (dir, name) = (self.pick(self.dirs.len()), self.pick(NAMES.len()));
        (self.dirs[dir], NAMES[name])
    }

    fn oid(&mut self, who: usize) -> u32 {
        self.oids[who] += 1;
        self.oids[who]
    }

    /// Makes a file, and names its layout in the open that is kept for a replay, as clients do (C-256).
    fn create(&mut self, who: usize, (dir, name): Place) {
        let (c, oid) = (self.clients[who], self.oid(who));
        let flags = OPEN_CREATE | OPEN_WRITE;
        let bench = &mut self.bench;
        let call = bench.begin(c, c.open(fid(dir), name, oid, flags, Vec::new()));
        let mut end = bench.end_of(c, call);
        while end.is_none() {
            bench.world.secs(1);
            end = bench.end_of(c, call);
        }
        let reply = end.unwrap();
        let layout = reply.as_ref().unwrap().msg().unwrap().buffer(3).unwrap_or_default().to_vec();
        let result = opened(reply);
        let expected = match self.model.get(&(dir, name)) {
            Some(file) if file.is_dir => Err(Errno::EISDIR),
            Some(file) => Ok(Some(file.clone())),
            None => Ok(None),
        };
        let (body, stripes, _) = match (result, &expected) {
            (Err(errno), Err(expected)) => return assert_eq!(errno, *expected),
            (result, _) => result.unwrap(),
        };
        let of = stripes.objects.iter().map(|object| (object.index, object.id.oid));
        let file = File { fid: body.fid1, is_dir: false, objects: of.collect() };
        match expected.unwrap() {
            Some(known) => assert_eq!(file, known),
            None => assert_eq!(file.fid, c.fid(oid)),
        }
        self.model.insert((dir, name), file);
        let head = c.open(fid(dir), name, oid, flags | HAS_EA, layout);
        let replays = bench.party(c.upper, |party, below| {
            party.ptlrpc.rpc(below).amend(c.mdt, call, head.buffers.clone())
        });
        assert!(replays);
        if self.random.below(4) > 0 {
            let mut close = c.close(body.fid1, body.open_handle);
            close.ends = Some(call);
            self.bench.call(c, close).unwrap();
        }
    }

    fn change(&mut self, who: usize) {
        let (c, at) = (self.clients[who], self.place());
        let there = self.model.get(&at).cloned();
        match self.pick(5) {
            0 => {
                let oid = self.oid(who);
                let result = self.bench.mkdir(c, fid(at.0), at.1, oid);
                match there {
                    Some(_) => assert_eq!(result, Err(Errno::EEXIST)),
                    None => {
                        let fid = result.unwrap().fid1;
                        self.dirs.push(id(fid));
                        self.model.insert(at, File { fid, is_dir: true, objects: Vec::new() });
                    }
                }
            }
            1 => self.remove(c, at, there),
            2 => self.rename(c, at, there),
            3 => {
                let to = self.place();
                let Some(file) = there.filter(|file| !file.is_dir) else { return };
                let result = self.bench.reint(c, c.link(file.fid, fid(to.0), to.1)).map(|_| ());
                let expected =
                    if self.model.contains_key(&to) { Err(Errno::EEXIST) } else { Ok(()) };
                assert_eq!(result, expected);
                self.model.entry(to).or_insert(file);
            }
            _ => self.create(who, at),
        }
    }

    fn is_empty(&self, dir: Fid) -> bool {
        !self.model.keys().any(|(of, _)| *of == id(dir))
    }

    fn remove(&mut self, c: Client, at: Place, there: Option<File>) {
        let is_dir = there.as_ref().is_some_and(|file| file.is_dir);
        let mode = if is_dir { 0o040_000 } else { 0 };
        let result = self.bench.reint(c, c.unlink(fid(at.0), at.1, mode)).map(|_| ());
        let expected = match there {
            None => Err(Errno::ENOENT),
            Some(file) if is_dir && !self.is_empty(file.fid) => Err(Errno::ENOTEMPTY),
            Some(file) => {
                self.model.remove(&at);
                self.dirs.retain(|dir| *dir != id(file.fid));
                Ok(())
            }
        };
        assert_eq!(result, expected);
    }

    fn rename(&mut self, c: Client, from: Place, there: Option<File>) {
        let to = self.place();
        let result =
            self.bench.reint(c, c.rename((fid(from.0), from.1), (fid(to.0), to.1))).map(|_| ());
        let Some(file) = there else { return assert_eq!(result, Err(Errno::ENOENT)) };
        let over = self.model.get(&to).cloned();
        match &result {
            Ok(()) if over.as_ref().is_some_and(|over| over.fid == file.fid) => {}
            Ok(()) => {
                if let Some(over) = over {
                    assert!(over.is_dir == file.is_dir);
                    assert!(!over.is_dir || self.is_empty(over.fid));
                    self.dirs.retain(|dir| *dir != id(over.fid));
                }
                self.model.remove(&from);
                self.model.insert(to, file);
            }
            Err(errno) => {
                let kinds = [Errno::EISDIR, Errno::ENOTDIR, Errno::ENOTEMPTY, Errno::EINVAL];
                assert!(kinds.contains(errno), "{errno}");
                assert!(file.is_dir || over.is_some_and(|over| over.is_dir), "{errno}");
            }
        }
    }

    /// All names are what the model says, and no object belongs to two files.
    fn check(&mut self) {
        let c = self.clients[0];
        let mut owners: BTreeMap<(u32, u32), Fid> = BTreeMap::new();
        for dir in self.dirs.clone() {
            for name in NAMES {
                let found =
                    self.bench.lookup(c, fid(dir), name).map(|body| (body.fid1, body.mode >> 12));
                let expected = self.model.get(&(dir, name)).ok_or(Errno::ENOENT);
                let kind = |file: &File| if file.is_dir { 4 } else { 8 };
                assert_eq!(
                    found,
                    expected.map(|file| (file.fid, kind(file))),
                    "{name} in {dir:x?}"
                );
            }
        }
        for file in self.model.values() {
            for object in &file.objects {
                assert_eq!(*owners.entry(*object).or_insert(file.fid), file.fid, "{object:?}");
            }
            let links = self.model.values().filter(|other| other.fid == file.fid).count() as u32;
            if !file.is_dir {
                assert_eq!(self.bench.getattr(c, file.fid).unwrap().nlink, links, "{}", file.fid);
            }
        }
    }
}

#[test]
fn names_that_clients_have_heard_of_outlive_any_crash() {
    for seed in 1..=12 {
        eprintln!("seed {seed}");
        let mut storm = Storm::new(seed);
        for _ in 0..120 {
            let who = storm.pick(2);
            storm.change(who);
            match storm.pick(24) {
                0..3 => storm.bench.commit(),
                3 => {
                    storm.bench.crash();
                    storm.bench.world.secs(200);
                    storm.check();
                }
                _ => {}
            }
        }
        storm.check();
        assert!(storm.model.len() > 3, "{seed}");
    }
}
