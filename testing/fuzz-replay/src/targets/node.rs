//! The node itself: bytes are a script of calls, in any order, with any arguments.

use lnet::{
    Doubt, Link, MatchEntry, MdOptions, MdSpec, NetTunables, NiSpec, Node, NodeConfig, Output,
    Profile, RouteSpec, RouterMemory, Rx, Tunables, Verdict,
};
use lnet_types::{
    Errno, Fault, HealthStatus, Instant, IoVec, Net, Nid, Pid, ProcessId, RegionId, RxId, Span,
};
use lnet_wire::mark::{Mark, SessionName};
use lnet_wire::{Hdr, HdrForm};

use core::time::Duration;
use std::collections::BTreeSet;

/// Reads the script, a byte or a few at a time; past the end everything is 0.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    fn nid(&mut self) -> Nid {
        let byte = u32::from(self.byte());
        let net = Net { num: u16::from(byte & 0x10 != 0), ..Net::TCP };
        Nid::new(net, 0x0a4d_0000 | (byte % 8))
    }

    /// A header: any bytes that are one, addressed to us more often than not.
    fn header(&mut self, own: Nid) -> Option<Hdr> {
        let mut bytes = [0; 72];
        let n = bytes.len().min(self.0.len());
        let (head, rest) = self.0.split_at(n);
        bytes[..n].copy_from_slice(head);
        self.0 = rest;
        let mut hdr = Hdr::parse(HdrForm::Short, &bytes).ok()?;
        if hdr.payload_len & 1 == 0 {
            hdr.dst = own;
        }
        if hdr.payload_len & 2 == 0 {
            // One of a few sessions, and any number.
            let (name, n) = (hdr.dst_pid.0 % 4, hdr.src_pid.0);
            let mark = Mark::new(SessionName::new(name.into()), n.into(), n & 1 << 30 != 0);
            hdr.kind = mark.on(hdr.kind, hdr.dst_pid.0);
        }
        Some(hdr)
    }
}

/// Memory for router buffers that is only counted.
struct Lender {
    next: u32,
    out: u32,
}

impl RouterMemory for Lender {
    fn register(&mut self, _len: u32) -> Result<RegionId, Errno> {
        self.next += 1;
        self.out += 1;
        Ok(RegionId(self.next))
    }
}

/// The tables of the node agree, and no id that must exist was missing.
fn check(node: &Node) {
    if let Err(violation) = node.check() {
        panic!("{violation}");
    }
    assert_eq!(node.invariant_violations(), 0, "an entry was missing that must exist");
}

