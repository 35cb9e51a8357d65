//! Which tunables a site needs, for each role, and why: one table of rows, each with its value and its
//! reason as functions of the site. The roles of the paper are what the table says of its sites; no
//! list of them stands anywhere else.

use core::fmt;

use serde::Serialize;

use crate::checks::Checks;
use crate::enqueue::{AT_MAX, AT_MIN, EnqueueMin, LONGEST};
use crate::rule::{Contradiction, within};

/// More clients than this ping routers less often (PA-139).
pub const VERY_LARGE: u32 = 10_000;
/// The time of reconnecting that the paper measured, seconds (PA-129).
const MEASURED_SPAN: u32 = 140;
/// The clients of the system that it was measured on: nineteen cabinets.
const MEASURED_CLIENTS: u32 = 3616;
/// The targets of that system: an assumption, the paper does not say.
const ASSUMED_TARGETS: u32 = 32;
/// `timeout` and `keepalive` of ko2iblnd, seconds (PA-143).
const IB_TIMEOUT: u32 = 10;
const KEEPALIVE: u32 = 30;
/// Probes of an idle TCP connection after [`KEEPALIVE`]: how many, and their distance in seconds.
const PROBES: u32 = 5;
const PROBE_EVERY: u32 = 2;
/// `timeout` of the nodes by default, seconds (PA-012).
const OBD_TIMEOUT: u32 = 100;
/// What stands in the place of a module where no module has the parameter: `lctl` sets it.
pub(crate) const SET_PARAM: &str = "set_param";
/// The most clients and targets.
const CLIENTS_MAX: u32 = 10_000_000;
const TARGETS_MAX: u32 = 100_000;

/// A role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It uses targets.
    Client,
    /// It serves them.
    Server,
    /// It forwards between both.
    Router,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Client, Self::Server, Self::Router];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Router => "router",
        }
    }
}

/// How busy servers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Rarely: requests are served at once.
    Light,
    /// Often: requests wait.
    Heavy,
}

/// The network of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetKind {
    /// TCP.
    Tcp,
    /// InfiniBand or RoCE.
    O2ib,
    /// Aries or Gemini. The fabric stands still while its routes change.
    Gni,
}

impl NetKind {
    /// Its name, as networks are called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::O2ib => "o2ib",
            Self::Gni => "gni",
        }
    }
}

/// A site (PA-153).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Whether clients reach servers through routers.
    pub routed: bool,
    /// Clients, if that is known.
    pub clients: Option<u32>,
    /// Targets, if that is known.
    pub targets: Option<u32>,
    /// The time in which all clients reconnect to all targets after a quiesce, seconds, if it was
    /// measured.
    pub quiesce: Option<u32>,
    /// How busy servers are, if that is known.
    pub load: Option<Load>,
    /// The network of the clients.
    pub net: NetKind,
}

impl Site {
    /// Checks a site.
    ///
    /// # Errors
    /// A number out of its bounds, or values for which no timer is long enough.
    pub fn check(&self) -> Result<(), Contradiction> {
        within("clients", self.clients.unwrap_or(1), 1, CLIENTS_MAX)?;
        within("targets", self.targets.unwrap_or(1), 1, TARGETS_MAX)?;
        within("quiesce", self.quiesce.unwrap_or(0), 0, LONGEST)?;
        self.enqueue().map(|_| ())
    }

    const fn at_max(&self) -> u32 {
        match self.load {
            Some(Load::Light) => AT_MAX / 2,
            Some(Load::Heavy) => AT_MAX + AT_MAX / 2,
            None => AT_MAX,
        }
    }

    /// How the nodes of a role check routers; a router: what it expects.
    fn checks(&self, role: Role) -> Checks {
        let very_large = self.clients.is_some_and(|n| n > VERY_LARGE);
        let interval = if very_large { 120 } else { 60 };
        let client = Checks { live: interval, dead: interval, timeout: 50 };
        // A server's wait covers its LND timeout (PA-135).
        let timeout = if self.net_of_servers() == NetKind::Tcp { 50 } else { IB_TIMEOUT };
        let server = Checks { live: 35, dead: 35, timeout };
        match role {
            Role::Client => client,
            Role::Server => server,
            Role::Router => server.of_router(client),
        }
    }

