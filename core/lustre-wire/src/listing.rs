//! Messages as text: a line for the envelope and the body, then a line for each buffer.
//!
//! A structure that cannot be read is shown with the reason; nothing is left out silently.

use core::fmt::{self, Write as _};

use crate::body::{BodyFlags, MsgKind};
use crate::connect::ConnectData;
use crate::fid::SeqRange;
use crate::format::{Format, Part, Variant};
use crate::ldlm::{
    END_OF_FILE, InodeBits, Intent, LayoutIntent, LockDesc, LockReply, LockRequest, Lvb, Policy,
};
use crate::llog::{
    Command, ConfigCommand, LlogdBody, LogHeader, LogRecord, LogRecords, RecordKind,
};
use crate::mds::{Epoch, MdtBody, Record};
use crate::mgs::{ConfigBody, ConfigResult, TargetInfo};
use crate::ost::{IoObj, Niobuf, Obdo, Statfs, checksum_name};
use crate::striping::{Stripes, Striping};
use crate::{Body, Layout, Msg, WireError};

/// A buffer, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What the buffer holds.
    pub part: Part,
    /// The text.
    pub text: String,
}

/// A message as text, each buffer on a line of its own. `xid` is that of the request, which a reply
/// does not hold; `variant` is what the request said.
pub fn listing(msg: &Msg<'_>, xid: u64, variant: Variant) -> String {
    let body = match msg.body() {
        Ok(body) => body,
        Err(why) => return format!("!! {why}"),
    };
    let mut text = head(msg, &body, xid);
    for line in buffers(msg, &body, variant) {
        text.push_str("\n        ");
        text.push_str(&line.text);
    }
    text
}

/// Envelope and body.
pub fn head(msg: &Msg<'_>, body: &Body, xid: u64) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match body.kind {
        MsgKind::REQUEST => write_request(&mut text, msg, body, xid),
        _ => write_reply(&mut text, msg, body, xid),
    };
    text
}

fn write_request(f: &mut String, msg: &Msg<'_>, body: &Body, xid: u64) -> fmt::Result {
    write!(f, "{} {} xid={xid}", body.kind, body.opcode)?;
    if body.mbits != xid {
        write!(f, " mbits={}", body.mbits)?;
    }
    write!(f, " handle={:#x} conn_cnt={}", body.handle, body.conn_cnt)?;
    write!(f, " timeout={}", body.timeout)?;
    if body.service_time != 0 {
        write!(f, " service_time={}", body.service_time)?;
    }
    write!(f, " last_xid={}", body.last_xid)?;
    if body.tag != 0 {
        write!(f, " tag={}", body.tag)?;
    }
    if body.transno != 0 {
        write!(f, " transno={}", body.transno)?;
    }
    if body.flags != BodyFlags::empty() {
        write!(f, " flags={}", body.flags)?;
    }
    if !body.op_flags.is_empty() {
        write!(f, " op_flags={}", body.op_flags)?;
    }
    write_versions(f, body)?;
    write!(
        f,
        " ver={:#x} pid={} repsize={}",
        body.version, body.status as u32, msg.header.repsize
    )?;
    if msg.header.secflvr != 0 {
        write!(f, " secflvr={:#x}", msg.header.secflvr)?;
    }
    write_sizes(f, msg)
}

fn write_reply(f: &mut String, msg: &Msg<'_>, body: &Body, xid: u64) -> fmt::Result {
    let early = msg.header.cksum != 0;
    let kind: &dyn fmt::Display = if early { &"EARLY" } else { &body.kind };
    write!(f, "{kind} {} xid={xid} status={}", body.opcode, body.status)?;
    if body.handle != 0 {
        write!(f, " handle={:#x}", body.handle)?;
    }
    if body.transno != 0 {
        write!(f, " transno={}", body.transno)?;
    }
    write!(f, " last_committed={} timeout={}", body.last_committed, body.timeout)?;
    write!(f, " service_time={}", body.service_time)?;
    if !body.flags.is_empty() {
        write!(f, " flags={}", body.flags)?;
    }
    if !body.op_flags.is_empty() {
        write!(f, " op_flags={}", body.op_flags)?;
    }
    if (body.limit, body.slv) != (0, 0) {
        write!(f, " limit={} slv={}", body.limit, body.slv)?;
    }
    write_versions(f, body)?;
    if early {
        let judged = if msg.checksum_holds() { "ok" } else { "BAD" };
        write!(f, " cksum={:#x}({judged})", msg.header.cksum)?;
    }
    write_sizes(f, msg)
}

