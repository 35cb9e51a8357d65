//! Draws a scenario of locks, as a text: lock targets, programs that take locks of all kinds, and for a
//! while holders that hang, die, stand still or lose some of their messages; then peace, in which no
//! client is evicted and each wait ends.

use core::fmt::Write as _;

use lnet_types::Prng;

use super::scene::{Scene, any, late, list, lost, obd_timeout, one_of, some};

/// Seconds before the faults may be over.
const RAGE: u64 = 24;
/// Seconds of locks after everything has settled.
const AFTER: u64 = 200;

/// The text of the scenario of this seed.
pub(super) fn text(seed: u64) -> String {
    let mut rng = Prng::new(seed ^ 0x10C4_F100);
    let rage = RAGE + rng.below(150);
    let obd_timeout = obd_timeout(&mut rng);
    let least = [5, 20, 100][rng.below(3) as usize];
    let more = format!("\nldlm_enqueue_min = \"{least}s\"");
    let mut scene = Scene::begin(("locks", seed), (rage, AFTER), obd_timeout, &more, &mut rng);
    world(&mut scene, &mut rng);
    // Longer than any timer of a callback.
    loads(&mut scene, 3 * least.max(2 * obd_timeout), &mut rng);
    if rng.one_in(5) {
        // Nothing is ever wrong, and no client is evicted.
        return scene.text;
    }
    scene.drops(3, &mut rng);
    for _ in 0..1 + rng.below(6) {
        fault(&mut scene, &mut rng);
    }
    scene.text
}

fn world(scene: &mut Scene, rng: &mut Prng) {
    scene.net(rng);
    scene.hosts("\"tcp\"", (1, 2), (2, 3), rng);
    for n in 0..1 + rng.below(2) {
        let on = any(&scene.servers, rng);
        let commits = (2, &["0s", "500ms", "5s"][..]);
        scene.target((format!("t{n}"), "lock", on), commits, rng, |_| String::new());
    }
    scene.connect();
}

/// Part and modes of a load.
fn kind(rng: &mut Prng) -> (&'static str, &'static str) {
    const KINDS: [(&str, &str); 9] = [
        ("whole", "[\"PW\", \"PR\"]"),
        ("whole", "[\"EX\"]"),
        ("touching", "[\"PW\"]"),
        ("touching", "[\"PR\", \"PW\", \"CW\", \"CR\"]"),
        ("random", "[\"PW\", \"PR\"]"),
        ("random", "[\"EX\", \"PW\", \"PR\", \"CW\", \"CR\", \"GROUP\"]"),
        ("bits", "[\"PR\", \"CR\", \"PW\", \"CW\", \"EX\"]"),
        ("bits", "[\"PR\", \"EX\", \"GROUP\"]"),
        ("plain", "[\"EX\", \"CR\", \"PR\"]"),
    ];
    KINDS[rng.below(KINDS.len() as u64) as usize]
}

/// `long` is how long a use is that outlasts timers, in seconds.
fn loads(scene: &mut Scene, long: u64, rng: &mut Prng) {
    let (from, to) = (list(&scene.clients), list(&scene.targets));
    for _ in 0..1 + rng.below(3) {
        let (part, modes) = kind(rng);
        let names = [1, 1, 3, 10][rng.below(4) as usize];
        let hold = ["0s", "20ms", "2s", "30s"][rng.below(4) as usize];
        let keep = ["0%", "50%", "100%"][rng.below(3) as usize];
        let think = ["100ms", "1s", "5s"][rng.below(3) as usize];
        let (window, until) = (1 + rng.below(3), scene.rage + 20);
        let mut text = format!(
            "\n[[workload]]\nkind = \"lock\"\nfrom = {from}\nto = {to}\nnames = {names}\n\
             part = \"{part}\"\nmodes = {modes}\nhold = \"{hold}\"\nkeep = \"{keep}\"\n\
             window = {window}\nthink = \"{think}\"\nuntil = \"{until}s\"\n"
        );
        if rng.one_in(6) {
            let _ = writeln!(text, "timeout = \"20s\"");
        }
        scene.line(&text);
    }
    // Some are taken as long as the world lives.
    let (part, modes) = kind(rng);
    scene.line(&format!(
        "\n[[workload]]\nkind = \"lock\"\nfrom = {from}\nto = {to}\nnames = 2\npart = \"{part}\"\n\
         modes = {modes}\nhold = \"1s\"\nkeep = \"50%\"\nevery = \"7s\""
    ));
    if rng.one_in(2) {
        // I/O for longer than the timer runs, all the time, and others want the lock. No callback
        // shortens a hold: the last client that asks waits for all others, one after another, and the
        // world lasts until it is granted. So many clients want the lock as that leaves time for.
        let hold = long;
        let others = (scene.clients.len() as u64 - 1).min((scene.duration - scene.rage) / hold);
        let until = scene.duration - others * hold;
        let from = list(&scene.clients[..=others as usize]);
        let part = ["whole", "touching"][rng.below(2) as usize];
        scene.line(&format!(
            "\n[[workload]]\nkind = \"lock\"\nfrom = {from}\nto = {to}\nnames = 1\n\
             part = \"{part}\"\nmodes = [\"PW\", \"PR\"]\nhold = \"{hold}s\"\nio = \"2s\"\n\
             keep = \"50%\"\nwindow = 1\nthink = \"5s\"\nuntil = \"{until}s\""
        ));
    }
}

