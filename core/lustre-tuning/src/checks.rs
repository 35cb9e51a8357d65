//! How a node pings routers, or, on a router, how often it expects to be pinged: three times that go
//! together (PA-133 … PA-140).

use core::fmt;
use core::str::FromStr;

use serde::Serialize;

use crate::enqueue::LONGEST;
use crate::rule::{Contradiction, Rule, within};

/// Intervals of pings and the wait for their answers, seconds. As text `LIVE/DEAD/TIMEOUT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Checks {
    /// `live_router_check_interval`.
    pub live: u32,
    /// `dead_router_check_interval`.
    pub dead: u32,
    /// `router_ping_timeout`.
    pub timeout: u32,
}

impl Checks {
    /// The longest until a dead router is found (PA-136, PA-138).
    pub const fn found_within(self) -> u32 {
        self.live.saturating_add(self.timeout)
    }

    /// On a router: when an interface without any ping is marked down (PA-070).
    pub fn down_after(self) -> u32 {
        self.live.max(self.dead).saturating_add(self.timeout)
    }

    /// The longest until a node with these checks learns that `router` has marked an interface down,
    /// with prompt answers and with slow ones (PA-072, PA-071).
    pub fn learns_within(self, router: Self) -> (u32, u32) {
        let prompt = router.down_after().saturating_add(self.live);
        (prompt, prompt.saturating_add(self.timeout))
    }

    /// What a router must have: the largest of each (PA-140).
    pub fn of_router(self, other: Self) -> Self {
        Self {
            live: self.live.max(other.live),
            dead: self.dead.max(other.dead),
            timeout: self.timeout.max(other.timeout),
        }
    }

    /// Whether a router with these values may be pinged as `other` says.
    ///
    /// # Errors
    /// [`Rule::RouterWaits`]: the router would mark an interface down although it is pinged.
    pub fn waits_for(self, role: &str, other: Self) -> Result<(), Contradiction> {
        if self.of_router(other) == self {
            return Ok(());
        }
        let what = format!("router {self}: {role} {other} needs {}", self.of_router(other));
        Err(Contradiction::new(Rule::RouterWaits, what))
    }

    /// Whether the wait for an answer covers one transmission of `lnd_timeout` seconds.
    ///
    /// # Errors
    /// [`Rule::PingWaits`]: a router would count as dead while the driver still tries.
    pub fn covers(self, role: &str, lnd_timeout: u32) -> Result<(), Contradiction> {
        if self.timeout >= lnd_timeout {
            return Ok(());
        }
        let what = format!(
            "{role} router_ping_timeout {}: the LND timeout is {lnd_timeout}",
            self.timeout
        );
        Err(Contradiction::new(Rule::PingWaits, what))
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.live, self.dead, self.timeout)
    }
}

impl FromStr for Checks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("'{text}': expected LIVE/DEAD/TIMEOUT in seconds, like 60/60/50");
        let mut parts = text.split('/').map(|part| part.parse::<u32>().map_err(|_| expected()));
        let mut next = || parts.next().unwrap_or_else(|| Err(expected()));
        let all = Self { live: next()?, dead: next()?, timeout: next()? };
        if parts.next().is_some() {
            return Err(expected());
        }
        for (name, value) in [("live", all.live), ("dead", all.dead), ("timeout", all.timeout)] {
            within(name, value, 1, LONGEST).map_err(|e| e.to_string())?;
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(text: &str) -> Checks {
        text.parse().unwrap()
    }

    #[test]
    fn pa140_a_router_has_the_largest_of_servers_and_clients() {
        let (server, client) = (checks("35/35/10"), checks("60/60/50"));
        let router = server.of_router(client);
        assert_eq!(router.to_string(), "60/60/50");
        assert_eq!(checks("70/20/10").of_router(client), checks("70/60/50"));
        assert_eq!((server.found_within(), client.found_within()), (45, 110));
        assert_eq!((router.down_after(), client.learns_within(router)), (110, (170, 220)));
    }

    #[test]
    fn values_that_contradict_each_other_are_refused_with_their_rule() {
        let e = checks("60/60/10").waits_for("client", checks("60/60/50")).unwrap_err();
        assert_eq!(
            e.to_string(),
            "router 60/60/10: client 60/60/50 needs 60/60/50: intervals and ping timeout of a router \
             must be the largest of all nodes that ping it"
        );
        let e = checks("35/35/10").covers("server", 49).unwrap_err();
        assert_eq!(
            e.to_string(),
            "server router_ping_timeout 10: the LND timeout is 49: router_ping_timeout must not be \
             below the LND timeout"
        );
        assert!(checks("35/35/10").covers("server", 10).is_ok());
    }

    #[test]
    fn texts_that_are_no_checks_are_refused() {
        for text in ["", "35", "35/35", "35/35/10/1", "a/b/c", "35/35/", "-1/1/1", "0/35/10"] {
            let e = text.parse::<Checks>().unwrap_err();
            assert!(e.contains("expected"), "{text}: {e}");
        }
    }
}
