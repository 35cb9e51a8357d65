//! Connects (P-129).

use lnet_types::{ByteOrder, Errno, Nid};
use lustre_wire::connect::ConnectFlags;
use lustre_wire::{Body, Buffers, ConnectData, Layout, Msg, OpFlags};

use super::export::Joining;
use super::reply::Parts;
use super::service::Origin;
use super::{EXPORTS_MAX, Server};
use crate::common::{Cx, alike};
use crate::event::{Event, EvictReason};
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

    /// Whether a metadata server connects that keeps nothing at the target. Kernel nodes connect theirs
    /// as clients with a record (P-129.8), so that the time of other clients begins with it.
    fn is_light_server(&self) -> bool {
        self.is_light() && self.data.flags.contains(ConnectFlags::MDS)
    }

    /// Whether a metadata server connects to another one.
    fn is_of_servers(&self) -> bool {
        self.data.flags.contains(ConnectFlags::MDS_MDS | ConnectFlags::FID) && !self.is_light()
    }

    /// Whether one that is connected already connects as a new client: servers connect anew without
    /// memory of what was (P-129.5).
    fn is_anew(&self, initial: bool) -> bool {
        let servers = ConnectFlags::MDS | ConnectFlags::LIGHTWEIGHT;
        initial && self.data.flags.intersects(servers)
            || self.data.flags.contains(ConnectFlags::MDS_MDS)
    }
}

/// How a client connects.
#[derive(Debug, PartialEq, Eq)]
enum How {
    /// For the first time.
    New,
    /// It was connected in an earlier life of the target.
    Taken(ExportId),
    /// It is connected, and connects anew.
    Again(ExportId),
    /// It is connected, and comes as a new client: what it had here goes.
    Replaced(ExportId),
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
            let primary = |nid| cx.below.node().primary_of(nid);
            let how = self.judge(&origin, body, &asked, known, by_handle, primary)?;
            match how {
                How::New => self.join(cx, &origin, body, asked),
                How::Taken(id) => self.establish(cx, id, &origin, body, &asked, false),
                How::Again(id) => self.establish(cx, id, &origin, body, &asked, true),
                How::Replaced(id) => {
                    self.evict(cx, id, EvictReason::Replaced);
                    self.join(cx, &origin, body, asked)
                }
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
        let asked = Asked { target, client, handle, data, data_len, order: msg.order };
        let initial = body.op_flags.contains(OpFlags::INITIAL);
        if initial && asked.is_of_servers() && !alike(data.version, crate::VERSION) {
            return Err(Errno::EPROTO);
        }
        Ok(asked)
    }

