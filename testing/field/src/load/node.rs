//! The node that a load process embeds, and the buffers in which it takes messages.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use lnet::{Profile, RouteSpec};
use lnet_rt::{
    AttachOptions, Buffer, Event, EventKind, MatchEntry, Net, Nid, NodeBuilder, NodeHandle,
    Service, Stack, TcpNi, Tunables,
};

use super::pattern::Pattern;
use super::talk::NodeSpec;
use crate::clock::{Clock, Micros};
use crate::concern::{self, Watch};

/// Portal of requests.
pub(crate) const REQUESTS: u32 = 20;
/// Portal of replies.
pub(crate) const REPLIES: u32 = 21;
/// Portal of bulk.
pub(crate) const BULKS: u32 = 22;

/// Buffers posted at each portal. A buffer that is full is gone until its last message is there; the
/// others take what comes meanwhile.
const BUFFERS: usize = 8;
/// How long a node may take to find its peer.
const FIND: Duration = Duration::from_secs(20);

/// Starts a node.
pub(crate) fn start(spec: &NodeSpec) -> anyhow::Result<NodeHandle> {
    let profile = Profile::from_name(&spec.profile)
        .with_context(|| format!("no profile is called {:?}", spec.profile))?;
    let mut tunables = Tunables::new(profile);
    let changes: Vec<(&str, i64)> = spec.tunables.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    tunables.set_all(&changes)?;
    for (row, value) in &spec.conduct {
        tunables.conduct.set(row, value)?;
    }
    let mut builder = NodeBuilder::new().tunables(tunables);
    for nid in &spec.nids {
        let nid: Nid = nid.parse()?;
        let Some(ip) = nid.ip() else { bail!("{nid}: not an address of a TCP network") };
        builder = builder.tcp_on(nid.net(), ip, spec.port);
    }
    let node = builder.start()?;
    for line in &spec.routes {
        let route = RouteSpec {
            net: line.net.parse::<Net>()?,
            gateway: line.gateway.parse()?,
            hops: line.hops,
            priority: line.priority,
        };
        let added = node.call(move |stack, now| stack.node_mut().add_route(now, route));
        added.blocking()?.with_context(|| format!("route {line:?}"))?;
    }
    Ok(node)
}

