//! What `top` knows and how keys change it: two looks at the node and the differences between them.
//! Pure: no terminal, no clock.

use std::collections::HashMap;

use lnet_admin::{
    FaultSnapshot, NetSnapshot, PeerNiState, PeerSnapshot, RailSnapshot, StatsSnapshot, Status,
    Traffic,
};
use lnet_types::Nid;

/// One look at the node.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) status: Status,
    pub(crate) nets: Vec<NetSnapshot>,
    pub(crate) peers: Vec<PeerSnapshot>,
    pub(crate) stats: StatsSnapshot,
    pub(crate) routes: Vec<Route>,
    /// Explanations of resends, oldest first.
    pub(crate) resends: Vec<String>,
    pub(crate) faults: Vec<FaultSnapshot>,
    /// Rails that are not above doubt.
    pub(crate) rails: Vec<RailSnapshot>,
}

/// A route.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) net: String,
    pub(crate) gateway: String,
    pub(crate) hops: Option<u32>,
    pub(crate) priority: u32,
    pub(crate) up: bool,
}

/// What is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Page {
    #[default]
    All,
    Nets,
    Peers,
    Routes,
    Resends,
}

impl Page {
    /// In the order of the number keys.
    pub(crate) const ALL: [Self; 5] =
        [Self::All, Self::Nets, Self::Peers, Self::Routes, Self::Resends];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Nets => "nets",
            Self::Peers => "peers",
            Self::Routes => "routes",
            Self::Resends => "resends",
        }
    }
}

/// By what interfaces are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// As the node lists them.
    #[default]
    Order,
    Nid,
    /// Worst first.
    Health,
    /// Most messages a second first.
    Rate,
    /// Most bytes queued first.
    Queue,
    /// Most failures first.
    Failures,
}

impl Sort {
    const ALL: [Self; 6] =
        [Self::Order, Self::Nid, Self::Health, Self::Rate, Self::Queue, Self::Failures];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Order => "age",
            Self::Nid => "NID",
            Self::Health => "health",
            Self::Rate => "rate",
            Self::Queue => "queue",
            Self::Failures => "failures",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|s| *s == self).unwrap_or(0);
        Self::ALL.into_iter().cycle().nth(at + 1).unwrap_or_default()
    }
}

/// A key, as far as it means something here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
}

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    /// Look at the node now.
    Look,
    Quit,
}

/// One line about an interface, ours or a peer's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) nid: String,
    /// The device, or `+` where a peer has further interfaces.
    pub(crate) device: String,
    pub(crate) state: &'static str,
    /// `None` where health means nothing: loopback, and peers that were never reached.
    pub(crate) health: Option<i32>,
    /// Messages a second.
    pub(crate) out: f64,
    pub(crate) inward: f64,
    pub(crate) queued: u64,
    pub(crate) failures: u32,
}

/// Rates of the whole node, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) sent: f64,
    pub(crate) received: f64,
    pub(crate) sent_bytes: f64,
    pub(crate) received_bytes: f64,
}

/// The program's state.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) now: Option<Sample>,
    /// Messages sent and received before, by the side and NID of the interface.
    before: HashMap<(Side, Nid), (u32, u32)>,
    stats_before: Option<StatsSnapshot>,
    /// Seconds between the two looks.
    span: f64,
    pub(crate) page: Page,
    pub(crate) sort: Sort,
    pub(crate) reverse: bool,
    pub(crate) filter: String,
    /// The filter is being typed.
    pub(crate) typing: bool,
    pub(crate) help: bool,
    pub(crate) paused: bool,
    /// Lines that have been scrolled past.
    pub(crate) scroll: usize,
    /// Why there was no answer.
    pub(crate) trouble: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Side {
    Local,
    Peer,
}

/// Lines that a page key scrolls.
const PAGE_LINES: usize = 10;
/// The longest filter.
const FILTER_MAX: usize = 40;

impl Model {
    /// A new look, `seconds` after the last one.
    pub(crate) fn take(&mut self, sample: Sample, seconds: f64) {
        if let Some(old) = self.now.take() {
            self.span = seconds;
            self.stats_before = Some(old.stats);
            self.before = traffic(&old)
                .map(|(side, nid, t)| ((side, nid), (t.sent.sum(), t.received.sum())))
                .collect();
        }
        self.trouble = None;
        self.now = Some(sample);
    }

