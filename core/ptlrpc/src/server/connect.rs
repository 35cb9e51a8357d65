//! Connects (P-129).

use lnet_types::{ByteOrder, Errno};
use lustre_wire::connect::ConnectFlags;
use lustre_wire::{Body, ConnectData, Layout, Msg, OpFlags};

use super::export::Export;
use super::reply::Parts;
use super::service::Origin;
use super::{EXPORTS_MAX, Server};
use crate::common::Cx;
use crate::event::Event;
use crate::table::{ExportId, TargetId};
use crate::timers::Timer;

/// Connect data of a client to come are no longer than so many times ours (P-129.2).
const LONGEST: usize = 8;

/// A connect request, read.
struct Asked {
    target: TargetId,
    client: String,
    handle: u64,
    data: ConnectData,
    data_len: usize,
    order: ByteOrder,
}

impl Server {
    pub(super) fn connect(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: Origin,
        body: &Body,
        bytes: &[u8],
        by_handle: Option<ExportId>,
    ) {
        let result = self.asked(body, bytes).and_then(|asked| {
            let known = self.by_client.get(&(asked.target, asked.client.clone())).copied();
            let again = self.judge(&origin, body, &asked, known, by_handle)?;
            self.admit_client(cx, &origin, body, asked, known, again)
        });
        match result {
            Ok(id) => cx
                .common
                .timers
                .set(Timer::Export(id), origin.arrival + cx.common.tunables.evict_after()),
            Err(errno) => {
                self.stats.connects_refused += 1;
                self.refuse_origin(cx, &origin, None, body, errno);
            }
        }
    }

    /// What is asked for, and whether it can be read (steps 1 to 3).
    fn asked(&self, body: &Body, bytes: &[u8]) -> Result<Asked, Errno> {
        let msg = Msg::parse(bytes).map_err(|_| Errno::EPROTO)?;
        let text = |what, index| -> Result<String, Errno> {
            let text = msg.text(what, index).map_err(|_| Errno::EINVAL)?;
            String::from_utf8(text.to_vec()).map_err(|_| Errno::EINVAL)
        };
        let uuid = text("target uuid", 1)?;
        let target = self.targets.iter().find(|(_, t)| t.config.uuid == uuid);
        let (target, _) = target.ok_or(Errno::ENODEV)?;
        let client = text("client uuid", 2)?;
        if client.is_empty() {
            return Err(Errno::EINVAL);
        }
        let handle = msg.get::<u64>(3).map_err(|_| Errno::EPROTO)?;
        let data_len = msg.buffer(4).map_or(0, <[u8]>::len);
        if data_len == 0 || data_len > LONGEST * ConnectData::LEN {
            return Err(Errno::EPROTO);
        }
        let data = ConnectData::of(&msg, 4).map_err(|_| Errno::EPROTO)?;
        if !data.flags.contains(ConnectFlags::FULL20) || body.op_flags.contains(OpFlags::LIBCLIENT)
        {
            return Err(Errno::EPROTO);
        }
        Ok(Asked { target, client, handle, data, data_len, order: msg.order })
    }

    /// Whether a known client connects again (steps 5 to 7). `Ok(false)`: a new one.
    fn judge(
        &self,
        origin: &Origin,
        body: &Body,
        asked: &Asked,
        known: Option<ExportId>,
        by_handle: Option<ExportId>,
    ) -> Result<bool, Errno> {
        let Some(export) = known.and_then(|id| self.exports.get(id)) else { return Ok(false) };
        let initial = body.op_flags.contains(OpFlags::INITIAL);
        if initial && export.from != origin.peer {
            return Err(Errno::EALREADY);
        }
        if export.client_handle != asked.handle {
            return Err(Errno::EALREADY);
        }
        if by_handle.is_none() && !export.in_work.is_empty() {
            return Err(Errno::EBUSY);
        }
        if body.conn_cnt <= export.conn_cnt {
            return Err(Errno::EALREADY);
        }
        Ok(true)
    }

    fn admit_client(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: &Origin,
        body: &Body,
        asked: Asked,
        known: Option<ExportId>,
        again: bool,
    ) -> Result<ExportId, Errno> {
        let target = self.targets.get(asked.target).ok_or(Errno::ENODEV)?;
        let offer = target.config.offer;
        let mut data = asked.data.masked(offer.flags, offer.flags2);
        data.version = crate::VERSION;
        data.instance = offer.instance;
        data.brw_size = if data.flags.contains(ConnectFlags::BRW_SIZE) {
            asked.data.brw_size.min(offer.brw_size)
        } else {
            0
        };
        if data.flags.contains(ConnectFlags::MULTIMODRPCS) {
            data.maxmodrpcs = asked.data.maxmodrpcs.min(offer.maxmodrpcs).max(1);
        }
        let mut op_flags = OpFlags::empty();
        op_flags.set(OpFlags::RECONNECT, again);
        op_flags.set(OpFlags::REPLAYABLE, target.config.replayable);
        let from = origin.peer;
        let id = match known.filter(|_| again) {
            Some(id) => id,
            None if self.exports.len() >= EXPORTS_MAX => return Err(Errno::EBUSY),
            None => {
                let mut cookie = cx.common.prng.next_u64();
                while cookie == 0 || self.by_cookie.contains_key(&cookie) {
                    cookie = cx.common.prng.next_u64();
                }
                let id = self.exports.insert(Export {
                    target: asked.target,
                    cookie,
                    client: asked.client.clone(),
                    client_handle: asked.handle,
                    conn_cnt: 0,
                    from,
                    granted: data,
                    heard: origin.arrival,
                    last_xid: 0,
                    in_work: Default::default(),
                    records: Default::default(),
                });
                self.by_cookie.insert(cookie, id);
                self.by_client.insert((asked.target, asked.client.clone()), id);
                id
            }
        };
        let Some(export) = self.exports.get_mut(id) else { return Err(Errno::ENODEV) };
        export.conn_cnt = body.conn_cnt;
        export.from = from;
        export.granted = data;
        export.heard = origin.arrival;
        // What moves for an older connection is cut off: its request comes again (P-51).
        let moving: Vec<_> = export.in_work.values().copied().collect();
        for work in moving {
            self.end_bulk(cx, work, Errno::ETIMEDOUT);
        }
        let parts = Parts {
            op_flags,
            handle: self.exports.get(id).map_or(0, |e| e.cookie),
            buffers: vec![data.cut(asked.order, asked.data_len)],
            ..Parts::default()
        };
        self.answer(cx, origin, Some(id), body, parts);
        let client = asked.client;
        cx.common.events.push_back(Event::Connected { export: id, client, from, again });
        Ok(id)
    }
}
