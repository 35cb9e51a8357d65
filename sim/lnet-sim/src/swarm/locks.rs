//! Draws a scenario of locks, as a text: lock targets, programs that take locks of all kinds, and for a
//! while holders that hang, die, stand still or lose some of their messages; then peace, in which no
//! client is evicted and each wait ends.

use core::fmt::Write as _;

use lnet_types::Prng;

/// Seconds before the first fault.
const PEACE: u64 = 4;
/// Seconds of locks after everything has settled.
const AFTER: u64 = 200;

/// The text of the scenario of this seed.
pub(super) fn text(seed: u64) -> String {
    let mut rng = Prng::new(seed ^ 0x10C4_F100);
    let rage = PEACE + 20 + rng.below(150);
    let obd_timeout = [5, 10, 20][rng.below(3) as usize];
    // As `settled_after`, the longest late fault and takeover with it.
    let settled = rage + 400 + 9 * obd_timeout + 20;
    let least = [5, 20, 100][rng.below(3) as usize];
    let mut drawn = Drawing {
        text: String::new(),
        rage,
        duration: settled + AFTER,
        // Longer than any timer of a callback.
        long: 3 * least.max(2 * obd_timeout),
        targets: Vec::new(),
        clients: Vec::new(),
        servers: Vec::new(),
        partnered: false,
    };
    let duration = drawn.duration;
    drawn
        .line(&format!("name = \"swarm-locks-{seed}\"\nseed = {seed}\nduration = \"{duration}s\""));
    if rng.one_in(4) {
        drawn.line("profile = \"kernel\"");
    }
    let at_max = ["20s", "40s", "600s"][rng.below(3) as usize];
    let profile = ["default", "default", "documents", "kernel"][rng.below(4) as usize];
    let ping = (obd_timeout / 4).max(1);
    drawn.line(&format!(
        "\n[rpc]\nprofile = \"{profile}\"\nobd_timeout = \"{obd_timeout}s\"\n\
         ping_interval = \"{ping}s\"\nat_max = \"{at_max}\"\nldlm_enqueue_min = \"{least}s\""
    ));
    world(&mut drawn, &mut rng);
    loads(&mut drawn, &mut rng);
    if rng.one_in(5) {
        // Nothing is ever wrong, and no client is evicted.
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
    drawn.text
}

/// A text in the making, and what it has named so far.
struct Drawing {
    text: String,
    /// Seconds until which faults last.
    rage: u64,
    duration: u64,
    /// Seconds of use that ends when it ends.
    long: u64,
    targets: Vec<String>,
    clients: Vec<String>,
    servers: Vec<String>,
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

fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
    format!("[{}]", names.join(", "))
}

fn world(drawn: &mut Drawing, rng: &mut Prng) {
    let latency = ["50us", "1ms", "50ms"][rng.below(3) as usize];
    drawn.line(&format!("\n[[net]]\nname = \"tcp\"\nlatency = \"{latency}\""));
    drawn.servers = (0..1 + rng.below(2)).map(|n| format!("s{n}")).collect();
    drawn.clients = (0..2 + rng.below(3)).map(|n| format!("c{n}")).collect();
    for name in drawn.servers.clone().into_iter().chain(drawn.clients.clone()) {
        drawn.line(&format!("\n[[node]]\nname = \"{name}\"\nrails = [\"tcp\"]"));
    }
    for n in 0..1 + rng.below(2) {
        let (name, on) = (format!("t{n}"), any(&drawn.servers, rng));
        let mut text = format!("\n[[target]]\nname = \"{name}\"\nkind = \"lock\"\non = \"{on}\"\n");
        let other = drawn.servers.iter().find(|s| **s != on).filter(|_| rng.one_in(2));
        if let Some(other) = other {
            let _ = writeln!(text, "failover = \"{other}\"");
            drawn.partnered = true;
        }
        let commit = ["0s", "500ms", "5s"][rng.below(3) as usize];
        let _ = writeln!(text, "commit = \"{commit}\"");
        drawn.line(&text);
        drawn.targets.push(name);
    }
    let clients = list(&drawn.clients);
    drawn.line(&format!("\n[[client]]\non = {clients}"));
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

fn loads(drawn: &mut Drawing, rng: &mut Prng) {
    let (from, to) = (list(&drawn.clients), list(&drawn.targets));
    for _ in 0..1 + rng.below(3) {
        let (part, modes) = kind(rng);
        let names = [1, 1, 3, 10][rng.below(4) as usize];
        let hold = ["0s", "20ms", "2s", "30s"][rng.below(4) as usize];
        let keep = ["0%", "50%", "100%"][rng.below(3) as usize];
        let think = ["100ms", "1s", "5s"][rng.below(3) as usize];
        let (window, until) = (1 + rng.below(3), drawn.rage + 20);
        let mut text = format!(
            "\n[[workload]]\nkind = \"lock\"\nfrom = {from}\nto = {to}\nnames = {names}\n\
             part = \"{part}\"\nmodes = {modes}\nhold = \"{hold}\"\nkeep = \"{keep}\"\n\
             window = {window}\nthink = \"{think}\"\nuntil = \"{until}s\"\n"
        );
        if rng.one_in(6) {
            let _ = writeln!(text, "timeout = \"20s\"");
        }
        drawn.line(&text);
    }
    // Some are taken as long as the world lives.
    let (part, modes) = kind(rng);
    drawn.line(&format!(
        "\n[[workload]]\nkind = \"lock\"\nfrom = {from}\nto = {to}\nnames = 2\npart = \"{part}\"\n\
         modes = {modes}\nhold = \"1s\"\nkeep = \"50%\"\nevery = \"7s\""
    ));
    if rng.one_in(2) {
        // I/O for longer than the timer runs, all the time, and others want the lock. No callback
        // shortens a hold: the last client that asks waits for all others, one after another, and the
        // world lasts until it is granted. So many clients want the lock as that leaves time for.
        let hold = drawn.long;
        let others = (drawn.clients.len() as u64 - 1).min((drawn.duration - drawn.rage) / hold);
        let until = drawn.duration - others * hold;
        let from = list(&drawn.clients[..=others as usize]);
        let part = ["whole", "touching"][rng.below(2) as usize];
        drawn.line(&format!(
            "\n[[workload]]\nkind = \"lock\"\nfrom = {from}\nto = {to}\nnames = 1\n\
             part = \"{part}\"\nmodes = [\"PW\", \"PR\"]\nhold = \"{hold}s\"\nio = \"2s\"\n\
             keep = \"50%\"\nwindow = 1\nthink = \"5s\"\nuntil = \"{until}s\""
        ));
    }
}

fn fault(drawn: &mut Drawing, rng: &mut Prng) {
    // Milliseconds, so that faults meet locks at each point of their life.
    let (first, last) = (PEACE * 1000, drawn.rage * 1000);
    let at = first + rng.below(last - first - 2000);
    let until = (at + 500 + rng.below(100_000)).min(last);
    let (client, server) = (any(&drawn.clients, rng), any(&drawn.servers, rng));
    let target = any(&drawn.targets, rng);
    let node = if rng.one_in(2) { &client } else { &server };
    let mut rest = format!("until = \"{until}ms\"\n");
    let way = ["in", "out"][rng.below(2) as usize];
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
        12 => {
            let (by, jitter) = (1 + rng.below(60), rng.below(5000));
            (
                "handler_delay",
                format!("target = \"{target}\"\nby = \"{by}s\"\njitter = \"{jitter}ms\""),
            )
        }
        13 => {
            rest.clear();
            ("evict", format!("target = \"{target}\"\non = \"{client}\""))
        }
        14 if drawn.partnered => {
            let on = drawn.servers.first().map_or("", String::as_str);
            ("failover", format!("on = \"{on}\"\nafter = \"{}ms\"", 100 + rng.below(15_000)))
        }
        14 => ("kill", format!("on = \"{server}\"\nprocess = true")),
        15 => ("commit_stall", format!("target = \"{target}\"")),
        _ => {
            if rng.one_in(2) {
                rest.clear();
                let _ = writeln!(rest, "count = {}", 1 + rng.below(5));
            }
            ("rpc_lose", lost(&client, rng))
        }
    };
    drawn.line(&format!("\n[[fault]]\nkind = \"{kind}\"\nat = \"{at}ms\"\n{rest}{more}"));
}

/// What of requests a node loses.
fn lost(node: &str, rng: &mut Prng) -> String {
    let part = ["request", "reply"][rng.below(2) as usize];
    let all = ["enqueue", "cancel", "convert", "blocking", "completion", "io", "ping", "connect"];
    let opcode = all[rng.below(all.len() as u64) as usize];
    format!("on = \"{node}\"\npart = \"{part}\"\nopcode = \"{opcode}\"")
}

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
