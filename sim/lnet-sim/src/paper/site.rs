//! A site before and after an advice (`lustre-tuning`): its tunables are played as profile `documents` has
//! them, and again as the advice says, in events that such a site has. Small: the advice holds for
//! relations of times, which do not change with the number of clients.

use core::fmt::Write as _;

use lnet_scenario::{Change, Scenario, parse_changed};
use lustre_tuning::{Advice, NetKind, Role, Site, advise};

use super::watch::{SiteRun, watch_site};

/// Clients that crash, before each event.
const CRASHING: u32 = 3;
/// Most targets that are played, on [`SERVERS`] nodes.
const TARGETS: u32 = 4;
const SERVERS: u32 = 2;
/// Routers of a routed site.
const ROUTERS: u32 = 4;
/// When the event begins, seconds.
const EVENT: u32 = 200;
/// Most seconds that clients are away in a play.
const AWAY_MAX: u32 = 1800;
/// An outage is tried with so many lengths.
const LENGTHS: u32 = 8;

/// What an event costs a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofEvent {
    /// What happens.
    pub what: String,
    /// With the defaults of profile `documents`.
    pub defaults: SiteRun,
    /// With the advice.
    pub advised: SiteRun,
}

/// A site with and without an advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Clients that live, of those that are played.
    pub clients: u32,
    /// Clients that crash.
    pub crashing: u32,
    /// Targets that are played.
    pub targets: u32,
    /// Nodes that serve them.
    pub servers: u32,
    /// Routers; 0: clients reach servers without.
    pub routers: u32,
    /// Seed of all plays.
    pub seed: u64,
    /// The events.
    pub events: Vec<ProofEvent>,
}

impl Proof {
    /// Whether the advice keeps its promise: no client that lives is evicted, each that has crashed is.
    pub fn holds(&self) -> bool {
        self.events.iter().all(|e| e.advised.evicted == 0 && e.advised.dead_left == 0)
    }
}

/// A network of the world, by its name there.
type NetName = &'static str;

/// The networks of clients and of servers; the same if there are no routers.
fn nets(site: &Site) -> [(NetName, NetKind); 2] {
    let kind = site.net;
    let near = kind.name();
    match (site.routed, kind) {
        (false, _) => [(near, kind); 2],
        (true, NetKind::Gni) => [(near, kind), ("o2ib", NetKind::O2ib)],
        (true, NetKind::O2ib) => [(near, kind), ("o2ib1", kind)],
        (true, NetKind::Tcp) => [(near, kind), ("tcp1", kind)],
    }
}

/// The networks that nodes of a role are on.
fn nets_of(site: &Site, role: Role) -> Vec<(NetName, NetKind)> {
    let [near, far] = nets(site);
    match role {
        Role::Client => vec![near],
        Role::Server => vec![far],
        Role::Router => vec![near, far],
    }
}

/// Tables of nodes in a role.
const fn tables_of(role: Role) -> &'static [&'static str] {
    match role {
        Role::Client => &["client", "crash"],
        Role::Server => &["server"],
        Role::Router => &["router"],
    }
}

/// Drivers as their modules have them by default.
const fn net_text(kind: NetKind) -> &'static str {
    match kind {
        NetKind::Tcp => {
            "latency = \"50us\"\nbandwidth = \"10Gbit/s\"\ntimeout = \"50s\"\nkeepalive = \"30s\""
        }
        NetKind::O2ib => {
            "latency = \"5us\"\nbandwidth = \"40Gbit/s\"\ntimeout = \"50s\"\nkeepalive = \"100s\""
        }
        NetKind::Gni => {
            "transport = \"gni\"\nlatency = \"2us\"\nbandwidth = \"80Gbit/s\"\ntimeout = \"60s\"\n\
             fast_reconnect = true\nnode_events = \"500ms\""
        }
    }
}

