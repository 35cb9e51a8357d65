//! Objects and locks over real processes: two servers behind two routers, eight clients that share blocks
//! of objects and add lines to journals under locks by name, while one of them is stopped, one killed, and
//! lines, routers, servers and a disk fail. Afterwards all accounts are compared: one order must explain
//! what was read, and each journal consist of the lines of its clients, byte by byte.
//!
//! ```text
//!   worker.rs    a client
//!   account.rs   what it writes down of itself, and how that is compared
//!   site.rs      hosts, servers, routers, and what befalls them
//! ```

mod account;
mod site;
mod worker;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lustre::history::{Op, contradictions};
use netns::World;
use serde::Serialize;

use account::{Account, judge_journal, now};
use site::{Client, Site, Trouble};
use worker::{Part, account_file, journal_file};

pub(crate) use worker::main as worker_main;

/// Targets, objects of each, blocks of an object; journals, and the target of locks.
const TARGETS: u32 = 2;
const OBJECTS: u32 = 2;
const BLOCKS: u32 = 4;
const ALL_BLOCKS: u32 = TARGETS * OBJECTS * BLOCKS;
const JOURNALS: u32 = 2;
const LOCKS: &str = "locks";
/// Clients; the last but one is stopped, the last is killed.
const CLIENTS: u32 = 8;
const STOPPED: u32 = CLIENTS - 2;
const KILLED: u32 = CLIENTS - 1;
/// How long a client may take to end.
const END: Duration = Duration::from_secs(400);
/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(20);

fn target_name(n: u32) -> String {
    format!("ost-{n}")
}

/// How long things last.
#[derive(Clone, Copy, Debug)]
pub struct ObjectsTimes {
    /// `ldlm_enqueue_min` of the servers, the shortest callback timer. A callback that is lost in a router
    /// that dies is sent again after its own deadline, at most 1.25 times `at_max` and five seconds (P-94):
    /// a holder lives on if the timer is longer than that.
    pub timer: Duration,
    /// `at_max` of the servers.
    pub at_max: Duration,
    /// Lines and routers fail.
    pub cut: Duration,
    /// All lines of the servers fail.
    pub dark: Duration,
    /// Between two troubles.
    pub pause: Duration,
}

impl ObjectsTimes {
    /// Of a test.
    pub const SHORT: Self = Self {
        timer: Duration::from_secs(14),
        at_max: Duration::from_secs(6),
        cut: Duration::from_secs(2),
        dark: Duration::from_secs(3),
        pause: Duration::from_millis(700),
    };
    /// A client that is dead and holds nothing that others want is dropped after 1.5 times as long, and a
    /// server that is started before that waits for it for three times as long.
    fn obd_timeout(self) -> Duration {
        self.at_max * 2
    }

    /// All servers out of reach for twenty seconds.
    pub const LONG: Self = Self {
        timer: Duration::from_secs(80),
        at_max: Duration::from_secs(40),
        cut: Duration::from_secs(8),
        dark: Duration::from_secs(20),
        pause: Duration::from_secs(5),
    };
}

/// How to run.
#[derive(Clone, Debug)]
pub struct ObjectsSetup {
    /// This program.
    pub exe: PathBuf,
    /// Where storage, accounts and logs go.
    pub dir: PathBuf,
    /// How long things last.
    pub times: ObjectsTimes,
}

/// What came of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ObjectsFigures {
    /// Seconds that it took.
    pub seconds: f64,
    /// Writes and reads of blocks, and lines of journals.
    pub writes: usize,
    /// See above.
    pub reads: usize,
    /// See above.
    pub lines: usize,
    /// Reads of several writes at once.
    pub torn: u64,
    /// How often no order explains what was read.
    pub contradictions: u64,
    /// Clients that were evicted, by number.
    pub evicted: Vec<u32>,
    /// Lines that were refused for their number, of the client that was stopped and of others.
    pub refused: u64,
    /// See above.
    pub refused_others: u64,
    /// What differs between journals and accounts.
    pub journals: Vec<String>,
    /// What failed, by the clients that were neither stopped nor killed, but for a full disk.
    pub failed: Vec<String>,
    /// Operations that a full disk refused.
    pub no_space: usize,
    /// What befell them.
    pub troubles: Vec<String>,
}

impl ObjectsFigures {
    /// Whether nothing is wrong.
    pub fn hold(&self) -> bool {
        let only_stopped = self.evicted.iter().all(|client| *client == STOPPED);
        self.torn + self.contradictions + self.refused_others == 0
            && only_stopped
            && self.journals.is_empty()
            && self.failed.is_empty()
            && self.reads > 0
            && self.lines > 0
    }

