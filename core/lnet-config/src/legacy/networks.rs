//! `networks=`: nets and the interfaces that they are on (N-9).

use lnet_types::Net;
use serde::{Deserialize, Serialize};

use super::{LegacyError, bad};
use crate::suggest::near_net;
use crate::{Interface, LndTunables, NetAdd, NetTunables, parse_cpts, parse_interfaces, text};

/// Longest text, characters.
pub const NETWORKS_CHARS_MAX: usize = 4096;
const PARAMETER: &str = "networks";

/// A net and where it is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetSpec {
    /// The net; never loopback.
    #[serde(with = "text::net")]
    pub net: Net,
    /// Its interfaces; the first usable one of the machine if there are none.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// CPTs of interfaces that do not name their own; all if `None`.
    #[serde(default)]
    pub cpts: Option<Vec<u32>>,
}

impl NetSpec {
    /// What has to be added.
    pub fn to_add(&self) -> NetAdd {
        NetAdd {
            net: self.net,
            interfaces: self.interfaces.clone(),
            nid: None,
            cpts: self.cpts.clone(),
            tunables: NetTunables::default(),
            lnd: LndTunables::default(),
        }
    }
}

/// As it is read: `tcp(eth0[0],eth1)[0,1]`.
impl core::fmt::Display for NetSpec {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.net)?;
        if !self.interfaces.is_empty() {
            let names: Vec<String> = self.interfaces.iter().map(ToString::to_string).collect();
            write!(f, "({})", names.join(","))?;
        }
        match &self.cpts {
            Some(cpts) => f.write_str(&crate::cpts_text(cpts)),
            None => Ok(()),
        }
    }
}

/// The nets of `NET[(INTERFACE[CPTS],…)][CPTS],…`, without loopback. An empty text has none.
///
/// # Errors
/// The part that is wrong.
pub fn parse_networks(text: &str) -> Result<Vec<NetSpec>, LegacyError> {
    parse(PARAMETER, text)
}

/// The same, as part of another parameter.
pub(super) fn parse(parameter: &'static str, text: &str) -> Result<Vec<NetSpec>, LegacyError> {
    if text.chars().nth(NETWORKS_CHARS_MAX).is_some() {
        let what = format!("longer than {NETWORKS_CHARS_MAX} characters");
        return Err(bad(parameter, text, what));
    }
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut specs = Vec::new();
    for part in split(text) {
        let spec = one(parameter, part.trim())?;
        if spec.net != Net::LO {
            specs.push(spec);
        }
    }
    Ok(specs)
}

/// The names of the nets that [`parse_networks`] gives, as they are written.
pub(super) fn names(text: &str) -> Vec<String> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let name = |part: &str| part.split(['(', '[']).next().unwrap_or_default().trim().to_owned();
    split(text).map(name).filter(|name| name.parse() != Ok(Net::LO)).collect()
}

/// Splits at commas outside of brackets and parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0u32;
    text.split(move |c| {
        match c {
            '[' | '(' => depth = depth.saturating_add(1),
            ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn no_network(name: &str) -> String {
    let why = format!("'{name}' is not a network such as tcp or o2ib1");
    near_net(name).map_or_else(|| why.clone(), |meant| format!("{why}: did you mean '{meant}'?"))
}

fn one(parameter: &'static str, part: &str) -> Result<NetSpec, LegacyError> {
    let fail = |what: String| bad(parameter, part, what);
    let (name, inside, behind) = match part.split_once('(') {
        None => {
            let end = part.find('[').unwrap_or(part.len());
            let (name, behind) = part.split_at(end);
            (name, None, behind)
        }
        Some((name, rest)) => {
            let (inside, behind) =
                rest.rsplit_once(')').ok_or_else(|| fail("expected ')'".to_owned()))?;
            (name, Some(inside), behind)
        }
    };
    let name = name.trim();
    let net = name.parse().map_err(|_| fail(no_network(name)))?;
    let interfaces = match inside {
        None => Vec::new(),
        Some(inside) => parse_interfaces(inside).map_err(|e| fail(e.to_string()))?,
    };
    let behind = behind.trim();
    let cpts = match behind {
        "" => None,
        _ if behind.starts_with('[') => parse_cpts(behind).map_err(|e| fail(e.to_string()))?,
        _ => return Err(fail(format!("'{behind}' is not a list of CPTs such as [0,1]"))),
    };
    Ok(NetSpec { net, interfaces, cpts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        parse_networks(text).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn n9_nets_have_interfaces_and_both_may_have_cpts() {
        assert_eq!(
            shown("tcp0(eth0,eth1),o2ib(ib0[0])[0,1]"),
            ["tcp(eth0,eth1)", "o2ib(ib0[0])[0,1]"]
        );
        assert_eq!(
            shown(" tcp ( eth0 , eth0:1 ) [ 0 ] , lo, tcp1 "),
            ["tcp(eth0,eth0:1)[0]", "tcp1"]
        );
        assert_eq!(shown("tcp[0-3/2],tcp(eth1)"), ["tcp[0,2]", "tcp(eth1)"]);
        assert_eq!(shown(""), [] as [&str; 0]);
        for text in ["tcp(eth0,eth1)", "o2ib(ib0[0])[0,1]", "tcp1"] {
            assert_eq!(shown(text), [text], "what is printed is read as the same");
        }
    }

    #[test]
    fn a_wrong_networks_text_is_refused_with_what_was_expected() {
        for (text, what) in [
            ("foo", "networks 'foo': 'foo' is not a network such as tcp or o2ib1"),
            ("tcp,", "networks '': '' is not a network such as tcp or o2ib1"),
            ("tcp(eth0", "networks 'tcp(eth0': expected ')'"),
            ("tcp(eth0)x", "networks 'tcp(eth0)x': 'x' is not a list of CPTs such as [0,1]"),
            (
                "tcp()",
                "networks 'tcp()': interface list '': expected names of at most 15 bytes such as eth0, eth0:1, eth0[0]",
            ),
        ] {
            assert_eq!(parse_networks(text).unwrap_err().to_string(), what);
        }
        assert!(parse_networks(&"tcp,".repeat(1025)).is_err());
        assert!(parse_networks("tcp(eth0)[a]").is_err());
    }
}
