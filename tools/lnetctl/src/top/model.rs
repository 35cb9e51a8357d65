//! The state of `top` and its keys: two looks at the node and the differences between them.
//! Pure: no terminal, no clock.

use std::collections::{BTreeSet, HashMap};

use lnet_admin::{
    FaultSnapshot, InterfaceState, NetSnapshot, PeerSnapshot, RailSnapshot, RouteSnapshot,
    StatsSnapshot, Status, UsageSnapshot,
};
use lnet_types::Nid;

use super::columns::Column;

/// One look at the node.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) status: Status,
    pub(crate) nets: Vec<NetSnapshot>,
    pub(crate) peers: Vec<PeerSnapshot>,
    pub(crate) stats: StatsSnapshot,
    pub(crate) routes: Vec<RouteSnapshot>,
    /// Explanations of resends, oldest first.
    pub(crate) resends: Vec<String>,
    pub(crate) faults: Vec<FaultSnapshot>,
    /// Rails that are not above doubt.
    pub(crate) rails: Vec<RailSnapshot>,
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
    Listed,
    Nid,
    /// By a column, what needs attention first.
    By(Column),
}

impl Sort {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Listed => "age",
            Self::Nid => "NID",
            Self::By(column) => column.name(),
        }
    }

    pub(crate) const fn column(self) -> Option<Column> {
        match self {
            Self::By(column) => Some(column),
            Self::Listed | Self::Nid => None,
        }
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
    pub(crate) state: InterfaceState,
    /// How a rail that ends there is doubted; empty without a doubt.
    pub(crate) doubt: &'static str,
    /// `None` where health means nothing: loopback, and peers that were never reached.
    pub(crate) health: Option<i32>,
    /// Messages a second.
    pub(crate) out: f64,
    pub(crate) inward: f64,
    /// Bytes of payload a second.
    pub(crate) out_bytes: f64,
    pub(crate) in_bytes: f64,
    /// `None` where there are none: loopback, and interfaces behind routers.
    pub(crate) credits: Option<Credits>,
    /// Bytes.
    pub(crate) queued: u64,
    /// The median from a PUT or GET to its ACK or REPLY.
    pub(crate) latency_ns: Option<u64>,
    /// Age of the last message received.
    pub(crate) last_ms: Option<u64>,
    pub(crate) failures: u32,
}

/// Transmit credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credits {
    /// Negative: messages that wait for one.
    pub(crate) free: i32,
    pub(crate) max: i32,
    pub(crate) least: i32,
}

impl Credits {
    fn of(free: i32, max: i32, least: i32) -> Option<Self> {
        (max > 0).then_some(Self { free, max, least })
    }
}

