//! Who is let in: lists of peers that may connect, the accept mode, and what one address may cost.
//! Pure: what is known of a connection goes in, the reason to refuse it comes out. `driver/accept.rs`
//! asks before a byte is read, `driver/handshake.rs` again when the peer has said its name.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;
use std::collections::BTreeMap;

use lnet::{ParsePatternError, Pattern};
use lnet_types::{Net, Nid};

use crate::stats::Refusal;
use crate::tunables::{AcceptMode, CONN_BYTES, SockConfig};

/// The word for all peers, where a list is expected.
pub const ANY: &str = "any";

/// Which peers may connect, network by network. A network that no pattern is about takes
/// connections from every peer; a network with a pattern only from the peers that match.
///
/// Patterns are those of selection rules: networks (`tcp`, `tcp[1-3]`) or NIDs
/// (`10.0.[0-3].*@tcp`, `10.0.0.0/16@tcp1`, `fd00::/64@tcp`). As a text they are separated by blanks
/// or commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptFrom {
    patterns: Vec<Pattern>,
    /// Networks that were given a list of their own; an empty one accepts every peer.
    of_net: BTreeMap<Net, Vec<Pattern>>,
}

impl AcceptFrom {
    /// With these patterns.
    pub const fn new(patterns: Vec<Pattern>) -> Self {
        Self { patterns, of_net: BTreeMap::new() }
    }

    /// Gives `net` a list of its own in place of whatever it had; without patterns every peer may
    /// connect.
    pub fn set(&mut self, net: Net, patterns: Vec<Pattern>) {
        self.of_net.insert(net, patterns);
    }

    /// Takes the list of its own from `net`: what holds of it is what holds without.
    pub fn unset(&mut self, net: Net) {
        self.of_net.remove(&net);
    }

    /// The list of `net` as texts: its patterns, or `any` where a list of its own accepts the peers
    /// that the others would not. Nothing: no list names it.
    pub fn texts_of(&self, net: Net) -> Vec<String> {
        let said = self.of(net);
        if said.is_empty() && self.patterns.iter().any(|p| p.is_about(net)) {
            return vec![ANY.to_owned()];
        }
        said.iter().map(ToString::to_string).collect()
    }

    /// The list of `net`; an empty one means that every peer may connect.
    pub fn of(&self, net: Net) -> Vec<&Pattern> {
        match self.of_net.get(&net) {
            Some(own) => own.iter().collect(),
            None => self.patterns.iter().filter(|p| p.is_about(net)).collect(),
        }
    }

    /// Whether the peer `nid` may connect to an interface on `net`.
    pub fn admits(&self, net: Net, nid: Nid) -> bool {
        let said = self.of(net);
        // One that calls itself by a NID of another network is none of those that are meant.
        said.is_empty() || (nid.net() == net && said.iter().any(|p| p.covers(nid)))
    }

    fn admits_address(&self, net: Net, ip: IpAddr) -> bool {
        self.admits(net, Nid::from_ip(net, ip))
    }
}

/// Reads patterns that are separated by blanks or by commas outside of brackets.
///
/// # Errors
/// The first that is none.
pub fn parse_patterns(text: &str) -> Result<Vec<Pattern>, ParsePatternError> {
    let mut depth = 0_usize;
    let words = text.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c.is_whitespace())
    });
    words.filter(|word| !word.is_empty()).map(str::parse).collect()
}

impl FromStr for AcceptFrom {
    type Err = ParsePatternError;

    fn from_str(text: &str) -> Result<Self, ParsePatternError> {
        parse_patterns(text).map(Self::new)
    }
}

