//! Draws a scenario of the request layer, as a text: servers with targets, clients that call them, and
//! deaths, losses and delays for a while; then peace, in which everything must come right.

use core::fmt::Write as _;

use lnet_types::Prng;

/// Seconds before the first fault.
const PEACE: u64 = 4;
/// Seconds of calls after everything has settled.
const AFTER: u64 = 60;

/// The text of the scenario of this seed.
pub(super) fn text(seed: u64) -> String {
    let mut rng = Prng::new(seed ^ 0x05EC_F100);
    let rage = PEACE + 10 + rng.below(100);
    let obd_timeout = [5, 10, 20][rng.below(3) as usize];
    // As `settled_after`, the longest late fault and takeover with it.
    let settled = rage + 400 + 9 * obd_timeout + 20;
    let mut drawn = Drawing {
        text: String::new(),
        rage,
        lists: Vec::new(),
        stores: Vec::new(),
        clients: Vec::new(),
        servers: Vec::new(),
        serving: Vec::new(),
    };
    let duration = settled + AFTER;
    drawn.line(&format!("name = \"swarm-rpc-{seed}\"\nseed = {seed}\nduration = \"{duration}s\""));
    if rng.one_in(4) {
        drawn.line("profile = \"kernel\"");
    }
    let at_max = ["20s", "40s", "600s"][rng.below(3) as usize];
    let profile = ["default", "default", "documents", "kernel"][rng.below(4) as usize];
    drawn.line(&format!(
        "\n[rpc]\nprofile = \"{profile}\"\nobd_timeout = \"{obd_timeout}s\"\nping_interval = \"{}s\"\nat_max = \"{at_max}\"",
        (obd_timeout / 4).max(1)
    ));
    world(&mut drawn, &mut rng);
    loads(&mut drawn, &mut rng);
    // Lost messages beside all that happens, up to one in twenty.
    if rng.one_in(2) {
        let share = 1 + rng.below(5);
        drawn.line(&format!(
            "\n[[fault]]\nkind = \"drop\"\nat = \"{PEACE}s\"\nuntil = \"{rage}s\"\non = \"tcp\"\nshare = \"{share}%\""
        ));
    }
    for _ in 0..1 + rng.below(6) {
        fault(&mut drawn, &mut rng);
    }
    drawn.text
}

/// A text in the making, and what it has named so far.
struct Drawing {
    text: String,
    /// Seconds until which faults last.
    rage: u64,
    lists: Vec<String>,
    /// Key-value targets.
    stores: Vec<String>,
    clients: Vec<String>,
    servers: Vec<String>,
    /// Servers that a target names.
    serving: Vec<String>,
}