fn write_versions(f: &mut String, body: &Body) -> fmt::Result {
    if body.pre_versions != [0; 4] {
        write!(f, " pre_versions={:?}", body.pre_versions)?;
    }
    Ok(())
}

fn write_sizes(f: &mut String, msg: &Msg<'_>) -> fmt::Result {
    let lens: Vec<usize> = msg.buffers().map(|b| b.len()).collect();
    write!(f, " hflags={} len={} bufs={lens:?}", msg.header.flags.bits(), msg.size())
}

/// The buffers behind the body; empty ones are left out.
pub fn buffers(msg: &Msg<'_>, body: &Body, variant: Variant) -> Vec<Line> {
    let format = match body.kind {
        MsgKind::REQUEST => variant.request(body.opcode),
        MsgKind::REPLY if msg.header.cksum == 0 => variant.reply(body.opcode),
        _ => None,
    };
    let parts = format.as_ref().map_or(&[][..], Format::parts);
    let mut lines = Vec::new();
    for (index, bytes) in msg.buffers().enumerate().skip(1) {
        if bytes.is_empty() {
            continue;
        }
        match parts.get(index - 1) {
            Some(&part) => lines.extend(buffer(msg, index, part)),
            None => lines.push(Line { part: Part::Value, text: format!("val={}", hex(bytes)) }),
        }
    }
    lines
}

/// One buffer: a line, or one for each element of an array.
fn buffer(msg: &Msg<'_>, index: usize, part: Part) -> Vec<Line> {
    let texts = match texts(msg, index, part) {
        Ok(texts) => texts,
        Err(why) => vec![format!("!! {why}")],
    };
    texts.into_iter().map(|text| Line { part, text }).collect()
}