/// What an interface has moved.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    sent: u32,
    received: u32,
    sent_bytes: u64,
    received_bytes: u64,
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
    /// What each interface had moved before, by its side and NID.
    before: HashMap<(Side, Nid), Moved>,
    /// Columns in which something was seen: they stay, so that the picture does not jump.
    filled: BTreeSet<Column>,
    /// Columns that were deselected.
    pub(crate) hidden: BTreeSet<Column>,
    /// The row of the choice of columns, while that is open.
    pub(crate) choosing: Option<usize>,
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
            self.before = all_moved(&old).map(|(side, nid, m)| ((side, nid), m)).collect();
        }
        self.trouble = None;
        self.now = Some(sample);
        for line in self.all_nis().into_iter().chain(self.all_peer_nis()) {
            self.filled.extend(Column::ALL.into_iter().filter(|c| c.is_there(&line)));
        }
    }

    /// Whether a column is to be shown: it was not deselected, and something was in it.
    pub(crate) fn wants(&self, column: Column) -> bool {
        !self.hidden.contains(&column) && self.filled.contains(&column)
    }

    /// Whether nothing has been seen in a column yet.
    pub(crate) fn is_empty(&self, column: Column) -> bool {
        !self.filled.contains(&column)
    }

    /// What rows may be sorted by now, in the order of the keys.
    fn sorts(&self) -> Vec<Sort> {
        let columns = Column::ALL.into_iter().filter(|c| self.wants(*c)).map(Sort::By);
        [Sort::Listed, Sort::Nid].into_iter().chain(columns).collect()
    }

    fn sort_beside(&mut self, forward: bool) {
        let all = self.sorts();
        let at = all.iter().position(|s| *s == self.sort).unwrap_or(0);
        let next = if forward { at + 1 } else { at + all.len() - 1 };
        self.sort = all.get(next % all.len()).copied().unwrap_or_default();
    }

    /// A key while the choice of columns is open.
    fn choose(&mut self, at: usize, key: Key) {
        let last = Column::ALL.len() - 1;
        self.choosing = match key {
            Key::Up | Key::Char('k') => Some(at.saturating_sub(1)),
            Key::Down | Key::Char('j') => Some((at + 1).min(last)),
            Key::Home => Some(0),
            Key::End => Some(last),
            Key::Char(' ') => {
                if let Some(column) = Column::ALL.get(at)
                    && !self.hidden.remove(column)
                {
                    self.hidden.insert(*column);
                    if self.sort == Sort::By(*column) {
                        self.sort = Sort::Listed;
                    }
                }
                Some(at)
            }
            Key::Char('a') => {
                self.hidden.clear();
                Some(at)
            }
            Key::Enter | Key::Escape | Key::Char('c' | 'q') => None,
            _ => Some(at),
        };
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
        if let Some(at) = self.choosing {
            self.choose(at, key);
            return Next::Stay;
        }
        match key {
            Key::Char('q') => return Next::Quit,
            Key::Char('?' | 'h') => self.help = true,
            Key::Char('/') => self.typing = true,
            Key::Char('s' | '>') => self.sort_beside(true),
            Key::Char('<') => self.sort_beside(false),
            Key::Char('c') => self.choosing = Some(0),
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
            // Drawing limits it.
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
        self.arranged(self.all_nis())
    }

    /// Interfaces of peers, filtered and sorted.
    pub(crate) fn peer_nis(&self) -> Vec<Line> {
        self.arranged(self.all_peer_nis())
    }

    fn all_nis(&self) -> Vec<Line> {
        let Some(now) = &self.now else { return Vec::new() };
        let nis = now.nets.iter().flat_map(|net| &net.nis).map(|ni| {
            let detail = ni.detail.as_deref().cloned().unwrap_or_default();
            let (h, more) = (detail.health, &detail.more);
            let moved = Moved::of(&detail.traffic, more.bytes);
            let rates = self.rates_of(Side::Local, ni.nid, moved);
            Line {
                nid: ni.nid.to_string(),
                device: ni.interface.clone().unwrap_or_default(),
                state: ni.interface_state(),
                doubt: "",
                health: (!ni.nid.is_loopback()).then_some(h.value),
                out: rates.sent,
                inward: rates.received,
                out_bytes: rates.sent_bytes,
                in_bytes: rates.received_bytes,
                credits: Credits::of(more.tx_available, more.tx_max, more.tx_min),
                queued: 0,
                latency_ns: median(&more.usage),
                last_ms: more.last_received_ms,
                failures: h.failures(),
            }
        });
        nis.collect()
    }

    fn all_peer_nis(&self) -> Vec<Line> {
        let Some(now) = &self.now else { return Vec::new() };
        let doubts = doubts(&now.rails);
        let nis = now.peers.iter().flat_map(|peer| {
            let (reached, doubts) = (peer.was_reached(), &doubts);
            peer.nis.iter().map(move |ni| {
                let detail = ni.detail.as_deref().copied().unwrap_or_default();
                let (h, c) = (detail.health, detail.credits);
                let moved = Moved::of(&detail.traffic, detail.bytes);
                let rates = self.rates_of(Side::Peer, ni.nid, moved);
                let doubt = doubts.get(&ni.nid).copied();
                Line {
                    nid: ni.nid.to_string(),
                    device: if ni.nid == peer.primary { "" } else { "+" }.to_owned(),
                    state: ni.interface_state(reached, doubt.is_some()),
                    doubt: doubt.unwrap_or_default(),
                    health: reached.then_some(h.value),
                    out: rates.sent,
                    inward: rates.received,
                    out_bytes: rates.sent_bytes,
                    in_bytes: rates.received_bytes,
                    credits: Credits::of(c.tx_available, c.tx_max, c.tx_min),
                    queued: c.tx_queue_bytes,
                    latency_ns: median(&detail.usage),
                    last_ms: detail.last_received_ms,
                    failures: h.failures(),
                }
            })
        });
        nis.collect()
    }

    /// Routes with the filter in them.
    pub(crate) fn routes(&self) -> Vec<&RouteSnapshot> {
        let all = self.now.iter().flat_map(|now| &now.routes);
        let has = |text: String| text.contains(&self.filter);
        all.filter(|r| has(r.net.to_string()) || has(r.gateway.to_string())).collect()
    }

    fn rates_of(&self, side: Side, nid: Nid, now: Moved) -> Rates {
        let Some(before) = self.before.get(&(side, nid)) else { return Rates::default() };
        let bytes = |now: u64, before: u64| self.per_second(now.saturating_sub(before) as f64);
        Rates {
            sent: self.per_second(moved(now.sent, before.sent)),
            received: self.per_second(moved(now.received, before.received)),
            sent_bytes: bytes(now.sent_bytes, before.sent_bytes),
            received_bytes: bytes(now.received_bytes, before.received_bytes),
        }
    }

    fn per_second(&self, n: f64) -> f64 {
        if self.span > 0.0 { n / self.span } else { 0.0 }
    }

    fn arranged(&self, mut lines: Vec<Line>) -> Vec<Line> {
        lines.retain(|line| line.nid.contains(&self.filter) || line.device.contains(&self.filter));
        match self.sort {
            Sort::Listed => {}
            Sort::Nid => lines.sort_by(|a, b| a.nid.cmp(&b.nid)),
            Sort::By(column) => lines.sort_by(|a, b| column.order(a, b)),
        }
        if self.reverse {
            lines.reverse();
        }
        lines
    }
}

