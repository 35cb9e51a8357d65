//! The texts that kernel nodes are configured by when their modules load: `networks=`, `ip2nets=`
//! and `routes=` (N-9 to N-14), and the lines of modprobe files that carry them.
//!
//! ```text
//!   modprobe file ──modprobe.rs──► options ──parameters.rs──► ModuleParameters ──► Config
//!                                                 │
//!                          networks.rs, ip2nets.rs, routes.rs read the three texts
//! ```
//!
//! All readers are total, and bounded by the limits that stand beside them.

mod ip2nets;
mod modprobe;
mod networks;
mod parameters;
mod routes;

pub use ip2nets::{
    Choice, IpPattern, LocalAddress, NetRule, NetRules, NoRuleMatches, parse_ip2nets,
};
pub use modprobe::{ModuleOption, OptionProblem, parse_modprobe};
pub use networks::{NETWORKS_CHARS_MAX, NetSpec, parse_networks};
pub use parameters::{AcceptFrom, ModuleParameters, Note, SockParameters};
pub use routes::{ROUTES_MAX, parse_routes};

use lnet_types::Errno;
use thiserror::Error;

/// Why a text of module parameters cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{parameter} '{text}': {what}")]
pub struct LegacyError {
    /// The parameter that the text is of.
    pub parameter: &'static str,
    /// The part that is wrong, cut to a readable length.
    pub text: String,
    /// What is wrong with it.
    pub what: String,
    /// What kernels return for it.
    pub errno: Errno,
}

/// Longest part of a text in an error, characters.
const SHOWN_MAX: usize = 80;

fn bad(parameter: &'static str, text: &str, what: impl Into<String>) -> LegacyError {
    let text = text.chars().take(SHOWN_MAX).collect();
    LegacyError { parameter, text, what: what.into(), errno: Errno::EINVAL }
}

/// The lines of a text in which `;` is as good as a line break and `#` begins a comment (N-12),
/// trimmed, without empty ones.
fn rules(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split_once('#').map_or(line, |(code, _)| code))
        .flat_map(|line| line.split(';'))
        .map(str::trim)
        .filter(|rule| !rule.is_empty())
}