fn texts(msg: &Msg<'_>, index: usize, part: Part) -> Result<Vec<String>, WireError> {
    let bytes = msg.required(part.name(), index)?;
    let text = || msg.text(part.name(), index).map(|text| text.escape_ascii().to_string());
    Ok(vec![match part {
        Part::TargetUuid => format!("tgt={}", text()?),
        Part::ClientUuid => format!("client={}", text()?),
        Part::ClientHandle => format!("conn_handle={:#x}", msg.get::<u64>(index)?),
        Part::ConnectData => connect_data(&ConnectData::of(msg, index)?),
        Part::LockRequest => lock_request(&LockRequest::of(msg, index)?),
        Part::LockReply => lock_reply(&msg.get(index)?),
        Part::Intent => format!("intent={}", msg.get::<Intent>(index)?),
        Part::LayoutIntent => layout_intent(&msg.get(index)?),
        Part::Lvb if bytes.len() == Lvb::LEN || bytes.len() == Lvb::LEN_SHORT => {
            let Lvb { size, mtime, atime, ctime, blocks, .. } =
                Lvb::parse_either(msg.order, bytes)?;
            format!("lvb{{size={size} mtime={mtime} atime={atime} ctime={ctime} blocks={blocks}}}")
        }
        Part::OstBody => obdo(&msg.get(index)?),
        Part::IoObj => {
            let IoObj { id, max_brw, count } = msg.get(index)?;
            format!("ioobj{{{} max_brw={max_brw:#x} bufcnt={count}}}", object_id(id))
        }
        Part::Niobufs => {
            let one = |n: &Niobuf| format!("niobuf[{}+{} {}]", n.offset, n.len, n.flags);
            return Ok(msg.array(index)?.iter().map(one).collect());
        }
        Part::Results => format!("rcs={:?}", msg.array::<i32>(index)?),
        Part::ShortIo => format!("short_io={}B", bytes.len()),
        Part::InlineData => format!("inline={}B", bytes.len()),
        Part::Md | Part::DefaultMd | Part::EaData => match Striping::parse(bytes) {
            Ok(found) => striping(&found),
            Err(_) => format!("{}={}", part.name().replace(' ', "_"), hex(bytes)),
        },
        Part::Statfs => {
            let Statfs { kind, blocks, bfree, bavail, files, ffree, .. } = msg.get(index)?;
            format!(
                "statfs{{type={kind:#x} blocks={blocks} bfree={bfree} bavail={bavail} \
                 files={files} ffree={ffree}}}"
            )
        }
        Part::MdtBody => mdt_body(&msg.get(index)?),
        Part::Record => format!("rec_reint{{{}}}", Record::parse(msg.order, bytes)?.opcode()),
        Part::Epoch => format!("mdt_ioepoch{{handle={:#x}}}", msg.get::<Epoch>(index)?.handle),
        Part::LlogdBody => llogd_body(&msg.get(index)?),
        Part::LogHeader => log_header(&msg.get(index)?),
        Part::LogBlock => return Ok(log_records(bytes)),
        Part::SeqOp => format!("op={}", msg.get::<u32>(index)?),
        Part::SeqRange => format!("range{{{}}}", msg.get::<SeqRange>(index)?),
        Part::TargetInfo => target_info(&msg.get(index)?),
        Part::ConfigBody => {
            let ConfigBody { name, offset, kind, nid_size, bits, units } = msg.get(index)?;
            format!(
                "mgs_config_body{{name={name} offset={offset} type={} nidsize={nid_size} \
                 bits={bits} units={units}}}",
                kind.0
            )
        }
        Part::ConfigResult => {
            let ConfigResult { offset, size } = msg.get(index)?;
            format!("mgs_config_res{{offset={offset} size={size}}}")
        }
        Part::Key => format!("key={}", text()?),
        Part::Name => format!("name={}", text()?),
        Part::Value => format!("val={}", hex(bytes)),
        Part::SelinuxPolicy => format!("policy={}", text()?),
        _ => format!("{}={}", part.name().replace(' ', "_"), hex(bytes)),
    }])
}

/// Bytes in hexadecimal, of many the first alone.
fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let mut text = String::new();
    for byte in bytes.iter().take(SHOWN) {
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > SHOWN {
        let _ = write!(text, "... ({} bytes)", bytes.len());
    }
    text
}

fn connect_data(d: &ConnectData) -> String {
    format!(
        "connect_data{{flags={:#x}({}) version={:#010x} grant={} index={} brw_size={} ibits={:#x} \
         grant_blkbits={} inobits={} tax_kb={} max_blks={} transno={} group={} cksum_types={:#x} \
         max_easize={} instance={} maxbytes={:#x} maxmodrpcs={} conn_policy={} flags2={:#x}({}) \
         compr={:#x}}}",
        d.flags.bits(),
        d.flags,
        d.version,
        d.grant,
        d.index,
        d.brw_size,
        d.ibits_known,
        d.grant_blkbits,
        d.grant_inobits,
        d.grant_tax_kb,
        d.grant_max_blks,
        d.transno,
        d.group,
        d.cksum_types.bits(),
        d.max_easize,
        d.instance,
        d.maxbytes,
        d.maxmodrpcs,
        d.conn_policy,
        d.flags2.bits(),
        d.flags2,
        d.compr_type,
    )
}

/// A number that is "up to the end" if all its bits are set.
fn or_end(n: u64) -> String {
    if n == END_OF_FILE { "EOF".to_owned() } else { n.to_string() }
}