/// Nothing that is called in any order makes the node panic, wait for ever or grow without end, and
/// afterwards it still stops cleanly.
pub fn node(input: &[u8]) {
    let mut script = Script(input);
    let profile = Profile::ALL[usize::from(script.byte()) % Profile::ALL.len()];
    let mut now = Instant::from_secs(1);
    let config =
        NodeConfig { seed: 1, interface_cookie: 7, ping_seq: 0, tunables: Tunables::new(profile) };
    let mut node = Node::new(config, now);
    let own = Nid::new(Net::TCP, 0x0a4d_0002);
    let spec = |nid| NiSpec {
        nid,
        interface: None,
        tunables: NetTunables { credits: 2, peer_credits: 1, ..NetTunables::SOCK },
        lnd_timeout: None,
    };
    let ni = node.add_ni(now, spec(own)).expect("a fresh node takes an interface");
    let buf = || IoVec::from_slice(&[Span { region: RegionId(0), len: 512, offset: 0 }]);
    let mut lender = Lender { next: 0, out: 0 };
    let (mut receiving, mut driver, mut deferred) = (Vec::new(), Vec::new(), BTreeSet::new());
    while !script.is_over() {
        now += Duration::from_millis(u64::from(script.byte()) * 20);
        match script.byte() % 22 {
            0..=3 => {
                if let Some(hdr) = script.header(own) {
                    let from = script.nid();
                    // A connection's, which is used again when it has nothing in hand.
                    let Some(id) = (1..).map(RxId).find(|id| !deferred.contains(id)) else { break };
                    let rx = Rx { ni, from, from_pid: Pid::LUSTRE, peer_ni: None, id };
                    match node.rx_header(now, rx, &hdr) {
                        Verdict::Deliver { msg, .. } => receiving.push(msg),
                        Verdict::Defer => drop(deferred.insert(id)),
                        Verdict::Drop(_) | Verdict::Close(_) => {}
                    }
                }
            }
            4 => {
                if let Some(msg) = receiving.pop() {
                    let bytes = script.0.get(..40).unwrap_or_default();
                    node.rx_done(now, msg, Ok(bytes));
                }
            }
            5 => {
                if let Some(msg) = driver.pop() {
                    let status = HealthStatus::ALL[usize::from(script.byte()) % 11];
                    node.tx_done(now, msg, Err(Fault::new(status, Errno::EIO)));
                }
            }
            6 => {
                if let Some(msg) = driver.pop() {
                    node.tx_done(now, msg, Ok(()));
                }
            }
            7 => {
                let mut md = MdSpec::new(buf(), 1);
                md.threshold = Some(u32::from(script.byte() % 3));
                if let Ok(md) = node.bind(md) {
                    let put = lnet::Put {
                        md,
                        ack: script.byte() & 1 == 0,
                        src: (script.byte() & 1 == 0).then_some(own),
                        target: ProcessId::lustre(script.nid()),
                        portal: u32::from(script.byte()),
                        match_bits: u64::from(script.byte()),
                        offset: 0,
                        hdr_data: 0,
                        timeout: None,
                    };
                    let _ = node.put(now, put);
                }
            }
            8 => {
                let mut md = MdSpec::new(buf(), 2);
                md.options = MdOptions::from_bits_truncate(u32::from(script.byte()));
                let portal = u32::from(script.byte() % 66);
                let me = MatchEntry::bits(u64::from(script.byte()));
                let _ = node.attach(now, portal, me, md);
            }
            9 => {
                let id = RxId(u64::from(script.byte()));
                deferred.remove(&id);
                node.rx_gone(now, ni, id);
            }
            10 => {
                let _ = node.set_lazy(now, u32::from(script.byte() % 66), script.byte() & 1 == 0);
            }
            11 => {
                let force = script.byte() & 1 == 0;
                node.discover(now, script.nid(), force);
            }
            12 => {
                let nids = [script.nid(), script.nid()];
                let (mr, lock) = (script.byte() & 1 == 0, script.byte() & 1 == 0);
                let _ = node.peer_add(now, script.nid(), &nids, mr, lock);
            }
            13 => {
                let nids = [script.nid()];
                let some = usize::from(script.byte() & 1);
                let _ = node.peer_del(now, script.nid(), &nids[..some], script.byte() & 1 == 0);
            }
            14 => {
                let link = if script.byte() & 1 == 0 { Link::Down } else { Link::Up };
                node.link_changed(now, ni, link);
            }
            15 => {
                let spec = RouteSpec {
                    net: script.nid().net(),
                    gateway: script.nid(),
                    hops: (script.byte() & 1 == 0).then_some(u32::from(script.byte())),
                    priority: u32::from(script.byte() % 2),
                };
                let _ = node.add_route(now, spec);
            }
            16 => {
                let net = (script.byte() & 1 == 0).then(|| script.nid().net());
                let _ = node.del_route(now, net, Some(script.nid()));
            }
            17 => {
                let _ = match script.byte() % 3 {
                    0 => node.disable_routing(now),
                    1 => node.fit_router_buffers(now, &mut lender),
                    _ => node.enable_routing(now, &mut lender),
                };
            }
            18 => {
                if script.byte() & 1 == 0 {
                    node.peer_down(now, ni, script.nid(), now);
                } else {
                    let _ = node.notify(now, script.nid(), script.byte() & 1 == 0, now);
                }
            }
            19 => {
                let doubts =
                    [Doubt::None, Doubt::Shaky, Doubt::Unproven, Doubt::Slow, Doubt::Silent];
                let doubt = doubts[usize::from(script.byte()) % doubts.len()];
                node.rail_changed(now, ni, script.nid(), doubt);
            }
            20 => node.written_lost(now, ni, script.nid()),
            _ => {
                let value = i64::from(script.byte());
                let row = &Tunables::TABLE[usize::from(script.byte()) % Tunables::TABLE.len()];
                let _ = node.set_tunables(now, &[(row.name, value)]);
            }
        }
        while node.poll_timeout().is_some_and(|t| t <= now) {
            node.handle_timeout(now);
        }
        while let Some(out) = node.poll_output() {
            match out {
                Output::Send(t) => driver.push(t.msg),
                Output::Resume { rx, verdict, .. } => {
                    deferred.remove(&rx);
                    if let Verdict::Deliver { msg, .. } = verdict {
                        receiving.push(msg);
                    }
                }
                Output::Abandon { msg, .. } => receiving.retain(|m| *m != msg),
                Output::Release(_) => lender.out -= 1,
                Output::Withdraw { .. } | Output::Reclaim { .. } => {}
                Output::Recall { msg, .. } => {
                    if let Some(at) = driver.iter().position(|m| *m == msg)
                        && script.byte() & 1 == 0
                    {
                        driver.remove(at);
                        node.tx_recalled(now, msg);
                    } else {
                        node.tx_begun(now, msg);
                    }
                }
            }
        }
        while node.poll_event().is_some() || node.poll_report().is_some() {}
        check(&node);
    }
    node.shutdown(now);
    while let Some(out) = node.poll_output() {
        lender.out -= u32::from(matches!(out, Output::Release(_)));
    }
    check(&node);
    assert_eq!(lender.out, 0, "memory of router buffers is left after shutdown");
    assert_eq!(node.stats().msgs_alloc, 0, "messages are left after shutdown");
}