impl fmt::Display for AcceptFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, pattern) in self.patterns.iter().enumerate() {
            write!(f, "{}{pattern}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// What the connections of one remote address hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Connections in any phase, ours to it included.
    pub(crate) conns: usize,
    /// Those of them that were accepted and are in handshake.
    pub(crate) pending: usize,
    /// Bytes that were read ahead of messages without a buffer.
    pub(crate) ahead: u64,
}

impl Held {
    /// Bytes of memory.
    pub(crate) const fn bytes(&self) -> u64 {
        (self.conns as u64).saturating_mul(CONN_BYTES).saturating_add(self.ahead)
    }
}

/// Judges a connection of which no more is known than where it comes from. `nets`: those that are
/// served on the address that it came to; `pending`: handshakes of all addresses together.
pub(crate) fn judge_address(
    config: &SockConfig,
    nets: impl IntoIterator<Item = Net>,
    remote: SocketAddr,
    pending: usize,
    held: Held,
) -> Option<Refusal> {
    let limits = &config.limits;
    if config.is_privileged() && config.accept == AcceptMode::Secure && remote.port() > 1023 {
        Some(Refusal::InsecurePort)
    } else if !nets.into_iter().any(|net| config.accept_from.admits_address(net, remote.ip())) {
        Some(Refusal::AddressNotAccepted)
    } else if pending >= limits.pending_accepts
        || held.pending >= limits.pending_accepts_per_address
    {
        Some(Refusal::TooManyPending)
    } else if held.conns >= limits.connections_per_address {
        Some(Refusal::TooManyConnections)
    } else if held.bytes().saturating_add(CONN_BYTES) > limits.memory_per_address {
        Some(Refusal::TooMuchMemory)
    } else {
        None
    }
}

/// Judges a peer that has named itself and the interface of ours that it connects to.
pub(crate) fn judge_name(config: &SockConfig, own: Nid, peer: Nid) -> Option<Refusal> {
    (!config.accept_from.admits(own.net(), peer)).then_some(Refusal::NidNotAccepted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunables::Limits;

    fn list(text: &str) -> AcceptFrom {
        text.parse().unwrap()
    }

    fn net(text: &str) -> Net {
        text.parse().unwrap()
    }

    fn nid(text: &str) -> Nid {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_without_a_list_accepts_every_peer() {
        let list = list("10.0.0.[1-5,9]@tcp, 10.1.*.*@tcp 192.168.0.0/16@tcp2 tcp3");
        let table = [
            ("tcp", "10.0.0.1@tcp", true),
            ("tcp", "10.0.0.9@tcp", true),
            ("tcp", "10.0.0.6@tcp", false),
            ("tcp", "10.1.255.3@tcp", true),
            ("tcp1", "8.8.8.8@tcp1", true),
            ("tcp2", "192.168.7.7@tcp2", true),
            ("tcp2", "10.0.0.1@tcp2", false),
            ("tcp3", "8.8.8.8@tcp3", true),
            // Who calls itself by another network is not who was meant.
            ("tcp", "10.0.0.1@tcp1", false),
            ("tcp", "0@lo", false),
            ("tcp1", "10.0.0.1@tcp", true),
        ];
        for (on, peer, admitted) in table {
            assert_eq!(list.admits(net(on), nid(peer)), admitted, "{peer} to {on}");
        }
        assert_eq!(
            list.to_string(),
            "10.0.0.[1-5,9]@tcp,10.1.[0-255].[0-255]@tcp,192.168.0.0/16@tcp2,tcp3"
        );
        assert!(AcceptFrom::default().admits(net("tcp"), nid("1.2.3.4@tcp")));
    }

    #[test]
    fn a_list_of_its_own_replaces_what_a_network_had_and_no_other() {
        let mut list = list("10.0.0.1@tcp[0-1]");
        list.set(net("tcp1"), parse_patterns("10.9.9.9@tcp1").unwrap());
        assert!(list.admits(net("tcp"), nid("10.0.0.1@tcp")));
        assert!(!list.admits(net("tcp1"), nid("10.0.0.1@tcp1")));
        assert!(list.admits(net("tcp1"), nid("10.9.9.9@tcp1")));
        list.set(net("tcp1"), Vec::new());
        assert!(list.admits(net("tcp1"), nid("10.0.0.7@tcp1")));
        assert!(!list.admits(net("tcp"), nid("10.0.0.7@tcp")));
    }

    #[test]
    fn words_that_are_no_patterns_are_named() {
        for bad in ["frog", "10.0.0.1@frog", "10.0.0.[1-@tcp", "10.0.0.1@tcp,nonsense"] {
            let e = bad.parse::<AcceptFrom>().unwrap_err().to_string();
            assert!(e.contains("pattern '"), "{bad}: {e}");
        }
        assert_eq!(list(" , "), AcceptFrom::default());
    }

    #[test]
    fn an_address_is_judged_by_port_list_and_what_it_holds_already() {
        let limits = Limits {
            pending_accepts: 10,
            pending_accepts_per_address: 4,
            connections_per_address: 6,
            memory_per_address: 8 * CONN_BYTES,
            ..Limits::default()
        };
        let config =
            SockConfig { limits, accept_from: list("10.0.0.*@tcp"), ..SockConfig::default() };
        let judge = |from: &str, pending, held| {
            let nets = [net("tcp")];
            judge_address(&config, nets, from.parse().unwrap(), pending, held)
        };
        let none = Held::default();
        let table = [
            ("10.0.0.1:1023", 0, none, None),
            ("10.0.0.1:1024", 0, none, Some(Refusal::InsecurePort)),
            ("10.0.1.1:1023", 0, none, Some(Refusal::AddressNotAccepted)),
            ("10.0.0.1:1023", 10, none, Some(Refusal::TooManyPending)),
            ("10.0.0.1:1023", 9, none, None),
            ("10.0.0.1:1023", 4, Held { pending: 4, ..none }, Some(Refusal::TooManyPending)),
            ("10.0.0.1:1023", 0, Held { conns: 5, ..none }, None),
            ("10.0.0.1:1023", 0, Held { conns: 6, ..none }, Some(Refusal::TooManyConnections)),
            ("10.0.0.1:1023", 0, Held { conns: 1, ahead: 6 * CONN_BYTES, ..none }, None),
            (
                "10.0.0.1:1023",
                0,
                Held { conns: 1, ahead: 6 * CONN_BYTES + 1, ..none },
                Some(Refusal::TooMuchMemory),
            ),
        ];
        for (from, pending, held, want) in table {
            assert_eq!(judge(from, pending, held), want, "{from} {pending} {held:?}");
        }
        // One of several networks on the address is enough; which of them it connects to, it has
        // yet to say.
        let nets = [net("tcp"), net("tcp1")];
        let elsewhere = "8.8.8.8:1000".parse().unwrap();
        assert_eq!(judge_address(&config, nets, elsewhere, 0, none), None);
        assert_eq!(
            judge_name(&config, nid("10.0.0.1@tcp"), nid("8.8.8.8@tcp")),
            Some(Refusal::NidNotAccepted)
        );
        assert_eq!(judge_name(&config, nid("10.0.0.1@tcp1"), nid("8.8.8.8@tcp1")), None);
    }
}
