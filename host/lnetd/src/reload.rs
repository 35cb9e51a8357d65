//! Its configuration file read anew (SIGHUP): what has changed in it since it was last applied
//! changes in the node, all of it or nothing. What was changed by hand since stays.

use std::fs;
use std::path::Path;

use lnet_admin::{AdminError, Request};
use lnet_config::{Config, diff};

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

/// Takes the node from the configuration that was last `applied` to that of the file, which is what
/// is returned with the number of steps that it took.
///
/// # Errors
/// Why it stays as it was; what could not be taken back is named too.
pub(crate) fn reload(
    control: &Control,
    applied: &Config,
    file: &Path,
) -> Result<(Config, usize), String> {
    let wanted = read(file)?;
    if applied.profile.as_ref().map(|p| &p.1) != wanted.profile.as_ref().map(|p| &p.1) {
        let file = file.display();
        return Err(format!("configuration {file}: the profile needs a new start of the daemon"));
    }
    if control.tunables_and_node().1.is_none() {
        let count = wanted.add_steps().len();
        let refuse = |e: AdminError| format!("configuration {}: {}", file.display(), reason(&e));
        control.configure(&wanted).map_err(refuse)?;
        return Ok((wanted, count));
    }
    let steps = diff(applied, &wanted);
    let count = steps.len();
    for step in steps {
        let what = step.to_string();
        if let Err(e) = control.answer(Request::from(step)) {
            let mut why = format!("configuration {}: {what}: {}", file.display(), reason(&e));
            // Whatever was done is undone; what was not is not there to be undone.
            for step in diff(&wanted, applied) {
                if let Err(e) = control.answer(Request::from(step.clone())) {
                    tracing::debug!("taking back {step:?}: {}", reason(&e));
                }
            }
            if !is_as(control, applied) {
                why += "; the node is not all as it was before";
            }
            return Err(why);
        }
    }
    Ok((wanted, count))
}

fn reason(e: &AdminError) -> String {
    let detail = e.detail.as_deref().map(|d| format!(": {d}")).unwrap_or_default();
    format!("{}{detail}", e.text)
}

/// Whether every network of a configuration is there.
fn is_as(control: &Control, config: &Config) -> bool {
    let nets = config.blocks.iter().filter_map(|(_, block)| match block {
        lnet_config::Block::Net(net) => Some(net.net),
        _ => None,
    });
    let mut shown =
        nets.map(|net| control.answer(Request::NetShow { net: Some(net), detail: false }));
    shown.all(|shown| shown.is_ok())
}
