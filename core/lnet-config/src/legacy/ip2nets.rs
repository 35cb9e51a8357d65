//! Nets by address: `ip2nets=` rules (N-13), their YAML form (I-10), and what they choose on a
//! machine whose addresses are given.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use lnet_types::{Errno, NumberSet};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::networks::{self, NETWORKS_CHARS_MAX, NetSpec};
use super::{LegacyError, bad, rules};
use crate::{Interface, NetAdd};

const PARAMETER: &str = "ip2nets";
/// Most rules of one text.
const RULES_MAX: usize = 1024;

/// Which addresses are meant (N-11): `192.168.[0-3].*`, an IPv6 address, or a network with its
/// length, `fd00::/64`, `10.0.0.0/8`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpPattern {
    text: String,
    what: Matcher,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Matcher {
    Octets([NumberSet; 4]),
    Prefix(IpAddr, u8),
}

impl FromStr for IpPattern {
    type Err = LegacyError;

    fn from_str(text: &str) -> Result<Self, LegacyError> {
        let fail = |what: &str| bad("address pattern", text, what);
        let what = if let Some((ip, length)) = text.split_once('/').filter(|_| !text.contains('['))
        {
            let ip: IpAddr = ip.parse().map_err(|_| fail("expected an address before the '/'"))?;
            let most = if ip.is_ipv4() { 32 } else { 128 };
            let length = length.parse().ok().filter(|n| *n <= most);
            Matcher::Prefix(ip, length.ok_or_else(|| fail("expected the length of a network"))?)
        } else if text.contains(':') {
            let ip = text.parse().map_err(|_| fail("expected an IPv6 address"))?;
            Matcher::Prefix(ip, 128)
        } else {
            let parts: Vec<&str> = text.split('.').collect();
            let parts: [&str; 4] = parts.try_into().map_err(|_| {
                fail("expected four parts such as 192.168.[0-3].*, or a network such as fd00::/64")
            })?;
            let mut sets = Vec::with_capacity(4);
            for part in parts {
                sets.push(NumberSet::parse(part, 255).map_err(|e| fail(&e.to_string()))?);
            }
            Matcher::Octets(sets.try_into().map_err(|_| fail("expected four parts"))?)
        };
        Ok(Self { text: text.to_owned(), what })
    }
}

impl TryFrom<String> for IpPattern {
    type Error = LegacyError;

    fn try_from(text: String) -> Result<Self, LegacyError> {
        text.parse()
    }
}

impl From<IpPattern> for String {
    fn from(pattern: IpPattern) -> Self {
        pattern.text
    }
}

impl fmt::Display for IpPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl IpPattern {
    /// Whether `ip` is one of them.
    pub fn matches(&self, ip: IpAddr) -> bool {
        match (&self.what, ip) {
            (Matcher::Octets(sets), IpAddr::V4(ip)) => {
                sets.iter().zip(ip.octets()).all(|(set, octet)| set.contains(octet.into()))
            }
            (Matcher::Octets(_), IpAddr::V6(_)) => false,
            (Matcher::Prefix(IpAddr::V4(net), length), IpAddr::V4(ip)) => {
                let differ = net.to_bits() ^ ip.to_bits();
                differ.leading_zeros() >= u32::from(*length)
            }
            (Matcher::Prefix(IpAddr::V6(net), length), IpAddr::V6(ip)) => {
                let differ = net.to_bits() ^ ip.to_bits();
                differ.leading_zeros() >= u32::from(*length)
            }
            (Matcher::Prefix(..), _) => false,
        }
    }
}

/// An address of the machine that rules are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// Its interface, or the alias label that it has there.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// Whether the interface is up and not the loopback device.
    pub usable: bool,
}

/// Nets that are wanted where an address matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetRule {
    /// The nets.
    pub nets: Vec<NetAdd>,
    /// Any of these; none: everywhere.
    pub ranges: Vec<IpPattern>,
}

/// How rules are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// As the module parameter: every rule that matches counts, and says where its nets are (N-13).
    All,
    /// As YAML: the first that matches counts for each net, and its interfaces are those whose
    /// addresses match (I-10).
    FirstPerNet,
}

/// Rules in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetRules {
    /// The rules.
    pub rules: Vec<NetRule>,
    /// How they are read.
    pub choice: Choice,
}

/// No rule is about this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("No ip2nets rules applied")]
pub struct NoRuleMatches(pub Choice);

