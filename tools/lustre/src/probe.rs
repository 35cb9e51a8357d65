//! `ulnet rpc probe`: which targets answer at a server. Takes no lock, and disconnects at once.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Args;
use lnet_rt::{Errno, Nid, NodeHandle};
use lustre_rt::{CallError, Import, ImportConfig, ImportState, RpcNode};
use serde_json::{Value, json};

use crate::client::{Target, Way, nid, node};
use crate::ping::{client_uuid, kind_of, refused, wanted};
use crate::rails;
use crate::stop::Stop;

/// Which server, and which targets.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet rpc probe 10.0.0.1@tcp --fsname lfs\n  \
    ulnet rpc probe 10.0.0.1@tcp --target kv-1 --target kv-2")]
pub(crate) struct Options {
    /// NID of the server
    #[arg(value_parser = nid)]
    nid: Nid,
    /// Uuid of a target to look for, beside MGS
    #[arg(long = "target", value_name = "UUID")]
    targets: Vec<String>,
    /// Look for the first four MDTs and OSTs of a file system
    #[arg(long, value_name = "NAME")]
    fsname: Option<String>,
    #[command(flatten)]
    way: Way,
}

/// Between two looks at the imports that connect.
const LOOK: Duration = Duration::from_millis(2);
/// A server that is silent for so long has no such service.
const SILENCE: Duration = Duration::from_secs(5);
/// How long LNet may take to say whether it reaches a silent server.
const REACHED: Duration = Duration::from_secs(2);

/// Runs the command.
///
/// # Errors
/// No way to the server, or no target answers.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { nid, targets, fsname, way } = options;
    rails::address(*nid)?;
    let mut names = vec!["MGS".to_owned()];
    for kind in ["MDT", "OST"] {
        let of = |fs: &String| (0..4).map(|n| format!("{fs}-{kind}{n:04x}_UUID")).collect();
        names.extend(fsname.as_ref().map(of).unwrap_or_else(Vec::new));
    }
    names.extend(targets.iter().cloned());
    let (handle, rpc) = node(&Target { name: String::new(), nids: vec![*nid] }, way)?;
    let stop = Stop::of(&rpc)?;
    let until = Instant::now() + SILENCE.min(Duration::from_secs(way.timeout));
    let answers = ask(&rpc, &names, *nid, until).map_err(|e| stop.explain(e))?;
    stop.check()?;
    let found: Vec<(&String, Answer)> = names.iter().zip(answers).collect();
    if way.json {
        let rows = found.iter().map(|(name, answer)| answer.json(name));
        println!("{:#}", json!(rows.collect::<Vec<_>>()));
    } else {
        found.iter().for_each(|(name, answer)| println!("{name}: {answer}"));
    }
    let silent = found.iter().all(|(_, answer)| *answer == Answer::Silent);
    let why = silent.then(|| reached(&handle, *nid));
    handle.stop(Duration::from_secs(1)).blocking();
    why.map_or(Ok(()), |why| Err(anyhow!("no target answers; {why}")))
}

/// Whether LNet reaches a node whose targets are silent.
pub(crate) fn reached(node: &NodeHandle, nid: Nid) -> String {
    match node.ping(nid, REACHED).blocking() {
        Ok(_) => format!("{nid} answers LNet pings: it has no service for them"),
        Err(e) => format!("{nid} does not answer LNet pings either: {e}"),
    }
}

/// What came of a connect to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// It serves.
    Serving { version: String, instance: u32 },
    /// The server refuses.
    Refused(Errno),
    /// Nothing.
    Silent,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serving { version, instance } => {
                write!(f, "serving, version {version}, instance {instance}")
            }
            Self::Refused(errno) => f.write_str(&refused(*errno)),
            Self::Silent => f.write_str("no answer"),
        }
    }
}

impl Answer {
    fn json(&self, target: &str) -> Value {
        let (answer, target) = (self.to_string(), target);
        match self {
            Self::Serving { version, instance } => json!({
                "target": target, "answer": answer, "state": "serving",
                "version": version, "instance": instance,
            }),
            Self::Refused(errno) => json!({
                "target": target, "answer": answer, "state": "refused", "errno": errno.negative(),
            }),
            Self::Silent => json!({ "target": target, "answer": answer, "state": "silent" }),
        }
    }
}

/// What each target answers. All are asked at once: a silent one takes no time from the others.
fn ask(rpc: &RpcNode, names: &[String], nid: Nid, until: Instant) -> Result<Vec<Answer>> {
    let mut imports = Vec::new();
    for name in names {
        let kind = kind_of(name);
        let import = rpc.import(ImportConfig {
            kind,
            target: name.to_owned(),
            client: client_uuid(),
            nids: vec![nid],
            wanted: wanted(kind),
        })?;
        import.connect()?;
        imports.push(import);
    }
    let mut answers = vec![None; imports.len()];
    loop {
        for (import, answer) in imports.iter().zip(&mut answers) {
            if answer.is_none() {
                *answer = answer_to(import)?;
            }
        }
        if answers.iter().all(Option::is_some) || Instant::now() >= until {
            break;
        }
        thread::sleep(LOOK);
    }
    for (import, answer) in imports.into_iter().zip(&answers) {
        match answer {
            Some(_) => import.disconnect()?,
            // It was waited for already.
            None => import.disconnect_within(Duration::ZERO)?,
        }
    }
    Ok(answers.into_iter().map(|answer| answer.unwrap_or(Answer::Silent)).collect())
}

/// What came of a connect, if anything has.
fn answer_to(import: &Import) -> Result<Option<Answer>> {
    let Some(view) = import.view()? else { return Ok(None) };
    Ok(match view.refusal {
        _ if view.state == ImportState::Full => {
            let v = view.granted.version;
            let version = format!("{}.{}.{}", v >> 24, v >> 16 & 0xff, v >> 8 & 0xff);
            Some(Answer::Serving { version, instance: view.granted.instance })
        }
        Some(CallError::Refused(errno)) => Some(Answer::Refused(errno)),
        _ => None,
    })
}
