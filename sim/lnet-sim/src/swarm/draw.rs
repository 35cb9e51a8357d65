//! Draws a scenario, as a text. Each knob is at rest more often than not, so that faults come in
//! unusual mixtures rather than all at once.

use core::fmt::Write as _;

use lnet::{Conduct, Profile};
use lnet_types::Prng;

/// Seconds before the first fault: peers discover each other.
const PEACE: u64 = 4;
/// Seconds of peace after the last fault. An interface at health 0 comes back in steps of 100, one
/// for each recovery ping, and these are up to 5 s apart; see also `model.rs`, `SETTLED`.
const CALM: u64 = 130;

/// One round in so many is played byte by byte, which takes several times as long.
const BYTES_ONE_IN: u64 = 8;

/// Drawn apart, so that the other rounds are what they are.
fn at_byte_level(seed: u64) -> bool {
    Prng::new(seed ^ 0xB17E_5EED).one_in(BYTES_ONE_IN)
}

/// Whether networks of InfiniBand are RDMA in a round at byte level; drawn apart as well.
fn has_rdma(seed: u64) -> bool {
    Prng::new(seed ^ 0x02B1_0987).one_in(2)
}

/// The names of networks, and those of a round on RDMA alone.
const NETS: [&str; 3] = ["tcp", "o2ib", "tcp1"];
const RDMA_NETS: [&str; 3] = ["o2ib", "o2ib1", "o2ib2"];

/// The text of the scenario of this seed, on networks of any kind or on RDMA alone.
pub(super) fn text(seed: u64, rdma_alone: bool) -> String {
    let mut rng = Prng::new(seed);
    let bytes = rdma_alone || at_byte_level(seed);
    let rdma = bytes && (rdma_alone || has_rdma(seed));
    let names = if rdma_alone { RDMA_NETS } else { NETS };
    let mut drawn = Drawing { names, bytes, rdma, ..Drawing::default() };
    let rage = PEACE + 2 + rng.below(24);
    let profile = ["default", "default", "kernel", "pre-2.13", "off"][rng.below(5) as usize];
    let conduct = conduct_of(profile, &flipped(seed, profile));
    drawn.line(&format!("name = \"swarm-{seed}\"\nseed = {seed}\nduration = \"{}s\"", rage + CALM));
    drawn.line(&format!("profile = \"{profile}\""));
    if bytes {
        drawn.line("fidelity = \"bytes\"");
    }
    tunables(&mut drawn, &mut rng, profile);
    flips(&mut drawn, &flipped(seed, profile));
    if rng.one_in(3) {
        routed(&mut drawn, &mut rng);
        drawn.jams = !conduct.sends_during_rediscovery;
    } else {
        flat(&mut drawn, &mut rng);
    }
    for n in 0..1 + rng.below(3) {
        workload(&mut drawn, &mut rng, n == 0);
    }
    let faults = if rng.one_in(12) { 0 } else { 1 + rng.below(6) };
    for _ in 0..faults {
        fault(&mut drawn, &mut rng, rage);
    }
    if rdma {
        let mut rng = Prng::new(seed ^ 0x0ADA_97E2);
        for _ in 0..rng.below(3) {
            adapter_fault(&mut drawn, &mut rng, rage);
        }
    }
    // Drawn apart as well.
    let mut rng = Prng::new(seed ^ 0x0BE2_A702);
    if rng.one_in(3) {
        for n in 0..1 + rng.below(3) {
            operated(&mut drawn, &mut rng, rage, n, (profile, &conduct));
        }
    }
    drawn.text
}

/// A text in the making, and what it has named so far.
#[derive(Default)]
struct Drawing {
    text: String,
    /// Names of networks.
    names: [&'static str; 3],
    /// Rails that a fault may be on.
    places: Vec<String>,
    /// Their networks.
    nets: Vec<String>,
    /// Nodes: name, and whether programs run there.
    nodes: Vec<(String, bool)>,
    /// It is played byte by byte.
    bytes: bool,
    /// Networks of InfiniBand are RDMA.
    rdma: bool,
    /// Routers that programs who try again at once would keep busy for ever (`model::jams`).
    jams: bool,
}

impl Drawing {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn node(&mut self, name: &str, programs: bool, rails: &[&str], rest: &str) {
        let list: Vec<String> = rails.iter().map(|r| format!("\"{r}\"")).collect();
        let list = list.join(", ");
        self.line(&format!("\n[[node]]\nname = \"{name}\"\nrails = [{list}]\n{rest}"));
        self.nodes.push((name.to_owned(), programs));
        for (n, net) in rails.iter().enumerate() {
            self.places.push(format!("{name}/{n}"));
            self.nets.push((*net).to_owned());
        }
    }