/// How many there are of each kind.
#[derive(Clone, Copy, Debug)]
struct Scale {
    clients: u32,
    targets: u32,
}

/// The world of a site with the defaults of the documents, and one event.
fn text(site: &Site, scale: Scale, event: &Event) -> String {
    let Event { faults, still, .. } = event;
    let [near, far] = nets(site);
    let duration = 700 + 2 * still;
    let mut text = format!(
        "name = \"site\"\nduration = \"{duration}s\"\nprofile = \"documents\"\n[rpc]\nprofile = \"documents\"\n"
    );
    let both = [near, far];
    for (name, kind) in both.iter().take(if site.routed { 2 } else { 1 }) {
        // Writing to a text does not fail.
        let _ = writeln!(text, "[[net]]\nname = \"{name}\"\n{}", net_text(*kind));
    }
    let routers = if site.routed { ROUTERS } else { 0 };
    let counts = [
        ("client", Role::Client, scale.clients),
        ("crash", Role::Client, CRASHING),
        ("router", Role::Router, routers),
        ("server", Role::Server, SERVERS),
    ];
    for (table, role, count) in counts.into_iter().filter(|(.., count)| *count > 0) {
        let on = nets_of(site, role);
        let list = |item: fn(&str) -> String| {
            on.iter().map(|(name, _)| item(name)).collect::<Vec<_>>().join(", ")
        };
        let rails = list(|name| format!("\"{name}\""));
        let own = list(|name| format!("{{ name = \"{name}\", peer_timeout = 180 }}"));
        let _ = writeln!(
            text,
            "[[node]]\nname = \"{table}\"\ncount = {count}\nrails = [{rails}]\nnets = [{own}]\n\
             tunables = {{ discovery = 0 }}"
        );
        let far_of_role = match role {
            Role::Client => far.0,
            _ => near.0,
        };
        if role == Role::Router {
            let _ = writeln!(text, "router = true");
        } else if site.routed {
            let _ =
                writeln!(text, "routes = [{{ net = \"{far_of_role}\", gateway = \"router\" }}]");
        }
    }
    for n in 0..scale.targets {
        let server = n * SERVERS / scale.targets + 1;
        let _ = writeln!(
            text,
            "[[target]]\nname = \"ost-{n}\"\nkind = \"lock\"\non = \"server-{server}\""
        );
    }
    let to: Vec<String> = (0..scale.targets).map(|n| format!("\"ost-{n}\"")).collect();
    let names = (scale.clients * 3 / 4).max(1);
    let _ = writeln!(
        text,
        "[[client]]\non = [\"client\", \"crash\"]\n[[workload]]\nkind = \"lock\"\nfrom = [\"client\", \"crash\"]\n\
         to = [{}]\nnames = {names}\nmodes = [\"PR\", \"PW\"]\nhold = \"2s\"\nio = \"1s\"\nwindow = 1\n\
         think = \"20s\"\nuntil = \"{}s\"\n[[fault]]\nat = \"{}s\"\nkind = \"kill\"\non = \"crash\"\n{faults}",
        to.join(", "),
        duration - 200,
        EVENT - 50,
    );
    text
}

