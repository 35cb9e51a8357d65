//! `ulnet obj ls`: lists objects. A target knows the highest number; each one below is asked for.

use anyhow::Result;
use clap::Args;
use lnet_types::Errno;
use lustre_rt::{CallError, ObjClient, ObjError, ObjInfo, ObjectId, RpcError};
use serde_json::json;

use crate::client;

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj ls --target ost-0@10.0.0.1@tcp\n  \
    ulnet obj ls --target ost-0@10.0.0.1@tcp --from 1000 --max 50 --json")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// The first number
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    from: u64,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    max: usize,
}

/// An object, if there is one.
fn find(obj: &ObjClient, id: ObjectId) -> Result<Option<ObjInfo>, ObjError> {
    match obj.stat(id) {
        Ok(info) => Ok(Some(info)),
        Err(ObjError::Rpc(RpcError::Call(CallError::Refused(Errno::ENOENT)))) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Runs the command.
///
/// # Errors
/// As [`super::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, from, max } = options;
    let found = super::with(client, None, |obj| {
        let last = obj.last()?;
        let mut found = Vec::new();
        for number in *from..=last {
            if found.len() >= *max {
                break;
            }
            let id = ObjectId::old(number);
            if let Some(info) = find(obj, id)? {
                found.push((id, info));
            }
        }
        Ok(found)
    })?;
    if client.way.json {
        let rows: Vec<_> = found.iter().map(|(id, info)| super::stat::shown(*id, info)).collect();
        println!("{:#}", json!(rows));
        return Ok(());
    }
    for (id, info) in &found {
        println!("{:>8} {:>14} {:#x}", super::name(*id), info.size, info.version);
    }
    Ok(())
}
