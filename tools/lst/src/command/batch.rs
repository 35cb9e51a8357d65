//! Batches of tests (L-14, L-16 … L-18).

use core::time::Duration;

use lnet_admin::ClientError;
use lnet_selftest::{Answer, BatchShown, Command as Order, NodeShown, NodeState, Report};
use lnet_types::Errno;
use lnetctl::args::Args;

use super::group::names_listed;
use super::{DEFAULT_BATCH, HEADER, TIMEOUT_S, counts, node_lines, number, sleep};
use crate::errors::{LOCAL, REMOTE};
use crate::frame::wrong_usage;
use crate::table::Command;
use crate::{Lst, quick};

/// How batches print their state (L-18).
const IDLE: u32 = 176;
const RUNNING: u32 = 177;
/// Between two looks at a batch that is stopping.
const LOOK: Duration = Duration::from_secs(1);

fn name_of(args: &Args) -> String {
    args.operands.first().map_or(DEFAULT_BATCH, String::as_str).to_owned()
}

pub(crate) fn add_batch(lst: &mut Lst<'_>, _: &Command, args: &Args) -> i32 {
    match lst.order(Order::AddBatch { name: name_of(args) }) {
        Ok(_) => 0,
        Err(error) => lst.failed(&error, "batch", "add batch"),
    }
}

pub(crate) fn run(lst: &mut Lst<'_>, command: &Command, args: &Args) -> i32 {
    if args.has("quick") {
        return quick::run(lst, command, args);
    }
    let own = ["seconds", "size", "concurrency", "check", "html"];
    if own.iter().any(|option| args.has(option)) {
        lst.complain("lst run: that option needs --quick");
        return wrong_usage(lst, command);
    }
    let timeout_s = match number(lst, args, "timeout", 0, 0, "Invalid timeout value") {
        Ok(timeout_s) => timeout_s,
        Err(code) => return code,
    };
    let batch = name_of(args);
    match lst.nodes(Order::Run { batch: batch.clone(), timeout_s }) {
        Ok(nodes) => {
            let failed = lst.node_failures(&nodes);
            if failed == nodes.len() {
                lst.complain(format_args!("{batch} runs on no node"));
                return REMOTE;
            }
            lst.say(format_args!("{batch} is running now"));
            if failed > 0 { REMOTE } else { 0 }
        }
        Err(ClientError::Refused(refusal)) if refusal.errno == Errno::ENOENT => {
            let text = refusal.errno;
            lst.complain(format_args!("Failed to get count of nodes from {batch}: {text}"));
            LOCAL
        }
        Err(ClientError::Refused(refusal)) if refusal.errno == Errno::ENODATA => {
            lst.complain(format_args!("Failed to run batch {batch}: it has no tests"));
            LOCAL
        }
        Err(error) => lst.failed(&error, "batch", "run batch"),
    }
}

pub(crate) fn stop(lst: &mut Lst<'_>, _: &Command, args: &Args) -> i32 {
    let (batch, force) = (name_of(args), args.has("force"));
    let nodes = match lst.nodes(Order::Stop { batch: batch.clone(), force }) {
        Ok(nodes) => nodes,
        Err(error) => return lst.failed(&error, "batch", "stop batch"),
    };
    if lst.node_failures(&nodes) > 0 {
        return REMOTE;
    }
    loop {
        let query =
            Order::Query { batch: batch.clone(), test: 0, server: false, timeout_s: TIMEOUT_S };
        let nodes = match lst.nodes(query) {
            Ok(nodes) => nodes,
            Err(error) => return lst.failed(&error, "batch", "query batch"),
        };
        if lst.node_failures(&nodes) > 0 {
            return REMOTE;
        }
        let running = nodes.iter().filter(|n| !matches!(n.outcome, Ok(Report::Active(0)))).count();
        if running == 0 {
            lst.say("Batch is stopped");
            return 0;
        }
        lst.say(format_args!("{running} batch in stopping"));
        sleep(LOOK);
    }
}

pub(crate) fn list_batch(lst: &mut Lst<'_>, _: &Command, args: &Args) -> i32 {
    let Some(name) = args.operands.first() else {
        return match lst.order(Order::ListBatches) {
            Ok(Answer::Names(names)) => names_listed(lst, &names, "batches"),
            Ok(_) => lst.failed(&ClientError::Unexpected, "batch", "list batches"),
            Err(error) => lst.failed(&error, "batch", "list batches"),
        };
    };
    let test = match number(lst, args, "test", 0, 1, "Invalid test index") {
        Ok(test) => test,
        Err(code) => return code,
    };
    let batch = match lst.order(Order::ShowBatch { name: name.clone() }) {
        Ok(Answer::Batch(batch)) => batch,
        Ok(_) => return lst.failed(&ClientError::Unexpected, "batch", "list batch"),
        Err(error) => return lst.failed(&error, "batch", "list batch"),
    };
    let one = match (test as usize).checked_sub(1) {
        None => None,
        Some(i) => match batch.tests.get(i) {
            Some(test) => Some(test),
            None => {
                lst.complain("Can't find test in current session");
                return LOCAL;
            }
        },
    };
    use NodeState::{Active, Busy, Down, Unknown};
    let mut wanted = Vec::new();
    if args.has("active") || args.has("all") {
        wanted.push(Active);
    }
    if args.has("invalid") || args.has("all") {
        wanted.extend([Busy, Down, Unknown]);
    }
    if wanted.is_empty() {
        show(lst, name, &batch, test);
        return 0;
    }
    let server = args.has("server");
    let nodes: &[NodeShown] = match (one, server) {
        (Some(test), true) => &test.servers,
        (Some(test), false) => &test.clients,
        (None, true) => &batch.servers,
        (None, false) => &batch.clients,
    };
    let shown = node_lines(lst, nodes, &wanted);
    lst.say(format_args!("Total {shown} nodes"));
    0
}

/// The tables of a batch, and of its tests or one of them.
fn show(lst: &mut Lst<'_>, name: &str, batch: &BatchShown, only: u32) {
    let state = if batch.running { RUNNING } else { IDLE };
    let tests = batch.tests.len();
    lst.say(format_args!("Batch: {name} Tests: {tests} State: {state}"));
    let mut table = |clients: &[NodeShown], servers: &[NodeShown], head: Option<String>| {
        if let Some(head) = head {
            lst.say(head);
        }
        lst.say(HEADER);
        lst.say(format_args!("client\t{}", counts(clients)));
        lst.say(format_args!("server\t{}", counts(servers)));
    };
    table(&batch.clients, &batch.servers, None);
    for (number, test) in (1..).zip(&batch.tests) {
        if only != 0 && only != number {
            continue;
        }
        let repeat = test.repeat.map_or(-1, i64::from);
        let (kind, concurrency) = (&test.kind, test.concurrency);
        let head = format!("\tTest {number}({kind}) (loop: {repeat}, concurrency: {concurrency})");
        table(&test.clients, &test.servers, Some(head));
    }
}
