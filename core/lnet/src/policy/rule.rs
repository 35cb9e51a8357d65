//! One rule of the selection policy: what it is about, and what it says (behaviour.md 8.1). Texts
//! are parsed and printed as `lnetctl udsp` spells them (N-7).

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use lnet_types::{
    Errno, Net, NetType, Nid, NidRange, NumberSet, ParseNidListError, ParseNumbersError,
};
use thiserror::Error;

/// Networks (`tcp`, `o2ib[1-3]`) or NIDs (`10.1.[1-5].*@tcp[1-3]`). Displays in canonical form, by
/// which two patterns are compared (U-11).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pattern {
    kind: NetType,
    /// Numbers of the networks; 0 alone if none was given (U-1a).
    numbers: NumberSet,
    /// The addresses, as NIDs on network 0 of that kind; `None` is a pattern of networks.
    addresses: Option<NidRange>,
    /// Whether addresses of 16 bytes are meant too: those patterns that do not count in octets.
    large: bool,
}

/// Why a text is no [`Pattern`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParsePatternError {
    /// The network's type.
    #[error("pattern '{0}': unknown network type, expected tcp, o2ib, gni, kfi, …{hint}", hint = meant(.0))]
    NetType(String),
    /// The network's numbers.
    #[error("pattern '{pattern}': network number {source}")]
    NetNumber {
        /// The text.
        pattern: String,
        /// What is wrong with them.
        source: ParseNumbersError,
    },
    /// More than one range of network numbers (U-2).
    #[error("pattern '{0}': expected one number or one range of network numbers")]
    NetNumbers(String),
    /// The addresses.
    #[error("pattern '{pattern}': {source}")]
    Addresses {
        /// The text.
        pattern: String,
        /// What is wrong with them.
        source: ParseNidListError,
    },
}

/// What addresses without their network may have meant.
fn meant(pattern: &str) -> String {
    match format!("{pattern}@tcp") {
        meant if meant.parse::<Pattern>().is_ok() => format!(": did you mean '{meant}'?"),
        _ => String::new(),
    }
}

impl Pattern {
    /// Whether this is a pattern of networks, not of NIDs.
    pub const fn is_net(&self) -> bool {
        self.addresses.is_none()
    }

    /// Whether it names `net`: as one of its networks, or as the network of its NIDs.
    pub fn is_about(&self, net: Net) -> bool {
        net.kind == self.kind && self.numbers.contains(net.num.into())
    }

    /// Whether this is a pattern of networks that `net` is one of.
    pub fn matches_net(&self, net: Net) -> bool {
        self.is_net() && self.is_about(net)
    }

    /// Whether this is a pattern of NIDs that `nid` is one of (U-1a). Patterns in octets never match
    /// long addresses; masks and `*` do.
    pub fn matches_nid(&self, nid: Nid) -> bool {
        let Some(addresses) = &self.addresses else { return false };
        if nid.is_any() || !self.is_about(nid.net()) || (nid.is_large() && !self.large) {
            return false;
        }
        let base = addresses.net();
        let based = match nid.ip() {
            Some(ip) => Nid::from_ip(base, ip),
            None => Nid::new(base, nid.addr()),
        };
        addresses.contains(based)
    }

    /// Whether `nid` is meant: one of the NIDs, or on one of the networks.
    pub fn covers(&self, nid: Nid) -> bool {
        self.matches_nid(nid) || (!nid.is_any() && self.matches_net(nid.net()))
    }
}

impl FromStr for Pattern {
    type Err = ParsePatternError;

    fn from_str(s: &str) -> Result<Self, ParsePatternError> {
        let pattern = || s.to_owned();
        let (addresses, net) = match s.rsplit_once('@') {
            Some((addresses, net)) => (Some(addresses), net),
            None => (None, s),
        };
        // The longest name first, so that `o2ib3` keeps its digit.
        let named = NetType::NAMED.iter().filter(|(_, name)| net.starts_with(name));
        let Some(&(kind, name)) = named.max_by_key(|(_, name)| name.len()) else {
            return Err(ParsePatternError::NetType(pattern()));
        };
        let number = match &net[name.len()..] {
            "" => "0",
            number => number,
        };
        let numbers = NumberSet::parse(number, u16::MAX.into())
            .map_err(|source| ParsePatternError::NetNumber { pattern: pattern(), source })?;
        if numbers.ranges().len() != 1 {
            return Err(ParsePatternError::NetNumbers(pattern()));
        }
        let addresses = addresses
            .map(|a| format!("{a}@{name}").parse::<NidRange>())
            .transpose()
            .map_err(|source| ParsePatternError::Addresses { pattern: pattern(), source })?;
        let large = addresses.as_ref().is_some_and(|a| a.is_all() || a.to_string().contains(':'));
        Ok(Self { kind, numbers, addresses, large })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let net = Net::new(self.kind, 0);
        match &self.addresses {
            // On network 0, whose name has no number.
            Some(addresses) => write!(f, "{addresses}")?,
            None => write!(f, "{net}")?,
        }
        match self.numbers.to_string().as_str() {
            "0" => Ok(()),
            numbers => f.write_str(numbers),
        }
    }
}