fn fault(scene: &mut Scene, rng: &mut Prng) {
    let (at, until) = scene.moment(100_000, rng);
    let (client, server) = (any(&scene.clients, rng), any(&scene.servers, rng));
    let target = any(&scene.targets, rng);
    let node = if rng.one_in(2) { &client } else { &server };
    let mut rest = format!("until = \"{until}ms\"\n");
    let way = one_of(&["in", "out"], rng);
    let (kind, more) = match rng.below(20) {
        0 | 1 => ("kill", format!("on = \"{server}\"")),
        2 => ("kill", format!("on = \"{client}\"")),
        3 => ("kill", format!("on = [\"{client}\", \"{server}\"]")),
        4 => ("cut", format!("on = \"{node}\"")),
        5 | 6 => ("cut", format!("on = \"{node}\"\ndirection = \"{way}\"")),
        7 => ("pause", format!("on = \"{client}\"")),
        8 => ("pause", format!("on = \"{node}\"")),
        9 | 10 => ("hang", format!("on = \"{client}\"")),
        11 => {
            let ppm = rng.below(20_001) as i64 - 10_000;
            ("drift", format!("on = \"{node}\"\nppm = {ppm}"))
        }
        12 => late(&target, 60, rng),
        13 => {
            rest.clear();
            ("evict", format!("target = \"{target}\"\non = \"{client}\""))
        }
        14 if scene.partnered => scene.takeover(rng),
        14 => ("kill", format!("on = \"{server}\"\nprocess = true")),
        15 => ("commit_stall", format!("target = \"{target}\"")),
        _ => {
            some(&mut rest, rng);
            lost(&client, &["request", "reply"], (&OPCODES, OPCODES.len() as u64), rng)
        }
    };
    scene.fault((kind, at), &rest, &more);
}

/// What may get lost.
const OPCODES: [&str; 8] =
    ["enqueue", "cancel", "convert", "blocking", "completion", "io", "ping", "connect"];

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use lnet_scenario::{LoadKind, Pace};

    use crate::swarm::{Floor, Round, seed_of};

    #[test]
    fn last_client_that_asks_for_a_lock_in_use_is_granted_within_the_world() {
        let mut longest = Duration::ZERO;
        for n in 0..300 {
            let Round { seed, scenario, .. } = Round::draw_on(Floor::Locks, seed_of(1, n)).unwrap();
            for load in &scenario.rpc.loads {
                let LoadKind::Lock(lock) = load.kind else { continue };
                let (Some(_), Pace::Window { .. }) = (lock.io, load.pace) else { continue };
                let programs = load.from.nodes().len() as u32 * load.window;
                assert!(programs > 1, "seed {seed}: no other client wants the lock");
                let granted = load.end + lock.hold * (programs - 1);
                assert!(granted <= scenario.duration, "seed {seed}: {granted:?}");
                longest = longest.max(lock.hold);
            }
        }
        assert_eq!(longest, Duration::from_secs(300));
    }
}