impl NoRuleMatches {
    /// What kernels return for it.
    pub const fn errno(self) -> Errno {
        match self.0 {
            Choice::All => Errno::ENOENT,
            Choice::FirstPerNet => Errno::EINVAL,
        }
    }
}

impl NetRules {
    /// What has to be added on a machine with these addresses.
    ///
    /// # Errors
    /// No rule matches.
    pub fn choose(&self, addresses: &[LocalAddress]) -> Result<Vec<NetAdd>, NoRuleMatches> {
        let mut chosen: Vec<NetAdd> = Vec::new();
        let mut matched = false;
        for rule in &self.rules {
            match self.choice {
                Choice::All => {
                    let any = addresses.iter().any(|a| a.usable && rule.covers(a.ip));
                    if any || rule.ranges.is_empty() {
                        matched = true;
                        chosen.extend(rule.nets.iter().cloned());
                    }
                }
                Choice::FirstPerNet => {
                    for net in &rule.nets {
                        if chosen.iter().any(|c| c.net == net.net) {
                            matched = true;
                        } else if let Some(net) = rule.narrowed(net, addresses) {
                            matched = true;
                            chosen.push(net);
                        }
                    }
                }
            }
        }
        if matched { Ok(chosen) } else { Err(NoRuleMatches(self.choice)) }
    }
}

impl NetRule {
    fn covers(&self, ip: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.matches(ip))
    }

    /// The net on those interfaces that match; `None` if the rule does not apply.
    fn narrowed(&self, net: &NetAdd, addresses: &[LocalAddress]) -> Option<NetAdd> {
        if self.ranges.is_empty() {
            return Some(net.clone());
        }
        let fits = |name: &str| {
            addresses.iter().any(|a| a.usable && a.interface == name && self.covers(a.ip))
        };
        if !net.interfaces.is_empty() {
            return net.interfaces.iter().all(|i| fits(&i.name)).then(|| net.clone());
        }
        let mut interfaces: Vec<Interface> = Vec::new();
        for a in addresses.iter().filter(|a| a.usable && self.covers(a.ip)) {
            if !interfaces.iter().any(|i| i.name == a.interface) {
                interfaces.push(Interface { name: a.interface.clone(), cpts: None });
            }
        }
        (!interfaces.is_empty()).then(|| NetAdd { interfaces, ..net.clone() })
    }
}

/// A rule in the syntax of the module parameter, as far as that can say it.
impl fmt::Display for NetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, net) in self.nets.iter().enumerate() {
            let NetAdd { net, interfaces, cpts, .. } = net.clone();
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}", NetSpec { net, interfaces, cpts })?;
        }
        self.ranges.iter().try_for_each(|range| write!(f, " {range}"))
    }
}

/// The rules of `NETSPEC[,NETSPEC…] PATTERN [PATTERN…]; …`.
///
/// # Errors
/// The rule that is wrong.
pub fn parse_ip2nets(text: &str) -> Result<NetRules, LegacyError> {
    let mut all = Vec::new();
    for rule in rules(text) {
        if all.len() == RULES_MAX {
            return Err(bad(PARAMETER, rule, format!("more than {RULES_MAX} rules")));
        }
        all.push(one(rule)?);
    }
    Ok(NetRules { rules: all, choice: Choice::All })
}

