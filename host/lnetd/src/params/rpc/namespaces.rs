//! Parameters of the locks of targets, by the names of kernel nodes: `ldlm.namespaces.*`. A namespace of
//! objects is `filter-TARGET` there, one of names `mdt-TARGET`; the others have the word of their kind.

use lnet_admin::{AdminError, ParamInfo};
use lnet_types::Errno;
use lustre_rt::{CONTENDED_LOCKS, NamespaceRow};

use crate::control::Control;

/// What begins their names.
pub(super) const DIR: &str = "ldlm.namespaces.";

/// The parameters of a namespace, with their texts.
fn rows(row: &NamespaceRow, kind: &str) -> [(String, String); 7] {
    let dir = match kind {
        "ost" => format!("{DIR}filter-{}", row.target),
        "mgs" => format!("{DIR}{}", row.target),
        kind => format!("{DIR}{kind}-{}", row.target),
    };
    let (volume, limit) = row.volume;
    let timeouts = row.stats.expired + row.stats.failed;
    [
        ("contended_locks", CONTENDED_LOCKS.to_string()),
        ("lock_count", row.space.locks.to_string()),
        ("lock_timeouts", timeouts.to_string()),
        ("pool.granted", (row.space.locks - row.space.waiting).to_string()),
        ("pool.limit", limit.to_string()),
        ("pool.server_lock_volume", volume.to_string()),
        ("resource_count", row.space.resources.to_string()),
    ]
    .map(|(file, value)| (format!("{dir}.{file}"), value + "\n"))
}

fn all(control: &Control) -> Result<Vec<(String, String)>, AdminError> {
    let kinds = control.target_kinds();
    let spaces = control.look(Vec::new(), lustre_rt::RpcNode::namespaces)?;
    Ok(spaces.iter().flat_map(|row| rows(row, &kinds.of(&row.target))).collect())
}

/// The names of those that there are now.
pub(super) fn list(control: &Control) -> Vec<ParamInfo> {
    // Without a node there are none.
    let named = all(control).unwrap_or_default().into_iter();
    named.map(|(name, _)| ParamInfo { name, writable: false }).collect()
}

/// What one says; `None`: there is none of this name.
pub(super) fn get(control: &Control, name: &str) -> Result<Option<String>, AdminError> {
    match all(control) {
        Ok(all) => Ok(all.into_iter().find(|(there, _)| there == name).map(|(_, value)| value)),
        Err(e) if e.errno == Errno::ENETDOWN => Ok(None),
        Err(e) => Err(e),
    }
}
