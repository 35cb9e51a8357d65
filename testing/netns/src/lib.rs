//! Hosts for tests: each is a Linux network namespace with its own interfaces and addresses, joined
//! by veth pairs (two hosts) or a bridge (more). Needs root and iproute2; nothing here touches the
//! interfaces, addresses or firewall of the machine itself, and no packet leaves it.
//!
//! ```no_run
//! use netns::{Port, World};
//!
//! let world = match World::new("ping") {
//!     Ok(world) => world,
//!     Err(why) => {
//!         netns::skipped("two hosts ping each other", why);
//!         return Ok(());
//!     }
//! };
//! let (a, b) = (world.host("a")?, world.host("b")?);
//! world.segment(&[
//!     Port::new(&a, "eth0", &["10.77.0.2/24"]),
//!     Port::new(&b, "eth0", &["10.77.0.3/24"]),
//! ])?;
//!
//! // A command in a host: a `std::process::Command`, to run or to spawn as any other.
//! a.run(["ip", "-brief", "address"])?;
//! // A command that is killed when the value goes away.
//! let _daemon = b.spawn(b.command("my-daemon"))?;
//! // Code of this process in a host: sockets opened and threads started in there stay there.
//! let listener = b.enter(|| std::net::TcpListener::bind("10.77.0.3:988")).unwrap();
//!
//! // Trouble on the line.
//! a.rate_limit("eth0", "1gbit")?;
//! a.nft("add table inet t")?;
//! a.link_down("eth0")?;
//! # Ok::<(), netns::Error>(())
//! ```
//!
//! Names are `ulnet-PID-N-HOST`, so worlds of parallel tests do not meet. Dropping the [`World`]
//! (a panic does it too) ends whatever still runs in its hosts and removes them. When the process is
//! killed a janitor does it (`janitor.rs`), and the next `World::new` if that was killed as well.
//! Where to look next: `world.rs` for how hosts come and go, `host.rs` for what can be done in one,
//! `switch.rs` for cables that are pulled, `process.rs` for children.

mod error;
mod host;
mod janitor;
mod process;
mod switch;
mod world;

pub use error::{Error, Unavailable};
pub use host::Host;
pub use process::Process;
pub use switch::Switch;
pub use world::{Port, World};

use std::io::Write as _;

/// Says that `what` did not run, and why, where it is seen although the test passes: straight to
/// standard error, past the capture of the test harness.
pub fn skipped(what: &str, why: impl std::fmt::Display) {
    let line = format!("\nSKIPPED: {what}: {why}\n");
    // A closed standard error is no reason to fail a test.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
