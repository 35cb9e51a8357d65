//! What drawn worlds with targets have in common: the request layer's settings, servers and clients, targets,
//! lost messages, and when a fault is. What is drawn of these comes in one order, so that a seed's world
//! stays what it is.

use core::fmt::Write as _;

use lnet_types::Prng;

/// Seconds before the first fault.
pub(super) const PEACE: u64 = 4;

/// A text in the making, and what it has named so far.
pub(super) struct Scene {
    pub(super) text: String,
    /// Seconds until which faults last.
    pub(super) rage: u64,
    /// Seconds after which everything has settled: as `settled_after`, the longest late fault and takeover
    /// with it.
    pub(super) settled: u64,
    pub(super) duration: u64,
    pub(super) targets: Vec<String>,
    pub(super) clients: Vec<String>,
    pub(super) servers: Vec<String>,
    /// Servers that a target names.
    pub(super) serving: Vec<String>,
    /// Another node may serve a target.
    pub(super) partnered: bool,
}

/// A name of a list.
pub(super) fn any(of: &[String], rng: &mut Prng) -> String {
    of.get(rng.below(of.len() as u64) as usize).cloned().unwrap_or_default()
}

/// One of several words.
pub(super) fn one_of<'a>(words: &[&'a str], rng: &mut Prng) -> &'a str {
    words.get(rng.below(words.len() as u64) as usize).copied().unwrap_or_default()
}

/// A list of names.
pub(super) fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
    format!("[{}]", names.join(", "))
}

/// The time-out of requests, in seconds.
pub(super) fn obd_timeout(rng: &mut Prng) -> u64 {
    [5, 10, 20][rng.below(3) as usize]
}

impl Scene {
    /// The head of the text, and the settings of the request layer, `more` among them. Programs go on for
    /// `after` seconds when everything has settled.
    pub(super) fn begin(
        (floor, seed): (&str, u64),
        (rage, after): (u64, u64),
        obd_timeout: u64,
        more: &str,
        rng: &mut Prng,
    ) -> Self {
        let settled = rage + 400 + 9 * obd_timeout + 20;
        let duration = settled + after;
        let mut scene = Self {
            text: String::new(),
            rage,
            settled,
            duration,
            targets: Vec::new(),
            clients: Vec::new(),
            servers: Vec::new(),
            serving: Vec::new(),
            partnered: false,
        };
        scene.line(&format!(
            "name = \"swarm-{floor}-{seed}\"\nseed = {seed}\nduration = \"{duration}s\""
        ));
        if rng.one_in(4) {
            scene.line("profile = \"kernel\"");
        }
        let at_max = one_of(&["20s", "40s", "600s"], rng);
        let profile = one_of(&["default", "default", "documents", "kernel"], rng);
        let ping = (obd_timeout / 4).max(1);
        scene.line(&format!(
            "\n[rpc]\nprofile = \"{profile}\"\nobd_timeout = \"{obd_timeout}s\"\n\
             ping_interval = \"{ping}s\"\nat_max = \"{at_max}\"{more}"
        ));
        scene
    }

    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The network.
    pub(super) fn net(&mut self, rng: &mut Prng) {
        let latency = one_of(&["50us", "1ms", "50ms"], rng);
        self.line(&format!("\n[[net]]\nname = \"tcp\"\nlatency = \"{latency}\""));
    }

    /// Servers and clients, each number up to so many above the least.
    pub(super) fn hosts(
        &mut self,
        rails: &str,
        servers: (u64, u64),
        clients: (u64, u64),
        rng: &mut Prng,
    ) {
        let mut named = |letter, (least, more)| -> Vec<String> {
            (0..least + rng.below(more)).map(|n| format!("{letter}{n}")).collect()
        };
        self.servers = named('s', servers);
        self.clients = named('c', clients);
        for name in self.servers.clone().into_iter().chain(self.clients.clone()) {
            self.line(&format!("\n[[node]]\nname = \"{name}\"\nrails = [{rails}]"));
        }
    }

