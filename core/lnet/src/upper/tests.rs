//! Two uppers on one node, over its loopback interface.

use lnet_types::{Fault, Instant, Memory, NiId, ProcessId};

use super::*;
use crate::{Driver, EventKind, Loopback, MdOptions, NodeConfig, Output, Tunables};

/// Regions as vectors, and how many descriptors stand on each.
#[derive(Default)]
struct Heap {
    regions: Vec<Vec<u8>>,
    held: BTreeMap<RegionId, i32>,
}

impl Heap {
    /// Bytes of all regions.
    fn total(&self) -> usize {
        self.regions.iter().map(Vec::len).sum()
    }
}

impl Memory for Heap {
    fn bytes(&self, span: Span) -> &[u8] {
        &self.regions[span.region.0 as usize][span.offset as usize..][..span.len as usize]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.regions[span.region.0 as usize][span.offset as usize..][..span.len as usize]
    }
}

impl Arena for Heap {
    fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        self.regions.push(vec![0; len as usize]);
        Ok(RegionId(self.regions.len() as u32 - 1))
    }

    fn unregister(&mut self, region: RegionId) {
        let held = self.held.get(&region).copied().unwrap_or_default();
        assert_eq!(held, 0, "{region:?} goes with descriptors on it");
        self.regions[region.0 as usize] = Vec::new();
    }

    fn contains(&self, spans: &[Span]) -> bool {
        let region = |s: &Span| self.regions.get(s.region.0 as usize);
        spans
            .iter()
            .all(|s| region(s).is_some_and(|r| s.offset + u64::from(s.len) <= r.len() as u64))
    }

    fn hold(&mut self, spans: &[Span]) {
        spans.iter().for_each(|s| *self.held.entry(s.region).or_default() += 1);
    }

    fn release(&mut self, spans: &[Span]) {
        spans.iter().for_each(|s| *self.held.entry(s.region).or_default() -= 1);
    }
}

struct Host {
    node: Node,
    lo: Loopback,
    heap: Heap,
    uppers: Uppers,
    now: Instant,
}

impl Host {
    fn new() -> Self {
        let config =
            NodeConfig { seed: 1, interface_cookie: 1, ping_seq: 0, tunables: Tunables::default() };
        let node = Node::new(config, Instant::ZERO);
        Self {
            node,
            lo: Loopback::new(),
            heap: Heap::default(),
            uppers: Uppers::default(),
            now: Instant::ZERO,
        }
    }

    fn add(&mut self, upper: impl Upper) -> UpperId {
        self.uppers.add(Box::new(upper)).unwrap()
    }

    fn with<T: Upper, R>(&mut self, id: UpperId, f: impl FnOnce(&mut T, &mut Below<'_>) -> R) -> R {
        let Self { node, heap, uppers, now, .. } = self;
        uppers.with(id, *now, node, heap, f).unwrap()
    }

    fn settle(&mut self) {
        loop {
            let Self { node, heap, uppers, now, .. } = &mut *self;
            let mut more = false;
            while let Some(mut event) = node.poll_event() {
                assert!(uppers.event(*now, &mut event, node, heap), "{event:?}");
                more = true;
            }
            while let Some(report) = node.poll_report() {
                assert!(uppers.report(*now, &report, node, heap));
                more = true;
            }
            more |= self.carry();
            if !more {
                return;
            }
        }
    }

    /// Carries messages, and delivers nothing of what comes of it. Whether there were any.
    fn carry(&mut self) -> bool {
        let Self { node, lo, heap, now, .. } = self;
        let mut more = false;
        while let Some(output) = node.poll_output() {
            let Output::Send(transmit) = output else { panic!("{output:?}") };
            let msg = transmit.msg;
            if let Err(fault) = lo.send(*now, &transmit, heap) {
                let _: Fault = fault;
                node.tx_refused(*now, msg, fault);
            }
            more = true;
        }
        lo.flush(*now, node, heap);
        more
    }
}

const PORTAL: u32 = 40;

/// Sends each message back to where it came from; asks for itself once a second.
#[derive(Default)]
struct Echo {
    heard: Vec<(u64, Vec<u8>)>,
    spent: Vec<u64>,
    last: Option<EventKind>,
    reports: usize,
    due: Option<Instant>,
    ticks: usize,
    lost: Vec<Nid>,
}

impl Echo {
    fn listen(&self, user: u64, below: &mut Below<'_>) -> Result<MdId, BelowError> {
        let span = below.alloc(100).unwrap();
        assert_eq!(span.len, 100);
        let options = MdOptions::OP_PUT | MdOptions::TRUNCATE;
        let spec = MdSpec { options, ..MdSpec::new(IoVec::from([span]), user) };
        below.attach(PORTAL, MatchEntry::bits(user), spec)
    }