/// Where an advised value stands in such a text. `keepalive_intvl` and `keepalive_count` have no place: a
/// driver of the simulator waits for the answer to one probe as long as for a transmission.
fn changes(site: &Site, advice: &Advice) -> Vec<(String, String)> {
    let Advice { role, module, name, value, .. } = advice;
    let kind = match *module {
        "ko2iblnd" => Some(NetKind::O2ib),
        "ksocklnd" => Some(NetKind::Tcp),
        "kgnilnd" => Some(NetKind::Gni),
        _ => None,
    };
    let seconds = format!("{value}s");
    let on = nets_of(site, *role);
    let of_module = || on.iter().enumerate().filter(|(_, (_, k))| Some(*k) == kind);
    let net = |key: &str| {
        let place = |(_, (net, _)): (usize, &(NetName, NetKind))| {
            (format!("net.{net}.{key}"), seconds.clone())
        };
        of_module().map(place).collect()
    };
    let own = |value: u32| {
        let tables = tables_of(*role).iter();
        let place = move |n: usize, table: &str| format!("node.{table}.nets.{n}.peer_timeout");
        tables
            .flat_map(|table| of_module().map(move |(n, _)| (place(n, table), value.to_string())))
            .collect()
    };
    match (*module, *name) {
        ("ptlrpc", name) => vec![(format!("rpc.{name}"), seconds)],
        ("set_param", "timeout") => vec![
            ("rpc.obd_timeout".to_owned(), seconds),
            // As kernel nodes derive it.
            ("rpc.ping_interval".to_owned(), format!("{}s", value / 4)),
        ],
        ("lnet", name) => {
            let place = |table: &&str| (format!("node.{table}.tunables.{name}"), value.to_string());
            tables_of(*role).iter().map(place).collect()
        }
        (_, "timeout") => net("timeout"),
        (_, "keepalive" | "keepalive_idle") => net("keepalive"),
        (_, "peer_timeout") => own(*value),
        // The fabric says who is dead: all that is asked of the node is to look.
        ("kgnilnd", "peer_health") => own(*value),
        _ => Vec::new(),
    }
}

/// Something that befalls a site.
struct Event {
    what: String,
    faults: String,
    /// How long the network stands still, seconds.
    still: u32,
}

/// The network of the clients stands still for so long.
fn outage(site: &Site, still: u32) -> Event {
    let net = nets(site)[0].0;
    Event {
        what: format!("the network stands still for {still} s"),
        faults: format!(
            "[[fault]]\nat = \"{EVENT}s\"\nfor = \"{still}s\"\nkind = \"quiesce\"\nnets = \"{net}\"\n"
        ),
        still,
    }
}

/// Events of each site like this one, whatever was measured there.
fn events(site: &Site) -> Vec<Event> {
    let mut all = vec![
        outage(site, 15),
        Event {
            what: "a server is cut off for 30 s".to_owned(),
            faults: format!(
                "[[fault]]\nat = \"{EVENT}s\"\nfor = \"30s\"\nkind = \"drop\"\non = \"server-1\"\nshare = \"100%\"\n"
            ),
            still: 30,
        },
    ];
    if site.routed {
        all.push(Event {
            what: "a router dies".to_owned(),
            faults: format!("[[fault]]\nat = \"{EVENT}s\"\nkind = \"kill\"\non = \"router-1\"\n"),
            still: 0,
        });
    }
    if site.net == NetKind::Gni {
        let link = |at: u32, node: u32, secs: u32| {
            format!(
                "[[fault]]\nat = \"{at}s\"\nkind = \"link_event\"\non = \"client-{node}\"\nquiesce = \"{secs}s\"\n"
            )
        };
        all.push(Event {
            what: "two link events: quiesces of 15 s and 10 s".to_owned(),
            faults: link(EVENT, 1, 15) + &link(EVENT + 22, 2, 10),
            still: 32,
        });
    }
    all
}

/// A site that is played.
struct Play<'a> {
    site: &'a Site,
    scale: Scale,
    advice: &'a [Advice],
    seed: u64,
}

