//! `ulnet tuning advise --prove`: what the events of a site cost with the defaults of its nodes and with the
//! advice, beside each other. What is played stands in `lnet-sim`.

use core::time::Duration;

use lnet_sim::{Proof, ProofEvent, SiteRun, prove};
use lustre_tuning::Site;
use serde_json::{Value, json};

/// Columns of [`line()`].
const HEAD: &str = "evicted   dead gone left   longest I/O     lock wait  reconnects";

/// Plays a site, at most so many clients of it.
///
/// # Errors
/// See [`prove`].
pub(super) fn play(site: &Site, clients: u32, seed: u64) -> anyhow::Result<Proof> {
    prove(site, clients, seed).map_err(anyhow::Error::msg)
}

/// `4 of 32 targets`, or `4 targets` where the site's number is the same or not known.
fn of(played: u32, all: Option<u32>, what: &str) -> String {
    match all.filter(|all| *all != played) {
        Some(all) => format!("{played} of {all} {what}"),
        None => format!("{played} {what}"),
    }
}

fn line(run: &SiteRun) -> String {
    format!(
        "{:>7} {:>9.1} s {:>4} {:>11.3} s {:>11.3} s {:>11}",
        run.evicted,
        run.dead_gone.as_secs_f64(),
        run.dead_left,
        run.stall.as_secs_f64(),
        run.lock_wait.as_secs_f64(),
        run.reconnects
    )
}

/// The scale, then the events, each with both sets of values.
pub(super) fn table(site: &Site, proof: &Proof) -> String {
    let clients = of(proof.clients, site.clients, "clients");
    let targets = of(proof.targets, site.targets, "targets");
    let routers = match proof.routers {
        0 => String::new(),
        n => format!(", {n} routers"),
    };
    let rows: Vec<(String, &SiteRun)> = proof
        .events
        .iter()
        .flat_map(|ProofEvent { what, defaults, advised }| {
            [(format!("{what}, defaults"), defaults), (format!("{what}, advised"), advised)]
        })
        .collect();
    // An event may have a long name.
    let width = rows.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0) + 1;
    let mut text = format!(
        "\nplayed: {clients}, {} more that crash, {targets} on {} servers{routers}; seed {}\n{:<width$}{HEAD}\n",
        proof.crashing, proof.servers, proof.seed, ""
    );
    for (what, run) in rows {
        text += &format!("{what:<width$}{}\n", line(run));
    }
    text
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn run(run: &SiteRun) -> Value {
    json!({
        "evicted": run.evicted, "dead_gone_s": seconds(run.dead_gone), "dead_left": run.dead_left,
        "longest_io_s": seconds(run.stall), "lock_wait_s": seconds(run.lock_wait),
        "reconnects": run.reconnects, "locks": run.granted,
    })
}

/// The same as a document.
pub(super) fn document(site: &Site, proof: &Proof) -> Value {
    let event = |event: &ProofEvent| {
        let ProofEvent { what, defaults, advised } = event;
        json!({ "event": what, "defaults": run(defaults), "advised": run(advised) })
    };
    json!({
        "clients": proof.clients, "clients_of_site": site.clients, "crashing": proof.crashing,
        "targets": proof.targets, "targets_of_site": site.targets, "servers": proof.servers,
        "routers": proof.routers, "seed": proof.seed,
        "events": proof.events.iter().map(event).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_below_their_heads_however_long_the_name_of_an_event_is() {
        let site: Site = Site {
            routed: false,
            clients: None,
            targets: None,
            quiesce: None,
            load: None,
            net: lustre_tuning::NetKind::Tcp,
        };
        let event = |what: &str| ProofEvent {
            what: what.to_owned(),
            defaults: SiteRun::default(),
            advised: SiteRun::default(),
        };
        let proof = Proof {
            clients: 10,
            crashing: 3,
            targets: 4,
            servers: 2,
            routers: 0,
            seed: 1,
            events: vec![event("short"), event(&"long ".repeat(20))],
        };
        let text = table(&site, &proof);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let head = lines[0].find("evicted").unwrap() + "evicted".len();
        assert_eq!(lines.len(), 5);
        for line in &lines[1..] {
            assert_eq!(line.get(head - 2..head), Some(" 0"), "{text}");
        }
    }
}
