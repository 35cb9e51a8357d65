//! `target add`, `target del`, `target show`: what this node serves; ours, kernel nodes have other
//! ways.

use lnet_admin::{ClientError, Reply, Request};
use lnet_config::Style;

use crate::args::Args;
use crate::report::Place;
use crate::table::Command;
use crate::{Session, show};

const ADD: Place = Place::library("add", "target");
const DEL: Place = Place::library("del", "target");
const SHOW: Place = Place::library("show", "target");

pub(crate) fn add(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let [target] = args.operands.as_slice() else {
        return session.lacks("please name the target: NAME=KIND:DIR");
    };
    order(session, ADD, &Request::TargetAdd { target: anchored(target) })
}

/// `NAME=KIND:DIR` with an absolute path: the daemon's directory is another one.
fn anchored(target: &str) -> String {
    let parts = target.split_once('=').and_then(|(name, rest)| {
        let (kind, dir) = rest.split_once(':')?;
        let dir = std::path::absolute(dir).ok()?;
        Some(format!("{name}={kind}:{}", dir.to_str()?))
    });
    // What can't be read is refused by the daemon, in its words.
    parts.unwrap_or_else(|| target.to_owned())
}

pub(crate) fn del(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let [name] = args.operands.as_slice() else {
        return session.lacks("please name the target");
    };
    order(session, DEL, &Request::TargetDel { name: name.clone() })
}

pub(crate) fn show(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    match session.ask(&Request::TargetShow) {
        Ok(Reply::Targets(targets)) => {
            if let Some(tree) = show::rpc::targets(&targets) {
                session.print(&tree, Style::Library);
            }
            0
        }
        Ok(_) => session.failed(SHOW, &ClientError::Unexpected, |r| r.text.clone(), None),
        Err(e) => session.failed(SHOW, &e, |r| r.text.clone(), None),
    }
}

/// Gives an order; a refusal says in its document what is wrong, and not the errno alone.
pub(super) fn order(session: &mut Session<'_>, place: Place, request: &Request) -> i32 {
    match session.order(request) {
        Ok(()) => 0,
        Err(e) => session.failed(place, &e, |r| r.text.clone(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_a_target_is_made_absolute_and_the_rest_is_left_alone() {
        assert_eq!(anchored("a=kv:/b:c"), "a=kv:/b:c");
        let here = std::env::current_dir().unwrap();
        assert_eq!(anchored("a=kv:b"), format!("a=kv:{}/b", here.display()));
        for text in ["a", "a=kv", "a=kv:"] {
            assert_eq!(anchored(text), text);
        }
    }
}
