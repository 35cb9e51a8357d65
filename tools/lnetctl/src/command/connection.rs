//! `import show`, `export show`, `export evict`, `service show`: the request layer above LNet.

use lnet_admin::{ClientError, Reply, Request};
use lnet_config::{Style, Tree};

use super::single_nid;
use super::target::order;
use crate::args::Args;
use crate::report::Place;
use crate::table::Command;
use crate::{Session, show};

const IMPORT: Place = Place::library("show", "import");
const EXPORT: Place = Place::library("show", "export");
const EVICT: Place = Place::library("evict", "export");
const SERVICE: Place = Place::library("show", "service");

pub(crate) fn imports(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    let (mut from, mut first) = (None, true);
    loop {
        let page = match session.ask(&Request::ImportShow { from }) {
            Ok(Reply::Imports(page)) => page,
            Ok(_) => return failed(session, IMPORT, &ClientError::Unexpected),
            Err(e) => return failed(session, IMPORT, &e),
        };
        list(session, show::rpc::imports(&page.imports), &mut first);
        match page.next {
            next @ Some(_) if next > from => from = next,
            _ => break,
        }
    }
    if first {
        session.err_line(
            "# no imports: no target of this daemon has a client that it calls back; 'export show' has its clients",
        );
    }
    0
}

pub(crate) fn exports(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    let (mut from, mut first, mut evicted) = (None, true, Vec::new());
    loop {
        let page = match session.ask(&Request::ExportShow { from }) {
            Ok(Reply::Exports(page)) => page,
            Ok(_) => return failed(session, EXPORT, &ClientError::Unexpected),
            Err(e) => return failed(session, EXPORT, &e),
        };
        list(session, show::rpc::exports(&page.exports), &mut first);
        evicted.extend(page.evicted);
        match page.next {
            next @ Some(_) if next > from => from = next,
            _ => break,
        }
    }
    if let Some(tree) = show::rpc::evictions(&evicted) {
        session.print(&tree, Style::Library);
    }
    0
}

/// Prints a page of a list behind those before it.
pub(super) fn list(session: &mut Session<'_>, page: Option<Tree>, first: &mut bool) {
    let Some(tree) = page else { return };
    if core::mem::take(first) {
        session.print(&tree, Style::Library);
    } else {
        session.print_more(&tree, Style::Library);
    }
    // A reader that has gone is no reason to fail.
    let _ = session.spill();
}

pub(crate) fn evict(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let [client] = args.operands.as_slice() else {
        return session.lacks("please name the client: its UUID, or the NID of its node");
    };
    let request = match (client.contains('@'), single_nid(client)) {
        (true, None) => return session.bad_nid(EVICT, client),
        (true, nid) => Request::ExportEvict { uuid: None, nid },
        (false, _) => Request::ExportEvict { uuid: Some(client.clone()), nid: None },
    };
    order(session, EVICT, &request)
}

pub(crate) fn services(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    match session.ask(&Request::ServiceShow) {
        Ok(Reply::Services(services)) => {
            if let Some(tree) = show::rpc::services(&services) {
                session.print(&tree, Style::Library);
            }
            0
        }
        Ok(_) => failed(session, SERVICE, &ClientError::Unexpected),
        Err(e) => failed(session, SERVICE, &e),
    }
}

fn failed(session: &mut Session<'_>, place: Place, e: &ClientError) -> i32 {
    session.failed(place, e, |r| r.text.clone(), None)
}