impl Play<'_> {
    /// The scenario of an event, with the changes of an advice or with none.
    fn scenario(&self, event: &Event, advice: &[Advice]) -> Result<Scenario, String> {
        let text = text(self.site, self.scale, event);
        let changes = advice.iter().flat_map(|one| changes(self.site, one));
        let changes = changes.map(|(place, value)| Change::new(&place, &value));
        let changes: Vec<Change> = changes.collect::<Result<_, _>>()?;
        parse_changed("site", &text, &[], &changes).map_err(|e| e.to_string())
    }

    fn run(&self, event: &Event, advice: &[Advice]) -> Result<SiteRun, String> {
        watch_site(self.scenario(event, advice)?, self.seed, self.scale.clients)
    }

    fn both(&self, event: Event) -> Result<ProofEvent, String> {
        let (defaults, advised) = (self.run(&event, &[])?, self.run(&event, self.advice)?);
        Ok(ProofEvent { what: event.what, defaults, advised })
    }

    /// The longest outage, in eighths of the span that was measured, after which the clients of the site
    /// as advised are back within that span; at least one eighth.
    fn measured(&self, span: u32) -> Result<ProofEvent, String> {
        let mut eighth = LENGTHS;
        loop {
            let event = outage(self.site, (span * eighth / LENGTHS).max(1));
            let advised = self.run(&event, self.advice)?;
            let in_time = advised.span.is_none_or(|back| back.as_secs() <= u64::from(span));
            if !in_time && eighth > 1 {
                eighth -= 1;
                continue;
            }
            let defaults = self.run(&event, &[])?;
            return Ok(ProofEvent { what: event.what, defaults, advised });
        }
    }
}

/// Plays a site in its events, with defaults and as advised: at most so many clients of it.
///
/// # Errors
/// Values of the site that contradict each other, or a span that is too long to be played.
pub fn prove(site: &Site, clients: u32, seed: u64) -> Result<Proof, String> {
    let advice = advise(site).map_err(|e| e.to_string())?;
    if let Some(long) = site.quiesce.filter(|span| *span > AWAY_MAX) {
        return Err(format!("quiesce {long}: limit of a play is {AWAY_MAX} s"));
    }
    let scale = Scale {
        clients: clients.min(site.clients.unwrap_or(u32::MAX)).max(2),
        targets: TARGETS.min(site.targets.unwrap_or(u32::MAX)),
    };
    let play = Play { site, scale, advice: &advice, seed };
    let all = events(site).into_iter().map(|event| play.both(event));
    let mut events = all.collect::<Result<Vec<_>, String>>()?;
    if let Some(span) = site.quiesce.filter(|span| *span > 0) {
        events.push(play.measured(span)?);
    }
    Ok(Proof {
        clients: scale.clients,
        crashing: CRASHING,
        targets: scale.targets,
        servers: SERVERS,
        routers: if site.routed { ROUTERS } else { 0 },
        seed,
        events,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites() -> impl Iterator<Item = Site> {
        let nets = [NetKind::Tcp, NetKind::O2ib, NetKind::Gni];
        nets.into_iter().flat_map(|net| {
            [false, true].map(|routed| Site {
                routed,
                clients: None,
                targets: None,
                quiesce: Some(300),
                load: None,
                net,
            })
        })
    }

    #[test]
    fn each_advised_value_but_those_of_further_probes_has_its_place_in_the_play() {
        for site in sites() {
            for one in advise(&site).unwrap() {
                let places = changes(&site, &one);
                let without = ["keepalive_intvl", "keepalive_count"].contains(&one.name);
                assert_eq!(places.is_empty(), without, "{site:?} {one:?}");
            }
        }
    }

    #[test]
    fn each_event_of_each_site_is_a_scenario_with_and_without_the_advice() {
        let scale = Scale { clients: 4, targets: 4 };
        for site in &sites().collect::<Vec<_>>() {
            let advice = advise(site).unwrap();
            let play = Play { site, scale, advice: &advice, seed: 1 };
            for event in events(site) {
                let before = play.scenario(&event, &[]).unwrap();
                let after = play.scenario(&event, &advice).unwrap();
                assert_ne!(before, after, "{}", event.what);
                let timer = after.rpc.tunables.ldlm_enqueue_min.as_secs();
                let of = advice.iter().find(|a| a.name == "ldlm_enqueue_min").unwrap();
                assert_eq!(timer, u64::from(of.value), "{}", event.what);
            }
        }
    }
}
