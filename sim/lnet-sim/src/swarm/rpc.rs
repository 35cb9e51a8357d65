//! Draws a scenario of the request layer, as a text: servers with targets, clients that call them, and
//! deaths, losses and delays for a while; then peace, in which everything must come right.

use core::fmt::Write as _;

use lnet_types::Prng;

use super::scene::{Scene, any, late, list, lost, obd_timeout, one_of, some};

/// Seconds before the faults may be over.
const RAGE: u64 = 14;
/// Seconds of calls after everything has settled.
const AFTER: u64 = 60;

/// A scene with targets of two kinds.
struct Drawing {
    scene: Scene,
    lists: Vec<String>,
    /// Key-value targets.
    stores: Vec<String>,
}

/// The text of the scenario of this seed.
pub(super) fn text(seed: u64) -> String {
    let mut rng = Prng::new(seed ^ 0x05EC_F100);
    let rage = RAGE + rng.below(100);
    let obd_timeout = obd_timeout(&mut rng);
    let scene = Scene::begin(("rpc", seed), (rage, AFTER), obd_timeout, "", &mut rng);
    let mut drawn = Drawing { scene, lists: Vec::new(), stores: Vec::new() };
    world(&mut drawn, &mut rng);
    loads(&mut drawn, &mut rng);
    drawn.scene.drops(2, &mut rng);
    for _ in 0..1 + rng.below(6) {
        fault(&mut drawn, &mut rng);
    }
    drawn.scene.text
}

fn world(drawn: &mut Drawing, rng: &mut Prng) {
    let Drawing { scene, lists, stores } = drawn;
    scene.net(rng);
    let rails = if rng.one_in(3) { "\"tcp\", \"tcp\"" } else { "\"tcp\"" };
    scene.hosts(rails, (1, 2), (1, 4), rng);
    for n in 0..1 + rng.below(2) {
        let (name, on) = (format!("t{n}"), any(&scene.servers, rng));
        let kind = if rng.one_in(2) { "kv" } else { "list" };
        let commits = (2, &["0s", "500ms", "5s", "30s"][..]);
        scene.target((name.clone(), kind, on), commits, rng, |rng| {
            if kind != "kv" || !rng.one_in(2) {
                return String::new();
            }
            let latency = one_of(&["100us", "5ms", "200ms"], rng);
            format!(
                "store = {{ latency = \"{latency}\", bandwidth = \"50MiB/s\", size = \"8MiB\" }}\n"
            )
        });
        if kind == "kv" { &mut *stores } else { &mut *lists }.push(name);
    }
    scene.connect();
}

fn loads(drawn: &mut Drawing, rng: &mut Prng) {
    let from = list(&drawn.scene.clients);
    for (kind, to) in [("rpc", drawn.lists.clone()), ("kv", drawn.stores.clone())] {
        if to.is_empty() {
            continue;
        }
        let to = list(&to);
        let window = 1 + rng.below(4);
        let think = ["50ms", "300ms", "2s"][rng.below(3) as usize];
        let mut text = format!(
            "\n[[workload]]\nkind = \"{kind}\"\nfrom = {from}\nto = {to}\nwindow = {window}\nthink = \"{think}\"\nuntil = \"{}s\"\n",
            drawn.scene.rage + 20
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
        drawn.scene.line(&text);
        // Some are made as long as the world lives: in peace none fails.
        drawn.scene.line(&format!(
            "\n[[workload]]\nkind = \"{kind}\"\nfrom = {from}\nto = {to}\nevery = \"7s\"\nreads = \"50%\""
        ));
    }
}

fn fault(drawn: &mut Drawing, rng: &mut Prng) {
    let scene = &mut drawn.scene;
    let (at, until) = scene.moment(60_000, rng);
    let (client, server) = (any(&scene.clients, rng), any(&scene.servers, rng));
    let targets = [&drawn.lists[..], &drawn.stores[..]].concat();
    let (target, store) = (any(&targets, rng), any(&drawn.stores, rng));
    let node = if rng.one_in(2) { &client } else { &server };
    let mut rest = format!("until = \"{until}ms\"\n");
    let (kind, more) = match rng.below(16) {
        0..=2 => ("kill", format!("on = \"{server}\"")),
        3 => ("kill", format!("on = \"{client}\"")),
        4 => ("kill", format!("on = [\"{client}\", \"{server}\"]")),
        5 => ("cut", format!("on = \"{node}\"")),
        6 => {
            let way = one_of(&["in", "out"], rng);
            ("cut", format!("on = \"{node}\"\ndirection = \"{way}\""))
        }
        7 => late(&target, 90, rng),
        8 => ("commit_stall", format!("target = \"{target}\"")),
        9 => {
            rest.clear();
            ("evict", format!("target = \"{target}\"\non = \"{client}\""))
        }
        10 => ("pause", format!("on = \"{node}\"")),
        11 | 12 => {
            some(&mut rest, rng);
            let at = if rng.one_in(2) { &client } else { &any(&scene.serving, rng) };
            lost(at, &["request", "reply", "bulk", "early"], (&OPCODES, 16), rng)
        }
        13 if !store.is_empty() => ("store_full", format!("target = \"{store}\"")),
        14 if !store.is_empty() => {
            let share = [10, 50, 100][rng.below(3) as usize];
            ("store_error", format!("target = \"{store}\"\nshare = \"{share}%\""))
        }
        _ if scene.partnered => scene.takeover(rng),
        _ => ("kill", format!("on = \"{server}\"\nprocess = true")),
    };
    scene.fault((kind, at), &rest, &more);
}

/// What may get lost.
const OPCODES: [&str; 9] =
    ["append", "read", "put", "get", "cas", "del", "ping", "connect", "disconnect"];
