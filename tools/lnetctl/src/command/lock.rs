//! `lock show`, `lock dump`, `lock break`, `explain lock`, `namespace show`: the locks of this node's
//! targets.

use lnet_admin::{ClientError, LockSelection, LockSnapshot, Reply, Request};
use lnet_config::Style;

use super::connection::list;
use super::target::order;
use crate::args::Args;
use crate::report::Place;
use crate::table::Command;
use crate::{Session, show};

const SHOW: Place = Place::library("show", "lock");
const BREAK: Place = Place::library("break", "lock");
const EXPLAIN: Place = Place::library("explain", "lock");
const NAMESPACE: Place = Place::library("show", "namespace");

pub(crate) fn show(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    match args.operands.first() {
        Some(name) => pages(session, &LockSelection::Named(name.clone())),
        None => pages(session, &LockSelection::Contended),
    }
}

pub(crate) fn dump(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    pages(session, &LockSelection::All)
}

fn pages(session: &mut Session<'_>, which: &LockSelection) -> i32 {
    let mut first = true;
    let each = |session: &mut Session<'_>, locks: &[LockSnapshot]| {
        list(session, show::lock::locks(locks), &mut first);
    };
    match each_page(session, which, each) {
        Ok(()) => 0,
        Err(e) => failed(session, SHOW, &e),
    }
}

/// Asks for all pages, and hands each on.
fn each_page(
    session: &mut Session<'_>,
    which: &LockSelection,
    mut each: impl FnMut(&mut Session<'_>, &[LockSnapshot]),
) -> Result<(), ClientError> {
    let mut from = None;
    loop {
        let asked = session.ask(&Request::LockShow { which: which.clone(), from })?;
        let Reply::Locks(page) = asked else { return Err(ClientError::Unexpected) };
        each(session, &page.locks);
        match page.next {
            next @ Some(_) if next > from => from = next,
            _ => return Ok(()),
        }
    }
}

/// `explain lock NAME`.
pub(crate) fn explain(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let [name] = args.operands.as_slice() else {
        return session.lacks("please name what is locked, as lock show does");
    };
    let mut locks = Vec::new();
    let which = LockSelection::Named(name.clone());
    if let Err(e) = each_page(session, &which, |_, page| locks.extend_from_slice(page)) {
        return failed(session, EXPLAIN, &e);
    }
    if session.json {
        list(session, show::lock::locks(&locks), &mut true);
        return 0;
    }
    session.out.push_str(&show::lock::explanation(&locks));
    0
}

pub(crate) fn break_lock(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let [lock] = args.operands.as_slice() else {
        return session.lacks("please name the lock, as lock show does");
    };
    let number = match lock.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => lock.parse(),
    };
    match number {
        Ok(lock) => order(session, BREAK, &Request::LockBreak { lock }),
        Err(_) => {
            session.lacks(format!("lock '{lock}': expected a number, as lock show prints it"))
        }
    }
}

pub(crate) fn namespaces(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    match session.ask(&Request::NamespaceShow) {
        Ok(Reply::Namespaces(all)) => {
            if let Some(tree) = show::lock::namespaces(&all) {
                session.print(&tree, Style::Library);
            }
            0
        }
        Ok(_) => failed(session, NAMESPACE, &ClientError::Unexpected),
        Err(e) => failed(session, NAMESPACE, &e),
    }
}

fn failed(session: &mut Session<'_>, place: Place, e: &ClientError) -> i32 {
    session.failed(place, e, |r| r.text.clone(), None)
}