/// The gravest doubt about the rails that end in each interface of a peer.
fn doubts(rails: &[RailSnapshot]) -> HashMap<Nid, &'static str> {
    // The gravest last.
    let grades = ["shaky", "unproven", "slow", "silent"];
    let mut worst: HashMap<Nid, usize> = HashMap::new();
    for rail in rails {
        // A doubt of a later version is at least one.
        let grade = grades.iter().position(|g| *g == rail.doubt).unwrap_or(0);
        let of_nid = worst.entry(rail.peer).or_insert(grade);
        *of_nid = grade.max(*of_nid);
    }
    let named = |(nid, grade): (Nid, usize)| Some((nid, *grades.get(grade)?));
    worst.into_iter().filter_map(named).collect()
}

/// The median time of completion, if there was any.
fn median(usage: &UsageSnapshot) -> Option<u64> {
    (usage.complete.samples > 0).then_some(usage.complete.p50_nsec)
}

/// The difference of two counters of 32 bits that wrap; nothing if they were zeroed.
fn moved(now: u32, before: u32) -> f64 {
    let moved = now.wrapping_sub(before);
    if moved > u32::MAX / 2 { 0.0 } else { f64::from(moved) }
}

impl Moved {
    fn of(traffic: &lnet_admin::Traffic, (sent_bytes, received_bytes): (u64, u64)) -> Self {
        let (sent, received) = (traffic.sent.sum(), traffic.received.sum());
        Self { sent, received, sent_bytes, received_bytes }
    }
}

fn all_moved(sample: &Sample) -> impl Iterator<Item = (Side, Nid, Moved)> {
    let ours = sample.nets.iter().flat_map(|net| &net.nis).filter_map(|ni| {
        let d = ni.detail.as_deref()?;
        Some((Side::Local, ni.nid, Moved::of(&d.traffic, d.more.bytes)))
    });
    let theirs = sample.peers.iter().flat_map(|peer| &peer.nis).filter_map(|ni| {
        let d = ni.detail.as_deref()?;
        Some((Side::Peer, ni.nid, Moved::of(&d.traffic, d.bytes)))
    });
    ours.chain(theirs)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
