//! `ulnet rpc probe`: which targets answer at a server. Takes no lock, and disconnects at once.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use lnet_rt::Nid;
use lnet_types::NetType;
use lustre_rt::{CallError, Import, ImportConfig, ImportState, RpcNode};
use serde_json::json;

use crate::client::{Target, Way, node};
use crate::ping::{client_uuid, kind_of, wanted};

/// Which server, and which targets.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet rpc probe 10.0.0.1@tcp --fsname lfs\n  \
    ulnet rpc probe 10.0.0.1@tcp --target kv-1 --target kv-2")]
pub(crate) struct Options {
    /// NID of the server
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

/// Runs the command.
///
/// # Errors
/// No way to the server, or no target answers.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { nid, targets, fsname, way } = options;
    if nid.net().kind != NetType::TCP {
        bail!("NID '{nid}': expected one on a tcp network");
    }
    let mut names = vec!["MGS".to_owned()];
    for kind in ["MDT", "OST"] {
        let of = |fs: &String| (0..4).map(|n| format!("{fs}-{kind}{n:04x}_UUID")).collect();
        names.extend(fsname.as_ref().map(of).unwrap_or_else(Vec::new));
    }
    names.extend(targets.iter().cloned());
    let (handle, rpc) = node(&Target { name: String::new(), nids: vec![*nid] }, way)?;
    let until = Instant::now() + SILENCE.min(Duration::from_secs(way.timeout));
    let answers = ask(&rpc, &names, *nid, until)?;
    let found: Vec<(&String, String)> = names.iter().zip(answers).collect();
    if !way.json {
        found.iter().for_each(|(name, answer)| println!("{name}: {answer}"));
    }
    handle.stop(Duration::from_secs(1)).blocking();
    if way.json {
        let row = |(name, answer): &(&String, String)| json!({ "target": name, "answer": answer });
        println!("{:#}", json!(found.iter().map(row).collect::<Vec<_>>()));
    }
    if found.iter().all(|(_, answer)| answer == SILENT) {
        bail!("{nid} does not answer");
    }
    Ok(())
}

const SILENT: &str = "no answer";

/// What each target answers. All are asked at once: a silent one takes no time from the others.
fn ask(rpc: &RpcNode, names: &[String], nid: Nid, until: Instant) -> Result<Vec<String>> {
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
    for import in imports {
        import.disconnect()?;
    }
    let silent = |answer: Option<String>| answer.unwrap_or_else(|| SILENT.to_owned());
    Ok(answers.into_iter().map(silent).collect())
}

/// What came of a connect, if anything has.
fn answer_to(import: &Import) -> Result<Option<String>> {
    let Some(view) = import.view()? else { return Ok(None) };
    Ok(match view.refusal {
        _ if view.state == ImportState::Full => {
            let v = view.granted.version;
            let version = format!("{}.{}.{}", v >> 24, v >> 16 & 0xff, v >> 8 & 0xff);
            Some(format!("serving, version {version}, instance {}", view.granted.instance))
        }
        Some(CallError::Refused(errno)) => Some(format!("{}: {errno}", errno.negative())),
        _ => None,
    })
}
