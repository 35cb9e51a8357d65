//! `ulnet lustre check`: each target of a file system: whether it answers, its state, what this client may
//! do.

use anyhow::Result;
use clap::Args;
use lustre_rt::ConnectFlags;
use lustre_rt::visitor::{Access, Place, TargetInfo, VisitError};
use serde_json::{Value, json};

use super::Visit;

/// Of which file system.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exits with 1 if a target does not answer.\n\nExamples:\n  \
    ulnet lustre check 10.0.0.1@tcp:/lfs\n  \
    ulnet lustre check --json")]
pub(super) struct Options {
    /// File system: MGSNID:/FSNAME, as in a place; the one in ULNET_LUSTRE if it is '/'
    #[arg(default_value = "/", value_parser = super::places())]
    place: Place,
    #[command(flatten)]
    visit: Visit,
}

fn version(word: u32) -> String {
    let [major, minor, patch, fix] = word.to_be_bytes();
    match fix {
        0 => format!("{major}.{minor}.{patch}"),
        fix => format!("{major}.{minor}.{patch}.{fix}"),
    }
}

fn row(target: &TargetInfo) -> Value {
    let TargetInfo { kind, index, uuid, nids, space, granted } = target;
    let nids: Vec<String> = nids.iter().map(ToString::to_string).collect();
    let has = |flag| granted.flags.contains(flag);
    let state = match space {
        Ok(space) => space.state.to_string(),
        Err(VisitError::Inactive { .. }) => "inactive".to_owned(),
        Err(_) => "no answer".to_owned(),
    };
    // One that is deactivated is not asked, which is no error.
    let error = space.as_ref().err().filter(|e| !matches!(e, VisitError::Inactive { .. }));
    json!({
        "kind": kind,
        "index": index,
        "uuid": uuid,
        "nids": nids,
        "state": state,
        "error": error.map(ToString::to_string),
        "version": has(ConnectFlags::VERSION).then(|| version(granted.version)),
        "changes": space.is_ok() && !has(ConnectFlags::RDONLY),
        "data_without_locks": has(ConnectFlags::SRVLOCK),
        "bytes_at_a_time": has(ConnectFlags::BRW_SIZE).then_some(granted.brw_size),
        "checksums": has(ConnectFlags::CKSUM).then(|| granted.cksum_types.to_string()),
    })
}

/// Runs the command. `false`: a target does not answer.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { place, visit } = options;
    let found =
        super::with(place, visit, Access::Change, async |mount, _| Ok(mount.targets().await))?;
    let all = found.iter().all(|target| match &target.space {
        Ok(_) | Err(VisitError::Inactive { .. }) => true,
        Err(_) => false,
    });
    let rows: Vec<Value> = found.iter().map(row).collect();
    if visit.way.json {
        println!("{:#}", json!(rows));
        return Ok(all);
    }
    println!("{:<22} {:<12} {:<12} {:<8} NIDs", "UUID", "State", "Version", "Changes");
    for row in &rows {
        let text = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
        let state = match text("state").as_str() {
            "0" => "healthy".to_owned(),
            state => state.to_owned(),
        };
        let nids: Vec<&str> =
            row["nids"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let changes = if row["changes"].as_bool() == Some(true) { "yes" } else { "no" };
        println!(
            "{:<22} {state:<12} {:<12} {changes:<8} {}",
            text("uuid"),
            text("version"),
            nids.join(",")
        );
        if let Some(e) = row["error"].as_str() {
            eprintln!("ulnet lustre: {e}");
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_shown_as_releases_are_named() {
        assert_eq!(
            (version(0x020f_0800), version(0x0211_3901)),
            ("2.15.8".into(), "2.17.57.1".into())
        );
    }
}