fn lock_desc(desc: &LockDesc) -> String {
    let LockDesc { kind, resource, requested, granted, .. } = desc;
    let mut text = format!("{kind} res={resource} req={requested} granted={granted}");
    let _ = match desc.policy() {
        Some(Policy::Extent { start, end, .. }) => {
            write!(text, " extent=[{start},{}]", or_end(end))
        }
        Some(Policy::Ibits { bits, try_bits, .. }) => {
            let shown = write!(text, " bits={bits}");
            if try_bits == InodeBits::empty() {
                shown
            } else {
                write!(text, " try/cancel={try_bits}")
            }
        }
        Some(Policy::Flock { start, end, owner, pid }) => {
            write!(text, " flock=[{start},{}] owner={owner:#x} pid={pid}", or_end(end))
        }
        Some(Policy::Plain) | None => Ok(()),
    };
    text
}

fn lock_request(r: &LockRequest) -> String {
    let handles: Vec<String> = r.handles.iter().map(|h| format!("{h:#x}")).collect();
    let (flags, count, desc) = (r.flags, r.count, lock_desc(&r.desc));
    format!("lock_req{{flags={flags} count={count} {desc} handles=[{}]}}", handles.join(", "))
}

fn lock_reply(r: &LockReply) -> String {
    format!(
        "lock_rep{{flags={} {} handle={:#x} res1={:#x} res2={}}}",
        r.flags,
        lock_desc(&r.desc),
        r.handle,
        r.policy_res1,
        r.policy_res2 as i64,
    )
}

fn layout_intent(i: &LayoutIntent) -> String {
    let LayoutIntent { opcode, flags, start, end } = i;
    format!("layout_intent{{{opcode} flags={flags:#x} extent=[{start},{}]}}", or_end(*end))
}

fn striping(layout: &Striping) -> String {
    match layout {
        Striping::Plain(component) => format!("layout{{{}}}", stripes(component)),
        Striping::Composite(head, components) => {
            let mut text =
                format!("layout{{generation={} flags={:#x}", head.generation, head.flags);
            for (entry, component) in components {
                let (id, flags, start, end) = (entry.id, entry.flags, entry.start, entry.end);
                let _ = write!(text, " component{{id={id:#x} {flags} [{start},{})", or_end(end));
                let _ = write!(text, " {}}}", stripes(component));
            }
            text + "}"
        }
        Striping::Foreign(head, value) => {
            format!("layout{{foreign kind={:#x} {} bytes}}", head.kind, value.len())
        }
        Striping::Dir(head, stripes) => {
            let fids: Vec<String> = stripes.iter().map(ToString::to_string).collect();
            let (master, hash) = (head.master, head.hash);
            format!("dir_layout{{master={master} hash={hash:#x} stripes=[{}]}}", fids.join(", "))
        }
        Striping::DirDefault(head, _) => format!(
            "dir_default{{count={} master={} hash={:#x} inherit={}/{}}}",
            head.stripe_count, head.master as i32, head.hash, head.inherit, head.inherit_rr
        ),
    }
}

fn stripes(s: &Stripes) -> String {
    let head = &s.head;
    let pool = s.pool.map_or_else(String::new, |pool| format!(" pool={pool}"));
    let object = |o: &crate::striping::StripeObject| format!("{}@{}", object_id(o.id), o.index);
    let objects: Vec<String> = s.objects.iter().map(object).collect();
    format!(
        "{} size={} count={} generation={}{pool} objects=[{}]",
        head.pattern,
        head.stripe_size,
        head.stripe_count,
        head.generation,
        objects.join(", ")
    )
}

fn object_id(id: crate::fid::ObjectId) -> String {
    match id.fid() {
        Some(fid) => format!("fid={fid}"),
        None => format!("id={} seq=0", id.first),
    }
}