    /// As a text.
    pub fn table(&self) -> String {
        let Self { seconds, writes, reads, lines, torn, contradictions, evicted, .. } = self;
        let mut out = format!(
            "{seconds:.0} s: writes {writes}  reads {reads}  lines {lines}   torn {torn}  contradictions \
             {contradictions}  lines that differ {}\nevicted {evicted:?} (stopped: {STOPPED})   lines refused \
             {} (of others {})   refused by a full disk {}\n",
            self.journals.len(),
            self.refused,
            self.refused_others,
            self.no_space,
        );
        for line in self.journals.iter().chain(&self.failed).take(20) {
            let _ = writeln!(out, "    {line}");
        }
        let _ = writeln!(out, "troubles: {}", self.troubles.join("; "));
        out
    }
}

/// Runs it in `world`.
///
/// # Errors
/// A host or server can't be made, or a process does not end.
pub fn play_objects(world: World, setup: &ObjectsSetup) -> Result<ObjectsFigures> {
    std::fs::create_dir_all(&setup.dir)?;
    let begun = Instant::now();
    let mut site = Site::begin(world, setup)?;
    let mut maker = site.client(0, Part::Make)?;
    maker.end()?;
    let clients = (0..CLIENTS).map(|n| site.client(n, Part::Work));
    let mut clients = clients.collect::<Result<Vec<_>>>()?;
    let stopped = befall(&mut site, &mut clients, setup)?;
    for client in &mut clients {
        client.process.child().stdin = None;
    }
    for (n, client) in (0..).zip(&mut clients) {
        if n != KILLED {
            client.end()?;
        }
    }
    let mut reader = site.client(CLIENTS, Part::Compare)?;
    reader.end()?;
    let mut figures = judge(setup, stopped)?;
    figures.troubles = site.troubles().iter().map(|trouble| trouble.name.to_owned()).collect();
    figures.seconds = begun.elapsed().as_secs_f64();
    Ok(figures)
}

/// Lets all befall them; when the client was stopped.
fn befall(site: &mut Site, clients: &mut [Client], setup: &ObjectsSetup) -> Result<u64> {
    let mut stopped = u64::MAX;
    std::thread::sleep(setup.times.pause);
    for number in 0..site.troubles().len() {
        let Some(&Trouble { name, lasts, .. }) = site.troubles().get(number) else { break };
        eprintln!("{name} for {lasts:?}");
        if name == site::STOP {
            stopped = now();
        }
        site.trouble(number, true, clients)?;
        std::thread::sleep(lasts);
        site.trouble(number, false, clients)?;
        std::thread::sleep(setup.times.pause);
        for (n, client) in (0..).zip(&mut *clients) {
            let ended = client.process.child().try_wait()?.is_some();
            ensure!(n == KILLED || !ended, "{}", client.said());
        }
    }
    Ok(stopped)
}

/// Compares accounts.
fn judge(setup: &ObjectsSetup, stopped: u64) -> Result<ObjectsFigures> {
    let mut figures = ObjectsFigures::default();
    let mut noted = vec![vec![Vec::new(); CLIENTS as usize]; JOURNALS as usize];
    let mut ops: Vec<Op> = Vec::new();
    for client in 0..=CLIENTS {
        let parts: &[&str] = if client == CLIENTS { &["compare"] } else { &["work", "lines"] };
        for part in parts {
            let file = account_file(&setup.dir, client, part);
            let text =
                std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let mut account = Account::parse(&text, client, client == KILLED)?;
            if client == STOPPED {
                account.without_reads_under_lost_locks(stopped);
            }
            figures.torn += account.torn;
            if !account.evicted.is_empty() {
                figures.evicted.push(client);
            }
            match client {
                STOPPED => figures.refused += account.refused,
                _ => figures.refused_others += account.refused,
            }
            for failed in account.failed {
                match failed {
                    _ if failed.contains("No space left") => figures.no_space += 1,
                    _ if client == STOPPED || client == KILLED => {}
                    _ => figures.failed.push(format!("client {client}: {failed}")),
                }
            }
            for (journal, line) in account.noted {
                let lines = noted.get_mut(journal as usize).context("no such journal")?;
                lines.get_mut(client as usize).context("no such client")?.push(line);
            }
            ops.append(&mut account.ops);
        }
    }
    figures.writes = ops.iter().filter(|op| op.writes).count();
    figures.reads = ops.len() - figures.writes;
    figures.contradictions = contradictions(&ops);
    for (journal, noted) in (0..).zip(&noted) {
        let text = std::fs::read_to_string(journal_file(&setup.dir, journal))?;
        figures.lines += text.lines().count();
        figures.journals.extend(judge_journal(&text, noted, &[KILLED]));
    }
    if figures.reads == 0 {
        bail!("nothing was read");
    }
    Ok(figures)
}
