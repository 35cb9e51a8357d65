//! What many share, and what it costs them all when it goes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use core::time::Duration;

use lnet_scenario::parse;
use lnet_sim::{HostId, Messages, Observer, Seen, Sim, View};
use lnet_types::Instant;

/// A hundred clients behind four routers, one of which dies at 10 s, for fifteen.
const SITE: &str = r#"
name = "one-router-of-four"
duration = "30s"
[tunables]
alive_router_check_interval = 5
router_ping_timeout = 2
[[net]]
name = "tcp"
latency = "50us"
bandwidth = "10Gbit/s"
[[net]]
name = "o2ib"
latency = "5us"
bandwidth = "100Gbit/s"
[[node]]
name = "client"
count = 100
rails = ["tcp"]
routes = [{ net = "o2ib", gateway = "router" }]
[[node]]
name = "router"
count = 4
router = true
rails = ["tcp", "o2ib"]
tunables = { tiny_buffers = 2048, small_buffers = 4096, large_buffers = 64 }
[[node]]
name = "server"
count = 2
rails = ["o2ib"]
routes = [{ net = "tcp", gateway = "router" }]
[[workload]]
kind = "request"
from = "client"
to = "server"
every = "400ms"
size = "4KiB"
reply = "4KiB"
timeout = "6s"
retries = 5
[[fault]]
at = "10s"
for = "15s"
kind = "kill"
on = "router-1"
"#;

/// Longer than this an exchange takes only if something is wrong.
const LATE: Duration = Duration::from_millis(500);

/// When each client had last ended an exchange that was late, or had failed in the end.
#[derive(Clone, Default)]
struct Affected(Rc<RefCell<BTreeMap<HostId, Instant>>>);

impl Observer for Affected {
    fn name(&self) -> &'static str {
        "affected"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        if let Seen::Ended { host, took, well, .. } = seen
            && (*took > LATE || !well)
        {
            self.0.borrow_mut().insert(*host, view.now);
        }
        Ok(())
    }
}

/// Plays the site by the rules of a profile.
fn affected(profile: lnet::Profile) -> BTreeMap<HostId, Instant> {
    let mut scenario = parse("site", SITE).unwrap();
    scenario.set_profile(profile).unwrap();
    let mut sim = Sim::new(Arc::new(scenario), None, Messages::new());
    let seen = Affected::default();
    sim.observe(Box::new(seen.clone()));
    sim.run().unwrap();
    seen.0.take()
}

/// PA-041: every client uses every router, so one that dies concerns them all. By the kernel's rules
/// most of them wait for an answer that was lost, or ask in vain until it is found out; rails that
/// fall silent are left before that.
#[test]
fn few_of_a_hundred_clients_stall_when_one_router_of_four_dies_but_many_by_kernel_rules() {
    let [ours, kernels] = [lnet::Profile::Default, lnet::Profile::Kernel].map(affected);
    println!(
        "late exchanges: {} of 100 clients, by the kernel's rules {}",
        ours.len(),
        kernels.len()
    );
    let begin = Instant::from_secs(10);
    assert!(ours.values().chain(kernels.values()).all(|at| *at > begin), "before, no client waits");
    assert!(ours.len() <= 10, "{} of 100", ours.len());
    assert!(kernels.len() > 25, "{} of 100", kernels.len());
}