    /// Behind the routers of an Aries or Gemini fabric there is InfiniBand.
    const fn net_of_servers(&self) -> NetKind {
        match self.net {
            NetKind::Gni if self.routed => NetKind::O2ib,
            net => net,
        }
    }

    fn is_on(&self, role: Role, net: NetKind) -> bool {
        match role {
            Role::Client => self.net == net,
            Role::Server => self.net_of_servers() == net,
            Role::Router => self.net == net || self.net_of_servers() == net,
        }
    }

    /// The span that the lock callback timer covers, seconds, and where it comes from: a quiesce as
    /// it was measured or, on a fabric with quiesces, as the paper did; without one the time until a
    /// dead router is found.
    fn span(&self) -> (u32, String) {
        let found = if self.routed { self.checks(Role::Client).found_within() } else { 0 };
        let router = || format!("a dead router is found within {found} s");
        match self.quiesce {
            Some(secs) if secs >= found => (secs, format!("clients are back after {secs} s")),
            None if self.net == NetKind::Gni => {
                let secs = self.scaled_span();
                let scaled = if secs > MEASURED_SPAN { ", scaled to this site" } else { "" };
                (
                    secs.max(found),
                    format!("clients are back {secs} s after a quiesce{scaled}; measure it"),
                )
            }
            _ if self.routed => (found, router()),
            // Without routers `found` is 0, so a span that was measured was taken above.
            _ => (0, "no quiesce, no routers".to_owned()),
        }
    }

    /// The paper's span for a site of this size: longer in proportion to the connects (PA-130), never
    /// shorter.
    fn scaled_span(&self) -> u32 {
        let measured = u64::from(MEASURED_CLIENTS) * u64::from(ASSUMED_TARGETS);
        let here = self.connects().unwrap_or(0).max(measured);
        let secs = (u64::from(MEASURED_SPAN) * here).div_ceil(measured);
        u32::try_from(secs).unwrap_or(u32::MAX)
    }

    /// Connects after all connections were lost, if anything is known of the size.
    fn connects(&self) -> Option<u64> {
        if self.clients.is_none() && self.targets.is_none() {
            return None;
        }
        let clients = self.clients.unwrap_or(MEASURED_CLIENTS);
        let targets = self.targets.unwrap_or(ASSUMED_TARGETS);
        Some(u64::from(clients) * u64::from(targets))
    }

    /// `timeout`, if the default is too short: a client is evicted after 1.5 times as long without a
    /// request (PA-014). A client that is idle pings every quarter of it (PA-011), so one that was cut
    /// off has been silent for a quarter more than the span.
    fn timeout(&self) -> Option<u32> {
        let least = (self.span().0.saturating_add(1)).saturating_mul(4).div_ceil(5);
        let least = least.div_ceil(20).saturating_mul(20);
        (least > OBD_TIMEOUT).then_some(least)
    }

    /// The lock callback timer, by the formula.
    fn enqueue(&self) -> Result<EnqueueMin, Contradiction> {
        EnqueueMin::of(AT_MIN, AT_MIN, self.span().0, (AT_MIN, self.at_max()))
    }
}

/// A tunable of a role: a module's parameter as kernel nodes call it, its value, the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The role.
    pub role: Role,
    /// The kernel module; `set_param` for a parameter that no module has.
    pub module: &'static str,
    /// The parameter.
    pub name: &'static str,
    /// The value: seconds, or a number.
    pub value: u32,
    /// The reason, one sentence.
    pub why: String,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { module, name, value, .. } = self;
        write!(f, "{module} {name}={value}")
    }
}

/// A row of the table: for a site and a role the value, `None` if the row is not for them; and the
/// reason.
struct Row {
    module: &'static str,
    name: &'static str,
    value: fn(&Site, Role) -> Option<u32>,
    why: fn(&Site, Role) -> String,
}

/// Routers have no requests of their own.
fn requests(role: Role, value: u32) -> Option<u32> {
    (role != Role::Router).then_some(value)
}

/// Nodes of routed sites.
fn routed(site: &Site, value: u32) -> Option<u32> {
    site.routed.then_some(value)
}

fn on(site: &Site, role: Role, net: NetKind, value: u32) -> Option<u32> {
    site.is_on(role, net).then_some(value)
}