    /// Who connects, and whether it may (steps 4 to 7). `primary` is the name of the node of a NID as it
    /// is known by now: a connect may have come before LNet had discovered from which node.
    fn judge(
        &self,
        origin: &Origin,
        body: &Body,
        asked: &Asked,
        known: Option<ExportId>,
        by_handle: Option<ExportId>,
        primary: impl Fn(Nid) -> Nid,
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
        // It was evicted and admitted anew in that life, and has heard of neither: what it would repeat
        // now is what others have seen the end of.
        let other = export.admission.is_some_and(|admission| body.handle as u32 != admission);
        if taken && body.handle != 0 && other {
            return Ok(How::Replaced(id));
        }
        let anew = !taken && asked.is_anew(initial);
        let moved = primary(export.from) != primary(origin.peer);
        // The count of connections of a server that has begun anew begins anew, too.
        let restarts = !moved && asked.data.flags.contains(ConnectFlags::MDS_MDS);
        if anew && !restarts {
            return Ok(How::Replaced(id));
        }
        if !taken && !anew && (initial && moved || export.client_handle != asked.handle) {
            return Err(Errno::EALREADY);
        }
        if by_handle.is_none() && !export.in_work.is_empty() {
            return Err(Errno::EBUSY);
        }
        // Its first connection: another client than the one of this uuid that was known.
        let counted = if anew { 0 } else { export.conn_cnt };
        if taken && body.conn_cnt == 1 || body.conn_cnt <= counted {
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
        let starts = body.op_flags.contains(OpFlags::INITIAL) && asked.is_of_servers();
        if self.recovers(target) && !light && !starts {
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
        let id = self.new_export(cx, target, client.clone(), None);
        self.settles(id, origin.peer);
        if !keeps || light {
            return self.establish(cx, id, origin, body, &asked, false);
        }
        let Some(export) = self.exports.get_mut(id) else { return Err(Errno::ENODEV) };
        export.joining = Some(Box::new(Joining { origin: *origin, body: *body, asked }));
        if let Some((_, admission)) = self.admission_of(id) {
            cx.common.events.push_back(Event::Joining { export: id, target, client, admission });
        }
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
            buffers: Buffers::from([data.cut(asked.order, asked.data_len)]),
            ..Parts::default()
        };
        self.answer(cx, origin, Some(id), body, parts);
        let client = asked.client.clone();
        cx.common.events.push_back(Event::Connected { export: id, client, from, again });
        cx.common.reversed.push(id);
        if recovering && !again {
            self.client_comes(cx, asked.target, Some(id), body);
        } else if asked.is_light_server() && self.recovers(asked.target) {
            // What it wants of the target no client may want before.
            self.client_comes(cx, asked.target, None, body);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::TargetConfig;
    use crate::server::export::Export;
    use crate::server::target::Target;
    use crate::table::ServiceId;
    use lnet_types::{Instant, ProcessId};
    use lustre_wire::{Header, MsgBuilder, Opcode};

    const NOW: Instant = Instant::from_secs(9);

    fn nid(n: u8) -> Nid {
        format!("10.0.0.{n}@tcp").parse().unwrap()
    }

    fn origin() -> Origin {
        let peer = nid(1);
        Origin {
            service: ServiceId::from(0),
            from: ProcessId::from(peer),
            peer,
            to: nid(9),
            xid: 128,
            reply_bits: 128,
            adaptive: true,
            arrival: NOW,
            deadline: NOW,
        }
    }

    /// A server with a target, and with a client of it on node 1 that has connected twice.
    fn server() -> (Server, ExportId) {
        let mut server = Server::default();
        let (uuid, offer) = ("t-1".to_owned(), ConnectData::default());
        let config = TargetConfig { uuid, offer, replayable: true, past: Default::default() };
        let (committed, last, lock_volume) = (0, 0, (0, 0));
        let target = Target { config, committed, last, recovery: None, lock_volume, failed: false };
        let target = server.targets.insert(target);
        let mut export = Export::new(target, 77, "c-1".to_owned(), NOW);
        (export.client_handle, export.conn_cnt, export.from) = (7, 2, nid(1));
        let id = server.exports.insert(export);
        (server, id)
    }

    /// What P-129 looks at in a connect of the known client; as it is here, all is well.
    struct Row {
        taken: bool,
        joining: bool,
        busy: bool,
        by_handle: bool,
        from: Nid,
        handle: u64,
        flags: ConnectFlags,
        initial: bool,
        conn_cnt: u32,
        known: bool,
        admission: Option<u32>,
        /// The handle that it has for its export.
        has: u64,
    }

    const fn row() -> Row {
        Row {
            taken: false,
            joining: false,
            busy: false,
            by_handle: true,
            from: Nid::ANY,
            handle: 7,
            flags: ConnectFlags::FULL20,
            initial: false,
            conn_cnt: 3,
            known: true,
            admission: None,
            has: 0,
        }
    }

    fn judged(row: &Row) -> Result<&'static str, Errno> {
        let (mut server, id) = server();
        let (target, _) = server.targets.iter().next().unwrap();
        let asked = |handle| Asked {
            target,
            client: "c-1".to_owned(),
            handle,
            data: ConnectData { flags: row.flags, ..ConnectData::default() },
            data_len: ConnectData::LEN,
            order: ByteOrder::Little,
        };
        let mut origin = origin();
        let export = server.exports.get_mut(id).unwrap();
        if row.taken {
            (export.client_handle, export.conn_cnt, export.from) = (0, 0, Nid::ANY);
        }
        if row.joining {
            let body = Body::default();
            export.joining = Some(Box::new(Joining { origin, body, asked: asked(7) }));
        }
        if row.busy {
            export.in_work.insert(128, crate::ServedId::from(0));
        }
        export.admission = row.admission;
        if row.from != Nid::ANY {
            origin.peer = row.from;
        }
        let mut body = Body { conn_cnt: row.conn_cnt, handle: row.has, ..Body::default() };
        body.op_flags.set(OpFlags::INITIAL, row.initial);
        let (known, by) = (row.known.then_some(id), row.by_handle.then_some(id));
        // Node 1 has another interface, as LNet has found out since its last connect.
        let primary = |at| if at == nid(3) { nid(1) } else { at };
        let how = server.judge(&origin, &body, &asked(row.handle), known, by, primary)?;
        Ok(match how {
            How::New => "new",
            How::Taken(_) => "taken",
            How::Again(_) => "again",
            How::Replaced(_) => "replaced",
        })
    }

    #[test]
    fn p129_4_to_7_each_row_of_who_connects() {
        use ConnectFlags as F;
        let already = Err(Errno::EALREADY);
        for (what, row, expected) in [
            ("4 unknown", Row { known: false, ..row() }, Ok("new")),
            ("5 being connected", Row { joining: true, ..row() }, already),
            ("5 a server, initial", Row { flags: F::MDS, initial: true, ..row() }, Ok("replaced")),
            ("5 a server, not initial", Row { flags: F::MDS, ..row() }, Ok("again")),
            (
                "5 lightweight, initial",
                Row { flags: F::LIGHTWEIGHT, initial: true, ..row() },
                Ok("replaced"),
            ),
            ("5 lightweight", Row { flags: F::LIGHTWEIGHT, ..row() }, Ok("again")),
            (
                "5 between MDTs, same node, counts anew",
                Row { flags: F::MDS_MDS, conn_cnt: 1, handle: 8, ..row() },
                Ok("again"),
            ),
            (
                "5 between MDTs, another node",
                Row { flags: F::MDS_MDS, from: nid(2), ..row() },
                Ok("replaced"),
            ),
            (
                "5 between MDTs, without a connection",
                Row { flags: F::MDS_MDS, from: nid(2), taken: true, ..row() },
                Ok("taken"),
            ),
            ("5 initial, another node", Row { initial: true, from: nid(2), ..row() }, already),
            ("5 initial, same node", Row { initial: true, ..row() }, Ok("again")),
            (
                "5 initial, another interface of the node",
                Row { initial: true, from: nid(3), ..row() },
                Ok("again"),
            ),
            (
                "5 between MDTs, another interface of the node",
                Row { flags: F::MDS_MDS, from: nid(3), conn_cnt: 1, handle: 8, ..row() },
                Ok("again"),
            ),
            ("5 another node", Row { from: nid(2), ..row() }, Ok("again")),
            ("5 no connection yet", Row { taken: true, handle: 8, ..row() }, Ok("taken")),
            (
                "5 an admission of before",
                Row { taken: true, admission: Some(9), has: 5, ..row() },
                Ok("replaced"),
            ),
            (
                "5 its admission",
                Row { taken: true, admission: Some(9), has: 7 << 32 | 9, ..row() },
                Ok("taken"),
            ),
            ("5 without one yet", Row { taken: true, admission: Some(9), ..row() }, Ok("taken")),
            ("5 in this life", Row { admission: Some(9), has: 5, ..row() }, Ok("again")),
            ("5 another handle", Row { handle: 8, ..row() }, already),
            ("5 the same handle", row(), Ok("again")),
            ("6 in work", Row { busy: true, by_handle: false, ..row() }, Err(Errno::EBUSY)),
            ("6 in work, with its handle", Row { busy: true, ..row() }, Ok("again")),
            ("6 without its handle", Row { by_handle: false, ..row() }, Ok("again")),
            ("7 a new client's count", Row { taken: true, conn_cnt: 1, ..row() }, already),
            ("7 a later count", Row { taken: true, conn_cnt: 2, ..row() }, Ok("taken")),
            ("12 the same count", Row { conn_cnt: 2, ..row() }, already),
            ("12 an older count", Row { conn_cnt: 1, ..row() }, already),
        ] {
            assert_eq!(judged(&row), expected, "{what}");
        }
    }

    #[test]
    fn p129_1_to_3_each_row_of_what_can_be_read() {
        let (mut server, _) = server();
        let data = |flags, version| {
            let data = ConnectData { flags, version, ..ConnectData::default() };
            data.to_bytes(ByteOrder::Little)
        };
        let good = data(ConnectFlags::FULL20, crate::VERSION);
        let longer = [&good[..], &[0; 8 * ConnectData::LEN]].concat();
        let mdt = ConnectFlags::FULL20 | ConnectFlags::MDS_MDS | ConnectFlags::FID;
        let far = data(mdt, crate::VERSION - (4 << 8));
        let light = data(mdt | ConnectFlags::LIGHTWEIGHT, 0);
        let none = OpFlags::empty();
        let (t, c): (&[u8], &[u8]) = (b"t-1\0", b"c-1\0");
        let eproto = Some(Errno::EPROTO);
        for (what, target, client, rest, flags, expected) in [
            ("good", t, c, Some(&good), none, None),
            ("1 target without its NUL", &b"t-1"[..], c, Some(&good), none, Some(Errno::EINVAL)),
            ("1 no such target", b"t-2\0", c, Some(&good), none, Some(Errno::ENODEV)),
            ("2 client without its NUL", t, &b"c-1"[..], Some(&good), none, Some(Errno::EINVAL)),
            ("2 client of no name", t, b"\0", Some(&good), none, Some(Errno::EINVAL)),
            ("2 client too long", t, &[b'x'; 41], Some(&good), none, Some(Errno::EINVAL)),
            ("2 no connect data", t, c, None, none, eproto),
            ("2 connect data too long", t, c, Some(&longer), none, eproto),
            ("3 without FULL20", t, c, Some(&data(ConnectFlags::AT, 0)), none, eproto),
            ("3 of a library", t, c, Some(&good), OpFlags::LIBCLIENT, eproto),
            ("3 MDT of another version, initial", t, c, Some(&far), OpFlags::INITIAL, eproto),
            ("3 MDT of another version", t, c, Some(&far), none, None),
            ("3 MDT as a light client", t, c, Some(&light), OpFlags::INITIAL, None),
        ] {
            let opcode = Opcode::OST_CONNECT;
            let body = Body { op_flags: flags, opcode, ..Body::default() };
            let builder = MsgBuilder::new(Header::default(), &body).bytes(target).bytes(client);
            let builder = match rest {
                Some(data) => builder.layout(&7u64).bytes(data),
                None => builder.layout(&7u64),
            };
            let found = server.asked(&body, &builder.build().unwrap()).err();
            assert_eq!(found, expected, "{what}");
        }
        let bytes = MsgBuilder::new(Header::default(), &Body::default()).bytes(t).bytes(c);
        let bytes = bytes.build().unwrap();
        assert_eq!(server.asked(&Body::default(), &bytes).err(), eproto, "2 no handle");
        let (id, _) = server.targets.iter().next().unwrap();
        server.fail_over(id, true);
        assert_eq!(server.asked(&Body::default(), &bytes).err(), Some(Errno::ENODEV), "1 stops");
    }
}
