//! Packets on their way from rail to rail.

use lnd_ib::CmRejection;
use lnd_ib::emulated::{Outgoing, Packet, PacketBody};

use super::{Rdma, RdmaEvent};
use crate::bytes::ByteEvent;
use crate::directory::{HostId, RailIx};
use crate::fabric::Cx;
use crate::travel::chance;

/// The refusal of a connection request where no driver listens.
fn refusal(packet: &Packet) -> Option<Packet> {
    let PacketBody::Request { qp, .. } = packet.body else { return None };
    let body = PacketBody::Reject { to: qp, why: CmRejection::NoListener, private: Vec::new() };
    Some(Packet { from: packet.to, to: packet.from, body })
}

impl Rdma {
    /// Everything that a host's adapters want sent.
    pub(super) fn ship(&mut self, cx: &mut Cx<'_, ByteEvent>, id: HostId) {
        let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let packets = rig.take_packets();
        self.carry(cx, id, packets);
    }

    pub(super) fn carry(&mut self, cx: &mut Cx<'_, ByteEvent>, id: HostId, packets: Vec<Outgoing>) {
        let now = cx.now;
        for Outgoing { packet, timed } in packets {
            let ends = cx.directory.find(packet.from).zip(cx.directory.find(packet.to));
            // An address that no host ever had: lost.
            let Some((from, to)) = ends else { continue };
            let way = cx.links.way(from, to, cx.directory);
            let back = cx.links.way(to, from, cx.directory);
            // Adapters check what arrives, whatever the cards between them do.
            let damaged = way.corrupt.max(way.unnoticed);
            let lost = way.blocked || chance(cx.rng, way.loss) || chance(cx.rng, damaged);
            let mut at = if way.blocked {
                now + way.latency
            } else {
                self.cables.pass(now, cx.rng, [from, to], packet.wire_len(), &way)
            };
            // The way of a queue pair keeps the order.
            let last = self.last.entry((from, to)).or_default();
            at = at.max(*last);
            *last = at;
            if let Some(conn) = timed {
                let local = cx.hosts[id.0 as usize].clock.local(at);
                if let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) {
                    rig.departed(packet.from, conn, local);
                }
            }
            if lost {
                continue;
            }
            if way.refused || back.refused {
                if let Some(answer) = refusal(&packet).filter(|_| !back.blocked) {
                    arrive_at(cx, at + back.latency, [to, from], answer);
                }
                continue;
            }
            if chance(cx.rng, way.reorder.0) {
                at += way.reorder.1;
            }
            if chance(cx.rng, way.duplicate) {
                arrive_at(cx, at, [from, to], packet.clone());
            }
            arrive_at(cx, at, [from, to], packet);
        }
    }

    /// A packet has come through, if nothing has come between.
    pub(super) fn arrive(
        &mut self,
        cx: &mut Cx<'_, ByteEvent>,
        from: RailIx,
        to: RailIx,
        packet: Packet,
    ) {
        let rail = *cx.directory.rail(to);
        let Some(id) = rail.host.filter(|_| rail.present) else { return };
        if cx.links.is_disturbed() && cx.links.way(from, to, cx.directory).blocked {
            return;
        }
        let now = cx.now;
        let host = &mut cx.hosts[id.0 as usize];
        if !host.alive && host.resets {
            let back = cx.links.way(to, from, cx.directory);
            if let Some(answer) = refusal(&packet).filter(|_| !back.blocked) {
                arrive_at(cx, now + back.latency, [to, from], answer);
            }
            return;
        }
        if !host.is_running() {
            return;
        }
        let Some(ni) = host.ni_of(to) else { return };
        let Some(rig) = self.rigs.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        rig.arrive(now, host, ni, packet);
        self.work(cx, id);
    }
}

fn arrive_at(
    cx: &mut Cx<'_, ByteEvent>,
    at: lnet_types::Instant,
    [from, to]: [RailIx; 2],
    packet: Packet,
) {
    let packet = Box::new(packet);
    cx.at(at, ByteEvent::rdma(RdmaEvent::Arrive { from, to, packet }));
}
