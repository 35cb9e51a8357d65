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

mod convert;
mod ip2nets;
mod modprobe;
mod networks;
mod parameters;
mod routes;

pub use convert::{legacy_options, merge_legacy};
pub use ip2nets::{
    Choice, IpPattern, LocalAddress, NetRule, NetRules, NoRuleMatches, parse_ip2nets,
};
pub use modprobe::{ModuleOption, OptionProblem, parse_modprobe};
pub use networks::{NETWORKS_CHARS_MAX, NetSpec, parse_networks};
pub use parameters::{AcceptFrom, IbParameters, ModuleParameters, Note, SockParameters};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn damaged_module_parameters_are_read_or_refused_without_panic() {
        let seed = 0x5eed_1e9a;
        println!("seed {seed:#x}");
        let mut prng = lnet_types::Prng::new(seed);
        let good = [
            "tcp0(eth0,eth1),o2ib(ib0[0])[0,1]",
            "tcp(eth0) 192.168.0.*; o2ib0 132.6.[1-3].[2-8/2] # x",
            "tcp[1-3] 1 10.1.0.[1-4]@o2ib:0 fd00::1@tcp:1",
            "options lnet networks=\"tcp(eth0)\" routes=\"o2ib 10.0.0.1@tcp\" \\\n lnet_retry_count=1\n\
             options ksocklnd credits=8 tos=-1 conns_per_peer=2\noptions ko2iblnd timeout=10 peer_credits=32 concurrent_sends=64 ipif_name=ib1 tos=9\n",
        ];
        let (mut read, mut refused) = (0, 0);
        for run in 0..4000 {
            let mut bytes = good[run % good.len()].as_bytes().to_vec();
            for _ in 0..=prng.below(4) {
                if bytes.is_empty() {
                    break;
                }
                let at = prng.below(bytes.len() as u64) as usize;
                match prng.below(3) {
                    0 => bytes[at] = b"()[]{},;:#@=*-/. \n\"\\09tcp"[prng.below(25) as usize],
                    1 => drop(bytes.remove(at)),
                    _ => bytes.truncate(at),
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            match parse_networks(&text) {
                Ok(nets) => {
                    read += 1;
                    let shown: Vec<String> = nets.iter().map(ToString::to_string).collect();
                    assert_eq!(parse_networks(&shown.join(",")), Ok(nets), "{text}");
                }
                Err(_) => refused += 1,
            }
            assert!(parse_routes(&text).map_or(0, |routes| routes.len()) <= ROUTES_MAX);
            if let Ok(rules) = parse_ip2nets(&text) {
                let _ = rules.choose(&[]);
            }
            if let Ok(all) = ModuleParameters::from_modprobe(&text) {
                let yaml = all.to_config().to_yaml();
                let again = Config::from_yaml(&yaml);
                assert!(again.is_ok(), "{text}\n{yaml}\n{again:?}");
            }
        }
        assert!(read > 50 && refused > 50, "{read} read, {refused} refused");
    }
}