/// Peer health acts on routers, and on no other node (PA-144, PA-146).
fn peer_timeout(role: Role, router: u32) -> u32 {
    if role == Role::Router { router } else { 0 }
}

fn peer_timeout_why(role: Role) -> String {
    match role {
        Role::Router => {
            "messages to a dead peer are dropped and leave buffers free: its timeout and keepalive"
        }
        _ => "peer health is for routers: here it drops the pings of routers",
    }
    .to_owned()
}

fn idle_why(_: &Site, _: Role) -> String {
    format!("a dead idle connection is found within {} s", KEEPALIVE + IB_TIMEOUT)
}

const TABLE: &[Row] = &[
    Row {
        module: "ptlrpc",
        name: "at_max",
        value: |site, role| requests(role, site.at_max()),
        why: |site, _| {
            let at_max = site.at_max();
            let load = match site.load {
                Some(Load::Light) => "; servers are rarely busy, so less is enough",
                Some(Load::Heavy) => "; servers are often busy, so requests need more",
                None => "",
            };
            format!("a request ends after {} s at most{load}", at_max + at_max / 4 + 5 + at_max)
        },
    },
    Row {
        module: "ptlrpc",
        name: "at_min",
        value: |_, role| requests(role, AT_MIN),
        why: |_, _| {
            "short outages cost no resend, and a lost request is noticed within 95 s".to_owned()
        },
    },
    Row {
        module: "ptlrpc",
        name: "ldlm_enqueue_min",
        value: |site, role| requests(role, site.enqueue().ok()?.seconds),
        why: |site, _| {
            let connects = site.connects().map(|n| format!(" ({n} connects)")).unwrap_or_default();
            let text = site.enqueue().map(|all| all.to_string()).unwrap_or_default();
            format!("{text}: {}{connects}; equal on clients and servers", site.span().1)
        },
    },
    Row {
        module: SET_PARAM,
        name: "timeout",
        value: |site, role| requests(role, site.timeout()?),
        why: |site, _| {
            let (silent, span) = (site.timeout().unwrap_or(OBD_TIMEOUT) / 2 * 3, site.span().0);
            format!(
                "at least: a client that is silent for {silent} s is evicted, one that was away for {span} s \
                 must not be"
            )
        },
    },
    Row {
        module: "lnet",
        name: "router_ping_timeout",
        value: |site, role| routed(site, site.checks(role).timeout),
        why: |site, role| match role {
            Role::Router => "the longest of its clients and servers".to_owned(),
            _ => {
                format!("a dead router is found within {} s", site.checks(role).found_within())
            }
        },
    },
    Row {
        module: "lnet",
        name: "live_router_check_interval",
        value: |site, role| routed(site, site.checks(role).live),
        why: |site, role| match role {
            Role::Router => {
                let after = site.checks(role).down_after();
                format!("an interface that no ping reaches is marked down after {after} s")
            }
            Role::Server => "servers are few: they may ping often".to_owned(),
            Role::Client => {
                let clients = site.clients.map(|n| {
                    let rate = f64::from(n) / f64::from(site.checks(role).live);
                    format!(": {n} clients are {rate:.0} pings a second on each router")
                });
                format!("clients are many, routers are spared{}", clients.unwrap_or_default())
            }
        },
    },
    Row {
        module: "lnet",
        name: "dead_router_check_interval",
        value: |site, role| routed(site, site.checks(role).dead),
        why: |_, role| match role {
            Role::Router => "the longest of its clients and servers".to_owned(),
            _ => "a router that is back is used after this long".to_owned(),
        },
    },
    Row {
        module: "lnet",
        name: "avoid_asym_router_failure",
        value: |site, role| routed(site, 1).filter(|_| role != Role::Router),
        why: |_, _| "a router whose far side is down is left for that network".to_owned(),
    },
    Row {
        module: "ko2iblnd",
        name: "timeout",
        value: |site, role| on(site, role, NetKind::O2ib, IB_TIMEOUT),
        why: |_, _| "a transmission that fails is reported soon".to_owned(),
    },
    Row {
        module: "ko2iblnd",
        name: "peer_timeout",
        value: |site, role| {
            on(site, role, NetKind::O2ib, peer_timeout(role, IB_TIMEOUT + KEEPALIVE))
        },
        why: |_, role| peer_timeout_why(role),
    },
    Row {
        module: "ko2iblnd",
        name: "keepalive",
        value: |site, role| {
            on(site, role, NetKind::O2ib, KEEPALIVE).filter(|_| role != Role::Router)
        },
        why: idle_why,
    },
    Row {
        module: "kgnilnd",
        name: "peer_health",
        value: |site, role| on(site, role, NetKind::Gni, u32::from(role == Role::Router)),
        why: |_, role| peer_timeout_why(role),
    },
    Row {
        module: "ksocklnd",
        name: "peer_timeout",
        value: |site, role| {
            on(site, role, NetKind::Tcp, peer_timeout(role, KEEPALIVE + PROBES * PROBE_EVERY))
        },
        why: |_, role| peer_timeout_why(role),
    },
    Row {
        module: "ksocklnd",
        name: "keepalive_idle",
        value: |site, role| on(site, role, NetKind::Tcp, KEEPALIVE),
        why: idle_why,
    },
    Row {
        module: "ksocklnd",
        name: "keepalive_intvl",
        value: |site, role| on(site, role, NetKind::Tcp, PROBE_EVERY),
        why: idle_why,
    },
    Row {
        module: "ksocklnd",
        name: "keepalive_count",
        value: |site, role| on(site, role, NetKind::Tcp, PROBES),
        why: idle_why,
    },
];

