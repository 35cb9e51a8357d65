//! The same scenario in virtual time (`lnet-sim`): the same load from the same file, the same faults,
//! the same accounts, and so figures that can be held against those of real sockets.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::bail;
use lnet_scenario::{Exchange, Fidelity, NodeId, Scenario};
use lnet_sim::{
    AttemptId, Bounds, Bytes, Fabric, Host, HostId, Messages, Observer, Seen, Sim, View, Watch,
    all_checkers,
};
use lnet_types::Errno;

use crate::clock::{Micros, micros};
use crate::concern;
use crate::course::{Course, Done};
use crate::fault;
use crate::load::ledger;
use crate::load::talk::{ClientReport, Sample, ServerReport};
use crate::measure::{self, Accounts, Figures};
use crate::play::{Parties, parties};
use crate::selftest::{self, Account, Progress};

/// Plays `scenario`, with another seed where one is given.
///
/// # Errors
/// It has a load that is not played on sockets either, or a checker of the simulator objects.
pub fn simulate(scenario: &Scenario, seed: Option<u64>) -> anyhow::Result<Figures> {
    let scenario = Arc::new(scenario.clone());
    match scenario.fidelity {
        Fidelity::Messages => over(Messages::new(), &scenario, seed),
        Fidelity::Bytes => over(Bytes::new(scenario.bytes), &scenario, seed),
    }
}

fn over<F: Fabric>(
    fabric: F,
    scenario: &Arc<Scenario>,
    seed: Option<u64>,
) -> anyhow::Result<Figures> {
    let session = selftest::session(scenario)?;
    let parties = match &session {
        Some(session) => Parties::of(session),
        None => parties(scenario)?,
    };
    let Parties { client, server, .. } = parties;
    let mut sim = Sim::new(Arc::clone(scenario), seed, fabric);
    sim.set_watch(Watch { sample_every: concern::LOOK, ..Watch::of(scenario) });
    let books = Rc::new(RefCell::new(Books::new(scenario, [client, server])));
    sim.observe(Box::new(Clerk(Rc::clone(&books))));
    for checker in all_checkers(&Bounds::for_scenario(scenario)) {
        sim.observe(checker);
    }
    if let Err(violation) = sim.run() {
        bail!("{}: {violation}", scenario.name);
    }
    let planned = fault::steps(scenario).into_iter().map(|step| {
        let at = micros(step.at);
        Done { step, began: at, done: at }
    });
    let course = Course::new(scenario, (client, server), 0, &planned.collect::<Vec<_>>());
    let counters = |node: NodeId| -> Vec<(String, u64)> {
        let view = sim.view();
        let host = view.host(HostId(node.0)).filter(|host| host.alive);
        let rows = host.map(|host| host.node.stats().rows()).unwrap_or_default();
        rows.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
    };
    let counters = [counters(client), counters(server)];
    let books = books.take();
    let [client_noticed, server_noticed] = books.watches.map(|watch| watch.noticed);
    if let Some(session) = session {
        let account = Account {
            errors: books.errors,
            unfinished: books.open.len() as u64,
            corrupt: books.corrupt,
            resends: counters.iter().map(|of| measure::resends(of)).sum(),
        };
        let mut progress = books.progress;
        progress.noticed = [client_noticed, server_noticed].concat();
        return Ok(progress.figures(&session, &course, account));
    }
    let [of_client, of_server] = counters;
    let killed = books.deaths;
    Ok(measure::figures(&Accounts {
        course,
        killed,
        timeout: micros(parties.timeout),
        dawn: micros(scenario.bars.sockets.back_max.unwrap_or_default()),
        load: parties.load,
        client: ClientReport {
            samples: books.samples,
            corrupt: books.corrupt,
            counters: of_client,
            noticed: client_noticed,
        },
        server: ServerReport {
            counters: of_server,
            noticed: server_noticed,
            ..ServerReport::default()
        },
        ledger: books.taken.into_iter().map(|taken| taken.seen()).collect(),
    }))
}

/// How often the server was given a message.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    life: u32,
    in_life: u32,
    lives: u32,
    doubled: bool,
}

impl Taken {
    fn once_more(&mut self, life: u32) {
        if self.life != life {
            (self.life, self.in_life) = (life, 0);
            self.lives += 1;
        }
        self.in_life += 1;
        self.doubled |= self.in_life > 1;
    }

