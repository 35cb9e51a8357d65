//! `explain`: which way a message goes, and why; where an import would connect, and why. Ours; the
//! original has nothing like it.

use lnet_admin::{ClientError, Reply, Request};
use lnet_config::{Style, parse_number};

use super::{not_a_nid, single_nid};
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::table::Command;
use crate::{Session, show};

const PLACE: Place = Place::classic("show", "explain");
const IMPORT: Place = Place::library("explain", "import");
/// The payload of a message without a given size.
const SIZE: u64 = 4096;

pub(crate) fn explain(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let request = match (args.operands.first(), args.value("last")) {
        (Some(target), None) => question(args, target),
        (None, Some(count)) => last(args, count),
        (None, None) => return command.print_help(session, INVALID),
        (Some(_), Some(_)) => Err("give a NID or --last, not both".to_owned()),
    };
    let request = match request {
        Ok(request) => request,
        Err(what) => return session.bad_value(PLACE, &what),
    };
    match session.ask(&request) {
        Ok(Reply::Texts(texts)) => {
            session.texts("explain", &texts);
            0
        }
        Ok(_) => session.failed(PLACE, &ClientError::Unexpected, |r| r.text.clone(), None),
        Err(e) => session.failed(PLACE, &e, |r| format!("\"{}\"", r.text), None),
    }
}

/// `explain import NAME`.
pub(crate) fn import(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let [name] = args.operands.as_slice() else {
        return session.lacks("please name the import: the uuid of its target or client");
    };
    match session.ask(&Request::ImportExplain { name: name.clone() }) {
        Ok(Reply::ImportExplanations(all)) => {
            if session.json {
                session.print(&show::rpc::explanations(&all), Style::Library);
            } else {
                all.iter().for_each(|why| session.out.push_str(&why.text));
            }
            0
        }
        Ok(_) => session.failed(IMPORT, &ClientError::Unexpected, |r| r.text.clone(), None),
        Err(e) => session.failed(IMPORT, &e, |r| r.text.clone(), None),
    }
}

fn question(args: &Args, target: &str) -> Result<Request, String> {
    let nid = |text: &str| single_nid(text).ok_or_else(|| not_a_nid(text));
    let size = args.value("size").map_or(Ok(SIZE), |word| {
        parse_number(word)
            .and_then(|n| u64::try_from(n).ok())
            .ok_or_else(|| format!("invalid size value '{word}': expected a number of bytes"))
    })?;
    let source = args.value("from").map(nid).transpose()?;
    Ok(Request::Explain { target: nid(target)?, source, size })
}

fn last(args: &Args, count: &str) -> Result<Request, String> {
    if args.has("from") || args.has("size") {
        return Err("--from and --size ask about a message to a NID, not about the last".to_owned());
    }
    let count = parse_number(count)
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| format!("invalid last value '{count}': expected a number"))?;
    Ok(Request::ExplainLast { count })
}
