//! Groups of nodes (L-9 … L-12).

use lnet_admin::ClientError;
use lnet_selftest::{Answer, Command as Order, NodeState};
use lnetctl::args::Args;

use super::{HEADER, counts, node_lines};
use crate::Lst;
use crate::errors::{LOCAL, REMOTE};
use crate::frame::wrong_usage;
use crate::table::Command;

pub(crate) fn add_group(lst: &mut Lst<'_>, _: &Command, args: &Args) -> i32 {
    let Some((name, lists)) = args.operands.split_first() else { return LOCAL };
    if let Err(error) = lst.order(Order::AddGroup { name: name.clone() }) {
        return lst.failed(&error, "group", "add group");
    }
    let (mut added, mut code) = (0, 0);
    for list in lists {
        let Some(nids) = lst.nids(list) else { continue };
        match lst.nodes(Order::AddNodes { group: name.clone(), nids }) {
            Ok(nodes) => {
                let failed = lst.node_failures(&nodes);
                if failed > 0 {
                    code = REMOTE;
                }
                if failed < nodes.len() {
                    added += nodes.len() - failed;
                    lst.say(format_args!("{list} are added to session"));
                }
            }
            Err(error) => code = lst.failed(&error, "group", "add nodes"),
        }
    }
    if added == 0 {
        lst.complain(format_args!("No nodes added successfully, deleting group {name}"));
        delete(lst, name);
    }
    code
}

fn delete(lst: &mut Lst<'_>, name: &str) -> i32 {
    match lst.nodes(Order::DelGroup { name: name.to_owned() }) {
        Ok(nodes) if lst.node_failures(&nodes) > 0 => {
            lst.say("Group is deleted with some errors");
            REMOTE
        }
        Ok(_) => {
            lst.say("Group is deleted");
            0
        }
        Err(error) => lst.failed(&error, "group", "delete group"),
    }
}

pub(crate) fn del_group(lst: &mut Lst<'_>, _: &Command, args: &Args) -> i32 {
    let name = args.operands.first().cloned().unwrap_or_default();
    delete(lst, &name)
}

/// The states that a word means (L-11).
fn states(word: &str) -> Option<Vec<NodeState>> {
    use NodeState::{Active, Busy, Down, Unknown};
    Some(match word.to_lowercase().as_str() {
        "active" => vec![Active],
        "busy" => vec![Busy],
        "down" => vec![Down],
        "unknown" => vec![Unknown],
        "invalid" => vec![Busy, Down, Unknown],
        _ => return None,
    })
}

pub(crate) fn update_group(lst: &mut Lst<'_>, command: &Command, args: &Args) -> i32 {
    let name = args.operands.first().cloned().unwrap_or_default();
    let order = match (args.has("refresh"), args.value("clean"), args.value("remove")) {
        (true, None, None) => Order::RefreshGroup { name },
        (false, Some(word), None) => match states(word) {
            Some(states) => Order::CleanGroup { name, states },
            None => {
                lst.complain(format_args!("Unknown node state: {word}"));
                return wrong_usage(lst, command);
            }
        },
        (false, None, Some(list)) => match lst.nids(list) {
            Some(nids) => Order::RemoveNodes { group: name, nids },
            None => return LOCAL,
        },
        _ => return wrong_usage(lst, command),
    };
    match lst.nodes(order) {
        Ok(nodes) if lst.node_failures(&nodes) > 0 => REMOTE,
        Ok(_) => 0,
        Err(error) => lst.failed(&error, "group", "update group"),
    }
}

pub(crate) fn list_group(lst: &mut Lst<'_>, _: &Command, args: &Args) -> i32 {
    use NodeState::{Active, Busy, Down, Unknown};
    if args.operands.is_empty() {
        return match lst.order(Order::ListGroups) {
            Ok(Answer::Names(names)) => names_listed(lst, &names, "groups"),
            Ok(_) => lst.failed(&ClientError::Unexpected, "group", "list groups"),
            Err(error) => lst.failed(&error, "group", "list groups"),
        };
    }
    let all = [("active", Active), ("busy", Busy), ("down", Down), ("unknown", Unknown)];
    let wanted: Vec<NodeState> =
        all.iter().filter(|(o, _)| args.has(o) || args.has("all")).map(|(_, s)| *s).collect();
    let mut header = wanted.is_empty();
    for name in &args.operands {
        let nodes = match lst.order(Order::ShowGroup { name: name.clone() }) {
            Ok(Answer::Group(nodes)) => nodes,
            Ok(_) => return lst.failed(&ClientError::Unexpected, name, "list group"),
            Err(error) => return lst.failed(&error, name, "list group"),
        };
        if wanted.is_empty() {
            if core::mem::take(&mut header) {
                lst.say(HEADER);
            }
            lst.say(format_args!("\t{}\t{name}", counts(&nodes)));
            continue;
        }
        lst.say(format_args!("Group [ {name} ]"));
        match node_lines(lst, &nodes, &wanted) {
            0 => lst.say(format_args!("No nodes found [ {name} ]")),
            n => lst.say(format_args!("Total {n} nodes [ {name} ]")),
        }
    }
    0
}

/// `1) NAME` lines and their number.
pub(super) fn names_listed(lst: &mut Lst<'_>, names: &[String], what: &str) -> i32 {
    for (i, name) in names.iter().enumerate() {
        lst.say(format_args!("{}) {name}", i + 1));
    }
    lst.say(format_args!("Total {} {what}", names.len()));
    0
}
