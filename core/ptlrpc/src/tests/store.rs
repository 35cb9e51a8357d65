//! A target that keeps transactions: a map, and what it needs to survive its death. What is not
//! committed is lost with its process.

use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Errno, IoVec};
use lustre_wire::{BodyFlags, Buffers, Opcode};

use super::bench::{APPEND, ECHO};
use crate::{Answer, ClientRecord, Direction, Event, Past, ReplyRecord, Rpc, Served, TargetId};

/// The version of what is not there.
const MISSING: u64 = 1;

/// A change, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) key: String,
    pub(super) value: String,
    /// What was there before; nothing if empty.
    pub(super) old: String,
}

/// All that a store holds after a transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) last: u64,
    pub(super) clients: BTreeMap<String, Vec<ReplyRecord>>,
    /// Of each of them.
    admissions: BTreeMap<String, u32>,
    /// Values with their versions.
    pub(super) map: BTreeMap<String, (String, u64)>,
    /// By transaction.
    pub(super) log: BTreeMap<u64, Change>,
}

pub(super) struct Store {
    /// The committed state, then that after each transaction since.
    images: VecDeque<Image>,
    /// Requests that wait, while it is slow.
    held: VecDeque<Served>,
    pub(super) slow: bool,
    /// Where bulk data of requests go to, whose value they are; and the request whose data move.
    pub(super) into: IoVec,
    moving: Option<Served>,
    pub(super) target: TargetId,
    /// Flags of the locks that were asked for.
    pub(super) locks: Vec<BodyFlags>,
    /// What it answers to a replay of what it has.
    pub(super) again: Vec<u8>,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            images: VecDeque::from([Image::default()]),
            held: VecDeque::new(),
            slow: false,
            into: IoVec::new(),
            moving: None,
            target: TargetId::from(0),
            locks: Vec::new(),
            again: Vec::new(),
        }
    }

    /// All that it held is lost.
    pub(super) fn wipe(&mut self) {
        *self = Self { target: self.target, ..Self::new() };
    }

    /// Something else has changed what it holds: no version is as it was.
    pub(super) fn wipe_log(&mut self) {
        for image in &mut self.images {
            image.log.clear();
        }
    }

    /// What its next life finds.
    pub(super) fn crashed(self) -> Self {
        Self { images: self.images.into_iter().take(1).collect(), again: self.again, ..Self::new() }
    }

    pub(super) fn past(&self) -> Past {
        let image = &self.images[0];
        let record = |(uuid, replies): (&String, &Vec<ReplyRecord>)| ClientRecord {
            uuid: uuid.clone(),
            admission: image.admissions.get(uuid).copied(),
            replies: replies.clone(),
            ..ClientRecord::default()
        };
        Past { last_transno: image.last, clients: image.clients.iter().map(record).collect() }
    }

    pub(super) fn now(&self) -> &Image {
        self.images.back().unwrap()
    }

    pub(super) fn uncommitted(&self) -> usize {
        self.images.len() - 1
    }

    /// Commits the first transactions of those that are not.
    pub(super) fn commit(&mut self, rpc: &mut Rpc<'_, '_>, count: usize) {
        self.images.drain(..count.min(self.uncommitted()));
        rpc.committed(self.target, self.images[0].last);
    }

    /// Serves requests that wait.
    pub(super) fn serve_held(&mut self, rpc: &mut Rpc<'_, '_>, count: usize) {
        for _ in 0..count {
            let Some(served) = self.held.pop_front() else { return };
            self.serve(rpc, served);
        }
    }

    pub(super) fn event(&mut self, rpc: &mut Rpc<'_, '_>, event: Event) {
        match event {
            Event::Joining { export, client, admission, .. } => {
                let mut image = self.now().clone();
                image.admissions.insert(client.clone(), admission);
                image.clients.insert(client, Vec::new());
                self.images.push_back(image);
                self.commit(rpc, usize::MAX);
                rpc.admit(export, Ok(()));
            }
            Event::Disconnected { export, client, .. } | Event::Evicted { export, client, .. } => {
                let mut image = self.now().clone();
                image.clients.remove(&client);
                self.images.push_back(image);
                rpc.left(export);
            }
            Event::Served(served) if self.slow => self.held.push_back(*served),
            Event::Served(served) if served.opcode == APPEND && !self.into.is_empty() => {
                rpc.bulk(served.id, Direction::Write, &self.into).unwrap();
                self.moving = Some(*served);
            }
            Event::Served(served) => self.serve(rpc, *served),
            Event::BulkDone { result: Ok(()), .. } => {
                let served = self.moving.take().unwrap();
                self.serve(rpc, served);
            }
            _ => {}
        }
    }

    fn serve(&mut self, rpc: &mut Rpc<'_, '_>, served: Served) {
        let text = served.msg().unwrap().buffer(1).unwrap_or_default().to_vec();
        if served.opcode == ECHO {
            return rpc
                .reply(served.id, Answer { buffers: Buffers::from([text]), ..Answer::default() });
        }
        if served.opcode == Opcode::LDLM_ENQUEUE {
            self.locks.push(served.body.flags);
            return rpc
                .reply(served.id, Answer { buffers: Buffers::from([text]), ..Answer::default() });
        }
        if served.opcode != APPEND {
            return rpc.refuse(served.id, Errno::EOPNOTSUPP);
        }
        let text = String::from_utf8(text).unwrap();
        let (key, value) = text.split_once('=').unwrap();
        let mut image = self.now().clone();
        let (old, version) = image.map.get(key).cloned().unwrap_or((String::new(), MISSING));
        if let Some(replay) = served.replay {
            if image.log.contains_key(&replay.transno) {
                let buffers = Buffers::new().bytes(&self.again);
                let answer = Answer { transno: replay.transno, buffers, ..Answer::default() };
                return rpc.reply(served.id, answer);
            }
            if replay.pre_versions[0] != version {
                let status = Errno::EOVERFLOW.negative();
                return rpc.reply(served.id, Answer { status, ..Answer::default() });
            }
        }
        let transno = rpc.transno(served.id);
        if transno == 0 {
            return rpc.decline(served.id);
        }
        let (key, mut value) = (key.to_owned(), value.to_owned());
        for span in &self.into {
            value.push_str(core::str::from_utf8(rpc.below().bytes(*span)).unwrap());
        }
        image.map.insert(key.clone(), (value.clone(), transno));
        let before = image.log.insert(transno, Change { key, value, old: old.clone() });
        assert_eq!(before, None, "transaction {transno:#x} is given out twice");
        image.last = image.last.max(transno);
        let answer = Answer {
            transno,
            pre_versions: [version, 0, 0, 0],
            buffers: Buffers::new().bytes(old.as_bytes()),
            ..Answer::default()
        };
        if let Some((client, record)) = rpc.record(served.id, &answer) {
            image.clients.entry(client).or_default().push(record);
        }
        self.images.push_back(image);
        rpc.reply(served.id, answer);
    }
}
