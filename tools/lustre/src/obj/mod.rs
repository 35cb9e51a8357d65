//! `ulnet obj`: commands for object targets, one file per verb. `put` and `get` cache data under locks,
//! and spread a file over objects (`spread.rs`); for the others the server takes the locks. What was put
//! survives the server when the command has ended. `bench/` measures, and compares what was read.

pub(crate) mod bench;
mod create;
mod get;
mod ls;
mod punch;
mod put;
mod rm;
mod spread;
mod stat;
mod sync;

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Parser, Subcommand};
use lustre_rt::{Fid, ObjClient, ObjError, ObjectId};

use crate::client::{self, Access};
use crate::ping::client_uuid;
use crate::stop::Stop;

#[derive(Debug, Parser)]
#[command(
    name = "ulnet obj",
    about = "Objects of an object target",
    disable_help_subcommand = true
)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make objects, and print their names
    Create(create::Options),
    /// Write a file to an object, or spread it over several
    Put(put::Options),
    /// Read an object, or a file that is spread over several
    Get(get::Options),
    /// Show what an object has, or the space of the target
    Stat(stat::Options),
    /// Cut an object off, or extend it with zeros
    Punch(punch::Options),
    /// Wait until an object, or the whole target, survives its server
    Sync(sync::Options),
    /// Remove objects
    Rm(rm::Options),
    /// List objects
    Ls(ls::Options),
    /// Measure clients that share objects, and check what they read while a server dies
    Bench(bench::Options),
}

/// Reads and writes of a command that are under way at a time.
const UNDER_WAY: usize = 8;

/// Runs a command.
///
/// # Errors
/// As [`with`], and those of the verb.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.verb {
        Verb::Create(options) => create::run(options),
        Verb::Put(options) => put::run(options),
        Verb::Get(options) => get::run(options),
        Verb::Stat(options) => stat::run(options),
        Verb::Punch(options) => punch::run(options),
        Verb::Sync(options) => sync::run(options),
        Verb::Rm(options) => rm::run(options),
        Verb::Ls(options) => ls::run(options),
        Verb::Bench(options) => bench::run(options),
    }
}

/// Runs `f` with a client of the target; errors name `object`, if it is about one.
///
/// # Errors
/// No way to the target, no answer within the time, or a refusal.
fn with<R>(
    options: &Access,
    object: Option<ObjectId>,
    f: impl FnOnce(&ObjClient) -> Result<R>,
) -> Result<R> {
    let Access { target, way } = options;
    let (node, rpc) = client::node(target, way)?;
    let stop = Stop::of(&rpc)?;
    let obj = ObjClient::new(&rpc, &target.name, &client_uuid(), target.nids.clone())?;
    let obj = obj.with_limit(Duration::from_secs(way.timeout));
    let result = f(&obj).map_err(|e| match e.downcast::<ObjError>() {
        Ok(ObjError::Rpc(e)) => client::explain(obj.import(), target, way, &e),
        Ok(e) => anyhow!("{}: {e}", target.name),
        Err(e) => e,
    });
    let result = match object {
        Some(object) => result.with_context(|| about(object)),
        None => result,
    };
    obj.disconnect()?;
    node.stop(Duration::from_secs(1)).blocking();
    result.map_err(|e| stop.explain(e))
}

/// How errors name an object.
fn about(object: ObjectId) -> String {
    format!("object {}", name(object))
}

/// The object of a command line: its number, or its FID.
fn object(text: &str) -> Result<ObjectId> {
    let number = |part: &str| match part.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => part.parse().ok(),
    };
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let parts: Option<Vec<u64>> = bare.split(':').map(number).collect();
    let object = match parts.as_deref() {
        Some([id]) => Some(ObjectId::old(*id)),
        Some([seq, oid] | [seq, oid, 0]) => u32::try_from(*oid)
            .ok()
            .filter(|oid| *oid != 0)
            .map(|oid| ObjectId::of(Fid { seq: *seq, oid, ver: 0 })),
        _ => None,
    };
    let Some(object) = object.filter(|object| *object != ObjectId::old(0)) else {
        bail!(
            "object '{text}': expected a number from 1 on, or a FID such as [0x240000400:0x2:0x0]"
        );
    };
    Ok(object)
}

/// The name of an object, as commands take it.
fn name(id: ObjectId) -> String {
    id.fid().map_or_else(|| id.first.to_string(), |fid| fid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_a_number_or_a_fid() {
        for (text, printed) in [
            ("7", "7"),
            ("0x10", "16"),
            ("[0x240000400:0x2:0x0]", "[0x240000400:0x2:0x0]"),
            ("0x240000400:2", "[0x240000400:0x2:0x0]"),
        ] {
            assert_eq!(name(object(text).unwrap()), printed);
        }
        for text in ["", "0", "x", "1:0", "1:2:3", "1:2:0:0", "-1", "0x", "1:0x100000000"] {
            let e = object(text).unwrap_err().to_string();
            assert!(e.contains(&format!("'{text}'")), "{e}");
        }
    }
}
