//! Visits to recorded file systems: what their tests begin with, and a [`Wire`] that notes which target
//! was asked for what, and answers some of it itself.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use lnet_types::{ByteOrder, Errno};
use lustre_client::visitor::{Access, End, Identity, Moved, Node, VisitConfig, Visitor, Wire};
use lustre_wire::fid::Valid;
use lustre_wire::mds::MdtBody;
use lustre_wire::{ConnectData, Fid, ImportKind, Layout, Opcode};
use ptlrpc::{Call, CallError, CallId, ImportConfig};

use crate::archive::{Answer, Archive, Same};

/// Root of the recorded file systems.
pub const ROOT: Fid = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };
/// Directory `f10` of the recording `namespace`.
pub const DIR: Fid = Fid { seq: 0x2_0000_0402, oid: 0x1461, ver: 0 };

/// A recording of a client.
pub fn capture(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/lustre-mount");
    dir.join(name).with_extension("pcap")
}

/// The mount, and another recording up to a frame, with the name of the directory that it is about.
pub fn recorded(name: &str, until: u32, dir: &str, fid: Fid) -> Archive {
    let archive = Archive::default().with(&capture("fresh-mount"), u32::MAX);
    archive.with(&capture(name), until).named(ROOT, dir, fid)
}

/// A visit to the recorded file systems, by root.
///
/// # Panics
/// Never: the address is one.
pub fn config(access: Access) -> VisitConfig {
    VisitConfig {
        mgs: vec!["10.78.0.2@tcp".parse().expect("an address")],
        fsname: "lfs".to_owned(),
        client: "visitor".to_owned(),
        who: Identity { umask: 0o22, ..Identity::default() },
        access,
        seed: 8,
    }
}

/// Runs a future that never waits.
///
/// # Panics
/// It waits.
pub fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..1000 {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result;
        }
    }
    panic!("the visit does not end");
}

/// Begins a visit that may change files.
///
/// # Panics
/// It does not begin.
pub fn begin<W: Wire>(wire: W) -> Visitor<W> {
    run(Visitor::begin(wire, config(Access::Change))).expect("a visit")
}

/// The file of a path.
///
/// # Panics
/// It is not found.
pub fn node<W: Wire>(visitor: &Visitor<W>, path: &str) -> Node {
    run(visitor.find(path.as_bytes(), false)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A call that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// Uuid of the target.
    pub target: String,
    /// Operation.
    pub opcode: Opcode,
    /// Buffers behind the body.
    pub buffers: Vec<Vec<u8>>,
    /// The same of recorded clients, as far as there is one.
    pub same: Vec<Same>,
}

/// Which requests of an operation an answer is for, by the buffers behind the body.
type Fits = fn(&[Vec<u8>]) -> bool;

/// Recorded servers, calls to which are noted; the first ones of an operation may get another answer.
#[derive(Debug)]
pub struct Noted<'a> {
    archive: &'a Archive,
    made: Mutex<Vec<Made>>,
    answers: Mutex<VecDeque<(Opcode, Fits, Answer)>>,
}

impl<'a> Noted<'a> {
    /// Nothing is noted yet.
    pub fn new(archive: &'a Archive) -> Self {
        Self { archive, made: Mutex::default(), answers: Mutex::default() }
    }

    /// The next call of this operation, behind those for which there is an answer, gets this one.
    #[must_use]
    pub fn answering(self, opcode: Opcode, answer: Answer) -> Self {
        self.answering_if(opcode, |_| true, answer)
    }

    /// The same for the next one whose buffers fit.
    #[must_use]
    pub fn answering_if(self, opcode: Opcode, fits: Fits, answer: Answer) -> Self {
        held(&self.answers).push_back((opcode, fits, answer));
        self
    }

    /// The same with a refusal that names a file of another target, in the attributes at `place` of the
    /// buffers behind the body.
    #[must_use]
    pub fn refusing(self, opcode: Opcode, errno: Errno, place: usize, body: &MdtBody) -> Self {
        let mut buffers = vec![Vec::new(); place];
        buffers.push(body.to_bytes(ByteOrder::Little));
        let status = errno.negative();
        self.answering(opcode, Answer { status, buffers, ..Answer::default() })
    }

    /// The answer that is not the recorded one, if there is one.
    fn other(&self, opcode: Opcode, buffers: &[Vec<u8>]) -> Option<Answer> {
        let mut answers = held(&self.answers);
        let place = answers.iter().position(|(of, fits, _)| *of == opcode && fits(buffers))?;
        answers.remove(place).map(|(.., answer)| answer)
    }

    /// What was asked for with these operations.
    pub fn made(&self, opcodes: &[Opcode]) -> Vec<Made> {
        let made = held(&self.made);
        made.iter().filter(|made| opcodes.contains(&made.opcode)).cloned().collect()
    }

    /// Index of the target of each of these calls, of a metadata target.
    pub fn targets(&self, opcodes: &[Opcode]) -> Vec<u32> {
        let index = |made: Made| {
            let digits = made.target.strip_prefix("lfs-MDT")?.get(..4)?;
            u32::from_str_radix(digits, 16).ok()
        };
        self.made(opcodes).into_iter().filter_map(index).collect()
    }
}

/// The attributes by which a server says that a file is on another target.
pub fn elsewhere(fid: Fid) -> MdtBody {
    MdtBody { fid1: fid, valid: Valid::ID | Valid::MDS, ..MdtBody::default() }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic")
}

impl Wire for &Noted<'_> {
    type Link = (String, ImportKind);

    fn link(&self, config: ImportConfig) -> Result<Self::Link, CallError> {
        Ok((config.target, config.kind))
    }

    fn connect(&self, _: &Self::Link) {}

    async fn call(&self, (target, kind): &Self::Link, call: Call, moved: Moved) -> End {
        let opcode = call.opcode;
        let buffers: Vec<Vec<u8>> = call.buffers.iter().map(<[u8]>::to_vec).collect();
        let before = self.archive.same().len();
        let end = match self.other(opcode, &buffers) {
            Some(answer) => answer.end(&call, Vec::new(), 0),
            None => self.archive.call(kind, call, moved).await,
        };
        let same = self.archive.same().split_off(before);
        held(&self.made).push(Made { target: target.clone(), opcode, buffers, same });
        end
    }

    async fn handle(&self, (_, kind): &Self::Link, call: CallId) -> Option<u64> {
        self.archive.handle(kind, call).await
    }

    async fn pause(&self, _: u32) {}

    fn now(&self) -> i64 {
        self.archive.now()
    }

    async fn terms(&self, (_, kind): &Self::Link) -> ConnectData {
        self.archive.terms(kind).await
    }

    async fn close(&self, _: &Self::Link) {}
}