fn one(rule: &str) -> Result<NetRule, LegacyError> {
    if rule.chars().nth(NETWORKS_CHARS_MAX).is_some() {
        let what = format!("longer than {NETWORKS_CHARS_MAX} characters");
        return Err(LegacyError { errno: Errno::E2BIG, ..bad(PARAMETER, rule, what) });
    }
    let (specs, patterns) = rule
        .split_once(char::is_whitespace)
        .ok_or_else(|| bad(PARAMETER, rule, "expected networks, a blank, and address patterns"))?;
    let specs = networks::parse(PARAMETER, specs)?;
    for (i, spec) in specs.iter().enumerate() {
        if specs.iter().take(i).any(|other| other.net == spec.net) {
            return Err(bad(PARAMETER, rule, format!("network {} twice", spec.net)));
        }
    }
    let ranges = patterns
        .split_whitespace()
        .map(|p| p.parse().map_err(|e: LegacyError| bad(PARAMETER, rule, e.to_string())))
        .collect::<Result<_, _>>()?;
    Ok(NetRule { nets: specs.iter().map(NetSpec::to_add).collect(), ranges })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(interface: &str, ip: &str) -> LocalAddress {
        LocalAddress { interface: interface.to_owned(), ip: ip.parse().unwrap(), usable: true }
    }

    fn chosen(text: &str, addresses: &[LocalAddress]) -> Result<Vec<String>, Errno> {
        let nets = parse_ip2nets(text).unwrap().choose(addresses).map_err(NoRuleMatches::errno)?;
        Ok(nets
            .iter()
            .map(|n| NetRule { nets: vec![n.clone()], ranges: vec![] }.to_string())
            .collect())
    }

    #[test]
    fn n13_every_rule_that_matches_an_address_counts() {
        let rules = "tcp(eth0) 192.168.0.*; # the old ones\n o2ib0 132.6.[1-3].[2-8/2]\ntcp1,tcp2(eth1) *.*.*.*";
        let here = [at("eth0", "192.168.0.7")];
        assert_eq!(chosen(rules, &here).unwrap(), ["tcp(eth0)", "tcp1", "tcp2(eth1)"]);
        let there = [at("ib0", "132.6.2.4"), at("ib1", "10.0.0.1")];
        assert_eq!(chosen(rules, &there).unwrap(), ["o2ib", "tcp1", "tcp2(eth1)"]);
        let down = [LocalAddress { usable: false, ..at("eth0", "192.168.0.7") }];
        assert_eq!(chosen("tcp 192.168.0.*", &down), Err(Errno::ENOENT));
        assert_eq!(chosen("tcp 10.0.0.*", &here), Err(Errno::ENOENT));
    }

    #[test]
    fn i10_in_yaml_the_first_rule_that_matches_counts_for_each_net() {
        let mut rules = parse_ip2nets(
            "tcp 10.0.0.*; tcp 192.168.*.*; tcp(eth0) *.*.*.*; tcp1(eth0) 192.168.*.*",
        )
        .unwrap();
        rules.choice = Choice::FirstPerNet;
        let here = [at("eth0", "192.168.0.7"), at("eth1", "192.168.1.7"), at("eth2", "10.9.9.9")];
        let nets: Vec<String> = rules
            .choose(&here)
            .unwrap()
            .iter()
            .map(|n| {
                format!("{} {:?}", n.net, n.interfaces.iter().map(|i| &i.name).collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(nets, ["tcp [\"eth0\", \"eth1\"]", "tcp1 [\"eth0\"]"]);
        assert_eq!(rules.choose(&[]).map_err(NoRuleMatches::errno), Err(Errno::EINVAL));
    }

    #[test]
    fn n11_patterns_are_octets_with_sets_or_networks_of_either_family() {
        let is = |pattern: &str, ip: &str| {
            let p: IpPattern = pattern.parse().unwrap();
            assert_eq!(p.to_string(), pattern);
            p.matches(ip.parse().unwrap())
        };
        assert!(is("192.168.[1-3].[2-8/2]", "192.168.2.4"));
        assert!(!is("192.168.[1-3].[2-8/2]", "192.168.2.5"));
        assert!(is("*.*.*.*", "1.2.3.4") && !is("*.*.*.*", "::1"));
        assert!(is("10.0.0.0/8", "10.9.9.9") && !is("10.0.0.0/8", "11.0.0.0"));
        assert!(is("0.0.0.0/0", "255.1.1.1") && is("::/0", "fe80::1"));
        assert!(is("fd00::/64", "fd00::5") && !is("fd00::/64", "fd00:0:0:1::5"));
        assert!(is("fd00::5", "fd00::5") && !is("fd00::5", "fd00::6"));
        for bad in ["", "1.2.3", "1.2.3.256", "1.2.3.4.5", "10.0.0.0/33", "::/129", "a/8", "[1-2]"]
        {
            assert!(bad.parse::<IpPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_ip2nets_rule_is_refused_with_what_was_expected() {
        for (text, what) in [
            ("tcp", "expected networks, a blank, and address patterns"),
            ("tcp,tcp(eth1) *.*.*.*", "network tcp twice"),
            ("foo *.*.*.*", "'foo' is not a network"),
            ("tcp 1.2.3", "expected four parts"),
        ] {
            let e = parse_ip2nets(text).unwrap_err().to_string();
            assert!(e.contains(what), "{e}");
        }
        assert_eq!(parse_ip2nets(" ; # nothing\n;").unwrap().rules, []);
    }
}