    /// What a key does.
    pub(crate) fn key(&mut self, key: Key) -> Next {
        if key == Key::Interrupt {
            return Next::Quit;
        }
        if self.typing {
            match key {
                Key::Enter => self.typing = false,
                Key::Escape => {
                    self.typing = false;
                    self.filter.clear();
                }
                Key::Backspace => {
                    self.filter.pop();
                }
                Key::Char(c) if self.filter.len() < FILTER_MAX && !c.is_control() => {
                    self.filter.push(c);
                }
                _ => {}
            }
            self.scroll = 0;
            return Next::Stay;
        }
        if self.help {
            self.help = false;
            return Next::Stay;
        }
        match key {
            Key::Char('q') => return Next::Quit,
            Key::Char('?' | 'h') => self.help = true,
            Key::Char('/') => self.typing = true,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('r') => self.reverse = !self.reverse,
            Key::Char('p') => self.paused = !self.paused,
            Key::Char(' ') => return Next::Look,
            Key::Char(c @ '1'..='5') => {
                let at = c.to_digit(10).unwrap_or(1) as usize - 1;
                self.turn_to(Page::ALL.get(at).copied().unwrap_or_default());
            }
            Key::Tab => {
                let at = Page::ALL.iter().position(|p| *p == self.page).unwrap_or(0);
                self.turn_to(Page::ALL.into_iter().cycle().nth(at + 1).unwrap_or_default());
            }
            Key::Escape => self.filter.clear(),
            Key::Up | Key::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            Key::Down | Key::Char('j') => self.scroll += 1,
            Key::PageUp => self.scroll = self.scroll.saturating_sub(PAGE_LINES),
            Key::PageDown => self.scroll += PAGE_LINES,
            Key::Home => self.scroll = 0,
            // Drawing knows how far that is.
            Key::End => self.scroll = usize::MAX / 2,
            _ => {}
        }
        Next::Stay
    }

    fn turn_to(&mut self, page: Page) {
        self.page = page;
        self.scroll = 0;
    }

    /// The node's rates; 0 until there are two looks.
    pub(crate) fn rates(&self) -> Rates {
        let (Some(now), Some(before)) = (&self.now, &self.stats_before) else {
            return Rates::default();
        };
        let bytes = |now: u64, before: u64| self.per_second(now.saturating_sub(before) as f64);
        Rates {
            sent: self.per_second(moved(now.stats.send_count, before.send_count)),
            received: self.per_second(moved(now.stats.recv_count, before.recv_count)),
            sent_bytes: bytes(now.stats.send_length, before.send_length),
            received_bytes: bytes(now.stats.recv_length, before.recv_length),
        }
    }

    /// Local interfaces, filtered and sorted.
    pub(crate) fn nis(&self) -> Vec<Line> {
        let Some(now) = &self.now else { return Vec::new() };
        let nis = now.nets.iter().flat_map(|net| &net.nis).map(|ni| {
            let detail = ni.detail.as_deref();
            let health = detail.map(|d| d.health);
            let value = health.map_or(0, |h| h.value);
            let (out, inward) = self.moved(Side::Local, ni.nid, detail.map(|d| &d.traffic));
            Line {
                nid: ni.nid.to_string(),
                device: ni.interface.clone().unwrap_or_default(),
                state: match (ni.up, value) {
                    (false, _) => "down",
                    (true, 1000..) => "up",
                    (true, _) if ni.nid.is_loopback() => "up",
                    (true, _) => "degraded",
                },
                health: (!ni.nid.is_loopback()).then_some(value),
                out,
                inward,
                queued: 0,
                failures: health.map_or(0, |h| {
                    let all = [h.interrupts, h.dropped, h.aborted, h.no_route, h.timeouts, h.error];
                    all.into_iter().fold(0, u32::wrapping_add)
                }),
            }
        });
        self.arranged(nis.collect())
    }

