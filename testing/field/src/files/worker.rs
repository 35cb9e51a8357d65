//! What runs in the host of a client: a node, a visit, and the programs on it, until standard input
//! ends.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use lnet_rt::{Nid, NodeBuilder};
use lnet_types::Errno;
use lustre_rt::visitor::{Access, Identity, Node, Place};
use lustre_rt::{Mount, MountConfig, RpcNode, wait};
use serde::{Deserialize, Serialize};

use super::data::{self, Image, Writer, image_file};
use super::model::Model;
use super::names::Namer;
use super::score::{Rng, Score};

/// How long a call may take, whatever befalls the servers.
const LIMIT: Duration = Duration::from_secs(300);
/// Steps between an open and a close, of a file of its own and of one that others have in turns.
const OWN_STEPS: u32 = 20;
const SHARED_STEPS: u32 = 10;
/// Turns with files of its own before one with a file that is shared.
const OWN_TURNS: u64 = 3;
/// Directories of the programs.
const DATA: &str = "data";
const NAMES: &str = "names";

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// The file system.
    pub(super) place: String,
    /// NIDs of this node.
    pub(super) nids: Vec<String>,
    /// Port of all nodes.
    pub(super) port: u16,
    /// Where images and models are, on this machine.
    pub(super) dir: PathBuf,
    /// Number of this client.
    pub(super) client: u32,
    /// Clients, and files that they have in turns.
    pub(super) clients: u32,
    /// See above.
    pub(super) shared: u32,
    /// Compares all that is there with images and models, in place of working.
    pub(super) compare: bool,
}

/// The accounts of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// Bytes of files of its own.
    pub(super) own: Score,
    /// Bytes of files that clients have in turns.
    pub(super) shared: Score,
    /// Names.
    pub(super) names: Score,
}

