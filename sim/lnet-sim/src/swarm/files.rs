//! Draws a scenario of files, as a text: a file system, visitors that work in directories of their own or
//! all in one, and for a while deaths, losses, delays and stores that are full or broken; then peace, in which other
//! visitors find what the programs have left.

use std::collections::BTreeSet;

use lnet_types::Prng;

use super::scene::{PEACE, Scene, any, late, list, lost, obd_timeout, one_of, some};

/// Seconds before the faults may be over.
const RAGE: u64 = 14;
/// Seconds of operations after everything has settled.
const AFTER: u64 = 200;
/// Seconds that the check of a load may take.
const CHECK: u64 = 60;

/// See [`second`].
const SECOND: u64 = 0xF11E_2D90;

/// The text of the scenario of this seed.
pub(super) fn text(seed: u64) -> String {
    let mut rng = Prng::new(seed ^ 0xF11E_F100);
    let rage = RAGE + rng.below(100);
    let obd_timeout = obd_timeout(&mut rng);
    let mut scene = Scene::begin(("files", seed), (rage, AFTER), obd_timeout, "", &mut rng);
    let objects = world(&mut scene, seed, &mut rng);
    let whole = loads(&mut scene, seed, &mut rng);
    if rng.one_in(5) {
        // Nothing is ever wrong.
        return scene.text;
    }
    scene.drops(3, &mut rng);
    for _ in 0..1 + rng.below(6) {
        fault(&mut scene, &objects, &mut rng);
    }
    full(&mut scene, &objects, &mut Prng::new(seed ^ 0xF11E_F011));
    between(&mut scene, &mut Prng::new(seed ^ 0xF11E_AC05));
    let crash = &mut Prng::new(seed ^ 0xF11E_DEAD);
    // Less can be said of a round in which a program dies.
    if whole && !crash.one_in(3) {
        crashes(&mut scene, crash);
    }
    scene.text
}

/// Where files are made whole, a program dies with all servers now and then: what is left is what was committed,
/// and no one repeats the rest.
fn crashes(scene: &mut Scene, rng: &mut Prng) {
    for _ in 0..3 + rng.below(6) {
        let (at, _) = scene.moment(1, rng);
        let until = (at + 1000 + rng.below(2000)).min(scene.rage * 1000);
        let (client, servers) = (any(&scene.clients, rng), scene.servers.join("\", \""));
        let on = format!("on = [\"{client}\", \"{servers}\"]");
        scene.fault(("kill", at), &format!("until = \"{until}ms\"\n"), &on);
    }
}

/// In one round of four an object target is full for long, so that programs are refused while they do all
/// that they do. Drawn apart, so that the other rounds are what they are.
fn full(scene: &mut Scene, objects: &[String], rng: &mut Prng) {
    if !rng.one_in(4) {
        return;
    }
    let (object, until) = (any(objects, rng), scene.rage);
    let at = PEACE + rng.below((until - PEACE) / 2);
    scene.line(&format!(
        "\n[[fault]]\nkind = \"store_full\"\nat = \"{at}s\"\nuntil = \"{until}s\"\n\
         target = \"{object}\""
    ));
}

/// Where there are two metadata targets, in one round of two they are late now and then, or what they ask each
/// other gets lost, and a server dies meanwhile: what one of them has stored and the other has not is there for
/// seconds then, instead of a moment. Drawn apart, so that the other rounds are what they are.
fn between(scene: &mut Scene, rng: &mut Prng) {
    let mdts = ["lfs-MDT0000_UUID", "lfs-MDT0001_UUID"];
    if !scene.targets.iter().any(|target| target == mdts[1]) || !rng.one_in(2) {
        return;
    }
    let serving: BTreeSet<String> = scene.serving.iter().cloned().collect();
    let last = scene.rage * 1000;
    for _ in 0..3 + rng.below(5) {
        let (at, _) = scene.moment(1, rng);
        let rest = format!("until = \"{}ms\"\n", (at + 8000).min(last));
        if rng.one_in(3) {
            let part = one_of(&["request", "reply"], rng);
            let count = 1 + rng.below(4);
            for server in &serving {
                let more = format!("on = \"{server}\"\npart = \"{part}\"\nopcode = \"across\"");
                scene.fault(("rpc_lose", at), &rest, &format!("{more}\ncount = {count}"));
            }
        } else {
            let (target, by) = (one_of(&mdts, rng), 200 + rng.below(1500));
            let more = format!("target = \"{target}\"\nby = \"{by}ms\"");
            scene.fault(("handler_delay", at), &rest, &more);
        }
        let dies = at + 300 + rng.below(1600);
        let back = (dies + 1000 + rng.below(3000)).min(last);
        let rest = format!("until = \"{back}ms\"\n");
        let server = any(&scene.serving, rng);
        scene.fault(("kill", dies), &rest, &format!("on = \"{server}\""));
    }
}