/// What a rule is about (U-3).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum RuleKind {
    /// `src`: how good local interfaces or networks are.
    Local,
    /// `dst`: how good peers' interfaces or networks are.
    Remote,
    /// `src` and `dst`: which local interfaces peers' interfaces are reached from.
    Pair,
    /// `dst` and `rte`: which routers peers' interfaces are reached through.
    Router,
    /// `rte` alone: accepted and without meaning, as in the kernel.
    Idle,
}

/// A rule of the selection policy.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rule {
    src: Option<Pattern>,
    dst: Option<Pattern>,
    rte: Option<Pattern>,
    priority: Option<u32>,
    messages: Option<NonZeroU32>,
}

/// Why a rule was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Neither src nor dst nor rte.
    #[error("a rule needs src, dst or rte")]
    Nothing,
    /// src with rte.
    #[error("src and rte cannot be combined")]
    SrcRte,
    /// All three.
    #[error("The combination of src, dst and rte is not supported")]
    All,
    /// A count of messages on a rule about routers: routes have no turns.
    #[error("{0} messages: a rule with rte takes no number of messages")]
    RouterMessages(u32),
    /// A rule about the same, with nothing different to say (U-11).
    #[error("duplicate of rule {0}")]
    Exists(usize),
    /// No rule has this index (U-12).
    #[error("no rule has index {0}")]
    NoRule(usize),
    /// The policy is full.
    #[error("limit of {0} rules reached")]
    NoSpace(usize),
}

impl RuleError {
    /// The error number that kernel LNet returns.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Nothing | Self::SrcRte | Self::All | Self::RouterMessages(_) => Errno::EINVAL,
            Self::Exists(_) => Errno::EALREADY,
            Self::NoRule(_) => Errno::ENOENT,
            Self::NoSpace(_) => Errno::ENOSPC,
        }
    }
}

impl Rule {
    /// A rule about `src`, `dst` and `rte` (U-3, U-4).
    ///
    /// `priority` 0 is the highest. Without one, a rule about `src` or `dst` alone has 0, and pair
    /// and router rules come before those with a number (DEC-27). `messages`: so many in a row go
    /// this way before the turn passes on to the next rule with a number of messages (MR-cfg-145).
    ///
    /// # Errors
    /// The combinations that mean nothing.
    pub fn new(
        src: Option<Pattern>,
        dst: Option<Pattern>,
        rte: Option<Pattern>,
        priority: Option<u32>,
        messages: Option<NonZeroU32>,
    ) -> Result<Self, RuleError> {
        match (&src, &dst, &rte) {
            (None, None, None) => return Err(RuleError::Nothing),
            (Some(_), Some(_), Some(_)) => return Err(RuleError::All),
            (Some(_), None, Some(_)) => return Err(RuleError::SrcRte),
            _ => {}
        }
        if let (Some(_), Some(n)) = (&rte, messages) {
            return Err(RuleError::RouterMessages(n.get()));
        }
        let mut rule = Self { src, dst, rte, priority, messages };
        if matches!(rule.kind(), RuleKind::Local | RuleKind::Remote) {
            rule.priority = priority.or(Some(0));
        }
        Ok(rule)
    }

    /// What the rule is about.
    pub const fn kind(&self) -> RuleKind {
        match (&self.src, &self.dst, &self.rte) {
            (Some(_), None, _) => RuleKind::Local,
            (None, Some(_), None) => RuleKind::Remote,
            (Some(_), Some(_), _) => RuleKind::Pair,
            (None, Some(_), Some(_)) => RuleKind::Router,
            (None, None, _) => RuleKind::Idle,
        }
    }

    /// Local networks or NIDs.
    pub const fn src(&self) -> Option<&Pattern> {
        self.src.as_ref()
    }

    /// Peers' networks or NIDs.
    pub const fn dst(&self) -> Option<&Pattern> {
        self.dst.as_ref()
    }

    /// Routers, by primary NID.
    pub const fn rte(&self) -> Option<&Pattern> {
        self.rte.as_ref()
    }

    /// The priority; 0 is the highest.
    pub const fn priority(&self) -> Option<u32> {
        self.priority
    }

    /// Messages in a row.
    pub const fn messages(&self) -> Option<NonZeroU32> {
        self.messages
    }

    pub(crate) fn about_the_same(&self, other: &Self) -> bool {
        (&self.src, &self.dst, &self.rte) == (&other.src, &other.dst, &other.rte)
    }

