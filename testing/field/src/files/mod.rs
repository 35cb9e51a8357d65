//! Files over real processes: a file system of our own on three nodes, eight clients that work with its
//! files and names, a tree that is copied in and out, and faults meanwhile. Each result is held against
//! what a local file system would have given.
//!
//! ```text
//!   site.rs     hosts and servers, and what befalls them
//!   worker.rs   a client: bytes (data.rs), names (names.rs against model.rs); score.rs is its account
//!   tree.rs     the tree that is copied, and what differs of its copy
//! ```

mod data;
mod model;
mod names;
mod score;
mod site;
mod tree;
mod worker;

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use netns::{Process, World};
use serde::{Deserialize, Serialize};

pub use score::Score;
use site::{CLIENTS, Fault, PORT, Site};
use worker::{Report, Task};

pub(crate) use worker::main as worker_main;

/// Files that clients have in turns.
const SHARED: u32 = 4;
/// How long a copy may take, and a client to end.
const COPY: Duration = Duration::from_secs(1800);
const END: Duration = Duration::from_secs(400);
/// How long a call of a copy may take: longer than a server waits for clients of its life before.
const COPY_CALL: Duration = Duration::from_secs(600);
/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes that a copy must have moved to be going on.
const MOVED: u64 = 32 << 10;

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Some seconds: for a test.
    Small,
    /// 20,000 files, minutes.
    Full,
}

impl Size {
    /// A size by its name.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "small" => Ok(Self::Small),
            "full" => Ok(Self::Full),
            _ => Err("expected small or full".to_owned()),
        }
    }

    const fn files(self) -> u64 {
        match self {
            Self::Small => 300,
            Self::Full => 20_000,
        }
    }

    /// Between two troubles while clients work, and while a tree is copied.
    const fn pauses(self) -> (Duration, Duration) {
        match self {
            Self::Small => (Duration::from_millis(500), Duration::from_millis(200)),
            Self::Full => (Duration::from_secs(4), Duration::from_secs(1)),
        }
    }

    fn faults(self) -> Vec<Fault<'static>> {
        let (down, cut, stop) = match self {
            Self::Small => (300, 1500, 1500),
            Self::Full => (1000, 6000, 10_000),
        };
        let [down, cut, stop] = [down, cut, stop].map(Duration::from_millis);
        let mut all = vec![
            ("SIGKILL of mgs and mdt", "kind = \"kill\"\nprocess = true\non = \"mds\"", down),
            ("black hole on a rail of osts", "kind = \"cut\"\non = \"oss-1/0\"", cut),
            ("SIGKILL of two osts", "kind = \"kill\"\nprocess = true\non = \"oss-1\"", down),
            ("SIGSTOP of two osts", "kind = \"pause\"\non = \"oss-2\"", stop),
            ("SIGKILL of the other osts", "kind = \"kill\"\nprocess = true\non = \"oss-2\"", down),
            ("no carrier on a rail of mgs and mdt", "kind = \"carrier\"\non = \"mds/1\"", cut),
        ];
        if self == Self::Full {
            all.push(("SIGSTOP of mgs and mdt", "kind = \"pause\"\non = \"mds\"", stop));
        }
        all
    }
}

/// How to run.
#[derive(Clone, Debug)]
pub struct FilesSetup {
    /// The program of clients: this one.
    pub exe: PathBuf,
    /// The program that serves and copies: this one, or `ulnet`.
    pub ulnet: PathBuf,
    /// Where storage, images, trees and logs go.
    pub dir: PathBuf,
    /// How large.
    pub size: Size,
}

/// A line of the table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FilesRow {
    /// What ran.
    pub what: String,
    /// Seconds that it took.
    pub seconds: f64,
    /// Its account. The longest stall of a copy is the longest time in which it moved nothing.
    pub score: Score,
    /// Troubles that began meanwhile.
    pub troubles: usize,
}

/// What came of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FilesFigures {
    /// A line for each thing that ran.
    pub rows: Vec<FilesRow>,
    /// Each trouble, and how often it was.
    pub troubles: Vec<(String, usize)>,
}

impl FilesFigures {
    /// Whether nothing failed and nothing differs.
    pub fn hold(&self) -> bool {
        let clean = |row: &FilesRow| row.score.errors == 0 && row.score.differences == 0;
        !self.rows.is_empty() && self.rows.iter().all(clean)
    }

    /// As a table.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{:<40} {:>8} {:>9} {:>7} {:>12} {:>13} {:>9}\n",
            "what", "seconds", "ops", "errors", "differences", "longest stall", "troubles"
        );
        for FilesRow { what, seconds, score, troubles } in &self.rows {
            let _ = writeln!(
                out,
                "{what:<40} {seconds:>8.1} {:>9} {:>7} {:>12} {:>11.1} s {troubles:>9}",
                score.ops, score.errors, score.differences, score.longest,
            );
            for line in &score.said {
                let _ = writeln!(out, "    {line}");
            }
        }
        out.push_str("troubles:\n");
        for (name, times) in &self.troubles {
            let _ = writeln!(out, "{times:>4} × {name}");
        }
        out
    }
}