fn obdo(o: &Obdo) -> String {
    use crate::fid::Valid;
    let mut text = format!("obdo{{valid={} {}", o.valid, object_id(o.id));
    let has = |bit| o.valid.contains(bit);
    if has(Valid::SIZE) {
        let _ = write!(text, " size={}", or_end(o.size));
    }
    if has(Valid::BLOCKS) {
        let _ = write!(text, " blocks={}", or_end(o.blocks));
    }
    if has(Valid::GRANT) {
        let _ = write!(
            text,
            " grant={} undirty/mode={} dirty/blocks={} dropped/misc={} used/dv={}",
            o.grant, o.mode, o.blocks, o.misc, o.data_version
        );
    }
    if has(Valid::FLAGS) {
        let _ = write!(text, " flags={}", o.flags.without_checksum());
    }
    if has(Valid::CKSUM) {
        let kind = o.flags.checksum();
        let name = checksum_name(kind).map_or_else(|| kind.to_string(), str::to_owned);
        let _ = write!(text, " cktype={name} cksum={:#x}", o.nlink);
    }
    if has(Valid::HANDLE) {
        let _ = write!(text, " handle={:#x}", o.handle);
    }
    if has(Valid::PARENT) {
        let parent = crate::Fid { seq: o.parent_seq, oid: o.parent_oid, ver: o.parent_ver };
        let _ = write!(text, " parent={parent}");
    }
    text + "}"
}

fn mdt_body(b: &MdtBody) -> String {
    let mut text = format!("mdt_body{{fid1={} fid2={}", b.fid1, b.fid2);
    if b.open_handle != 0 {
        let _ = write!(text, " open_handle={:#x}", b.open_handle);
    }
    let _ = write!(
        text,
        " valid={:#x} size={} flags={} layout_gen={} suppgid={} eadatasize={}}}",
        b.valid.bits(),
        b.size,
        b.flags,
        b.layout_gen,
        b.suppgid,
        b.eadatasize
    );
    text
}

fn llogd_body(b: &LlogdBody) -> String {
    format!(
        "llogd_body{{id=[{:#x}:{:#x}:{:#x}] gen={} ctxt={} flags={:#x} index={} saved={} len={} \
         off={}}}",
        b.id.oid,
        b.id.seq as u32,
        b.id.seq >> 32,
        b.id.generation,
        b.context,
        b.flags,
        b.index,
        b.saved_index,
        b.len,
        b.offset
    )
}

fn log_header(h: &LogHeader) -> String {
    format!(
        "llog_header{{count={} last={} size={} flags={:#x} uuid={}}}",
        h.count, h.tail.index, h.size, h.flags, h.uuid
    )
}

fn log_records(block: &[u8]) -> Vec<String> {
    let one = |record: Result<LogRecord<'_>, WireError>| match record {
        Ok(record) => log_record(&record),
        Err(why) => format!("!! {why}"),
    };
    LogRecords::new(block).map(one).collect()
}

/// A record of a log, as text.
pub fn log_record(record: &LogRecord<'_>) -> String {
    let mut text = format!("#{:02} {}", record.header.index, record.header.kind);
    if record.header.kind != RecordKind::CONFIG {
        return text;
    }
    let command = match ConfigCommand::parse(record) {
        Ok(command) => command,
        Err(why) => return format!("{text} !! {why}"),
    };
    let _ = write!(text, " {}", command.header.command);
    if command.header.nid != 0 {
        let _ = write!(text, " nid={}", lnet_types::Nid::from_nid4(command.header.nid));
    }
    if command.header.num != 0 {
        let _ = write!(text, " num={}", command.header.num);
    }
    if command.header.command == Command::MARKER
        && let Ok(marker) = command.marker(record.order)
    {
        let (target, comment) = (marker.target, marker.comment);
        let _ = write!(text, " {} {target} '{comment}'", marker.flags);
        return text;
    }
    for index in 0..command.buffers.len() {
        let _ = write!(text, " {index}:{}", command.text(index).escape_ascii());
    }
    text
}

fn target_info(t: &TargetInfo) -> String {
    format!(
        "mgs_target_info{{v={} index={} cfgver={} flags={:#x} nidcount={} instance={} fs={} svc={} \
         uuid={} params={}}}",
        t.version,
        t.index,
        t.config_version,
        t.flags.bits(),
        t.nid_count,
        t.instance,
        t.fsname,
        t.service,
        t.uuid,
        t.params
    )
}
