//! Machines joined by an LNet without surprises: messages arrive at once and in order, a
//! microsecond each; nodes that are down are unreachable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use lnet_selftest::*;
use lnet_types::{Errno, Instant, Nid, ProcessId};
use lnet_wire::selftest::{PORTAL_REPLY, Service};

pub(crate) const KEY: u32 = 4242;

pub(crate) struct Host {
    pub(crate) machine: Selftest,
    pub(crate) listens: BTreeMap<Service, u32>,
    offers: Vec<(Token, ProcessId, u64, Offered)>,
    answers: BTreeMap<CommandId, Result<Answer, Errno>>,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) hosts: BTreeMap<Nid, Host>,
    pub(crate) down: BTreeSet<Nid>,
    /// They take requests and do not answer.
    pub(crate) mute: BTreeSet<Nid>,
    /// Service, sender and receiver of each request.
    pub(crate) requests: Vec<(Service, Nid, Nid)>,
    todo: VecDeque<(Nid, Action)>,
    commands: u64,
}

pub(crate) fn nid(n: u32) -> Nid {
    Nid::new(lnet_types::Net::TCP, 0x0a00_0000 + n)
}

fn bytes_of(data: &Data) -> Vec<u8> {
    match data {
        Data::Bytes(bytes) => bytes.clone(),
        Data::Pattern { len, damaged } => {
            let mut bytes = vec![0; *len as usize];
            fill(&mut bytes);
            if *damaged {
                damage(&mut bytes);
            }
            bytes
        }
    }
}

fn done<'a>(sink: &Sink, bytes: &'a [u8]) -> Done<'a> {
    let kept = if sink.wanted == Wanted::Nothing { &[] } else { bytes };
    Done { status: Ok(()), len: bytes.len() as u32, bytes: kept }
}

const fn over(status: Result<(), Errno>) -> Done<'static> {
    Done { status, len: 0, bytes: &[] }
}

impl World {
    pub(crate) fn new(count: u32) -> Self {
        Self::with(count, Settings::default())
    }

    pub(crate) fn with(count: u32, settings: Settings) -> Self {
        let host = |_| Host {
            machine: Selftest::new(settings, Duration::from_secs(1_700_000_000)),
            listens: BTreeMap::new(),
            offers: Vec::new(),
            answers: BTreeMap::new(),
        };
        Self {
            now: Instant::from_secs(1),
            hosts: (1..=count).map(|n| (nid(n), host(n))).collect(),
            down: BTreeSet::new(),
            mute: BTreeSet::new(),
            requests: Vec::new(),
            todo: VecDeque::new(),
            commands: 0,
        }
    }

    pub(crate) fn host(&mut self, n: u32) -> &mut Host {
        self.hosts.get_mut(&nid(n)).unwrap()
    }

    /// Buffers posted for replies and bulk that are neither used nor withdrawn.
    pub(crate) fn offers(&self) -> usize {
        self.hosts.values().map(|h| h.offers.len()).sum()
    }

    fn collect(&mut self) {
        for (at, host) in &mut self.hosts {
            while let Some(action) = host.machine.poll_action() {
                self.todo.push_back((*at, action));
            }
            while let Some((id, answer)) = host.machine.poll_answer() {
                host.answers.insert(id, answer);
            }
        }
    }

    /// Carries out one action; false if there is none.
    fn step(&mut self) -> bool {
        self.collect();
        let Some((at, action)) = self.todo.pop_front() else { return false };
        self.now += Duration::from_micros(1);
        let now = self.now;
        match action {
            Action::Listen { service, buffers } => {
                self.hosts.get_mut(&at).unwrap().listens.insert(service, buffers);
            }
            Action::Withdraw { token } => {
                self.hosts.get_mut(&at).unwrap().offers.retain(|(t, ..)| *t != token);
            }
            Action::Offer { token, peer, match_bits, buffer } => {
                let host = self.hosts.get_mut(&at).unwrap();
                host.offers.push((token, peer, match_bits, buffer));
            }
            Action::Put { token, from, to, portal, match_bits, data } => {
                let who = ProcessId::lustre(from.unwrap_or(at));
                let status = self.reach(to.nid);
                if status.is_ok() {
                    let bytes = bytes_of(&data);
                    if portal == PORTAL_REPLY {
                        if let Some((token, Offered::Sink(sink))) =
                            self.take(to.nid, who, match_bits, false)
                        {
                            assert!(bytes.len() <= sink.len as usize, "too long for its buffer");
                            let host = self.hosts.get_mut(&to.nid).unwrap();
                            host.machine.done(now, token, done(&sink, &bytes));
                        }
                    } else {
                        let service = Service::from_id(match_bits).unwrap();
                        assert_eq!(service.portal(), portal);
                        self.requests.push((service, at, to.nid));
                        let lnet = LnetCounters { send_count: 7, ..LnetCounters::default() };
                        if !self.mute.contains(&to.nid) {
                            let host = self.hosts.get_mut(&to.nid).unwrap();
                            host.machine.request(now, service, who, to.nid, &bytes, &lnet);
                        }
                    }
                }
                self.hosts.get_mut(&at).unwrap().machine.done(now, token, over(status));
            }
            Action::Get { token, from, to, match_bits, sink } => {
                let who = ProcessId::lustre(from.unwrap_or(at));
                let mut status = self.reach(to.nid);
                let mut bytes = Vec::new();
                if status.is_ok() {
                    match self.take(to.nid, who, match_bits, true) {
                        Some((token, Offered::Source(data))) => {
                            bytes = bytes_of(&data);
                            bytes.truncate(sink.len as usize);
                            let len = bytes.len() as u32;
                            let end = Done { status: Ok(()), len, bytes: &[] };
                            self.hosts.get_mut(&to.nid).unwrap().machine.done(now, token, end);
                        }
                        _ => status = Err(Errno::ETIMEDOUT),
                    }
                }
                let end = match status {
                    Ok(()) => done(&sink, &bytes),
                    Err(_) => over(status),
                };
                self.hosts.get_mut(&at).unwrap().machine.done(now, token, end);
            }
        }
        true
    }

