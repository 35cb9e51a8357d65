//! Parameters of the request layer by the names of kernel nodes: tunables, imports, targets with their
//! exports, services with their policies (P-120). They come and go with what they are about, so their
//! list is made when it is asked for. `layout.rs` makes the texts, `flags.rs` has names of flags;
//! `namespaces.rs` has the locks of targets.

mod flags;
mod layout;
mod namespaces;

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use lnet_admin::{AdminError, ParamInfo, RPC_ROWS_PER_PAGE};
use lnet_types::{Errno, Nid};
use lustre_rt::{ExportView, ImportKind, ImportView, Ptlrpc, ServiceId, ServiceView, TargetView};

use self::layout::Clock;
use crate::control::Control;

/// Parameters of the policies of a service.
const NRS: [&str; 5] =
    ["nrs_policies", "nrs_crrn_quantum", "nrs_delay_min", "nrs_delay_max", "nrs_delay_pct"];

/// What a parameter is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Import(lustre_rt::ImportId, ImportParam),
    Exports { target: String, nid: Nid, uuids: bool },
    NumExports(String),
    Recovery(String),
    ServiceTimeouts(ServiceId),
    Nrs(ServiceId, &'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImportParam {
    Import,
    State,
    Timeouts,
}

/// A target as a directory of parameters: kernel nodes name it by its kind, `obdfilter` for objects, and its
/// name.
fn target_dir(kind: &str, target: &str) -> String {
    let kind = if kind == "ost" { "obdfilter" } else { kind };
    format!("{kind}.{}", target.trim_end_matches("_UUID"))
}

/// The name of an import, and the directory that it is in.
fn import_name(view: &ImportView) -> (&'static str, String) {
    let dir = match view.kind {
        ImportKind::Osc => "osc",
        ImportKind::Mdc => "mdc",
        ImportKind::Mgc => "mgc",
        ImportKind::MdtToOst | ImportKind::MdtToMdt => "osp",
        ImportKind::Lightweight => "lwp",
        // Kernel nodes show none of a server's ways to its clients.
        ImportKind::Callback => "callback",
    };
    let target = view.target.trim_end_matches("_UUID");
    (dir, format!("{target}-{dir}-{}", view.client))
}

