//! The small commands: `cpt-of-nid`, `service-id` (C-misc-1, C-misc-2), and the two that run a
//! system's own scripts, `setup-mrrouting` and `setup-sysctl` (C-misc-3, C-misc-4).

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use lnet_admin::{ClientError, Reply, Request};
use lnet_config::{Style, Tree};
use lnet_types::{Errno, NetType, Nid};

use super::{nid_list, not_nids};
use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::table::Command;

/// What a service id of the TCP port space of the RDMA connection manager begins with.
const TCP_PORT_SPACE: u64 = 0x0106 << 16;

const SERVICE: Place = Place::classic("show", "service_id");
const CPT: Place = Place::library("manage", "cpt-of-nid");

pub(crate) fn cpt_of_nid(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.operands.is_empty() {
        return command.print_help(session, INVALID);
    }
    let mut nids: Vec<Nid> = Vec::new();
    for operand in &args.operands {
        match nid_list(operand) {
            Ok(more) => nids.extend(more),
            Err(e) => {
                let reason = not_nids(operand, e);
                session.error(CPT, e.errno().negative(), &e.to_string(), Some(&reason));
                return INVALID;
            }
        }
    }
    match session.ask(&Request::CptOfNid { nids: nids.clone() }) {
        Ok(Reply::Cpts(cpts)) if cpts.len() == nids.len() => {
            let item = |(nid, cpt): (&Nid, &u32)| {
                Tree::map([("nid", Tree::plain(nid)), ("cpt", Tree::plain(cpt))])
            };
            let items = nids.iter().zip(&cpts).map(item).collect();
            session.print(&Tree::map([("cpt-of-nid", Tree::List(items))]), Style::Narrow);
            0
        }
        Ok(_) => session.failed(CPT, &ClientError::Unexpected, |r| r.text.clone(), None),
        Err(e) => session.failed(CPT, &e, |r| r.text.clone(), Some(INVALID)),
    }
}

/// The InfiniBand service id of the driver's port, as the 64 bits of it are sent. The driver comes with
/// the first network of its kind; without one this says what the original says where it is not loaded.
pub(crate) fn service_id(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    let nets = match session.ask(&Request::NetShow { net: None, detail: false }) {
        Ok(Reply::Nets(nets)) => nets,
        // A node without networks has none of this kind either.
        Err(ClientError::Refused(_)) => Vec::new(),
        Ok(_) => {
            return session.failed(SERVICE, &ClientError::Unexpected, |r| r.text.clone(), None);
        }
        Err(e) => return session.failed(SERVICE, &e, |r| r.text.clone(), None),
    };
    if nets.iter().any(|net| net.net.kind == NetType::O2IB) {
        let id = TCP_PORT_SPACE | u64::from(service(session));
        let value = Tree::plain(format_args!("{:#018x}", id.swap_bytes()));
        session.print(&Tree::map([("service_id", Tree::map([("value", value)]))]), Style::Classic);
        return 0;
    }
    let errno = Errno::ENOENT;
    session.err_line("error:");
    session.err_line(format_args!(
        "    msg: \"cannot get service port: {errno} ({})\"",
        errno.negative()
    ));
    if session.explain {
        session.err_line("# there is no o2ib network on this node");
    }
    Errno::ENOMSG.negative()
}

/// The port of the RDMA driver: that of the module parameters, if the daemon knows of them.
fn service(session: &mut Session<'_>) -> u16 {
    let said = session.ask(&Request::ParamGet { name: "ko2iblnd/service".to_owned() });
    let texts = match said {
        Ok(Reply::Texts(texts)) => texts,
        _ => Vec::new(),
    };
    texts.first().and_then(|text| text.trim().parse().ok()).unwrap_or(NetType::O2IB_SERVICE)
}

/// A script of the system, and the variable that may name another.
struct Script {
    name: &'static str,
    variable: &'static str,
    object: &'static str,
    /// What helps where there is none.
    instead: &'static str,
}

const ROUTES: Script = Script {
    name: "ksocklnd-config",
    variable: "KSOCKLND_CONFIG",
    object: "setup-mrrouting",
    instead: "'lnetctl doctor' shows the commands that set up source routing",
};
const SYSCTL: Script = Script {
    name: "lnet-sysctl-config",
    variable: "LNET_SYSCTL_CONFIG",
    object: "setup-sysctl",
    instead: "it comes with the kernel's tools; 'lnetctl doctor' shows what matters here",
};

pub(crate) fn setup_mrrouting(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    run(session, &ROUTES)
}

pub(crate) fn setup_sysctl(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    run(session, &SYSCTL)
}

fn run(session: &mut Session<'_>, script: &Script) -> i32 {
    let place = Place::classic("manage", script.object);
    let refuse = |session: &mut Session<'_>, code: i32, why: String| {
        let text = format!("\"failed to execute {} : {why}\"", script.name);
        session.error(place, code, &text, Some(script.instead));
        code
    };
    let path = match path_of(script, std::env::var_os(script.variable).map(PathBuf::from)) {
        Ok(path) => path,
        Err(why) => return refuse(session, INVALID, why),
    };
    let status = Process::new(&path).stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => 0,
        Ok(status) => refuse(session, Errno::EIO.negative(), status.to_string()),
        Err(e) => {
            let errno = e.raw_os_error().map_or(Errno::EIO, Errno);
            refuse(session, errno.negative(), format!("{}: {errno}", path.display()))
        }
    }
}

/// Another script may be named, but only by a path whose last component is its name.
fn path_of(script: &Script, named: Option<PathBuf>) -> Result<PathBuf, String> {
    match named.filter(|path| !path.as_os_str().is_empty()) {
        None => Ok(Path::new("/usr/sbin").join(script.name)),
        Some(path) if path.file_name().is_some_and(|last| last == script.name) => Ok(path),
        Some(path) => {
            let (variable, name) = (script.variable, script.name);
            Err(format!("{variable}='{}': expected a path that ends in {name}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_script_of_that_name_is_run() {
        let usual = path_of(&ROUTES, None).unwrap();
        assert_eq!(usual, Path::new("/usr/sbin/ksocklnd-config"));
        assert_eq!(path_of(&ROUTES, Some(PathBuf::new())).unwrap(), usual);
        let own = PathBuf::from("/opt/x/ksocklnd-config");
        assert_eq!(path_of(&ROUTES, Some(own.clone())).unwrap(), own);
        let e = path_of(&ROUTES, Some("/bin/sh".into())).unwrap_err();
        assert!(e.contains("KSOCKLND_CONFIG='/bin/sh'"), "{e}");
    }
}
