//! The session (L-6 … L-8) and its nodes' life signs (L-13).

use lnet_admin::ClientError;
use lnet_selftest::{Answer, Command as Order, Report, Target};
use lnet_types::Errno;
use lnetctl::args::Args;

use super::{TIMEOUT_S, number, state};
use crate::Lst;
use crate::errors::{LOCAL, REMOTE, id};
use crate::frame::wrong_usage;
use crate::table::Command;

/// How long a session lives without commands unless something else is said, seconds.
const SESSION_S: u32 = 300;

pub(crate) fn new_session(lst: &mut Lst<'_>, _: &Command, args: &Args) -> i32 {
    let timeout_s = match number(lst, args, "timeout", SESSION_S, 1, "Invalid timeout value") {
        Ok(timeout_s) => timeout_s,
        Err(code) => return code,
    };
    let name = args.operands.first().cloned().unwrap_or_else(default_name);
    let (force, features) = (args.has("force"), lst.features);
    match lst.order(Order::NewSession { name, timeout_s, force, features }) {
        Ok(Answer::Session(session)) => {
            let (name, features) = (session.name, session.features);
            let force = if session.force { "Yes" } else { "No" };
            let timeout = session.timeout_s;
            lst.say(format_args!(
                "SESSION: {name} FEATURES: {features} TIMEOUT: {timeout} FORCE: {force}"
            ));
            0
        }
        Ok(_) => lst.failed(&ClientError::Unexpected, "session", "create session"),
        Err(error) => lst.failed(&error, "session", "create session"),
    }
}

/// `user@host`, as much of it as a name may have.
fn default_name() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = format!("{}@{}", user.unwrap_or_else(|_| "root".to_owned()), host.trim());
    name.chars().filter(char::is_ascii).take(31).collect()
}

pub(crate) fn show_session(lst: &mut Lst<'_>, _: &Command, _: &Args) -> i32 {
    match lst.order(Order::ShowSession) {
        Ok(Answer::Session(s)) => {
            lst.say(format_args!(
                "{} ID: {}@{}, KEY: {} FEATURES: {} NODES: {}",
                s.name, s.stamp, s.nid, s.key, s.features, s.nodes
            ));
            0
        }
        Ok(_) => lst.failed(&ClientError::Unexpected, "session", "show session"),
        Err(error) => lst.failed(&error, "session", "show session"),
    }
}

/// Success prints nothing, like a missing session (V).
pub(crate) fn end_session(lst: &mut Lst<'_>, _: &Command, _: &Args) -> i32 {
    match lst.nodes(Order::EndSession) {
        Ok(nodes) => {
            let failed = lst.node_failures(&nodes);
            if failed > 0 {
                lst.complain(format_args!("[FWK] Failed to end session on {failed} nodes"));
                return REMOTE;
            }
            0
        }
        Err(ClientError::Refused(refusal)) if refusal.errno == Errno::ESRCH => 0,
        Err(error) => lst.failed(&error, "session", "end session"),
    }
}

pub(crate) fn ping(lst: &mut Lst<'_>, command: &Command, args: &Args) -> i32 {
    let timeout_s = match number(lst, args, "timeout", TIMEOUT_S, 1, "Invalid timeout value") {
        Ok(timeout_s) => timeout_s,
        Err(code) => return code,
    };
    let kinds = ["session", "group", "batch", "nodes"];
    if kinds.iter().filter(|kind| args.has(kind)).count() != 1 {
        return wrong_usage(lst, command);
    }
    let target = match (args.value("group"), args.value("batch"), args.value("nodes")) {
        (Some(group), _, _) => Target::Group(group.to_owned()),
        (_, Some(name), _) => Target::Batch { name: name.to_owned(), server: args.has("server") },
        (_, _, Some(ids)) => match lst.nids(ids) {
            Some(nids) => Target::Nodes(nids),
            None => return LOCAL,
        },
        _ => Target::Session,
    };
    let name = target.name();
    let nodes = match lst.nodes(Order::Ping { target, timeout_s }) {
        Ok(nodes) => nodes,
        Err(error) => return lst.failed(&error, &name, "ping"),
    };
    if nodes.is_empty() {
        lst.say(format_args!("Target {name} is empty"));
    }
    for node in &nodes {
        let (session, console) = match &node.outcome {
            Ok(Report::Alive { session, console }) if !console.is_any() => {
                (session.as_str(), console.to_string())
            }
            _ => ("<NULL>", "LNET_NID_ANY".to_owned()),
        };
        let (id, state) = (id(node), state(node.state));
        lst.say(format_args!("\t{id}: {state} [session: {session} id: {console}]"));
    }
    0
}
