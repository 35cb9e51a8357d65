//! The adapter that the driver sees ([`Adapter`]): each call, and the next piece of news.

#![allow(unsafe_code)]

use lnet_types::{Errno, Instant, Memory};
use lnet_wire::ib::RdmaDesc;
use smallvec::SmallVec;

use super::Verbs;
use super::endpoint::{self, Start};
use super::memory::Mapped;
use crate::adapter::{Adapter, Fact};
use crate::value::{Access, CmCall, CmEvent, ConnId, MapId, MapMemory, Post};

impl Adapter for Verbs {
    fn cm(&mut self, _now: Instant, call: CmCall) {
        match call {
            CmCall::Resolve { conn, to } => {
                if let Err(errno) = self.resolve(conn, to) {
                    tracing::debug!("{to}: address not resolved: {errno}");
                    self.report(conn, CmEvent::AddrError);
                }
            }
            CmCall::ResolveRoute { conn } => {
                let id = self.endpoints.get(conn).map(|endpoint| endpoint.id);
                // SAFETY: the identifier lives as long as its endpoint.
                let asked = id.map(|id| unsafe {
                    (self.device.call.rdma_resolve_route)(id, self.resolve_ms())
                });
                if asked != Some(0) {
                    self.report(conn, CmEvent::RouteError);
                }
            }
            CmCall::Connect { conn, private, qp } => {
                if let Err(errno) = self.equip(conn, qp, Start { private, accepts: false }) {
                    tracing::warn!("a connection is not asked for: {errno}");
                    self.report(conn, CmEvent::ConnectError);
                }
            }
            CmCall::Accept { conn, request, private, qp } => {
                self.accept(conn, request, qp, private);
            }
            CmCall::Reject { request, private } => {
                if let Some(id) = self.requests.remove(&request) {
                    endpoint::refuse(&self.device.call, id, &private);
                }
            }
            CmCall::Disconnect { conn } => self.disconnect(conn),
            CmCall::Destroy { conn } => self.destroy(conn),
        }
    }

    fn receive(&mut self, _now: Instant, conn: ConnId, slot: u16) {
        let posted = self.endpoints.get_mut(conn).map(|endpoint| endpoint.post_receive(slot));
        match posted {
            Some(Ok(true)) => self.begin(conn),
            Some(Ok(false)) => {}
            Some(Err(_)) | None => {
                self.facts.push_back(Fact::Received { conn, slot, outcome: Err(()) });
            }
        }
    }

    fn post(&mut self, _now: Instant, post: Post, mem: &dyn Memory) {
        let (conn, work) = (post.conn, post.work);
        let broken = self.endpoints.get(conn).is_none_or(|e| e.sends.is_broken());
        let chain = if broken { Err(Errno::ENOTCONN) } else { self.chain(&post, mem) };
        match chain {
            Ok((pieces, message)) => {
                if let Some(endpoint) = self.endpoints.get_mut(conn) {
                    endpoint.sends.push(work, pieces, message);
                }
                self.pump(conn);
            }
            Err(errno) => {
                tracing::debug!(?conn, "a message is not posted: {errno}");
                self.facts.push_back(Fact::Done { conn, work, outcome: Err(()) });
            }
        }
    }

    fn map(
        &mut self,
        map: MapId,
        memory: MapMemory,
        access: Access,
        mem: &mut dyn Memory,
    ) -> Result<RdmaDesc, Errno> {
        let (mapped, desc) = match access {
            Access::LocalRead => {
                let mapped = self.map_read(memory, mem)?;
                (mapped, RdmaDesc { key: 0, frags: SmallVec::new() })
            }
            Access::RemoteWrite => self.map_written(memory, mem)?,
        };
        self.maps.insert(map, mapped);
        Ok(desc)
    }

    fn unmap(&mut self, map: MapId) {
        match self.maps.remove(&map) {
            Some(Mapped::Read { registrations, .. }) => {
                registrations.into_iter().for_each(|id| self.registrations.release(id));
            }
            Some(Mapped::Written { registration, buffer }) => {
                self.registrations.release(registration);
                self.closed.extend(buffer.map(|(pages, len)| (map, pages, len)));
            }
            None => {}
        }
    }

    fn slot(&self, conn: ConnId, slot: u16) -> &[u8] {
        self.endpoints.get(conn).map_or(&[], |endpoint| endpoint.slot(slot))
    }

    fn buffer(&self, map: MapId) -> &[u8] {
        let closed = self.closed.iter().find(|(id, ..)| *id == map);
        // SAFETY: its key was closed when it was unmapped.
        closed.map_or(&[], |(_, pages, len)| unsafe { pages.bytes(0, *len) })
    }

    fn spin(&mut self, spins: bool) {
        self.spins = spins;
    }

    fn ready(&mut self, token: usize) {
        let news = token.checked_sub(self.tokens.start).and_then(|n| self.news.get_mut(n));
        if let Some(news) = news {
            *news = true;
        }
    }

    fn is_there(&self) -> bool {
        !self.device.is_open() || self.device.is_there()
    }

    fn reopen(&mut self, _now: Instant) -> Result<(), Errno> {
        if !self.endpoints.is_empty() || !self.maps.is_empty() {
            return Err(Errno::EBUSY);
        }
        self.open_again().map_err(|e| {
            tracing::debug!("the device is not back: {e}");
            e.errno()
        })?;
        tracing::info!(device = self.device.name, "RDMA device opened again");
        Ok(())
    }

    fn poll(&mut self) -> Option<Fact> {
        self.closed.clear();
        if self.facts.is_empty() && self.device.is_open() {
            let [managed, completed, device] = core::mem::take(&mut self.news);
            if managed {
                self.managed();
            }
            if device {
                self.device_says();
                self.report_port();
            }
            if completed {
                self.completions.news(&self.device);
            }
            self.complete();
        }
        self.facts.pop_front()
    }
}
