//! `lnetctl doctor`: what is wrong with this node and with a site, and the commands that put it
//! right. It changes nothing.
//!
//! `site.rs` is what is looked at, `merge.rs` makes one of what was seen twice, `rules/` what is looked for, one file each; `local.rs` finds out
//! about this node, `read.rs` about others from files.

mod local;
mod merge;
mod read;
mod rules;
mod site;

use std::fs;
use std::time::{Duration, Instant};

use lnet_admin::ClientError;
use lnet_config::Style;
use serde::Serialize;

use self::rules::{Finding, Level, RULES};
use self::site::{Node, Site};
use crate::Session;
use crate::args::Args;
use crate::command::{not_a_nid, single_nid};
use crate::report::{INVALID, Place};
use crate::table::Command;

const PLACE: Place = Place::classic("show", "doctor");
/// How long counters are watched.
const WATCHED: Duration = Duration::from_secs(1);
/// Return code when something is wrong.
const SICK: i32 = 1;

/// The output for programs.
#[derive(Serialize)]
struct Report<'a> {
    nodes: Vec<&'a str>,
    not_checked: &'a [String],
    /// What was looked for.
    rules: Vec<RuleName>,
    findings: &'a [Finding],
}

#[derive(Serialize)]
struct RuleName {
    name: &'static str,
    about: &'static str,
}

/// The command.
pub(crate) fn doctor(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let names_others = args.has("peer") || args.has("export") || !args.operands.is_empty();
    if args.has("save") && names_others {
        let what = "--save writes down this node: expected no other node beside it";
        return session.bad_value(PLACE, what);
    }
    let mut site = Site::default();
    let mut missing = Vec::new();
    let mut local = match local::node(session) {
        Ok(node) => node,
        Err(e) => return session.failed(PLACE, &e, |r| format!("\"{}\"", r.text), None),
    };
    (local.devices, missing) = {
        let (devices, more) = local::devices();
        missing.extend(more);
        (devices, missing)
    };
    if let Err(e) = watch(session, &mut local, &mut missing) {
        return session.failed(PLACE, &e, |r| format!("\"{}\"", r.text), None);
    }
    if let Some(path) = args.value("save") {
        return save(session, &local, path);
    }
    for word in args.values("peer") {
        let Some(nid) = single_nid(word) else {
            let what = format!("invalid peer value '{word}': expected a NID such as 10.0.0.1@tcp");
            return session.bad_value_because(PLACE, &what, &not_a_nid(word));
        };
        match local::peer(session, nid) {
            Ok((peer, silent)) => {
                local.silent.extend(silent);
                if !peer.nis.is_empty() {
                    site.nodes.push(peer);
                }
            }
            Err(e) => return session.failed(PLACE, &e, |r| format!("\"{}\"", r.text), None),
        }
    }
    for path in args.values("export").chain(args.operands.iter().map(String::as_str)) {
        match read::file(path) {
            Ok(node) => site.nodes.push(node),
            Err(what) => return session.bad_value(PLACE, &what),
        }
    }
    // What a file says of this very node is older than what it says itself.
    site.nodes.insert(0, local);
    merge::merge(&mut site);
    let findings = rules::check(&site);
    if args.has("json") || session.json {
        json(session, &site, &missing, &findings);
    } else {
        text(session, &site, &missing, &findings);
    }
    if findings.is_empty() { 0 } else { SICK }
}

/// Watches counters of losses for a moment, and tries peers that were never tried.
fn watch(
    session: &mut Session<'_>,
    node: &mut Node,
    missing: &mut Vec<String>,
) -> Result<(), ClientError> {
    let begun = Instant::now();
    let before = local::losses(session)?;
    match local::untried(session, node) {
        Ok(silent) => node.silent.extend(silent),
        // Readers may look, and send nothing.
        Err(ClientError::Refused(e)) if e.is_not_permitted() => {
            missing.push("peers that were never tried: that takes the right to ping".to_owned());
        }
        Err(e) => return Err(e),
    }
    std::thread::sleep(WATCHED.saturating_sub(begun.elapsed()));
    for (name, count) in local::losses(session)? {
        let by = count.saturating_sub(before.get(&name).copied().unwrap_or(0));
        if by > 0 {
            node.rising.insert(name, by);
        }
    }
    Ok(())
}

fn save(session: &mut Session<'_>, node: &Node, path: &str) -> i32 {
    match fs::write(path, local::document(node).render(Style::Classic)) {
        Ok(()) => 0,
        Err(e) => {
            session.err_line(format_args!("lnetctl: doctor: {path}: {e}"));
            INVALID
        }
    }
}

fn json(session: &mut Session<'_>, site: &Site, missing: &[String], findings: &[Finding]) {
    let nodes = site.nodes.iter().map(|node| node.name.as_str()).collect();
    let report = Report {
        nodes,
        not_checked: missing,
        rules: RULES.iter().map(|rule| RuleName { name: rule.name, about: rule.about }).collect(),
        findings,
    };
    // Infallible: texts and numbers under texts.
    let text = serde_json::to_string_pretty(&report).unwrap_or_default();
    session.out_line(text);
}

fn text(session: &mut Session<'_>, site: &Site, missing: &[String], findings: &[Finding]) {
    for finding in findings {
        let level = match finding.level {
            Level::Error => "error",
            Level::Warning => "warning",
        };
        session.out_line(format_args!("{level}: {}: {}", finding.rule, finding.text));
        for fix in &finding.fixes {
            session.out_line(format_args!("    on {}: {}", fix.node, fix.command));
        }
    }
    for what in missing {
        session.out_line(format_args!("not checked: {what}"));
    }
    let names: Vec<&str> = site.nodes.iter().map(|node| node.name.as_str()).collect();
    let count = match findings.len() {
        0 => "nothing found".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    session.out_line(format_args!("{count} by {} rules on {}", RULES.len(), names.join(", ")));
}

#[cfg(test)]
mod faults_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