impl Drawing {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

fn any(of: &[String], rng: &mut Prng) -> String {
    of.get(rng.below(of.len() as u64) as usize).cloned().unwrap_or_default()
}

fn world(drawn: &mut Drawing, rng: &mut Prng) {
    let latency = ["50us", "1ms", "50ms"][rng.below(3) as usize];
    drawn.line(&format!("\n[[net]]\nname = \"tcp\"\nlatency = \"{latency}\""));
    let rails = if rng.one_in(3) { "\"tcp\", \"tcp\"" } else { "\"tcp\"" };
    for n in 0..1 + rng.below(2) {
        drawn.servers.push(format!("s{n}"));
    }
    for n in 0..1 + rng.below(4) {
        drawn.clients.push(format!("c{n}"));
    }
    for name in drawn.servers.clone().into_iter().chain(drawn.clients.clone()) {
        drawn.line(&format!("\n[[node]]\nname = \"{name}\"\nrails = [{rails}]"));
    }
    for n in 0..1 + rng.below(2) {
        let (name, on) = (format!("t{n}"), any(&drawn.servers, rng));
        let kind = if rng.one_in(2) { "kv" } else { "list" };
        let mut text =
            format!("\n[[target]]\nname = \"{name}\"\nkind = \"{kind}\"\non = \"{on}\"\n");
        let other = drawn.servers.iter().find(|s| **s != on).filter(|_| rng.one_in(2));
        if let Some(other) = other {
            let _ = writeln!(text, "failover = \"{other}\"");
        }
        let commit = ["0s", "500ms", "5s", "30s"][rng.below(4) as usize];
        let _ = writeln!(text, "commit = \"{commit}\"");
        if kind == "kv" && rng.one_in(2) {
            let latency = ["100us", "5ms", "200ms"][rng.below(3) as usize];
            let _ = writeln!(
                text,
                "store = {{ latency = \"{latency}\", bandwidth = \"50MiB/s\", size = \"8MiB\" }}"
            );
        }
        drawn.line(&text);
        drawn.serving.push(on);
        if kind == "kv" { &mut drawn.stores } else { &mut drawn.lists }.push(name);
    }
    let clients: Vec<String> = drawn.clients.iter().map(|c| format!("\"{c}\"")).collect();
    drawn.line(&format!("\n[[client]]\non = [{}]", clients.join(", ")));
}

fn loads(drawn: &mut Drawing, rng: &mut Prng) {
    let list = |names: &[String]| {
        let names: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
        format!("[{}]", names.join(", "))
    };
    let from = list(&drawn.clients);
    for (kind, to) in [("rpc", drawn.lists.clone()), ("kv", drawn.stores.clone())] {
        if to.is_empty() {
            continue;
        }
        let to = list(&to);
        let window = 1 + rng.below(4);
        let think = ["50ms", "300ms", "2s"][rng.below(3) as usize];
        let mut text = format!(
            "\n[[workload]]\nkind = \"{kind}\"\nfrom = {from}\nto = {to}\nwindow = {window}\nthink = \"{think}\"\nuntil = \"{}s\"\n",
            drawn.rage + 20
        );
        if rng.one_in(2) {
            let _ = writeln!(text, "reads = \"30%\"");
        }
        match kind {
            "rpc" if rng.one_in(4) => _ = writeln!(text, "bulk = \"16KiB\""),
            "rpc" => {}
            _ => {
                let keys = [1, 4, 20][rng.below(3) as usize];
                let size = ["8B", "200B", "40KiB"][rng.below(3) as usize];
                let _ = writeln!(text, "keys = {keys}\nsize = \"{size}\"");
                let _ = writeln!(text, "cas = \"{}%\"\ndels = \"20%\"", 10 * rng.below(5));
            }
        }
        if rng.one_in(8) {
            let _ = writeln!(text, "timeout = \"20s\"");
        }
        drawn.line(&text);
        // Some are made as long as the world lives: in peace none fails.
        drawn.line(&format!(
            "\n[[workload]]\nkind = \"{kind}\"\nfrom = {from}\nto = {to}\nevery = \"7s\"\nreads = \"50%\""
        ));
    }
}

fn fault(drawn: &mut Drawing, rng: &mut Prng) {
    // Milliseconds, so that faults meet requests at each point of their life.
    let (first, last) = (PEACE * 1000, drawn.rage * 1000);
    let at = first + rng.below(last - first - 2000);
    let until = (at + 500 + rng.below(60_000)).min(last);
    let (client, server) = (any(&drawn.clients, rng), any(&drawn.servers, rng));
    let targets = [&drawn.lists[..], &drawn.stores[..]].concat();
    let (target, store) = (any(&targets, rng), any(&drawn.stores, rng));
    let node = if rng.one_in(2) { &client } else { &server };
    let partnered = drawn.text.contains("failover = ");
    let mut rest = format!("until = \"{until}ms\"\n");
    let (kind, more) = match rng.below(16) {
        0..=2 => ("kill", format!("on = \"{server}\"")),
        3 => ("kill", format!("on = \"{client}\"")),
        4 => ("kill", format!("on = [\"{client}\", \"{server}\"]")),
        5 => ("cut", format!("on = \"{node}\"")),
        6 => (
            "cut",
            format!("on = \"{node}\"\ndirection = \"{}\"", ["in", "out"][rng.below(2) as usize]),
        ),
        7 => {
            let (by, jitter) = (1 + rng.below(90), rng.below(5000));
            (
                "handler_delay",
                format!("target = \"{target}\"\nby = \"{by}s\"\njitter = \"{jitter}ms\""),
            )
        }
        8 => ("commit_stall", format!("target = \"{target}\"")),
        9 => {
            rest.clear();
            ("evict", format!("target = \"{target}\"\non = \"{client}\""))
        }
        10 => ("pause", format!("on = \"{node}\"")),
        11 | 12 => {
            if rng.one_in(2) {
                rest.clear();
                let _ = writeln!(rest, "count = {}", 1 + rng.below(5));
            }
            let at = if rng.one_in(2) { &client } else { &any(&drawn.serving, rng) };
            ("rpc_lose", lost(at, rng))
        }
        13 if !store.is_empty() => ("store_full", format!("target = \"{store}\"")),
        14 if !store.is_empty() => {
            let share = [10, 50, 100][rng.below(3) as usize];
            ("store_error", format!("target = \"{store}\"\nshare = \"{share}%\""))
        }
        _ if partnered => (
            "failover",
            format!("on = \"{}\"\nafter = \"{}ms\"", partner(drawn), 100 + rng.below(15_000)),
        ),
        _ => ("kill", format!("on = \"{server}\"\nprocess = true")),
    };
    drawn.line(&format!("\n[[fault]]\nkind = \"{kind}\"\nat = \"{at}ms\"\n{rest}{more}"));
}

/// What of requests a node loses.
fn lost(node: &str, rng: &mut Prng) -> String {
    let part = ["request", "reply", "bulk", "early"][rng.below(4) as usize];
    let all = ["append", "read", "put", "get", "cas", "del", "ping", "connect", "disconnect"];
    let mut text = format!("on = \"{node}\"\npart = \"{part}\"");
    if let (Some(opcode), true) = (all.get(rng.below(16) as usize), part != "early") {
        let _ = write!(text, "\nopcode = \"{opcode}\"");
    }
    text
}

/// A server of a target that another one may serve as well: there are two then, and each is one.
fn partner(drawn: &Drawing) -> &str {
    drawn.servers.first().map_or("", String::as_str)
}