    /// A target on a server, which in one case of so many another one may serve as well. `more` is what else
    /// it has.
    pub(super) fn target(
        &mut self,
        (name, kind, on): (String, &str, String),
        (partner_one_in, commits): (u64, &[&str]),
        rng: &mut Prng,
        more: impl FnOnce(&mut Prng) -> String,
    ) {
        let mut text =
            format!("\n[[target]]\nname = \"{name}\"\nkind = \"{kind}\"\non = \"{on}\"\n");
        let other = self.servers.iter().find(|s| **s != on).filter(|_| rng.one_in(partner_one_in));
        if let Some(other) = other {
            let _ = writeln!(text, "failover = \"{other}\"");
            self.partnered = true;
        }
        let commit = one_of(commits, rng);
        let _ = writeln!(text, "commit = \"{commit}\"");
        text.push_str(&more(rng));
        self.line(&text);
        self.serving.push(on);
        self.targets.push(name);
    }

    /// All clients connect.
    pub(super) fn connect(&mut self) {
        let clients = list(&self.clients);
        self.line(&format!("\n[[client]]\non = {clients}"));
    }

    /// In one case of so many messages are lost beside all that happens, up to one in twenty.
    pub(super) fn drops(&mut self, one_in: u64, rng: &mut Prng) {
        if rng.one_in(one_in) {
            let (share, rage) = (1 + rng.below(5), self.rage);
            self.line(&format!(
                "\n[[fault]]\nkind = \"drop\"\nat = \"{PEACE}s\"\nuntil = \"{rage}s\"\non = \"tcp\"\n\
                 share = \"{share}%\""
            ));
        }
    }

    /// When a fault begins and ends, `most` ms later at most. Milliseconds, so that faults meet requests at
    /// each point of their life.
    pub(super) fn moment(&self, most: u64, rng: &mut Prng) -> (u64, u64) {
        let (first, last) = (PEACE * 1000, self.rage * 1000);
        let at = first + rng.below(last - first - 2000);
        (at, (at + 500 + rng.below(most)).min(last))
    }

    /// A fault: its kind, where it is, and how long it lasts.
    pub(super) fn fault(&mut self, (kind, at): (&str, u64), rest: &str, more: &str) {
        self.line(&format!("\n[[fault]]\nkind = \"{kind}\"\nat = \"{at}ms\"\n{rest}{more}"));
    }

    /// Another node takes over what the first server serves: where a target has two, there are two, and each
    /// is one of them.
    pub(super) fn takeover(&self, rng: &mut Prng) -> (&'static str, String) {
        let on = self.servers.first().map_or("", String::as_str);
        ("failover", format!("on = \"{on}\"\nafter = \"{}ms\"", 100 + rng.below(15_000)))
    }
}

/// Requests of a target are late by up to so many seconds.
pub(super) fn late(target: &str, most: u64, rng: &mut Prng) -> (&'static str, String) {
    let (by, jitter) = (1 + rng.below(most), rng.below(5000));
    ("handler_delay", format!("target = \"{target}\"\nby = \"{by}s\"\njitter = \"{jitter}ms\""))
}

/// How long messages get lost: half of the time the next few, whenever that is.
pub(super) fn some(rest: &mut String, rng: &mut Prng) {
    if rng.one_in(2) {
        rest.clear();
        let _ = writeln!(rest, "count = {}", 1 + rng.below(5));
    }
}

/// What of requests a node loses: a part, and of which opcode. A number up to `of` that names none stands
/// for all opcodes.
pub(super) fn lost(
    node: &str,
    parts: &[&str],
    (opcodes, of): (&[&str], u64),
    rng: &mut Prng,
) -> (&'static str, String) {
    let part = one_of(parts, rng);
    let mut text = format!("on = \"{node}\"\npart = \"{part}\"");
    if let (Some(opcode), true) = (opcodes.get(rng.below(of) as usize), part != "early") {
        let _ = write!(text, "\nopcode = \"{opcode}\"");
    }
    ("rpc_lose", text)
}