    fn seen(self) -> ledger::Seen {
        match (self.lives, self.doubled) {
            (0, _) => ledger::Seen::Never,
            (_, true) => ledger::Seen::Twice,
            (1, false) => ledger::Seen::Once,
            (_, false) => ledger::Seen::Again,
        }
    }
}

/// What client and server of a world would have written down.
#[derive(Debug, Default)]
struct Books {
    /// Client and server.
    ends: Vec<HostId>,
    /// Of each workload, whether it is of requests.
    requests: Vec<bool>,
    samples: Vec<Sample>,
    /// What the server was given of each message.
    taken: Vec<Taken>,
    /// Messages under way, by their attempts.
    numbers: BTreeMap<AttemptId, usize>,
    open: BTreeMap<AttemptId, Option<Errno>>,
    watches: [concern::Watch; 2],
    progress: Progress,
    /// Exchanges over, by workload.
    done: Vec<u64>,
    errors: u64,
    corrupt: u64,
    deaths: Vec<Micros>,
}

impl Books {
    fn new(scenario: &Scenario, ends: [NodeId; 2]) -> Self {
        let is_request = |exchange| matches!(exchange, Exchange::Request { .. });
        Self {
            ends: ends.iter().map(|node| HostId(node.0)).collect(),
            requests: scenario.workload.iter().map(|w| is_request(w.exchange)).collect(),
            done: vec![0; scenario.workload.len()],
            ..Self::default()
        }
    }

    fn sample(&mut self, attempt: AttemptId) -> Option<&mut Sample> {
        let number = *self.numbers.get(&attempt)?;
        self.samples.get_mut(number)
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) {
        let now = view.now.as_nanos() / 1000;
        match *seen {
            Seen::Begun { workload, attempt, .. } => {
                let number = self.samples.len();
                self.numbers.insert(attempt, number);
                self.open.insert(attempt, None);
                self.taken.push(Taken::default());
                self.samples.push(Sample {
                    number: number as u64,
                    request: self.requests.get(workload).copied().unwrap_or_default(),
                    due: now,
                    begun: now,
                    ended: None,
                    error: None,
                    replied: None,
                    replies: 0,
                });
            }
            Seen::Failed { attempt, why, .. } => {
                if let Some(errno) = self.open.get_mut(&attempt) {
                    *errno = Some(why.unwrap_or(Errno::ETIMEDOUT));
                }
            }
            Seen::Ended { workload, attempt, well, .. } => {
                let errno = self.open.remove(&attempt).flatten();
                self.errors += u64::from(!well);
                if let Some(done) = self.done.get_mut(workload) {
                    *done += 1;
                }
                if let Some(sample) = self.sample(attempt) {
                    sample.ended = Some(now);
                    sample.error = (!well).then(|| errno.unwrap_or(Errno::ETIMEDOUT).0);
                }
            }
            Seen::Delivered { host, attempt, answer, intact } => {
                self.corrupt += u64::from(intact == Some(false));
                if answer {
                    if let Some(sample) = self.sample(attempt).filter(|s| s.request) {
                        sample.replies += 1;
                        sample.replied.get_or_insert(now);
                    }
                } else if let Some(&number) = self.numbers.get(&attempt)
                    && let Some(taken) = self.taken.get_mut(number)
                {
                    taken.once_more(view.host(host).map_or(0, |host| host.incarnation));
                }
            }
            Seen::Died { host } if self.ends.last() == Some(&host) => self.deaths.push(now),
            Seen::Sample => {
                for (host, watch) in self.ends.iter().zip(&mut self.watches) {
                    let alive = view.host(*host).filter(|host: &&Host| host.alive);
                    let concerns = alive.map(|host| concern::of(&host.node)).unwrap_or_default();
                    watch.look(now, concerns);
                }
                self.progress.look(now, self.done.clone());
            }
            _ => {}
        }
    }
}

/// Keeps the books.
struct Clerk(Rc<RefCell<Books>>);

impl Observer for Clerk {
    fn name(&self) -> &'static str {
        "accounts"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        self.0.borrow_mut().see(seen, view);
        Ok(())
    }
}