/// The parameters that there are, by name.
fn table(
    ptlrpc: &Ptlrpc,
    now: lnet_types::Instant,
    kind: &impl Fn(&str) -> String,
) -> Vec<(String, Subject)> {
    let mut all = Vec::new();
    for view in ptlrpc.import_views().iter().take(RPC_ROWS_PER_PAGE) {
        let (dir, name) = import_name(view);
        for (file, param) in [
            ("import", ImportParam::Import),
            ("state", ImportParam::State),
            ("timeouts", ImportParam::Timeouts),
        ] {
            all.push((format!("{dir}.{name}.{file}"), Subject::Import(view.id, param)));
        }
    }
    for TargetView { uuid, .. } in ptlrpc.target_views(now) {
        let dir = target_dir(&kind(&uuid), &uuid);
        all.push((format!("{dir}.num_exports"), Subject::NumExports(uuid.clone())));
        all.push((format!("{dir}.recovery_status"), Subject::Recovery(uuid)));
    }
    let exports = ptlrpc.export_views();
    let nodes = exports.iter().filter(|view| view.from != Nid::ANY);
    let nodes: BTreeSet<(&str, Nid)> =
        nodes.map(|view| (view.target.as_str(), view.from)).take(RPC_ROWS_PER_PAGE).collect();
    for (target, nid) in nodes {
        let dir = target_dir(&kind(target), target);
        for (file, uuids) in [("export", false), ("uuid", true)] {
            let target = target.to_owned();
            let subject = Subject::Exports { target, nid, uuids };
            all.push((format!("{dir}.exports.{nid}.{file}"), subject));
        }
    }
    for ServiceView { id, name, .. } in ptlrpc.service_views() {
        let dir = format!("ost.OSS.{name}");
        all.push((format!("{dir}.timeouts"), Subject::ServiceTimeouts(id)));
        all.extend(NRS.map(|file| (format!("{dir}.{file}"), Subject::Nrs(id, file))));
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

/// The text of one.
fn text(
    ptlrpc: &Ptlrpc,
    now: lnet_types::Instant,
    wall: u64,
    name: &str,
    subject: &Subject,
) -> Result<String, AdminError> {
    let clock = Clock { now, wall };
    let gone = || AdminError::errno(Errno::ENOENT).because(format_args!("{name} is gone"));
    let target = |uuid: &str| ptlrpc.target_views(now).into_iter().find(|view| view.uuid == uuid);
    let service = |id| ptlrpc.service_views().into_iter().find(|view| view.id == id);
    Ok(match subject {
        Subject::Import(id, param) => {
            let view = ptlrpc.import_view(*id).ok_or_else(gone)?;
            match param {
                ImportParam::Import => layout::import(&import_name(&view).1, &view, &clock),
                ImportParam::State => layout::state(&view, &clock),
                ImportParam::Timeouts => layout::timeouts(&view, &clock),
            }
        }
        Subject::Exports { target, nid, uuids } => {
            let all = ptlrpc.export_views();
            let mine = |view: &&ExportView| view.from == *nid && view.target == *target;
            let mine = all.iter().filter(mine);
            if *uuids {
                mine.map(|view| format!("{}\n", view.client)).collect()
            } else {
                layout::exports(mine)
            }
        }
        Subject::NumExports(uuid) => format!("{}\n", target(uuid).ok_or_else(gone)?.clients),
        Subject::Recovery(uuid) => layout::recovery(&target(uuid).ok_or_else(gone)?, &clock),
        Subject::ServiceTimeouts(id) => {
            layout::service_timeouts(&service(*id).ok_or_else(gone)?, &clock)
        }
        Subject::Nrs(id, parameter) => {
            let value = ptlrpc.parameter(*id, parameter);
            value.map_err(|e| AdminError::errno(e.errno()).because(e))? + "\n"
        }
    })
}

/// The names of the parameters that there are now.
pub(super) fn list(control: &Control) -> Vec<ParamInfo> {
    let kinds = control.target_kinds();
    let named = control.look(Vec::new(), |node| {
        node.inspect(move |ptlrpc, now| table(ptlrpc, now, &|uuid: &str| kinds.of(uuid)))
    });
    // Without a node there are none.
    let info = |(name, subject)| ParamInfo { name, writable: matches!(subject, Subject::Nrs(..)) };
    let mut all: Vec<ParamInfo> = named.unwrap_or_default().into_iter().map(info).collect();
    all.extend(namespaces::list(control));
    all
}

/// What one says; `None`: there is none of this name.
pub(super) fn get(control: &Control, name: &str) -> Result<Option<String>, AdminError> {
    if name.starts_with(namespaces::DIR) {
        return namespaces::get(control, name);
    }
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (kinds, name) = (control.target_kinds(), name.to_owned());
    let said = control.look(None, |node| {
        node.inspect(move |ptlrpc, now| {
            let named = table(ptlrpc, now, &|uuid: &str| kinds.of(uuid));
            let found = named.into_iter().find(|(there, _)| *there == name)?;
            Some(text(ptlrpc, now, wall, &name, &found.1))
        })
    });
    match said {
        Ok(said) => said.transpose(),
        // Without a node there are none.
        Err(e) if e.errno == Errno::ENETDOWN => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes one; `None`: there is none of this name.
pub(super) fn set(control: &Control, name: &str, value: &str) -> Result<Option<()>, AdminError> {
    let read_only = || {
        let why = format_args!("{name} can be read only");
        AdminError::errno(Errno::EACCES).because(why)
    };
    if name.starts_with(namespaces::DIR) {
        return match namespaces::get(control, name)? {
            Some(_) => Err(read_only()),
            None => Ok(None),
        };
    }
    let kinds = control.target_kinds();
    let wanted = name.to_owned();
    let found = control.look(None, |node| {
        node.inspect(move |ptlrpc, now| {
            let named = table(ptlrpc, now, &|uuid: &str| kinds.of(uuid));
            named.into_iter().find(|(there, _)| *there == wanted).map(|(_, subject)| subject)
        })
    });
    let (service, parameter) = match found {
        Ok(None) => return Ok(None),
        Err(e) if e.errno == Errno::ENETDOWN => return Ok(None),
        Err(e) => return Err(e),
        Ok(Some(Subject::Nrs(service, parameter))) => (service, parameter),
        Ok(Some(_)) => return Err(read_only()),
    };
    let value = value.to_owned();
    let set = control
        .look(Ok(()), |node| node.with(move |rpc| rpc.set_parameter(service, parameter, &value)))?;
    set.map(Some).map_err(|e| AdminError::errno(e.errno()).because(e))
}
