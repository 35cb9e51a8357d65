//! Its configuration file read anew (SIGHUP): what has changed in it since it was last applied
//! changes in the node, all of it or nothing. What was changed by hand since stays.

use std::fs;
use std::path::Path;

use lnet_admin::{AdminError, Request};
use lnet_config::{Block, Config, NetRules, diff_of_files};

use crate::control::Control;

/// Reads a configuration file.
///
/// # Errors
/// What is wrong with it and where.
pub(crate) fn read(file: &Path) -> Result<Config, String> {
    let refuse = |e: &dyn core::fmt::Display| format!("configuration {}: {e}", file.display());
    let text = fs::read_to_string(file).map_err(|e| refuse(&e))?;
    Config::from_yaml(&text).map_err(|e| refuse(&e))
}

/// Takes the node from the configuration that was last applied to that of the file; returns the number of
/// steps that it took.
///
/// # Errors
/// Why it stays as it was; what could not be taken back is named too.
pub(crate) fn reload(control: &Control, file: &Path) -> Result<usize, String> {
    let refuse = |why: &str| format!("configuration {}: {why}", file.display());
    let wanted = read(file).map_err(|why| format!("{why}; {UNCHANGED}"))?;
    let applied = control.applied();
    if applied.profile.as_ref().map(|p| &p.1) != wanted.profile.as_ref().map(|p| &p.1) {
        let why = format!("the profile needs a new start of the daemon; {UNCHANGED}");
        return Err(refuse(&why));
    }
    let whole = wanted.with_defaults_of(&applied, |name| control.initial(name));
    if control.tunables_and_node().1.is_none() {
        let count = whole.add_steps().len();
        control.configure(&whole).map_err(|e| refuse(&format!("{}; {UNCHANGED}", reason(&e))))?;
        control.set_applied(wanted);
        return Ok(count);
    }
    if net_rules(&applied).ne(net_rules(&wanted)) {
        let why = format!("a change of ip2nets needs a new start of the daemon; {UNCHANGED}");
        return Err(refuse(&why));
    }
    let steps = diff_of_files(&applied, &whole);
    let count = steps.len();
    let before = match steps.is_empty() {
        true => None,
        false => Some(control.in_force().map_err(|e| refuse(&reason(&e)))?),
    };
    for step in steps {
        let Err(e) = control.answer(Request::from(step.clone())) else { continue };
        // Another hand has done it.
        if control.current().is_ok_and(|node| step.is_done_in(&node)) {
            continue;
        }
        let why = format!("{step}: {}", reason(&e));
        let after = match before.as_ref().map(|before| control.take_back(before)) {
            Some(Err(_)) => "the node is not all as it was before",
            _ => UNCHANGED,
        };
        return Err(refuse(&format!("{why}; {after}")));
    }
    control.set_applied(wanted);
    Ok(count)
}

/// What follows from a refusal.
const UNCHANGED: &str = "all stays as it was";

/// The blocks that choose nets by the addresses of the machine.
fn net_rules(config: &Config) -> impl Iterator<Item = &NetRules> {
    config.blocks.iter().filter_map(|(_, block)| match block {
        Block::NetRules(rules) => Some(rules),
        _ => None,
    })
}

fn reason(e: &AdminError) -> String {
    let detail = e.detail.as_deref().map(|d| format!(": {d}")).unwrap_or_default();
    format!("{}{detail}", e.text)
}
