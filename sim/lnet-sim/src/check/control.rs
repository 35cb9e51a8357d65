//! No storm of control traffic: pings, pushes and their answers. Those that programs want look like the
//! node's own, so they are counted when programs begin them; on kernel nodes so is everything.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use lnet_scenario::{Exchange, NodeId};
use lnet_types::{Instant, Nid};

use super::Bounds;
use crate::directory::HostId;
use crate::observe::{AttemptId, Observer, Seen, View, is_control};

/// Messages that one ping of a program may cause a node to send: a question that is sent again, or as
/// many answers.
const PER_PING: u64 = 4;
/// What a program no longer waits for may still be on its way for so long, and be answered then.
const LATE: Duration = Duration::from_secs(15);
/// Where it need not come home, as kernel routers may be jammed, it may come at last all the same.
const LATE_IN_JAMS: Duration = Duration::from_secs(300);

/// No node sends more control messages in a second than it has peers and interfaces, times a bound,
/// beside those for pings of programs.
pub(super) struct ControlTraffic {
    bounds: Bounds,
    second: u64,
    /// Pings of programs that are not answered.
    open: BTreeMap<AttemptId, Ping>,
    /// Those that programs have given up, and until when they count.
    late: VecDeque<(Instant, Ping)>,
    hosts: Vec<Counts>,
    /// Of all hosts, for those that pass on what is for others.
    all: Pings,
}

/// Sender and receiver of a ping.
type Ping = [Option<HostId>; 2];

#[derive(Clone, Copy, Default)]
struct Counts {
    /// Control messages in this second.
    sent: u64,
    pings: Pings,
}

/// Pings of programs.
#[derive(Clone, Copy, Default)]
struct Pings {
    open: u64,
    /// Those that were open in this second.
    seen: u64,
}

impl Pings {
    fn begin(&mut self) {
        self.open += 1;
        self.seen += 1;
    }
}

impl ControlTraffic {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            second: 0,
            open: BTreeMap::new(),
            late: VecDeque::new(),
            hosts: Vec::new(),
            all: Pings::default(),
        }
    }

    fn next_second(&mut self, now: Instant) {
        self.second = now.as_secs();
        while let Some(&(until, ping)) = self.late.front()
            && until <= now
        {
            self.late.pop_front();
            self.end(ping);
        }
        self.all.seen = self.all.open;
        for host in &mut self.hosts {
            host.sent = 0;
            host.pings.seen = host.pings.open;
        }
    }

    fn begun(&mut self, view: &View<'_>, attempt: AttemptId, host: HostId, to: Nid) {
        let to = view.directory.find(to).and_then(|ix| view.directory.rail(ix).host);
        let ping = [Some(host), to.filter(|to| *to != host)];
        self.open.insert(attempt, ping);
        self.all.begin();
        ping.into_iter().flatten().for_each(|host| self.hosts[host.0 as usize].pings.begin());
    }

    /// Until when a ping counts that is given up now.
    fn counts_until(&self, now: Instant) -> Instant {
        now + if self.bounds.must_be_home { LATE } else { LATE_IN_JAMS }
    }

    /// The programs of `host` died with it, and no event will end their pings.
    fn forget(&mut self, now: Instant, host: HostId) {
        let until = self.counts_until(now);
        let late = &mut self.late;
        self.open.retain(|_, ping| {
            let stays = ping[0] != Some(host);
            if !stays {
                late.push_back((until, *ping));
            }
            stays
        });
    }

    fn end(&mut self, ping: Ping) {
        self.all.open -= 1;
        for host in ping.into_iter().flatten() {
            self.hosts[host.0 as usize].pings.open -= 1;
        }
    }
}

impl Observer for ControlTraffic {
    fn name(&self) -> &'static str {
        "control-traffic"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        if self.hosts.len() < view.hosts.len() {
            self.hosts.resize(view.hosts.len(), Counts::default());
        }
        if self.second != view.now.as_secs() {
            self.next_second(view.now);
        }
        let host = match *seen {
            Seen::Begun { host, workload, attempt, to, .. } => {
                let exchange = view.scenario.workload.get(workload).map(|w| w.exchange);
                // Nodes without retries discover anew for each message (S-6).
                let conduct = view.host(host).map(|h| h.node.tunables().conduct);
                let asks =
                    conduct.is_some_and(|c| !c.retries_discovery || !c.sends_during_rediscovery);
                if exchange == Some(Exchange::Ping) || asks {
                    self.begun(view, attempt, host, to);
                }
                return Ok(());
            }
            Seen::Failed { attempt, .. } => {
                let until = self.counts_until(view.now);
                self.late.extend(self.open.remove(&attempt).map(|ping| (until, ping)));
                return Ok(());
            }
            Seen::Ended { attempt, .. } => {
                if let Some(ping) = self.open.remove(&attempt) {
                    self.end(ping);
                }
                return Ok(());
            }
            Seen::Died { host } => {
                self.forget(view.now, host);
                return Ok(());
            }
            Seen::Sent { host, transmit, .. } if is_control(transmit) => host,
            _ => return Ok(()),
        };
        let counts = &mut self.hosts[host.0 as usize];
        counts.sent += 1;
        // Pings may concern all hosts, a few times; a host that comes back is met by all anew, and
        // pinged back to health.
        let all_hosts = view.hosts.len() as u64 * 12;
        let sent = counts.sent;
        if sent > self.bounds.control_per_second + all_hosts {
            let group = view.scenario.world.group_of(NodeId(host.0));
            let is_router = group.is_some_and(|group| group.router);
            let pings = if is_router { self.all } else { counts.pings };
            if sent > self.bounds.control_per_second + all_hosts + pings.seen * PER_PING {
                let name = view.name(host);
                return Err(format!("{name}: {sent} control messages within one second"));
            }
        }
        Ok(())
    }
}
