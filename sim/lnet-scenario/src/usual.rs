//! Programs of a world whose scenario names none.

use std::fmt::Write as _;

use crate::model::{Group, World};
use crate::units::quoted;

/// Above so many pairs each client has one server, not all.
const PAIRS_MAX: usize = 1000;
/// What servers are called where Lustre runs.
const SERVERS: [&str; 4] = ["server", "mgs", "mds", "oss"];

/// A workload, as a text to be put behind that of a scenario: requests and answers between clients
/// and servers, asked again like any layer above LNet does, and given up after half a minute. Servers are the nodes that are called so, and where none is, those of the first table
/// that does not forward.
pub fn usual_work(world: &World) -> String {
    let works: Vec<&Group> = world.groups.iter().filter(|g| !g.router).collect();
    let serves = |name: &str| {
        let name = name.to_ascii_lowercase();
        SERVERS.iter().any(|word| name.contains(word))
    };
    let (mut servers, mut clients): (Vec<&Group>, Vec<&Group>) =
        works.iter().partition(|g| serves(&g.name));
    if servers.is_empty() {
        servers = works.iter().take(1).copied().collect();
        clients = works.iter().skip(1).copied().collect();
    }
    if clients.is_empty() {
        clients.clone_from(&servers);
    }
    if servers.is_empty() {
        return String::new();
    }
    let list = |groups: &[&Group]| {
        let names: Vec<String> = groups.iter().map(|g| quoted(&g.name)).collect();
        names.join(", ")
    };
    let count = |groups: &[&Group]| groups.iter().map(|g| g.count as usize).sum::<usize>();
    let pairs = count(&servers).saturating_mul(count(&clients));
    let pairing = if pairs > PAIRS_MAX { "spread" } else { "all" };
    let mut text = String::from("\n[[workload]]\nkind = \"request\"\n");
    // Writing to a string does not fail.
    let _ = writeln!(text, "from = [{}]\nto = [{}]", list(&clients), list(&servers));
    let _ = writeln!(text, "pairing = \"{pairing}\"\nevery = \"100ms\"");
    text.push_str("size = \"4KiB\"\nreply = \"4KiB\"\ntimeout = \"10s\"\nretries = 2\n");
    text
}
