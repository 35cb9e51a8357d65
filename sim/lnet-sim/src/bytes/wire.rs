//! Segments on their way from rail to rail.

use core::net::IpAddr;
use std::collections::BTreeMap;

use lnet_types::Prng;

use super::segment::Segment;
use super::{ByteEvent, Bytes, What};
use crate::directory::{Directory, HostId, RailIx};
use crate::fabric::Cx;
use crate::links::Way;
use crate::travel::chance;

/// The rails that two addresses stand for: on one network, there now if possible.
pub(super) fn rails_between(
    by_ip: &BTreeMap<IpAddr, Vec<RailIx>>,
    directory: &Directory,
    from: IpAddr,
    to: IpAddr,
) -> Option<(RailIx, RailIx)> {
    let rails = |ip| by_ip.get(&ip).into_iter().flatten().copied();
    let net = |ix| directory.rail(ix).net;
    let pairs = rails(from).flat_map(|a| rails(to).map(move |b| (a, b)));
    pairs
        .filter(|(a, b)| net(*a) == net(*b))
        .min_by_key(|(a, b)| (!directory.is_present(*b), !directory.is_present(*a), *a, *b))
}

/// Changes one bit, somewhere.
fn damage(rng: &mut Prng, data: &mut [u8]) {
    let at = rng.below(data.len() as u64) as usize;
    if let Some(byte) = data.get_mut(at) {
        *byte ^= 1 << rng.below(8);
    }
}

impl Bytes {
    /// Everything that a host's sockets want sent.
    pub(super) fn ship(&mut self, cx: &mut Cx<'_, ByteEvent>, id: HostId) {
        let now = cx.now;
        let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        for (end, segment) in rig.sockets(now).take_out() {
            let (src, dst) = (segment.src.ip(), segment.dst.ip());
            // An address that no host ever had: lost.
            let Some((from, to)) = rails_between(&self.by_ip, cx.directory, src, dst) else {
                continue;
            };
            let way = cx.links.way(from, to, cx.directory);
            let lost = way.blocked
                || chance(cx.rng, way.loss)
                || chance(cx.rng, way.corrupt)
                || (way.refused && !segment.kind.syn);
            // What is lost was on its way as well, and its sender waits for an answer to it.
            let at = if way.blocked {
                now + way.latency
            } else {
                self.cables.pass(now, cx.rng, [from, to], segment.wire_len(), &way)
            };
            if let Some(end) = end {
                rig.sockets(now).departed(end, segment.seq, at);
            }
            if !lost {
                send_off(cx, [from, to], &way, at, segment);
            }
        }
    }

    /// A segment has come through, if nothing has come between.
    pub(super) fn arrive(
        &mut self,
        cx: &mut Cx<'_, ByteEvent>,
        from: RailIx,
        to: RailIx,
        segment: Segment,
    ) {
        let rail = *cx.directory.rail(to);
        let Some(id) = rail.host.filter(|_| rail.present) else { return };
        let host = &cx.hosts[id.0 as usize];
        if cx.links.is_disturbed() && cx.links.way(from, to, cx.directory).blocked {
            return;
        }
        if !host.alive && host.resets {
            let back = cx.links.way(to, from, cx.directory);
            if let Some(answer) = segment.refusal().filter(|_| !back.blocked) {
                send_off(cx, [to, from], &back, cx.now + back.latency, answer);
            }
            return;
        }
        if !host.is_running()
            // There is no memory to put it into.
            || (host.starved && !segment.data.is_empty())
        {
            return;
        }
        let now = cx.now;
        let Some(rig) = self.rig(id) else { return };
        rig.sockets(now).receive(segment);
        self.work(cx, id);
    }
}

fn send_off(
    cx: &mut Cx<'_, ByteEvent>,
    [from, to]: [RailIx; 2],
    way: &Way,
    mut at: lnet_types::Instant,
    mut segment: Segment,
) {
    let back = cx.links.way(to, from, cx.directory);
    if segment.kind.syn && (way.refused || back.refused) {
        if let Some(answer) = segment.refusal().filter(|_| !back.blocked) {
            let segment = Box::new(answer);
            cx.at(at + back.latency, ByteEvent(What::Arrive { from: to, to: from, segment }));
        }
        return;
    }
    if !segment.data.is_empty() && chance(cx.rng, way.unnoticed) {
        damage(cx.rng, &mut segment.data);
    }
    if chance(cx.rng, way.reorder.0) {
        at += way.reorder.1;
    }
    let segment = Box::new(segment);
    if chance(cx.rng, way.duplicate) {
        let segment = segment.clone();
        cx.at(at, ByteEvent(What::Arrive { from, to, segment }));
    }
    cx.at(at, ByteEvent(What::Arrive { from, to, segment }));
}