    /// Interfaces of peers, filtered and sorted.
    pub(crate) fn peer_nis(&self) -> Vec<Line> {
        let Some(now) = &self.now else { return Vec::new() };
        let nis = now.peers.iter().flat_map(|peer| {
            let reached = peer.was_reached();
            peer.nis.iter().map(move |ni| {
                let detail = ni.detail.as_deref();
                let health = detail.map(|d| d.health);
                let value = health.map_or(0, |h| h.value);
                let (out, inward) = self.moved(Side::Peer, ni.nid, detail.map(|d| &d.traffic));
                Line {
                    nid: ni.nid.to_string(),
                    device: if ni.nid == peer.primary { "" } else { "+" }.to_owned(),
                    state: match (ni.state, value) {
                        (PeerNiState::Down, _) => "down",
                        // No message has ever come from it: nothing speaks for its health.
                        _ if !reached => "unknown",
                        // Before anything has failed: avoided all the same.
                        _ if doubted(now, ni.nid, "silent") => "silent",
                        _ if doubted(now, ni.nid, "unproven") => "unproven",
                        _ if doubted(now, ni.nid, "shaky") => "shaky",
                        (PeerNiState::Up, 1000..) => "up",
                        (PeerNiState::NotWatched, 1000..) => "healthy",
                        _ => "impaired",
                    },
                    health: reached.then_some(value),
                    out,
                    inward,
                    queued: detail.map_or(0, |d| d.credits.tx_queue_bytes),
                    failures: health.map_or(0, |h| {
                        let all = [h.dropped, h.timeout, h.error, h.network_timeout];
                        all.into_iter().fold(0, u32::wrapping_add)
                    }),
                }
            })
        });
        self.arranged(nis.collect())
    }

    /// Routes with the filter in them.
    pub(crate) fn routes(&self) -> Vec<&Route> {
        let all = self.now.iter().flat_map(|now| &now.routes);
        all.filter(|r| r.net.contains(&self.filter) || r.gateway.contains(&self.filter)).collect()
    }

    fn moved(&self, side: Side, nid: Nid, traffic: Option<&Traffic>) -> (f64, f64) {
        let (Some(traffic), Some((sent, received))) = (traffic, self.before.get(&(side, nid)))
        else {
            return (0.0, 0.0);
        };
        let out = moved(traffic.sent.sum(), *sent);
        (self.per_second(out), self.per_second(moved(traffic.received.sum(), *received)))
    }

    fn per_second(&self, n: f64) -> f64 {
        if self.span > 0.0 { n / self.span } else { 0.0 }
    }

    fn arranged(&self, mut lines: Vec<Line>) -> Vec<Line> {
        lines.retain(|line| line.nid.contains(&self.filter) || line.device.contains(&self.filter));
        let rate = |line: &Line| line.out + line.inward;
        match self.sort {
            Sort::Order => {}
            Sort::Nid => lines.sort_by(|a, b| a.nid.cmp(&b.nid)),
            Sort::Health => lines.sort_by_key(|line| line.health.unwrap_or(i32::MAX)),
            Sort::Rate => lines.sort_by(|a, b| rate(b).total_cmp(&rate(a))),
            Sort::Queue => lines.sort_by_key(|line| core::cmp::Reverse(line.queued)),
            Sort::Failures => lines.sort_by_key(|line| core::cmp::Reverse(line.failures)),
        }
        if self.reverse {
            lines.reverse();
        }
        lines
    }
}

/// Whether a rail to a peer's interface is doubted so much.
fn doubted(now: &Sample, nid: Nid, doubt: &str) -> bool {
    now.rails.iter().any(|rail| rail.peer == nid && rail.doubt == doubt)
}

/// The difference of two counters of 32 bits that wrap; nothing if they were zeroed.
fn moved(now: u32, before: u32) -> f64 {
    let moved = now.wrapping_sub(before);
    if moved > u32::MAX / 2 { 0.0 } else { f64::from(moved) }
}

fn traffic(sample: &Sample) -> impl Iterator<Item = (Side, Nid, &Traffic)> {
    let ours = sample.nets.iter().flat_map(|net| &net.nis);
    let ours = ours.filter_map(|ni| Some((Side::Local, ni.nid, &ni.detail.as_deref()?.traffic)));
    let theirs = sample.peers.iter().flat_map(|peer| &peer.nis);
    let theirs = theirs.filter_map(|ni| Some((Side::Peer, ni.nid, &ni.detail.as_deref()?.traffic)));
    ours.chain(theirs)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