    fn reach(&self, to: Nid) -> Result<(), Errno> {
        let there = self.hosts.contains_key(&to) && !self.down.contains(&to);
        if there { Ok(()) } else { Err(Errno::EHOSTUNREACH) }
    }

    fn take(
        &mut self,
        at: Nid,
        who: ProcessId,
        bits: u64,
        source: bool,
    ) -> Option<(Token, Offered)> {
        let offers = &mut self.hosts.get_mut(&at)?.offers;
        let place = offers.iter().position(|(_, peer, b, offered)| {
            *peer == who && *b == bits && matches!(offered, Offered::Source(_)) == source
        })?;
        let (token, _, _, offered) = offers.remove(place);
        Some((token, offered))
    }

    /// Lets `time` pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            if self.step() {
                continue;
            }
            let due = self.hosts.values().filter_map(|h| h.machine.poll_timeout()).min();
            self.now = due.unwrap_or(end).clamp(self.now, end);
            let now = self.now;
            for host in self.hosts.values_mut() {
                if host.machine.poll_timeout().is_some_and(|at| at <= now) {
                    host.machine.handle_timeout(now);
                }
            }
        }
        self.collect();
    }

    /// Gives a command to node `n` and waits for its answer.
    pub(crate) fn command(&mut self, n: u32, command: Command) -> Result<Answer, Errno> {
        self.command_as(n, KEY, command)
    }

    pub(crate) fn command_as(
        &mut self,
        n: u32,
        key: u32,
        command: Command,
    ) -> Result<Answer, Errno> {
        self.commands += 1;
        let (now, id) = (self.now, CommandId(self.commands));
        let here = Here { nid: Some(nid(n)), stamp_ms: 1000 + self.commands as i64 };
        self.host(n).machine.command(now, here, id, key, command);
        for _ in 0..200_000 {
            self.collect();
            if let Some(answer) = self.host(n).answers.remove(&id) {
                return answer;
            }
            self.run(Duration::from_millis(1));
        }
        panic!("no answer");
    }

    pub(crate) fn nodes(&mut self, n: u32, command: Command) -> Nodes {
        match self.command(n, command) {
            Ok(Answer::Nodes(nodes)) => nodes,
            other => panic!("{other:?}"),
        }
    }

    /// A session on node 1 with the groups `c` and `s`.
    pub(crate) fn session(&mut self, clients: &[u32], servers: &[u32]) {
        self.command(1, new_session("t", false)).unwrap();
        for (group, members) in [("c", clients), ("s", servers)] {
            self.command(1, Command::AddGroup { name: group.to_owned() }).unwrap();
            let nids = members.iter().map(|n| nid(*n)).collect();
            let nodes = self.nodes(1, Command::AddNodes { group: group.to_owned(), nids });
            assert!(nodes.iter().all(|n| n.outcome == Ok(Report::Done)), "{nodes:?}");
        }
    }

    pub(crate) fn run_batch(&mut self) {
        let nodes = self.nodes(1, Command::Run { batch: "batch".to_owned(), timeout_s: 0 });
        assert!(nodes.iter().all(|n| n.outcome.is_ok()), "{nodes:?}");
    }

    pub(crate) fn active(&mut self, test: u32) -> Vec<u32> {
        let batch = "batch".to_owned();
        let query = Command::Query { batch, test, server: false, timeout_s: 5 };
        let active = |n: &NodeResult| match n.outcome {
            Ok(Report::Active(n)) => n,
            ref other => panic!("{other:?}"),
        };
        self.nodes(1, query).iter().map(active).collect()
    }

    pub(crate) fn counters(&mut self, group: &str) -> Vec<Counters> {
        let target = Target::Group(group.to_owned());
        let counters = |n: &NodeResult| match &n.outcome {
            Ok(Report::Counters(c)) => **c,
            other => panic!("{other:?}"),
        };
        self.nodes(1, Command::Stat { target, timeout_s: 5 }).iter().map(counters).collect()
    }
}

pub(crate) fn new_session(name: &str, force: bool) -> Command {
    Command::NewSession { name: name.to_owned(), timeout_s: 300, force, features: 1 }
}

pub(crate) fn test(kind: Kind, repeat: Option<u32>, concurrency: u32) -> TestSpec {
    TestSpec {
        batch: "batch".to_owned(),
        from: "c".to_owned(),
        to: "s".to_owned(),
        repeat,
        concurrency,
        clients: 1,
        servers: 1,
        kind,
    }
}

pub(crate) fn brw(write: bool, size: u32, check: Check) -> Kind {
    Kind::Brw(Brw { write, size, offset: 0, check })
}
