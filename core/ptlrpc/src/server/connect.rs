//! Connects (P-129).

use lnet_types::{ByteOrder, Errno};
use lustre_wire::connect::ConnectFlags;
use lustre_wire::{Body, ConnectData, Layout, Msg, OpFlags};

use super::export::Joining;
use super::reply::Parts;
use super::service::Origin;
use super::{EXPORTS_MAX, Server};
use crate::common::Cx;
use crate::event::Event;
use crate::table::{ExportId, TargetId};

/// Connect data of a client to come are no longer than so many times ours (P-129.2).
const LONGEST: usize = 8;

/// Bytes of a client's uuid, its NUL not counted: its record has 40 (P-139).
const CLIENT_MAX: usize = 39;

/// A connect request, read.
#[derive(Debug)]
pub(crate) struct Asked {
    target: TargetId,
    client: String,
    handle: u64,
    data: ConnectData,
    data_len: usize,
    order: ByteOrder,
}

impl Asked {
    /// Whether the client keeps nothing at the target, and has no part in its recovery.
    fn is_light(&self) -> bool {
        self.data.flags.contains(ConnectFlags::LIGHTWEIGHT)
    }
}

/// How a client connects.
enum How {
    /// For the first time.
    New,
    /// It was connected in an earlier life of the target.
    Taken(ExportId),
    /// It is connected, and connects anew.
    Again(ExportId),
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
            let how = self.judge(&origin, body, &asked, known, by_handle)?;
            match how {
                How::New => self.join(cx, &origin, body, asked),
                How::Taken(id) => self.establish(cx, id, &origin, body, &asked, false),
                How::Again(id) => self.establish(cx, id, &origin, body, &asked, true),
            }
        });
        if let Err(errno) = result {
            self.connect_refused(cx, &origin, body, errno);
        }
    }

    pub(super) fn connect_refused(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: &Origin,
        body: &Body,
        errno: Errno,
    ) {
        self.stats.connects_refused += 1;
        self.refuse_origin(cx, origin, None, body, errno);
    }

    /// What is asked for, and whether it can be read (steps 1 to 3).
    fn asked(&self, body: &Body, bytes: &[u8]) -> Result<Asked, Errno> {
        let msg = Msg::parse(bytes).map_err(|_| Errno::EPROTO)?;
        let text = |what, index| -> Result<String, Errno> {
            let text = msg.text(what, index).map_err(|_| Errno::EINVAL)?;
            String::from_utf8(text.to_vec()).map_err(|_| Errno::EINVAL)
        };
        let uuid = text("target uuid", 1)?;
        let target = self.targets.iter().find(|(_, t)| t.config.uuid == uuid && !t.failed);
        let (target, _) = target.ok_or(Errno::ENODEV)?;
        let client = text("client uuid", 2)?;
        if client.is_empty() || client.len() > CLIENT_MAX {
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

    /// Who connects, and whether it may (steps 4 to 7).
    fn judge(
        &self,
        origin: &Origin,
        body: &Body,
        asked: &Asked,
        known: Option<ExportId>,
        by_handle: Option<ExportId>,
    ) -> Result<How, Errno> {
        let Some((id, export)) = known.and_then(|id| Some((id, self.exports.get(id)?))) else {
            return Ok(How::New);
        };
        if export.joining.is_some() || export.leaving.is_some() {
            return Err(Errno::EALREADY);
        }
        // One that was not connected in this life of the target has no address and no handle.
        let taken = export.client_handle == 0;
        let initial = body.op_flags.contains(OpFlags::INITIAL);
        if !taken && (initial && export.from != origin.peer || export.client_handle != asked.handle)
        {
            return Err(Errno::EALREADY);
        }
        if by_handle.is_none() && !export.in_work.is_empty() {
            return Err(Errno::EBUSY);
        }
        // Its first connection: another client than the one of this uuid that was known.
        if taken && body.conn_cnt == 1 || body.conn_cnt <= export.conn_cnt {
            return Err(Errno::EALREADY);
        }
        Ok(if taken { How::Taken(id) } else { How::Again(id) })
    }

    /// A new client. One of a target that keeps records waits until its own is stored (P-131).
    fn join(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: &Origin,
        body: &Body,
        asked: Asked,
    ) -> Result<(), Errno> {
        let target = asked.target;
        let light = asked.is_light();
        if self.recovers(target) && !light {
            // A new client waits until the old ones are back.
            self.client_comes(cx, target, None, body);
            return Err(Errno::EBUSY);
        }
        let of_node = self.exports_of.get(&origin.peer).copied().unwrap_or(0);
        if self.exports.len() >= EXPORTS_MAX || of_node >= cx.common.tunables.exports_per_node {
            return Err(Errno::EBUSY);
        }
        let keeps = self.targets.get(target).is_some_and(|t| t.config.replayable);
        let client = asked.client.clone();
        let id = self.new_export(cx, target, client.clone());
        self.settles(id, origin.peer);
        if !keeps || light {
            return self.establish(cx, id, origin, body, &asked, false);
        }
        if let Some(export) = self.exports.get_mut(id) {
            export.joining = Some(Box::new(Joining { origin: *origin, body: *body, asked }));
        }
        cx.common.events.push_back(Event::Joining { export: id, target, client });
        Ok(())
    }

    /// The record of a new client is stored, or is not.
    pub(crate) fn joined(&mut self, cx: &mut Cx<'_, '_>, id: ExportId, stored: Result<(), Errno>) {
        let Some(joining) = self.exports.get_mut(id).and_then(|e| e.joining.take()) else { return };
        let Joining { origin, body, asked } = *joining;
        let result = stored.and_then(|()| self.establish(cx, id, &origin, &body, &asked, false));
        if let Err(errno) = result {
            self.drop_export(cx, id);
            self.connect_refused(cx, &origin, &body, errno);
        }
    }

    /// Connects an export (steps 9 to 15).
    fn establish(
        &mut self,
        cx: &mut Cx<'_, '_>,
        id: ExportId,
        origin: &Origin,
        body: &Body,
        asked: &Asked,
        again: bool,
    ) -> Result<(), Errno> {
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
        if data.flags.contains(ConnectFlags::CKSUM) {
            data.cksum_types &= offer.cksum_types;
        }
        if data.flags.contains(ConnectFlags::MAXBYTES) {
            data.maxbytes = offer.maxbytes;
        }
        if data.flags.contains(ConnectFlags::GRANT_PARAM) {
            data.grant_blkbits = offer.grant_blkbits;
            data.grant_inobits = offer.grant_inobits;
            data.grant_tax_kb = offer.grant_tax_kb;
            data.grant_max_blks = offer.grant_max_blks;
        }
        // L-96: one that was connected before keeps what it says that it holds.
        let holds = again || self.recovers(asked.target) && !asked.is_light();
        if data.flags.contains(ConnectFlags::GRANT) && !holds {
            data.grant = asked.data.grant.min(offer.grant);
        }
        if data.flags.contains(ConnectFlags::MULTIMODRPCS) {
            data.maxmodrpcs = asked.data.maxmodrpcs.min(offer.maxmodrpcs).max(1);
        }
        let mut op_flags = OpFlags::empty();
        op_flags.set(OpFlags::RECONNECT, again);
        op_flags.set(OpFlags::REPLAYABLE, target.config.replayable);
        let recovering = self.recovers(asked.target) && !asked.is_light();
        op_flags.set(OpFlags::RECOVERING, recovering);
        let from = origin.peer;
        self.settles(id, from);
        let export = self.exports.get_mut(id).ok_or(Errno::ENODEV)?;
        export.client_handle = asked.handle;
        export.conn_cnt = body.conn_cnt;
        export.granted = data;
        export.heard = origin.arrival;
        // P-108: what the client says next counts.
        export.last_xid = 0;
        let handle = export.cookie;
        // What moves for an older connection is cut off: its request comes again (P-51).
        let moving: Vec<_> = export.in_work.values().copied().collect();
        for work in moving {
            self.end_bulk(cx, work, Errno::ETIMEDOUT);
        }
        self.watch(cx, id, body);
        let parts = Parts {
            op_flags,
            handle,
            buffers: vec![data.cut(asked.order, asked.data_len)],
            ..Parts::default()
        };
        self.answer(cx, origin, Some(id), body, parts);
        let client = asked.client.clone();
        cx.common.events.push_back(Event::Connected { export: id, client, from, again });
        cx.common.reversed.push(id);
        if recovering && !again {
            self.client_comes(cx, asked.target, Some(id), body);
        }
        Ok(())
    }
}
