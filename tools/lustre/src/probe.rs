//! `ulnet rpc probe`: which targets answer at a server. Takes no lock, and disconnects at once.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use lnet_rt::Nid;
use lnet_types::NetType;
use lustre_rt::{CallError, ImportConfig, ImportState, RpcNode};
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

/// Between two looks at an import that connects.
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
    let until = Instant::now() + Duration::from_secs(way.timeout);
    let mut found = Vec::new();
    for name in &names {
        let answer = ask(&rpc, name, *nid, until.min(Instant::now() + SILENCE))?;
        if !way.json {
            println!("{name}: {answer}");
        }
        found.push((name, answer));
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

fn ask(rpc: &RpcNode, name: &str, nid: Nid, until: Instant) -> Result<String> {
    let kind = kind_of(name);
    let import = rpc.import(ImportConfig {
        kind,
        target: name.to_owned(),
        client: client_uuid(),
        nids: vec![nid],
        wanted: wanted(kind),
    })?;
    import.connect()?;
    let mut answer = SILENT.to_owned();
    while Instant::now() < until {
        let Some(view) = import.view()? else { break };
        match view.refusal {
            _ if view.state == ImportState::Full => {
                let v = view.granted.version;
                let version = format!("{}.{}.{}", v >> 24, v >> 16 & 0xff, v >> 8 & 0xff);
                answer = format!("serving, version {version}, instance {}", view.granted.instance);
                break;
            }
            Some(CallError::Refused(errno)) => {
                answer = format!("{}: {errno}", errno.negative());
                break;
            }
            _ => thread::sleep(LOOK),
        }
    }
    import.disconnect()?;
    Ok(answer)
}
