//! Draws a scenario of files, as a text: a file system, visitors that work in directories of their own or
//! all in one, and for a while deaths, losses, delays and stores that are full or broken; then peace, in which other
//! visitors find what the programs have left.

use core::fmt::Write as _;

use lnet_types::Prng;

/// Seconds before the first fault.
const PEACE: u64 = 4;
/// Seconds of operations after everything has settled.
const AFTER: u64 = 200;
/// Seconds that the check of a load may take.
const CHECK: u64 = 60;

/// The text of the scenario of this seed.
pub(super) fn text(seed: u64) -> String {
    let mut rng = Prng::new(seed ^ 0xF11E_F100);
    let rage = PEACE + 10 + rng.below(100);
    let obd_timeout = [5, 10, 20][rng.below(3) as usize];
    // As `settled_after`, the longest late fault and takeover with it.
    let settled = rage + 400 + 9 * obd_timeout + 20;
    let duration = settled + AFTER;
    let mut drawn = Drawing {
        text: String::new(),
        rage,
        targets: Vec::new(),
        objects: Vec::new(),
        clients: Vec::new(),
        servers: Vec::new(),
        serving: Vec::new(),
        partnered: false,
    };
    drawn
        .line(&format!("name = \"swarm-files-{seed}\"\nseed = {seed}\nduration = \"{duration}s\""));
    if rng.one_in(4) {
        drawn.line("profile = \"kernel\"");
    }
    let at_max = ["20s", "40s", "600s"][rng.below(3) as usize];
    let profile = ["default", "default", "documents", "kernel"][rng.below(4) as usize];
    let ping = (obd_timeout / 4).max(1);
    drawn.line(&format!(
        "\n[rpc]\nprofile = \"{profile}\"\nobd_timeout = \"{obd_timeout}s\"\n\
         ping_interval = \"{ping}s\"\nat_max = \"{at_max}\""
    ));
    world(&mut drawn, &mut rng);
    loads(&mut drawn, settled, duration, &mut rng);
    if rng.one_in(5) {
        // Nothing is ever wrong.
        return drawn.text;
    }
    if rng.one_in(3) {
        let share = 1 + rng.below(5);
        drawn.line(&format!(
            "\n[[fault]]\nkind = \"drop\"\nat = \"{PEACE}s\"\nuntil = \"{rage}s\"\non = \"tcp\"\n\
             share = \"{share}%\""
        ));
    }
    for _ in 0..1 + rng.below(6) {
        fault(&mut drawn, &mut rng);
    }
    full(&mut drawn, &mut Prng::new(seed ^ 0xF11E_F011));
    drawn.text
}

/// In one round of four an object target is full for long, so that programs are refused while they do all
/// that they do. Drawn apart, so that the other rounds are what they are.
fn full(drawn: &mut Drawing, rng: &mut Prng) {
    if !rng.one_in(4) {
        return;
    }
    let (object, until) = (any(&drawn.objects, rng), drawn.rage);
    let at = PEACE + rng.below((until - PEACE) / 2);
    drawn.line(&format!(
        "\n[[fault]]\nkind = \"store_full\"\nat = \"{at}s\"\nuntil = \"{until}s\"\n\
         target = \"{object}\""
    ));
}

/// A text in the making, and what it has named so far.
struct Drawing {
    text: String,
    /// Seconds until which faults last.
    rage: u64,
    targets: Vec<String>,
    /// Those of them that have data.
    objects: Vec<String>,
    clients: Vec<String>,
    servers: Vec<String>,
    /// Servers that a target names.
    serving: Vec<String>,
    /// Another node may serve a target.
    partnered: bool,
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
    drawn.servers = (0..1 + rng.below(3)).map(|n| format!("s{n}")).collect();
    drawn.clients = (0..1 + rng.below(4)).map(|n| format!("c{n}")).collect();
    for name in drawn.servers.clone().into_iter().chain(drawn.clients.clone()) {
        drawn.line(&format!("\n[[node]]\nname = \"{name}\"\nrails = [{rails}]"));
    }
    let objects = (0..1 + rng.below(4)).map(|n| (format!("lfs-OST{n:04x}_UUID"), "ost"));
    let names = [("MGS".to_owned(), "mgs"), ("lfs-MDT0000_UUID".to_owned(), "mdt")];
    for (name, kind) in names.into_iter().chain(objects) {
        let on = any(&drawn.servers, rng);
        let mut text =
            format!("\n[[target]]\nname = \"{name}\"\nkind = \"{kind}\"\non = \"{on}\"\n");
        let other = drawn.servers.iter().find(|s| **s != on).filter(|_| rng.one_in(3));
        if let Some(other) = other {
            let _ = writeln!(text, "failover = \"{other}\"");
            drawn.partnered = true;
        }
        let commit = ["0s", "500ms", "5s", "30s"][rng.below(4) as usize];
        let _ = writeln!(text, "commit = \"{commit}\"");
        if kind == "ost" {
            if rng.one_in(2) {
                let latency = ["100us", "5ms", "50ms"][rng.below(3) as usize];
                let _ = writeln!(
                    text,
                    "store = {{ latency = \"{latency}\", bandwidth = \"50MiB/s\" }}"
                );
            }
            drawn.objects.push(name.clone());
        }
        drawn.line(&text);
        drawn.serving.push(on);
        drawn.targets.push(name);
    }
    let clients: Vec<String> = drawn.clients.iter().map(|c| format!("\"{c}\"")).collect();
    drawn.line(&format!("\n[[client]]\non = [{}]", clients.join(", ")));
}