/// Runs the process. Its task is its argument.
pub(crate) fn main(task: &str) -> ExitCode {
    let run = || -> Result<Report> {
        let task: Task = serde_json::from_str(task).context("task")?;
        task.run()
    };
    match run() {
        Ok(report) => {
            let text = serde_json::to_string(&report).unwrap_or_default();
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("client: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn own(client: u32) -> String {
    format!("own-{client}")
}

fn shared(number: u64) -> String {
    format!("shared-{number}")
}

/// Half of the files are on one target, the others on all.
const fn stripes(number: u64) -> u32 {
    if number.is_multiple_of(2) { 4 } else { 1 }
}

/// A directory, which another client may have made.
async fn dir(mount: &Mount, above: &Node, name: &str) -> Result<Node> {
    match mount.make_dir(above, name.as_bytes(), 0o755, b"").await {
        Ok(made) => Ok(made),
        Err(e) if e.errno() == Errno::EEXIST => Ok(mount.child(above, name.as_bytes()).await?),
        Err(e) => Err(e.into()),
    }
}

impl Task {
    fn run(&self) -> Result<Report> {
        let place: Place = self.place.parse()?;
        let mut builder = NodeBuilder::new();
        for nid in &self.nids {
            let nid: Nid = nid.parse()?;
            let ip = nid.ip().context("a NID with an address")?;
            builder = builder.tcp_on(nid.net(), ip, self.port);
        }
        let node = builder.start()?;
        let rpc = RpcNode::start(&node, lustre_rt::Tunables::default())?;
        let config = MountConfig {
            mgs: place.nids(),
            fsname: place.fsname,
            client: format!("files-{}-{}", self.client, std::process::id()),
            who: Identity { umask: 0, ..Identity::default() },
            access: Access::Change,
            limit: LIMIT,
            interrupt: Default::default(),
            pace: Default::default(),
        };
        let mount = wait(Mount::begin(&rpc, config))?;
        let report = match self.compare {
            true => self.compare(&mount),
            false => self.work(&mount),
        };
        let ended = wait(mount.end());
        node.stop(Duration::from_secs(1)).blocking();
        let report = report?;
        ended?;
        Ok(report)
    }

    fn work(&self, mount: &Mount) -> Result<Report> {
        let stop = AtomicBool::new(false);
        let goes_on = || !stop.load(Ordering::Relaxed);
        let (data_dir, names_dir) = wait(async {
            let root = mount.root_node().await?;
            let data = dir(mount, &root, DATA).await?;
            let names = dir(mount, &root, NAMES).await?;
            dir(mount, &names, &own(self.client)).await?;
            Ok::<_, anyhow::Error>((data, names))
        })?;
        let seed = u64::from(self.client) << 32;
        let writer = Writer { mount, dir: &data_dir, rng: Rng::new(seed) };
        let base = format!("/{NAMES}/{}", own(self.client));
        let namer = Namer { mount, base, model: Model::default(), rng: Rng::new(seed | 1) };
        drop(names_dir);
        std::thread::scope(|scope| {
            let bytes = scope.spawn(|| self.bytes(writer, &goes_on));
            let names = scope.spawn(|| self.names(namer, &goes_on));
            // The harness ends its end of the pipe, or has ended itself.
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
            let ended = |_| anyhow::anyhow!("a program has panicked");
            let (own, shared) = bytes.join().map_err(ended)??;
            Ok(Report { own, shared, names: names.join().map_err(ended)?? })
        })
    }

    fn bytes(&self, mut writer: Writer<'_>, goes_on: &dyn Fn() -> bool) -> Result<(Score, Score)> {
        let (mut own_score, mut shared_score) = (Score::default(), Score::default());
        let name = own(self.client);
        let (mut image, mut turns) = (Image::default(), 0);
        while goes_on() {
            turns += 1;
            let number = self.client.into();
            let turn = writer.turn(&name, stripes(number), &mut image, OWN_STEPS, &mut own_score);
            wait(turn);
            if turns % OWN_TURNS > 0 {
                continue;
            }
            let number = writer.rng.below(self.shared.into());
            let name = shared(number);
            // Its lock says whose turn it is.
            let mut file = image_file(&self.dir, &name)?;
            file.lock()?;
            let mut image = Image::read(&mut file)?;
            let steps = SHARED_STEPS;
            wait(writer.turn(&name, stripes(number), &mut image, steps, &mut shared_score));
            image.write(&mut file)?;
        }
        image.write(&mut image_file(&self.dir, &name)?)?;
        Ok((own_score, shared_score))
    }

    fn names(&self, mut namer: Namer<'_>, goes_on: &dyn Fn() -> bool) -> Result<Score> {
        let mut score = Score::default();
        while goes_on() {
            wait(namer.step(&mut score))?;
        }
        std::fs::write(self.model_file(self.client), serde_json::to_vec(&namer.model)?)?;
        Ok(score)
    }

    fn model_file(&self, client: u32) -> PathBuf {
        self.dir.join(format!("names-{client}.json"))
    }

    fn compare(&self, mount: &Mount) -> Result<Report> {
        let mut report = Report::default();
        wait(async {
            let dir = mount.find(format!("/{DATA}").as_bytes(), true).await?;
            for client in 0..self.clients {
                let name = own(client);
                let image = Image::read(&mut image_file(&self.dir, &name)?)?;
                data::compare(mount, &dir, &name, &image, &mut report.own).await;
                let model = serde_json::from_slice(&std::fs::read(self.model_file(client))?)?;
                let base = format!("/{NAMES}/{name}");
                let namer = Namer { mount, base, model, rng: Rng::new(0) };
                namer.compare(&mut report.names).await;
            }
            for number in 0..self.shared.into() {
                let name = shared(number);
                let image = Image::read(&mut image_file(&self.dir, &name)?)?;
                data::compare(mount, &dir, &name, &image, &mut report.shared).await;
            }
            Ok(report)
        })
    }
}