/// Discovers `peer`, and tries again while it does not answer: both sides of a run start together.
pub(crate) fn find(node: &NodeHandle, peer: Nid) -> anyhow::Result<()> {
    let end = Instant::now() + FIND;
    loop {
        match node.discover_again(peer).blocking() {
            Ok(_) => return Ok(()),
            Err(e) if Instant::now() >= end => bail!("{peer} does not answer: {e}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Adds an interface, with everything as it comes.
pub(crate) fn add_ni(node: &NodeHandle, nid: &str) -> anyhow::Result<()> {
    let nid: Nid = nid.parse()?;
    node.call(move |stack, _| stack.add_tcp_ni(TcpNi::new(nid))).blocking()??;
    Ok(())
}

/// Removes an interface.
pub(crate) fn del_ni(node: &NodeHandle, nid: &str) -> anyhow::Result<()> {
    let nid: Nid = nid.parse()?;
    let gone = node.call(move |stack, _| {
        let views = stack.node().net_views();
        let ni = views.iter().flat_map(|net| &net.nis).find(|ni| ni.nid == nid).map(|ni| ni.id);
        ni.map(|ni| stack.del_ni(ni))
    });
    match gone.blocking()? {
        Some(Ok(())) => Ok(()),
        Some(Err(errno)) => bail!("{nid}: {errno}"),
        None => bail!("{nid}: no such interface"),
    }
}

/// What the node has counted, by name.
pub(crate) fn counters(node: &NodeHandle) -> Vec<(String, u64)> {
    let rows = node.call(|stack, _| {
        let node = stack.node();
        let stats = node.stats().rows().into_iter().map(|(name, n)| (name.to_owned(), n));
        let drops =
            node.drops().filter(|(_, n)| *n > 0).map(|(why, n)| (format!("drop {why:?}"), n));
        stats.chain(drops).collect()
    });
    rows.blocking().unwrap_or_default()
}

/// Looks at the concerns of a node for as long as it lives.
pub(crate) fn watch(node: &NodeHandle, clock: Clock) -> Arc<Mutex<Watch>> {
    let (node, watch) = (node.clone(), Arc::new(Mutex::new(Watch::default())));
    let noted = Arc::clone(&watch);
    std::thread::spawn(move || {
        while let Ok(now) = node.call(|stack, _| concern::of(stack.node())).blocking() {
            // Nothing panics under the lock.
            noted.lock().unwrap_or_else(PoisonError::into_inner).look(clock.now(), now);
            std::thread::sleep(concern::LOOK);
        }
    });
    watch
}

/// What was seen by [`watch`].
pub(crate) fn noticed(watch: &Mutex<Watch>) -> Vec<Micros> {
    watch.lock().unwrap_or_else(PoisonError::into_inner).noticed.clone()
}

/// A message that arrived: its `hdr_data`, the initiator, and whether its bytes are right.
pub(crate) struct Arrival {
    pub(crate) tag: u64,
    pub(crate) from: Nid,
    pub(crate) good: bool,
}

/// Buffers at one portal, for messages of one size, posted again when they are spent.
pub(crate) struct Landing<N> {
    node: NodeHandle,
    portal: u32,
    size: u32,
    pattern: Arc<Pattern>,
    queue: Sender<N>,
    arrived: Arc<dyn Fn(Arrival) -> N + Send + Sync>,
    spent: fn(Spent) -> N,
    posted: Vec<(u64, Service)>,
    /// How many have been posted.
    count: u64,
}

/// A buffer that is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) portal: u32,
    /// Which of its portal's.
    number: u64,
}

/// Where messages land: portal and size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) portal: u32,
    pub(crate) size: u32,
}

impl<N: Send + 'static> Landing<N> {
    /// Posts the buffers. `arrived` makes, on the node's thread, what is queued for each message,
    /// `spent` what is queued for each buffer that is gone, on which [`Landing::renew`] is to be
    /// called. A message's `hdr_data` says which bytes it should have.
    pub(crate) fn new(
        node: &NodeHandle,
        at: Spot,
        pattern: &Arc<Pattern>,
        queue: Sender<N>,
        arrived: impl Fn(Arrival) -> N + Send + Sync + 'static,
        spent: fn(Spent) -> N,
    ) -> anyhow::Result<Self> {
        let mut this = Self {
            node: node.clone(),
            portal: at.portal,
            size: at.size,
            pattern: Arc::clone(pattern),
            queue,
            arrived: Arc::new(arrived),
            spent,
            posted: Vec::new(),
            count: 0,
        };
        for _ in 0..BUFFERS {
            this.post()?;
        }
        Ok(this)
    }

    /// Another buffer in place of one that is gone. Another one may be older, and have no room: what
    /// came into it last, over a slow rail, is still arriving.
    pub(crate) fn renew(&mut self, spent: Spent) -> anyhow::Result<()> {
        self.posted.retain(|(number, _)| *number != spent.number);
        self.post()
    }

    /// One more buffer.
    fn post(&mut self) -> anyhow::Result<()> {
        let size = self.size as usize;
        let options = AttachOptions { max_size: Some(self.size), ..AttachOptions::PUT };
        let (pattern, queue) = (Arc::clone(&self.pattern), self.queue.clone());
        let (portal, arrived, spent) = (self.portal, Arc::clone(&self.arrived), self.spent);
        let number = self.count;
        self.count += 1;
        let handler = move |stack: &mut Stack, event: &Event| {
            if event.kind == EventKind::Put && event.status.is_ok() {
                let tag = event.hdr_data;
                let good = pattern.is(tag, size, stack.payload(event).unwrap_or_default());
                // No receiver is left: the program is over.
                let _ = queue.send(arrived(Arrival { tag, from: event.initiator.nid, good }));
            }
            if event.unlinked {
                let _ = queue.send(spent(Spent { portal, number }));
            }
        };
        let buffer = Buffer::zeroed(size * (2usize << 20).div_ceil(size.max(1)).max(4));
        let entry = MatchEntry::bits(u64::from(self.portal));
        let service = self.node.attach_handler(self.portal, entry, buffer, options, handler)?;
        self.posted.push((number, service));
        Ok(())
    }
}