fn loads(drawn: &mut Drawing, settled: u64, duration: u64, rng: &mut Prng) {
    let clients: Vec<String> = drawn.clients.iter().map(|c| format!("\"{c}\"")).collect();
    let from = format!("[{}]", clients.join(", "));
    // While faults rage, and in peace.
    for (start, until, check) in
        [(0, drawn.rage + 20, settled), (settled, duration - 2 * CHECK, duration - CHECK)]
    {
        let names = [2, 3, 5][rng.below(3) as usize];
        let size = ["100B", "70KiB", "300KiB"][rng.below(3) as usize];
        let stripes = 1 + rng.below(4);
        let shared = rng.one_in(3);
        let (window, think) = match start {
            0 => (1 + rng.below(2), ["50ms", "300ms", "2s"][rng.below(3) as usize]),
            _ => (1, "1s"),
        };
        drawn.line(&format!(
            "\n[[workload]]\nkind = \"files\"\nfrom = {from}\nto = \"lfs-MDT0000_UUID\"\n\
             names = {names}\nsize = \"{size}\"\nstripes = {stripes}\nshared = {shared}\nwindow = {window}\n\
             think = \"{think}\"\nstart = \"{start}s\"\nuntil = \"{until}s\"\ncheck = \"{check}s\""
        ));
    }
}

fn fault(drawn: &mut Drawing, rng: &mut Prng) {
    // Milliseconds, so that faults meet requests at each point of their life.
    let (first, last) = (PEACE * 1000, drawn.rage * 1000);
    let at = first + rng.below(last - first - 2000);
    let until = (at + 500 + rng.below(60_000)).min(last);
    let (client, server) = (any(&drawn.clients, rng), any(&drawn.servers, rng));
    let (target, object) = (any(&drawn.targets, rng), any(&drawn.objects, rng));
    let node = if rng.one_in(2) { &client } else { &server };
    let mut rest = format!("until = \"{until}ms\"\n");
    let way = ["in", "out"][rng.below(2) as usize];
    let (kind, more) = match rng.below(18) {
        0..=3 => ("kill", format!("on = \"{server}\"")),
        4 => ("kill", format!("on = \"{client}\"")),
        5 => ("kill", format!("on = [\"{client}\", \"{server}\"]")),
        6 => ("kill", format!("on = \"{server}\"\nprocess = true")),
        7 => ("cut", format!("on = \"{node}\"")),
        8 => ("cut", format!("on = \"{node}\"\ndirection = \"{way}\"")),
        9 => {
            let (by, jitter) = (1 + rng.below(60), rng.below(5000));
            (
                "handler_delay",
                format!("target = \"{target}\"\nby = \"{by}s\"\njitter = \"{jitter}ms\""),
            )
        }
        10 => ("commit_stall", format!("target = \"{target}\"")),
        11 => {
            rest.clear();
            ("evict", format!("target = \"{target}\"\non = \"{client}\""))
        }
        12 => ("pause", format!("on = \"{node}\"")),
        13 | 14 => {
            if rng.one_in(2) {
                rest.clear();
                let _ = writeln!(rest, "count = {}", 1 + rng.below(5));
            }
            let at = if rng.one_in(2) { &client } else { &any(&drawn.serving, rng) };
            ("rpc_lose", lost(at, rng))
        }
        15 => ("store_full", format!("target = \"{object}\"")),
        16 => {
            let share = [10, 50, 100][rng.below(3) as usize];
            ("store_error", format!("target = \"{object}\"\nshare = \"{share}%\""))
        }
        _ if drawn.partnered => {
            let on = drawn.servers.first().map_or("", String::as_str);
            ("failover", format!("on = \"{on}\"\nafter = \"{}ms\"", 100 + rng.below(15_000)))
        }
        _ => ("kill", format!("on = [\"{}\"]", drawn.servers.join("\", \""))),
    };
    drawn.line(&format!("\n[[fault]]\nkind = \"{kind}\"\nat = \"{at}ms\"\n{rest}{more}"));
}

/// What of requests a node loses.
fn lost(node: &str, rng: &mut Prng) -> String {
    let part = ["request", "reply", "bulk"][rng.below(3) as usize];
    let all = ["enqueue", "reint", "close", "write", "cancel", "ping", "connect", "disconnect"];
    let mut text = format!("on = \"{node}\"\npart = \"{part}\"");
    if let Some(opcode) = all.get(rng.below(16) as usize) {
        let _ = write!(text, "\nopcode = \"{opcode}\"");
    }
    text
}