/// The file system, and which of its targets have data.
fn world(scene: &mut Scene, seed: u64, rng: &mut Prng) -> Vec<String> {
    scene.net(rng);
    let rails = if rng.one_in(3) { "\"tcp\", \"tcp\"" } else { "\"tcp\"" };
    scene.hosts(rails, (1, 3), (1, 4), rng);
    let objects: Vec<String> =
        (0..1 + rng.below(4)).map(|n| format!("lfs-OST{n:04x}_UUID")).collect();
    let names = [("MGS".to_owned(), "mgs"), ("lfs-MDT0000_UUID".to_owned(), "mdt")];
    let osts = objects.iter().map(|name| (name.clone(), "ost"));
    for (name, kind) in names.into_iter().chain(osts) {
        let on = any(&scene.servers, rng);
        let commits = (3, &["0s", "500ms", "5s", "30s"][..]);
        scene.target((name, kind, on), commits, rng, |rng| {
            if kind != "ost" || !rng.one_in(2) {
                return String::new();
            }
            let latency = one_of(&["100us", "5ms", "50ms"], rng);
            format!("store = {{ latency = \"{latency}\", bandwidth = \"50MiB/s\" }}\n")
        });
    }
    second(scene, &mut Prng::new(seed ^ SECOND));
    scene.connect();
    objects
}

/// In one round of three there are two metadata targets. Drawn apart, by a number that leaves the rounds of
/// earlier findings what they are.
fn second(scene: &mut Scene, rng: &mut Prng) {
    if rng.one_in(3) {
        let (name, on) = ("lfs-MDT0001_UUID".to_owned(), any(&scene.servers, rng));
        let commits = (3, &["0s", "500ms", "5s", "30s"][..]);
        scene.target((name, "mdt", on), commits, rng, |_| String::new());
    }
}

/// Whether files are made whole while faults rage.
fn loads(scene: &mut Scene, seed: u64, rng: &mut Prng) -> bool {
    let mut whole = false;
    let (settled, duration) = (scene.settled, scene.duration);
    // Drawn apart, so that the other rounds are what they are.
    let caches = &mut Prng::new(seed ^ 0xF11E_CAC4);
    let wholes = &mut Prng::new(seed ^ 0xF11E_0A11);
    let from = list(&scene.clients);
    // While faults rage, and in peace.
    for (start, until, check) in
        [(0, scene.rage + 20, settled), (settled, duration - 2 * CHECK, duration - CHECK)]
    {
        let names = [2, 3, 5][rng.below(3) as usize];
        let size = ["100B", "70KiB", "300KiB"][rng.below(3) as usize];
        let stripes = 1 + rng.below(4);
        let shared = rng.one_in(3);
        let cached = !shared && caches.one_in(3);
        let on_mdt = !cached && caches.one_in(3);
        let (window, think) = match start {
            0 => (1 + rng.below(2), ["50ms", "300ms", "2s"][rng.below(3) as usize]),
            _ => (1, "1s"),
        };
        scene.line(&format!(
            "\n[[workload]]\nkind = \"files\"\nfrom = {from}\nto = \"lfs-MDT0000_UUID\"\n\
             names = {names}\nsize = \"{size}\"\nstripes = {stripes}\nshared = {shared}\ncached = {cached}\non_mdt = {on_mdt}\nwindow = {window}\n\
             think = \"{think}\"\nstart = \"{start}s\"\nuntil = \"{until}s\"\ncheck = \"{check}s\""
        ));
        if wholes.one_in(2) && !shared && !cached {
            scene.line("whole = true");
            whole |= start == 0;
        }
    }
    whole
}

fn fault(scene: &mut Scene, objects: &[String], rng: &mut Prng) {
    let (at, until) = scene.moment(60_000, rng);
    let (client, server) = (any(&scene.clients, rng), any(&scene.servers, rng));
    let (target, object) = (any(&scene.targets, rng), any(objects, rng));
    let node = if rng.one_in(2) { &client } else { &server };
    let mut rest = format!("until = \"{until}ms\"\n");
    let way = one_of(&["in", "out"], rng);
    let (kind, more) = match rng.below(18) {
        0..=3 => ("kill", format!("on = \"{server}\"")),
        4 => ("kill", format!("on = \"{client}\"")),
        5 => ("kill", format!("on = [\"{client}\", \"{server}\"]")),
        6 => ("kill", format!("on = \"{server}\"\nprocess = true")),
        7 => ("cut", format!("on = \"{node}\"")),
        8 => ("cut", format!("on = \"{node}\"\ndirection = \"{way}\"")),
        9 => late(&target, 60, rng),
        10 => ("commit_stall", format!("target = \"{target}\"")),
        11 => {
            rest.clear();
            ("evict", format!("target = \"{target}\"\non = \"{client}\""))
        }
        12 => ("pause", format!("on = \"{node}\"")),
        13 | 14 => {
            some(&mut rest, rng);
            let at = if rng.one_in(2) { &client } else { &any(&scene.serving, rng) };
            lost(at, &["request", "reply", "bulk"], (&OPCODES, 16), rng)
        }
        15 => ("store_full", format!("target = \"{object}\"")),
        16 => {
            let share = [10, 50, 100][rng.below(3) as usize];
            ("store_error", format!("target = \"{object}\"\nshare = \"{share}%\""))
        }
        _ if scene.partnered => scene.takeover(rng),
        _ => ("kill", format!("on = [\"{}\"]", scene.servers.join("\", \""))),
    };
    scene.fault((kind, at), &rest, &more);
}

/// What may get lost.
const OPCODES: [&str; 8] =
    ["enqueue", "reint", "close", "write", "cancel", "ping", "connect", "disconnect"];