    /// Whether a network is RDMA.
    fn is_rdma(&self, net: &str) -> bool {
        self.rdma && (net == "o2ib" || self.names == RDMA_NETS)
    }

    fn tune(&mut self, node: &str, at: u64, setting: &str) {
        self.line(&format!(
            "\n[[fault]]\nkind = \"tune\"\nat = \"{at}ms\"\non = \"{node}\"\n\
             tunables = {{ {setting} }}\n"
        ));
    }

    /// Whether another interface of this node would be a gateway without a route, whose messages
    /// nodes are set to drop: their operator has to add routes first.
    fn is_unknown_gateway(&self, node: &str) -> bool {
        let sets = |setting: &str| self.text.lines().any(|line| line == setting);
        let router = self.nodes.iter().any(|(name, programs)| name == node && !programs);
        router && sets("drop_asym_route = 1") && sets("discovery = 0")
    }

    fn any_node(&self, rng: &mut Prng) -> String {
        self.nodes[rng.below(self.nodes.len() as u64) as usize].0.clone()
    }

    fn any_place(&self, rng: &mut Prng) -> String {
        match rng.below(4) {
            0 => self.any_node(rng),
            _ => self.places[rng.below(self.places.len() as u64) as usize].clone(),
        }
    }
}

/// Rows of the conduct table that are other than the profile's, where the seed asks for some
/// ([`super::seed_of`]).
fn flipped(seed: u64, profile: &str) -> Vec<(&'static str, &'static str)> {
    let mut rng = Prng::new(seed ^ 0xC0_4D0C_7AB1);
    let original = conduct_of(profile, &[]);
    let mut flips: Vec<(&str, &str)> = Vec::new();
    if seed & 0xFF != super::FLIPS {
        return flips;
    }
    for _ in 0..1 + rng.below(2) {
        let row = &Conduct::TABLE[rng.below(Conduct::TABLE.len() as u64) as usize];
        // Without recovery nothing that has lost health is ever at full health again.
        let others = row.choices.iter().copied().filter(|c| original.get(row.name) != Some(*c));
        let others: Vec<_> =
            others.filter(|c| (row.name, *c) != ("recovery_pace", "off")).collect();
        let value = others[rng.below(others.len() as u64) as usize];
        if flips.iter().all(|(name, _)| *name != row.name) {
            flips.push((row.name, value));
        }
    }
    flips
}

fn conduct_of(profile: &str, flips: &[(&str, &str)]) -> Conduct {
    let mut conduct = Conduct::new(Profile::from_name(profile).unwrap_or_default());
    for (row, value) in flips {
        // Rows and values are the table's.
        let _ = conduct.set(row, value);
    }
    conduct
}

fn flips(drawn: &mut Drawing, flips: &[(&str, &str)]) {
    if flips.is_empty() {
        return;
    }
    drawn.line("\n[conduct]");
    for (row, value) in flips {
        drawn.line(&match *value {
            "yes" => format!("{row} = true"),
            "no" => format!("{row} = false"),
            word => format!("{row} = \"{word}\""),
        });
    }
}

fn tunables(drawn: &mut Drawing, rng: &mut Prng, profile: &str) {
    // No run waits for hours in virtual time either.
    let mut set = vec![
        "max_recovery_ping_interval = 4".to_owned(),
        "alive_router_check_interval = 4".to_owned(),
        "router_ping_timeout = 3".to_owned(),
    ];
    if profile == "kernel" {
        set.push(format!("transaction_timeout = {}", 5 + rng.below(10)));
    }
    if profile == "pre-2.13" {
        set.push("recovery_step = 100".to_owned());
        // It has intervals of its own, of a minute, and a router that opens after them (a row of
        // another profile) would open when the programs expect it to forward.
        set.push("live_router_check_interval = 4".to_owned());
        set.push("dead_router_check_interval = 4".to_owned());
    }
    for (name, value) in [
        ("discovery", 0),
        ("retry_count", rng.below(4)),
        ("health_range", rng.below(500)),
        ("exclude_at_zero", 1),
        ("check_routers_before_use", 1),
        ("drop_asym_route", 1),
        ("flap_hold_down", rng.below(12)),
    ] {
        // Without health nothing is sent again.
        let refused = name == "retry_count" && profile == "off";
        if rng.one_in(8) && !refused {
            set.push(format!("{name} = {value}"));
        }
    }
    drawn.line(&format!("\n[tunables]\n{}", set.join("\n")));
}

fn net(drawn: &mut Drawing, rng: &mut Prng, name: &str) {
    let mut text = format!("\n[[net]]\nname = \"{name}\"\n");
    let mut put = |key: &str, value: &str| {
        let _ = writeln!(text, "{key} = {value}");
    };
    match rng.below(4) {
        0 => put("latency", "\"1ms\""),
        1 => put("latency", "\"5us\""),
        _ => {}
    }
    if rng.one_in(4) {
        put("jitter", "\"200us\"");
    }
    if rng.one_in(3) {
        put("bandwidth", "\"1Gbit/s\"");
    }
    if rng.one_in(4) {
        put("peer_credits", &(1 + rng.below(4)).to_string());
        put("credits", &(8 + rng.below(8)).to_string());
    }
    if rng.one_in(6) && !drawn.bytes {
        put("transport", "\"datagram\"");
    }
    if drawn.is_rdma(name) {
        put("transport", "\"rdma\"");
    }
    drawn.line(&text);
}

fn flat(drawn: &mut Drawing, rng: &mut Prng) {
    let names = drawn.names;
    let nets = 1 + rng.below(3) as usize;
    for name in names.iter().take(nets) {
        net(drawn, rng, name);
    }
    for n in 0..2 + rng.below(5) {
        // All have a rail on the first, so that they can meet.
        let mut rails = vec![names[0]];
        for _ in 0..rng.below(3) {
            rails.push(names[rng.below(nets as u64) as usize]);
        }
        drawn.node(&format!("n{n}"), true, &rails, "");
    }
}

fn routed(drawn: &mut Drawing, rng: &mut Prng) {
    let [near, far, _] = drawn.names;
    for name in [near, far] {
        net(drawn, rng, name);
    }
    let routers = 1 + rng.below(3);
    let names: Vec<String> = (0..routers).map(|n| format!("\"r{n}\"")).collect();
    let gateways = names.join(", ");
    let route = |net: &str| format!("routes = [{{ net = \"{net}\", gateway = [{gateways}] }}]\n");
    for n in 0..routers {
        let few = rng.one_in(3);
        let buffers = match few {
            true => "tunables = { tiny_buffers = 512, small_buffers = 256, large_buffers = 32 }\n",
            false => "",
        };
        drawn.node(&format!("r{n}"), false, &[near, far], &format!("router = true\n{buffers}"));
    }
    for n in 0..1 + rng.below(3) {
        let rails = if rng.one_in(3) { &[near, near][..] } else { &[near] };
        drawn.node(&format!("c{n}"), true, rails, &route(far));
    }
    for n in 0..1 + rng.below(3) {
        let rails = if rng.one_in(3) { &[far, far][..] } else { &[far] };
        drawn.node(&format!("s{n}"), true, rails, &route(near));
    }
}

fn workload(drawn: &mut Drawing, rng: &mut Prng, first: bool) {
    let ends: Vec<String> =
        drawn.nodes.iter().filter(|n| n.1).map(|n| format!("\"{}\"", n.0)).collect();
    let from = rng.below(ends.len() as u64) as usize;
    let to = (from + 1 + rng.below(ends.len() as u64 - 1) as usize) % ends.len();
    let all = format!("[{}]", ends.join(", "));
    let (from, to) = match rng.below(3) {
        0 => (all.clone(), all),
        1 => (all, ends[to].clone()),
        _ => (ends[from].clone(), ends[to].clone()),
    };
    let kind = match (first, rng.below(4)) {
        (true, _) | (_, 0) => "request",
        (_, 1) => "put",
        (_, 2) => "get",
        _ => "ping",
    };
    const SIZES: [u64; 6] = [0, 1, 511, 4096, 65_536, 1 << 20];
    let mut size = || SIZES[rng.below(SIZES.len() as u64) as usize];
    let (size, reply) = (size(), size());
    let mut text = format!("\n[[workload]]\nkind = \"{kind}\"\nfrom = {from}\nto = {to}\n");
    let mut put = |key: &str, value: &str| {
        let _ = writeln!(text, "{key} = {value}");
    };
    if kind != "ping" {
        put("size", &size.to_string());
    }
    if kind == "request" {
        put("reply", &reply.to_string());
    }
    if kind == "put" && rng.one_in(3) {
        put("ack", "false");
    }
    match rng.below(3) {
        0 => put("pairing", "\"all\""),
        1 => put("pairing", "\"random\""),
        _ => {}
    }
    // Large messages are copied and looked at: few of them say as much as many.
    let slow = if size.max(reply) > 100_000 { 10 } else { 1 };
    match rng.below(2) {
        0 => put("every", &format!("\"{}ms\"", (50 + rng.below(400)) * slow)),
        _ => {
            put("window", &(1 + rng.below(8)).to_string());
            put("think", &format!("\"{}ms\"", (100 + rng.below(400)) * slow));
        }
    }
    put("timeout", &format!("\"{}s\"", 6 + rng.below(10)));
    let retries = ["0", "3", "40"][rng.below(3) as usize];
    put("retries", if drawn.jams { "0" } else { retries });
    drawn.line(&text);
}

fn fault(drawn: &mut Drawing, rng: &mut Prng, rage: u64) {
    const KINDS: [&str; 18] = [
        "cut",
        "cut",
        "partition",
        "quiesce",
        "carrier",
        "flap",
        "refuse",
        "reset",
        "loss",
        "corrupt",
        "duplicate",
        "reorder",
        "drop",
        "delay",
        "slow",
        "kill",
        "pause",
        "memory",
    ];
    let kind = match rng.below(KINDS.len() as u64 + 2) {
        n if (n as usize) < KINDS.len() => KINDS[n as usize],
        n if n as usize == KINDS.len() => "drift",
        _ => "ni_del",
    };
    let at = PEACE * 1000 + rng.below((rage - PEACE - 1) * 1000);
    let most =
        (rage * 1000 - at).min(if kind == "quiesce" || kind == "pause" { 10_000 } else { 30_000 });
    let length = 1 + rng.below(most);
    let mut text = format!("\n[[fault]]\nkind = \"{kind}\"\nat = \"{at}ms\"\n");
    let mut put = |key: &str, value: &str| {
        let _ = writeln!(text, "{key} = {value}");
    };
    if kind != "reset" {
        put("for", &format!("\"{length}ms\""));
    }
    let share = |rng: &mut Prng| format!("\"{}%\"", [1, 5, 20, 50, 100][rng.below(5) as usize]);
    match kind {
        "quiesce" => {}
        "partition" => {
            let at = 1 + rng.below(drawn.nodes.len() as u64 - 1) as usize;
            let side = |nodes: &[(String, bool)]| {
                let names: Vec<String> = nodes.iter().map(|n| format!("\"{}\"", n.0)).collect();
                format!("[{}]", names.join(", "))
            };
            let (one, other) = drawn.nodes.split_at(at);
            put("sides", &format!("[{}, {}]", side(one), side(other)));
        }
        "kill" | "pause" | "memory" => put("on", &format!("\"{}\"", drawn.any_node(rng))),
        "drift" => {
            put("on", &format!("\"{}\"", drawn.any_node(rng)));
            put("ppm", &(rng.below(20_001) as i64 - 10_000).to_string());
        }
        "carrier" => put("on", &format!("\"{}\"", drawn.any_place(rng))),
        "ni_del" => {
            let n = rng.below(drawn.places.len() as u64) as usize;
            put("on", &format!("\"{}\"", drawn.places[n]));
        }
        "flap" => {
            put("on", &format!("\"{}\"", drawn.any_place(rng)));
            put("down", &format!("\"{}ms\"", 1 + rng.below(3000)));
            put("up", &format!("\"{}ms\"", 1 + rng.below(3000)));
        }
        _ => {
            put("on", &format!("\"{}\"", drawn.any_place(rng)));
            if rng.one_in(3) {
                put("peer", &format!("\"{}\"", drawn.any_node(rng)));
            }
            match rng.below(4) {
                0 if kind != "reset" => put("direction", "\"in\""),
                1 if kind != "reset" => put("direction", "\"out\""),
                _ => {}
            }
            if ["loss", "corrupt", "duplicate", "reorder", "drop"].contains(&kind) {
                put("share", &share(rng));
            }
            if kind == "drop" && rng.one_in(2) {
                put("reported", "true");
            }
            if kind == "reorder" || kind == "delay" {
                put("by", &format!("\"{}ms\"", 1 + rng.below(1000)));
            }
            if kind == "slow" {
                put("bandwidth", &format!("\"{}Mbit/s\"", 1 + rng.below(50)));
            }
        }
    }
    drawn.line(&text);
}

/// What befalls an RDMA adapter alone.
fn adapter_fault(drawn: &mut Drawing, rng: &mut Prng, rage: u64) {
    let rails = drawn.places.iter().zip(&drawn.nets).filter(|(_, net)| drawn.is_rdma(net));
    let places: Vec<String> = rails.map(|(place, _)| place.clone()).collect();
    if places.is_empty() {
        return;
    }
    let at = PEACE * 1000 + rng.below((rage - PEACE - 1) * 1000);
    let length = 1 + rng.below((rage * 1000 - at).min(20_000));
    let on = &places[rng.below(places.len() as u64) as usize];
    let (kind, more) = match rng.below(4) {
        0 => ("device", ""),
        1 => ("degraded", "bandwidth = \"100Mbit/s\"\n"),
        2 => ("completions", "share = \"5%\"\n"),
        _ => ("credits", ""),
    };
    drawn.line(&format!(
        "\n[[fault]]\nkind = \"{kind}\"\nat = \"{at}ms\"\nfor = \"{length}ms\"\non = \"{on}\"\n{more}"
    ));
}

/// Something that an operator does under load: another interface, for a while or for good, or
/// another setting.
fn operated(
    drawn: &mut Drawing,
    rng: &mut Prng,
    rage: u64,
    n: u64,
    (profile, conduct): (&str, &Conduct),
) {
    let at = PEACE * 1000 + rng.below((rage - PEACE - 1) * 1000);
    let until = at + 1 + rng.below(rage * 1000 - at);
    let node = drawn.any_node(rng);
    match rng.below(4) {
        0 | 1 if !drawn.is_unknown_gateway(&node) => {
            let prefix = format!("{node}/");
            let rails = drawn.places.iter().zip(&drawn.nets);
            let nets: Vec<&String> =
                rails.filter(|(place, _)| place.starts_with(&prefix)).map(|(_, net)| net).collect();
            let net = nets[rng.below(nets.len() as u64) as usize];
            let end =
                if rng.one_in(2) { format!("until = \"{until}ms\"\n") } else { String::new() };
            drawn.line(&format!(
                "\n[[fault]]\nkind = \"ni_add\"\nat = \"{at}ms\"\n{end}on = \"{node}\"\n\
                 nids = \"10.200.0.{}@{net}\"\n",
                n + 1
            ));
        }
        // Otherwise nodes do not learn what they have missed meanwhile.
        2 if conduct.queries_after_switch_on => {
            for (at, discovery) in [(at, 0), (until, 1)] {
                drawn.tune(&node, at, &format!("discovery = {discovery}"));
            }
        }
        _ => {
            let settings = [
                format!("transaction_timeout = {}", 5 + rng.below(10)),
                format!("health_range = {}", rng.below(500)),
                format!("flap_hold_down = {}", rng.below(12)),
                format!("retry_count = {}", rng.below(4)),
            ];
            // Without health nothing is sent again, and that can't be asked for.
            let most = settings.len() as u64 - u64::from(profile == "off");
            drawn.tune(&node, at, &settings[rng.below(most) as usize]);
        }
    }
}