/// Runs it in `world`.
///
/// # Errors
/// A host or server can't be made, or a process does not end.
pub fn play_files(world: World, setup: &FilesSetup) -> Result<FilesFigures> {
    std::fs::create_dir_all(setup.dir.join("shared"))?;
    let site = Site::begin(world, &setup.size.faults(), &setup.ulnet, &setup.dir)?;
    let times = vec![0; site.troubles().len()];
    let mut run = Run { setup, site, next: 0, times, figures: FilesFigures::default() };
    run.work()?;
    run.compare()?;
    run.copies()?;
    let names = run.site.troubles().iter().map(|trouble| trouble.name.clone());
    run.figures.troubles = names.zip(run.times).filter(|(_, times)| *times > 0).collect();
    Ok(run.figures)
}

/// Whether troubles go on, by what they are for.
enum Over {
    No,
    Yes,
}

struct Run<'s> {
    setup: &'s FilesSetup,
    site: Site,
    /// The trouble that comes next, and how often each was.
    next: usize,
    times: Vec<usize>,
    figures: FilesFigures,
}

impl Run<'_> {
    /// Waits, and looks meanwhile whether all is over.
    fn rest(time: Duration, look: &mut dyn FnMut() -> Result<Over>) -> Result<Over> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if matches!(look()?, Over::Yes) {
                return Ok(Over::Yes);
            }
            std::thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(Over::No)
    }

    /// One trouble, and a pause after it. Whatever becomes of it, it ends.
    fn trouble(&mut self, pause: Duration, look: &mut dyn FnMut() -> Result<Over>) -> Result<Over> {
        let number = self.next % self.times.len().max(1);
        self.next += 1;
        if let Some(times) = self.times.get_mut(number) {
            *times += 1;
        }
        let trouble = self.site.troubles().get(number).context("no trouble")?;
        let lasts = trouble.lasts;
        eprintln!("{} for {lasts:?}", trouble.name);
        self.site.trouble(number, true)?;
        let over = Self::rest(lasts, look);
        self.site.trouble(number, false)?;
        match over? {
            Over::Yes => Ok(Over::Yes),
            Over::No => Self::rest(pause, look),
        }
    }

    fn start(&self, client: u32, host: u32, compare: bool) -> Result<Worker> {
        let task = Task {
            place: self.site.place()?,
            nids: self.site.client_nids(host)?,
            port: PORT,
            dir: self.setup.dir.join("shared"),
            client,
            clients: CLIENTS,
            shared: SHARED,
            compare,
        };
        let name = format!("{}-{client}", if compare { "compare" } else { "client" });
        let (out, err) = (
            self.setup.dir.join(format!("{name}.json")),
            self.setup.dir.join(format!("{name}.log")),
        );
        let mut command = self.site.command(host, &self.setup.exe)?;
        command.arg(crate::FILES).arg(serde_json::to_string(&task)?).stdin(Stdio::piped());
        command.stdout(File::create(&out)?).stderr(File::create(&err)?);
        Ok(Worker { process: self.site.spawn(host, command)?, out, err })
    }

    /// Eight clients at a time, and each trouble once.
    fn work(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut workers = (0..CLIENTS)
            .map(|client| self.start(client, client, false))
            .collect::<Result<Vec<_>>>()?;
        let (pause, _) = self.setup.size.pauses();
        let mut look = || {
            for worker in &mut workers {
                ensure!(worker.process.child().try_wait()?.is_none(), "{}", worker.said());
            }
            Ok(Over::No)
        };
        Self::rest(pause, &mut look)?;
        let troubles = self.times.len();
        for _ in 0..troubles {
            self.trouble(pause, &mut look)?;
        }
        let mut whole = Report::default();
        for worker in &mut workers {
            worker.process.child().stdin = None;
        }
        for mut worker in workers {
            let Report { own, shared, names } = worker.report()?;
            whole.own.add(own);
            whole.shared.add(shared);
            whole.names.add(names);
        }
        self.rows("", whole, begun, troubles);
        Ok(())
    }

    fn rows(&mut self, when: &str, report: Report, begun: Instant, troubles: usize) {
        let seconds = begun.elapsed().as_secs_f64();
        let Report { own, shared, names } = report;
        let own = (format!("bytes of {CLIENTS} files{when}"), own);
        let shared = (format!("bytes of {SHARED} files, in turns{when}"), shared);
        for (what, score) in [own, shared, (format!("names of {CLIENTS} clients{when}"), names)] {
            self.figures.rows.push(FilesRow { what, seconds, score, troubles });
        }
    }

    /// Another client looks at all that is there.
    fn compare(&mut self) -> Result<()> {
        let begun = Instant::now();
        let report = self.start(CLIENTS, 0, true)?.report()?;
        self.rows(", read again", report, begun, 0);
        Ok(())
    }

    /// A tree goes in and comes out.
    fn copies(&mut self) -> Result<()> {
        let (tree, out) = (self.setup.dir.join("tree"), self.setup.dir.join("out"));
        let files = self.setup.size.files();
        tree::make(&tree, files)?;
        let place = format!("{}/tree", self.site.place()?);
        let [here, there] = [&tree, &out].map(|path| format!("file:{}", path.display()));
        self.copy(&format!("cp -r in, {files} files"), [&here, &place])?;
        self.copy(&format!("cp -r out, {files} files"), [&place, &there])?;
        let begun = Instant::now();
        let mut score = Score { ops: tree::count(&tree)?, ..Score::default() };
        for line in tree::differences(&tree, &out)? {
            score.differs("diff -r", &line);
        }
        let seconds = begun.elapsed().as_secs_f64();
        let row = FilesRow { what: "diff -r".to_owned(), seconds, score, troubles: 0 };
        self.figures.rows.push(row);
        Ok(())
    }

    /// One copy, and troubles as long as it goes on.
    fn copy(&mut self, what: &str, sides: [&str; 2]) -> Result<()> {
        let begun = Instant::now();
        let mut command = self.site.command(0, &self.setup.ulnet)?;
        command.arg(crate::LUSTRE).args(["cp", "-r", "--json"]).args(sides);
        command.arg("--source").arg(self.site.client_nids(0)?.join(","));
        // A client that has left while a server was away is waited for when that server recovers.
        command.args(["--timeout", &COPY_CALL.as_secs().to_string()]);
        let name = what.split(',').next().unwrap_or_default().replace([' ', '-'], "");
        let (out, err) = (
            self.setup.dir.join(format!("{name}.json")),
            self.setup.dir.join(format!("{name}.log")),
        );
        command.stdin(Stdio::null());
        command.stdout(File::create(&out)?).stderr(File::create(&err)?);
        let process = self.site.spawn(0, command)?;
        let mut copy = Worker { process, out, err };
        let mut flow = Flow::of(&copy.process, begun);
        let mut look = || {
            flow.look();
            ensure!(begun.elapsed() < COPY, "a copy does not end: {}", copy.said());
            Ok(if copy.process.child().try_wait()?.is_some() { Over::Yes } else { Over::No })
        };
        let (_, pause) = self.setup.size.pauses();
        let mut troubles = 0;
        let mut over = Self::rest(pause, &mut look)?;
        while matches!(over, Over::No) {
            troubles += 1;
            over = self.trouble(pause, &mut look)?;
        }
        let mut score = Score { longest: flow.longest.as_secs_f64(), ..Score::default() };
        match copy.account() {
            Ok(Account { files, directories, links, failed, .. }) => {
                score.ops = files + directories + links;
                for failed in failed {
                    score.error(&failed.path, &failed.error);
                }
            }
            Err(e) => score.error(what, &format!("{e:#}")),
        }
        let seconds = begun.elapsed().as_secs_f64();
        self.figures.rows.push(FilesRow { what: what.to_owned(), seconds, score, troubles });
        Ok(())
    }
}