    /// Takes over what `other` says, if that is more than what is said here (U-11).
    pub(crate) fn update(&mut self, other: &Self) -> bool {
        let numbers = other.priority.is_some() == self.priority.is_some();
        let differs = (other.priority, other.messages) != (self.priority, self.messages);
        if !numbers || !differs {
            return false;
        }
        (self.priority, self.messages) = (other.priority, other.messages);
        true
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("src", &self.src), ("dst", &self.dst), ("rte", &self.rte)];
        let mut between = "";
        for (name, pattern) in parts {
            if let Some(pattern) = pattern {
                write!(f, "{between}{name} {pattern}")?;
                between = " ";
            }
        }
        if let Some(n) = self.priority {
            write!(f, " priority {n}")?;
        }
        if let Some(n) = self.messages {
            write!(f, " messages {n}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(s: &str) -> Pattern {
        s.parse().unwrap()
    }

    #[test]
    fn a_pattern_matches_networks_or_nids_but_not_both() {
        let table = [
            // pattern, NID, matches the NID, matches its network
            ("tcp", "10.0.0.1@tcp", false, true),
            ("tcp", "10.0.0.1@tcp1", false, false),
            ("tcp0", "10.0.0.1@tcp", false, true),
            ("tcp[1-3]", "10.0.0.1@tcp", false, false),
            ("tcp[1-3]", "10.0.0.1@tcp2", false, true),
            ("o2ib", "10.0.0.1@tcp", false, false),
            ("10.0.0.1@tcp", "10.0.0.1@tcp", true, false),
            ("10.0.0.1@tcp", "10.0.0.2@tcp", false, false),
            ("10.0.0.1@tcp", "10.0.0.1@tcp1", false, false),
            ("10.1.[1-5].*@tcp[1-3]", "10.1.5.77@tcp3", true, false),
            ("10.1.[1-5].*@tcp[1-3]", "10.1.6.77@tcp3", false, false),
            ("10.1.[1-5].*@tcp[1-3]", "10.1.5.77@tcp4", false, false),
            ("*@tcp", "10.1.5.77@tcp", true, false),
            ("*@tcp", "2001:db8::1@tcp", true, false),
            ("2001:db8::/64@tcp", "2001:db8::1@tcp", true, false),
            ("2001:db8::/64@tcp", "10.1.5.77@tcp", false, false),
            // The first four bytes are 32.1.13.184.
            ("32.1.13.184@tcp", "2001:db8::1@tcp", false, false),
            ("[1-4]@gni1", "3@gni1", true, false),
        ];
        for (p, nid, matches_nid, matches_net) in table {
            let nid: Nid = nid.parse().unwrap();
            assert_eq!(pattern(p).matches_nid(nid), matches_nid, "{p} and {nid}");
            assert_eq!(pattern(p).matches_net(nid.net()), matches_net, "{p} and {}", nid.net());
        }
    }

    #[test]
    fn patterns_print_as_they_are_parsed() {
        let table = [
            ("tcp", "tcp"),
            ("tcp0", "tcp"),
            ("o2ib3", "o2ib3"),
            ("tcp[1-3]", "tcp[1-3]"),
            ("10.0.0.1@tcp", "10.0.0.1@tcp"),
            ("10.0.0.*@tcp1", "10.0.0.[0-255]@tcp1"),
            ("10.77.[0-1].2@tcp[2-4]", "10.77.[0-1].2@tcp[2-4]"),
            ("2001:db8::/64@tcp", "2001:db8::/64@tcp"),
        ];
        for (given, shown) in table {
            assert_eq!(pattern(given).to_string(), shown);
            assert_eq!(pattern(shown), pattern(given));
        }
    }

    #[test]
    fn bad_patterns_are_named() {
        for bad in
            ["", "tpc", "10.0.0.1@", "10.0.0@tcp", "tcp[1-3,7]", "tcp-1", "tcp70000", "a@tcp"]
        {
            let e = bad.parse::<Pattern>().unwrap_err().to_string();
            assert!(e.contains(&format!("'{bad}'")), "{bad}: {e}");
        }
    }

    #[test]
    fn combinations_that_mean_nothing_are_refused() {
        let p = || Some(pattern("tcp"));
        let new = |src, dst, rte| Rule::new(src, dst, rte, None, None);
        assert_eq!(new(None, None, None), Err(RuleError::Nothing));
        assert_eq!(new(p(), None, p()), Err(RuleError::SrcRte));
        assert_eq!(new(p(), p(), p()), Err(RuleError::All));
        assert_eq!(new(None, None, p()).unwrap().kind(), RuleKind::Idle);
        assert_eq!(new(p(), None, None).unwrap().priority(), Some(0));
        assert_eq!(new(None, p(), None).unwrap().priority(), Some(0));
        assert_eq!(new(p(), p(), None).unwrap().priority(), None);
        let messages = NonZeroU32::new(3);
        assert_eq!(Rule::new(None, p(), p(), None, messages), Err(RuleError::RouterMessages(3)));
    }
}