    fn say(&self, bits: u64, text: &[u8], below: &mut Below<'_>) -> MdId {
        let span = below.alloc(text.len() as u32).unwrap();
        below.bytes_mut(span).copy_from_slice(text);
        let spec = MdSpec { threshold: Some(1), ..MdSpec::new(IoVec::from([span]), span.offset) };
        let spec = MdSpec { unlink: crate::Unlink::Auto, ..spec };
        let md = below.bind(spec).unwrap();
        below.put(put(md, bits, Nid::LOOPBACK)).unwrap();
        md
    }
}

fn put(md: MdId, match_bits: u64, to: Nid) -> Put {
    Put {
        md,
        ack: false,
        src: None,
        target: ProcessId::from(to),
        portal: PORTAL,
        match_bits,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    }
}

impl Upper for Echo {
    fn event(&mut self, event: &Event, below: &mut Below<'_>) {
        self.last = Some(event.kind);
        if event.kind == EventKind::Put {
            let spans = below.payload(event);
            let bytes = spans.iter().flat_map(|s| below.bytes(*s).to_vec()).collect();
            self.heard.push((event.user, bytes));
        }
    }

    fn spent(&mut self, user: u64) {
        self.spent.push(user);
    }

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {
        self.reports += 1;
    }

    fn connection_lost(&mut self, primary: Nid, _: &mut Below<'_>) {
        self.lost.push(primary);
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ticks += 1;
        self.due = Some(below.now() + core::time::Duration::from_secs(1));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

#[test]
fn events_go_to_the_upper_that_owns_the_descriptor() {
    let mut host = Host::new();
    let (a, b) = (host.add(Echo::default()), host.add(Echo::default()));
    host.with(a, |a: &mut Echo, below| a.listen(7, below)).unwrap();
    host.with(b, |b: &mut Echo, below| b.listen(8, below)).unwrap();
    host.with(a, |a: &mut Echo, below| {
        a.say(8, b"to b", below);
        a.say(7, b"to a", below);
    });
    host.settle();
    let heard = |host: &mut Host, id| host.with(id, |e: &mut Echo, _| e.heard.clone());
    assert_eq!(heard(&mut host, a), [(7, b"to a".to_vec())]);
    assert_eq!(heard(&mut host, b), [(8, b"to b".to_vec())]);
}

#[test]
fn memory_is_held_until_the_last_event_of_a_descriptor() {
    let mut host = Host::new();
    let a = host.add(Echo::default());
    host.with(a, |a: &mut Echo, below| a.listen(1, below)).unwrap();
    host.settle();
    assert_eq!(host.heap.held.values().sum::<i32>(), 1);
    let node = &mut host.node;
    assert!(host.uppers.remove(a, host.now, node).is_some());
    host.settle();
    assert_eq!(host.heap.held.values().sum::<i32>(), 0);
    assert!(host.uppers.remove(a, host.now, &mut host.node).is_none(), "it is gone");
}

/// Gives its memory back as soon as no descriptor stands on it.
struct Tidy(Option<Span>);

impl Upper for Tidy {
    fn event(&mut self, event: &Event, below: &mut Below<'_>) {
        if event.unlinked
            && let Some(span) = self.0.take()
        {
            below.free(span);
            below.trim();
        }
    }

    fn spent(&mut self, _: u64) {}

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

    fn handle_timeout(&mut self, _: &mut Below<'_>) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[test]
fn an_upper_may_give_memory_back_in_the_last_event_of_its_descriptor() {
    let mut host = Host::new();
    let a = host.add(Tidy(None));
    host.with(a, |a: &mut Tidy, below| {
        let span = below.alloc(100).unwrap();
        a.0 = Some(span);
        let md = below.bind(MdSpec::new(IoVec::from([span]), 1)).unwrap();
        below.unlink(md).unwrap();
    });
    host.settle();
    assert_eq!(host.heap.regions, [Vec::<u8>::new()], "the region has gone back to the host");
}

#[test]
fn a_descriptor_that_nothing_uses_is_unlinked_at_once_and_has_no_last_event() {
    let mut host = Host::new();
    let a = host.add(Echo::default());
    host.with(a, |a: &mut Echo, below| {
        let md = a.listen(1, below).unwrap();
        assert_eq!(below.unlink_at_once(md), Ok(true));
        assert_eq!(below.unlink_at_once(md), Err(UnlinkError), "it is gone");
    });
    assert_eq!((host.uppers.descriptors(), host.heap.held.values().sum::<i32>()), (0, 0));
    host.settle();
    host.with(a, |a: &mut Echo, _| assert_eq!(a.last, None));
}

#[test]
fn events_of_a_descriptor_that_is_gone_at_once_are_dropped() {
    let mut host = Host::new();
    let a = host.add(Echo::default());
    let md = host.with(a, |a: &mut Echo, below| {
        a.say(1, b"one", below);
        a.listen(1, below).unwrap()
    });
    host.carry();
    host.with(a, |a: &mut Echo, below| {
        assert_eq!(below.unlink_at_once(md), Ok(true), "the message is here");
        // It has the place of the one that is gone, and all 64 bits of its word.
        a.listen(u64::MAX, below).unwrap();
        a.say(u64::MAX, b"two", below);
    });
    host.settle();
    host.with(a, |a: &mut Echo, _| assert_eq!(a.heard, [(u64::MAX, b"two".to_vec())]));
}

/// A descriptor of one PUT, which its upper wants to hear of only if it fails.
fn quiet(span: Span) -> MdSpec {
    let spec = MdSpec::new(IoVec::from([span]), 5);
    MdSpec { threshold: Some(1), unlink: crate::Unlink::Auto, events: false, ..spec }
}

#[test]
fn a_quiet_put_has_an_event_if_it_fails_and_else_leaves_its_word_and_the_block_is_given_back() {
    let nowhere = Nid::from_ip(lnet_types::Net::TCP, [10, 0, 0, 9].into());
    let fails = Some(EventKind::Send);
    for (to, heard, spent) in [(Nid::LOOPBACK, None, vec![5]), (nowhere, fails, vec![])] {
        let mut host = Host::new();
        let a = host.add(Echo::default());
        host.with(a, |_: &mut Echo, below| {
            let span = below.alloc(100).unwrap();
            below.send_block(quiet(span), |md| put(md, 1, to)).unwrap();
        });
        host.carry();
        assert_eq!(host.node.has_work(), fails == heard, "a success is no news");
        host.settle();
        host.with(a, |a: &mut Echo, below| {
            assert_eq!((a.last, &a.spent), (heard, &spent), "known before the call");
            below.trim();
        });
        assert_eq!((host.uppers.descriptors(), host.heap.total()), (0, 0), "{to}");
    }
}

#[test]
fn a_quiet_put_whose_ack_is_awaited_leaves_its_word_with_the_ack_and_once() {
    let mut host = Host::new();
    let a = host.add(Echo::default());
    host.with(a, |a: &mut Echo, below| {
        a.listen(1, below).unwrap();
        let span = below.alloc(100).unwrap();
        let both = MdSpec { threshold: Some(2), ..quiet(span) };
        let asks = |md| Put { ack: true, ..put(md, 1, Nid::LOOPBACK) };
        below.send_block(both, asks).unwrap();
    });
    host.carry();
    host.with(a, |a: &mut Echo, _| assert_eq!((a.last, a.spent.len()), (None, 0), "not yet"));
    host.settle();
    host.with(a, |a: &mut Echo, _| {
        assert_eq!((a.last, &a.spent), (Some(EventKind::Put), &vec![5]))
    });
    assert_eq!(host.uppers.descriptors(), 1, "the one that listens");
}

#[test]
fn a_block_is_given_back_with_its_descriptor_or_when_there_is_none() {
    let mut host = Host::new();
    let a = host.add(Echo::default());
    host.with(a, |_: &mut Echo, below| {
        let entry = MatchEntry::bits(1);
        let spec =
            |span| MdSpec { options: MdOptions::OP_PUT, ..MdSpec::new(IoVec::from([span]), 0) };
        let span = below.alloc(100).unwrap();
        let md = below.attach_block(PORTAL, entry, spec(span)).unwrap();
        assert_eq!(below.unlink_at_once(md), Ok(true));
        let span = below.alloc(100).unwrap();
        let refused = below.attach_block(9999, entry, spec(span));
        assert_eq!(refused, Err(BelowError::Attach(AttachError::BadPortal(9999))));
        let span = below.alloc(100).unwrap();
        let refused = below.send_block(quiet(span), |md| put(md, 1, Nid::ANY));
        assert_eq!(refused, Err(BelowError::Send(SendError::AnyTarget)));
        below.trim();
    });
    assert_eq!((host.heap.total(), host.heap.held.values().sum::<i32>()), (0, 0));
}

#[test]
fn a_descriptor_in_use_that_is_unlinked_at_once_has_its_last_event_with_its_operation() {
    let mut host = Host::new();
    let a = host.add(Echo::default());
    host.with(a, |a: &mut Echo, below| {
        let md = a.say(1, b"to nothing", below);
        assert_eq!(below.unlink_at_once(md), Ok(false));
    });
    assert_eq!((host.uppers.descriptors(), host.heap.held.values().sum::<i32>()), (1, 1));
    host.settle();
    assert_eq!((host.uppers.descriptors(), host.heap.held.values().sum::<i32>()), (0, 0));
    host.with(a, |a: &mut Echo, _| assert_eq!(a.last, Some(EventKind::Send)));
}

#[test]
fn a_descriptor_made_before_the_last_event_of_another_replaces_no_record() {
    let mut host = Host::new();
    let a = host.add(Echo::default());
    let old = host.with(a, |a: &mut Echo, below| {
        let old = a.listen(1, below).unwrap();
        below.unlink(old).unwrap();
        // The node may give it the place of the one that is gone.
        a.listen(2, below).unwrap();
        old
    });
    assert_eq!(host.uppers.descriptors(), 2, "{old:?} waits for its last event");
    host.settle();
    assert_eq!(host.uppers.descriptors(), 1);
    assert_eq!(host.heap.held.values().sum::<i32>(), 1);
}

#[test]
fn closed_uppers_get_their_last_events_and_attach_nothing() {
    let mut host = Host::new();
    let a = host.add(Echo::default());
    host.with(a, |a: &mut Echo, below| a.listen(1, below)).unwrap();
    host.uppers.close(host.now, &mut host.node);
    assert_eq!(host.uppers.descriptors(), 1);
    host.settle();
    assert_eq!(host.uppers.descriptors(), 0);
    host.with(a, |a: &mut Echo, below| {
        assert_eq!(a.last, Some(EventKind::Unlink));
        assert_eq!(a.listen(1, below), Err(BelowError::Closed));
    });
}

#[test]
fn time_outs_and_reports_reach_their_upper() {
    let mut host = Host::new();
    let a = host.add(Echo { due: Some(Instant::ZERO), ..Echo::default() });
    assert_eq!(host.uppers.poll_timeout(), Some(Instant::ZERO));
    assert!(host.uppers.handle_timeout(host.now, &mut host.node, &mut host.heap));
    assert!(!host.uppers.handle_timeout(host.now, &mut host.node, &mut host.heap));
    let next = host.now + core::time::Duration::from_secs(1);
    assert_eq!(host.uppers.poll_timeout(), Some(next));
    host.with(a, |_: &mut Echo, below| below.discover(Nid::LOOPBACK));
    host.settle();
    host.with(a, |a: &mut Echo, _| assert_eq!((a.ticks, a.reports), (1, 1)));
}

#[test]
fn an_invalid_call_of_an_upper_is_refused_by_name() {
    let mut host = Host::new();
    let a = host.add(Echo::default());
    host.with(a, |_: &mut Echo, below| {
        let far = Span { region: RegionId(0), len: 2, offset: u64::from(u32::MAX) };
        let spec = MdSpec::new(IoVec::from([far]), 0);
        assert_eq!(below.bind(spec), Err(BelowError::Span));
        assert_eq!(below.alloc((1 << 20) + 1), None);
    });
}

#[test]
fn blocks_are_used_again_and_never_overlap() {
    let (mut slabs, mut heap) = (Slabs::default(), Heap::default());
    let first: Vec<Span> = (0..1500).map(|_| slabs.alloc(1000, &mut heap).unwrap()).collect();
    let regions = heap.regions.len();
    assert_eq!(heap.total(), 2 << 20, "the next region would be a MiB as well");
    let mut starts: Vec<_> = first.iter().map(|s| (s.region, s.offset)).collect();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), first.len());
    assert!(starts.iter().all(|(_, offset)| offset % 1024 == 0));
    // What comes back shortened, and from its middle, is the same block.
    let span = first[3];
    slabs.free(Span { len: 10, offset: span.offset + 200, ..span });
    assert_eq!(slabs.alloc(1, &mut heap), Some(Span { len: 1, ..span }));
    for span in first {
        slabs.free(span);
    }
    for _ in 0..1500 {
        slabs.alloc(1024, &mut heap).unwrap();
    }
    assert_eq!(heap.regions.len(), regions, "nothing was lost");
}

#[test]
fn regions_of_a_class_grow_with_what_is_in_use() {
    let (mut slabs, mut heap) = (Slabs::default(), Heap::default());
    let first = slabs.alloc(300, &mut heap).unwrap();
    assert_eq!(heap.total(), 16 << 10);
    // Eight buffers of 64 KiB take no more than that.
    let buffers: Vec<Span> = (0..8).map(|_| slabs.alloc(64 << 10, &mut heap).unwrap()).collect();
    assert_eq!(heap.total(), (16 << 10) + (512 << 10));
    let many: Vec<Span> = (0..4000).map(|_| slabs.alloc(1000, &mut heap).unwrap()).collect();
    assert_eq!(heap.regions.iter().map(Vec::len).max(), Some(1 << 20));
    many.into_iter().chain(buffers).for_each(|span| slabs.free(span));
    slabs.trim(&mut heap);
    assert_eq!(heap.total(), 16 << 10, "one block is in use");
    slabs.free(first);
    slabs.trim(&mut heap);
    slabs.alloc(1, &mut heap).unwrap();
    assert_eq!(heap.total(), 16 << 10, "it begins anew");
}

#[test]
fn trimmed_slabs_keep_only_regions_in_use() {
    let (mut slabs, mut heap) = (Slabs::default(), Heap::default());
    let small = slabs.alloc(1, &mut heap).unwrap();
    let large: Vec<Span> = (0..3).map(|_| slabs.alloc(1 << 20, &mut heap).unwrap()).collect();
    slabs.free(large[0]);
    slabs.free(large[2]);
    slabs.trim(&mut heap);
    let lengths: Vec<usize> = heap.regions.iter().map(Vec::len).collect();
    assert_eq!(lengths, [16 << 10, 0, 1 << 20, 0]);
    slabs.free(small);
    slabs.free(large[1]);
    let spans = [slabs.alloc(1 << 20, &mut heap).unwrap(), slabs.alloc(9, &mut heap).unwrap()];
    assert_eq!(spans, [large[1], Span { len: 9, ..small }], "what is left is used");
    assert!(spans.iter().all(|span| heap.contains(&[*span])));
}

#[test]
fn connections_of_a_peer_that_end_together_are_reported_once_to_each_upper() {
    let mut host = Host::new();
    let ids = [host.add(Echo::default()), host.add(Echo::default())];
    let nids = ["10.0.0.9@tcp", "10.0.1.9@tcp"].map(|nid| nid.parse::<Nid>().unwrap());
    let Host { node, heap, uppers, now, .. } = &mut host;
    node.peer_add(*now, nids[0], &nids, true, false).unwrap();
    for nid in [nids[1], nids[0], nids[1], "10.0.0.8@tcp".parse().unwrap()] {
        node.written_lost(*now, NiId::default(), nid);
    }
    while let Some(peer) = node.poll_lost_connection() {
        uppers.connection_lost(*now, peer, node, heap);
    }
    for id in ids {
        let lost = host.with(id, |echo: &mut Echo, _| echo.lost.clone());
        assert_eq!(lost, [nids[0]]);
    }
}