/// The tunables of all roles of a site, in the order of roles.
///
/// # Errors
/// See [`Site::check`].
pub fn advise(site: &Site) -> Result<Vec<Advice>, Contradiction> {
    site.check()?;
    let roles = Role::ALL.into_iter().filter(|role| site.routed || *role != Role::Router);
    let rows = roles.flat_map(|role| TABLE.iter().map(move |row| (role, row)));
    let all = rows.filter_map(|(role, row)| {
        let value = (row.value)(site, role)?;
        let why = (row.why)(site, role);
        Some(Advice { role, module: row.module, name: row.name, value, why })
    });
    Ok(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const CRAY: Site = Site {
        routed: true,
        clients: None,
        targets: None,
        quiesce: None,
        load: None,
        net: NetKind::Gni,
    };

    fn of(site: &Site, role: Role) -> Vec<String> {
        let mut all: Vec<String> = advise(site)
            .unwrap()
            .iter()
            .filter(|a| a.role == role)
            .map(ToString::to_string)
            .collect();
        all.sort();
        all
    }

    /// The settings of a file of the paper, as `lnet-config` reads them.
    fn paper(name: &str) -> Vec<String> {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/modprobe");
        let text = std::fs::read_to_string(format!("{dir}/{name}.conf")).unwrap();
        let (options, problems) = lnet_config::parse_modprobe(&text);
        assert_eq!(problems, []);
        let mut all: Vec<String> =
            options.iter().map(|o| format!("{} {}={}", o.module, o.name, o.value)).collect();
        all.sort();
        all
    }

    /// The same without what stands in no file of modules.
    fn of_modules(site: &Site, role: Role) -> Vec<String> {
        let mut all = of(site, role);
        all.retain(|one| !one.starts_with(SET_PARAM));
        all
    }

    #[test]
    fn the_roles_of_the_papers_routed_site_are_its_own_files() {
        for (role, file) in
            [(Role::Router, "router"), (Role::Server, "server"), (Role::Client, "aries-client")]
        {
            assert_eq!(of_modules(&CRAY, role), paper(file), "{file}");
        }
    }

    #[test]
    fn client_is_not_evicted_for_its_silence_before_the_span_of_its_site_is_over() {
        let timeout = |site: &Site| {
            let all = advise(site).unwrap();
            let of_all = all.iter().filter(|a| a.module == SET_PARAM);
            let of = |role| of_all.clone().find(|a| a.role == role).map(|a| a.value);
            assert_eq!((of(Role::Server), of(Role::Router)), (of(Role::Client), None));
            of(Role::Client)
        };
        // Those of the paper had 300.
        assert_eq!(timeout(&CRAY), Some(120));
        let tcp = Site { routed: false, net: NetKind::Tcp, ..CRAY };
        assert_eq!(timeout(&tcp), None, "the default is long enough");
        assert_eq!(timeout(&Site { routed: true, ..tcp }), None, "1.25 x 100 s cover 110 s");
        for (span, wanted) in [(124, None), (125, Some(120)), (300, Some(260)), (375, Some(320))] {
            let site = Site { quiesce: Some(span), ..tcp };
            assert_eq!(timeout(&site), wanted, "{span}");
            assert!(wanted.unwrap_or(OBD_TIMEOUT) * 5 / 4 > span, "{span}");
        }
    }

    #[test]
    fn a_client_on_the_servers_fabric_is_the_papers_file_too() {
        let site = Site { routed: false, quiesce: Some(140), net: NetKind::O2ib, ..CRAY };
        assert_eq!(of_modules(&site, Role::Client), paper("ib-client"));
        assert_eq!(of(&site, Role::Router), [] as [&str; 0]);
    }

    fn value(site: &Site, role: Role, name: &str) -> u32 {
        advise(site).unwrap().iter().find(|a| a.role == role && a.name == name).unwrap().value
    }

    #[test]
    fn pa153_each_fact_about_a_site_has_its_effect() {
        let enqueue = |site: &Site| value(site, Role::Server, "ldlm_enqueue_min");
        let tcp = Site { routed: false, net: NetKind::Tcp, ..CRAY };
        assert_eq!(enqueue(&tcp), 160, "one loss");
        assert_eq!(enqueue(&Site { routed: true, ..tcp }), 230, "110 s until a router is found");
        assert_eq!(enqueue(&Site { quiesce: Some(300), ..CRAY }), 420);
        assert_eq!(enqueue(&Site { quiesce: Some(5), ..CRAY }), 230, "routers are no faster");
        let twice = Site { clients: Some(7232), targets: Some(32), ..CRAY };
        assert_eq!(enqueue(&twice), 400, "280 s for twice as many connects");
        assert_eq!(enqueue(&Site { targets: Some(64), ..CRAY }), 400);
        assert_eq!(enqueue(&Site { clients: Some(10), ..CRAY }), 260, "never below the measured");
        let at_max = |load| value(&Site { load, ..CRAY }, Role::Client, "at_max");
        assert_eq!(
            [None, Some(Load::Light), Some(Load::Heavy)].map(at_max),
            [400, 200, 600],
            "PA-154, PA-155"
        );
        let large = Site { clients: Some(20_000), ..CRAY };
        let interval = |role| value(&large, role, "live_router_check_interval");
        assert_eq!(Role::ALL.map(interval), [120, 35, 120], "PA-139");
        assert_eq!(value(&CRAY, Role::Router, "peer_timeout"), 40, "PA-146");
    }

    #[test]
    fn what_is_advised_breaks_no_rule() {
        for net in [NetKind::Tcp, NetKind::O2ib, NetKind::Gni] {
            for clients in [None, Some(1), Some(50_000)] {
                let site = Site { net, clients, ..CRAY };
                let [client, server, router] = Role::ALL.map(|role| site.checks(role));
                router.waits_for("client", client).unwrap();
                router.waits_for("server", server).unwrap();
                let lnd = if net == NetKind::Tcp { 49 } else { IB_TIMEOUT };
                server.covers("server", lnd).unwrap();
                let enqueue = value(&site, Role::Client, "ldlm_enqueue_min");
                assert_eq!(enqueue, value(&site, Role::Server, "ldlm_enqueue_min"), "PA-132");
                assert!(enqueue >= EnqueueMin::least(AT_MIN).unwrap());
                for advice in advise(&site).unwrap() {
                    assert!(advice.why.len() > 20 && !advice.why.contains(". "), "{advice:?}");
                }
            }
        }
    }

    #[test]
    fn sites_that_can_not_be_are_refused() {
        for (site, text) in [
            (Site { clients: Some(0), ..CRAY }, "clients 0: expected 1 to 10000000"),
            (Site { targets: Some(100_001), ..CRAY }, "targets 100001: expected 1 to 100000"),
            (Site { quiesce: Some(LONGEST), ..CRAY }, "ldlm_enqueue_min 2592120: expected"),
            (
                Site { clients: Some(CLIENTS_MAX), targets: Some(TARGETS_MAX), ..CRAY },
                "quiesce 1209",
            ),
        ] {
            let e = advise(&site).unwrap_err().to_string();
            assert!(e.starts_with(text), "{e}");
        }
    }
}