/// A process and what it prints.
struct Worker {
    process: Process,
    out: PathBuf,
    err: PathBuf,
}

/// What `ulnet lustre cp --json` prints.
#[derive(Debug, Deserialize)]
struct Account {
    files: u64,
    directories: u64,
    links: u64,
    failed: Vec<FailedFile>,
}

#[derive(Debug, Deserialize)]
struct FailedFile {
    path: String,
    error: String,
}

impl Worker {
    fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.err).unwrap_or_default();
        format!("{}: {}", self.err.display(), text.trim_end())
    }

    /// Its account, when it has ended.
    fn report(&mut self) -> Result<Report> {
        self.process.child().stdin = None;
        let end = Instant::now() + END;
        loop {
            if let Some(status) = self.process.child().try_wait()? {
                ensure!(status.success(), "{}", self.said());
                break;
            }
            if Instant::now() > end {
                bail!("a client does not end: {}", self.said());
            }
            std::thread::sleep(LOOK);
        }
        read(&self.out)
    }

    fn account(&self) -> Result<Account> {
        read(&self.out).with_context(|| self.said())
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path)?;
    serde_json::from_str(&text).with_context(|| format!("{}: {text:?}", path.display()))
}

/// How a process moves bytes, of files and sockets, as the system counts them.
struct Flow {
    path: PathBuf,
    moved: u64,
    since: Instant,
    longest: Duration,
}

impl Flow {
    fn of(process: &Process, begun: Instant) -> Self {
        let path = PathBuf::from(format!("/proc/{}/io", process.id()));
        Self { path, moved: 0, since: begun, longest: Duration::ZERO }
    }

    fn look(&mut self) {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let numbers = text.lines().filter_map(|line| {
            let number = line.strip_prefix("rchar: ").or_else(|| line.strip_prefix("wchar: "))?;
            number.parse::<u64>().ok()
        });
        let moved = numbers.sum();
        if moved >= self.moved + MOVED {
            self.longest = self.longest.max(self.since.elapsed());
            (self.moved, self.since) = (moved, Instant::now());
        }
    }
}

/// The programs that a run needs besides those of hosts.
///
/// # Errors
/// One is missing.
pub fn tools() -> Result<(), &'static str> {
    match Command::new("diff").arg("--version").stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err("diff is missing"),
    }
}
