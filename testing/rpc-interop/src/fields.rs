//! The fields of a message, and the one table that says how each is compared.
//!
//! `Free` is the exception, and has its reason in the table.

use lnet_wire::{Handle, Hdr, Kind};
use lustre_wire::{Layout, Msg};

use crate::recording::{Message, Role};

/// Name space of numbers that each node chooses for itself: compared by a bijection over a whole
/// capture, with 0 standing for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Names {
    /// Cookies of exports.
    Export,
    /// Cookies of clients.
    Client,
    /// Handles of descriptors in LNet's headers.
    Descriptor,
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The same bytes.
    Equal,
    /// Related by a bijection.
    Alike(Names),
    /// Match bits: bases related by the bijection of xids, offset from the base equal.
    Bits,
    /// One less than an xid of the same import that is unanswered, not older than the recorded one.
    Replied,
    /// The same distance from the one before of the connection.
    Count,
    /// Equal once a reply on this portal has been recorded; before that the estimate is older than
    /// the recording.
    Learned,
    /// Whole seconds since the arrival of a request, at most one apart when ours came later or earlier
    /// than the recorded one by the difference.
    Second,
    /// The bits of this mask are equal.
    Masked(u64, &'static str),
    /// Not compared, for this reason.
    Free(&'static str),
}

/// Which messages a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Every message.
    All,
    /// Requests, connects included.
    Request,
    /// Replies, error replies and early replies.
    Reply,
    /// Early replies alone.
    Early,
    /// Requests of a server to its client.
    Callback,
}

use Names::{Client, Descriptor, Export};
use Rule::{Alike, Bits, Count, Equal, Free, Learned, Masked, Replied, Second};

const CALLER: &str = "names the calling process, which is the program's";
const LOCK_VOLUME: &str = "numbers of the lock cache belong to the lock layer";
const HISTORY: &str = "the estimate of a service remembers what was served before the recording";

/// The table. The first row that fits a message and its field holds.
pub const TABLE: &[(On, &str, Rule)] = &[
    (On::All, "lnet.portal", Equal),
    (On::All, "lnet.bits", Bits),
    (On::All, "lnet.offset", Equal),
    (On::All, "lnet.hdr_data", Equal),
    (On::All, "lnet.ack_wanted", Equal),
    (On::All, "lnet.length", Equal),
    (On::All, "lnet.sink_len", Equal),
    (On::All, "lnet.mlength", Equal),
    (On::All, "lnet.answers", Alike(Descriptor)),
    (On::All, "header.secflvr", Equal),
    (On::All, "header.repsize", Equal),
    (On::All, "header.cksum_holds", Equal),
    (On::All, "header.flags", Equal),
    (On::All, "header.opc", Equal),
    (On::All, "buflens", Equal),
    (On::Callback, "body.handle", Alike(Client)),
    (On::All, "body.handle", Alike(Export)),
    (On::All, "body.type", Equal),
    (On::All, "body.version", Equal),
    (On::All, "body.opc", Equal),
    (On::Request, "body.status", Free(CALLER)),
    (On::Reply, "body.status", Equal),
    (On::Request, "body.last_xid", Replied),
    (On::Reply, "body.last_xid", Equal),
    (On::All, "body.tag", Equal),
    (On::All, "body.projid", Free(CALLER)),
    // The program hands transactions of the recording on as they are, so they are equal here.
    (On::All, "body.last_committed", Equal),
    (On::All, "body.transno", Equal),
    (
        On::Request,
        "body.flags",
        // RESENT, REPLAY, both replay-done flags.
        Masked(0xc6, "UID_GID, PROJID and stray bits say something of the calling process"),
    ),
    (On::Reply, "body.flags", Equal),
    (On::All, "body.op_flags", Equal),
    (On::Request, "body.conn_cnt", Count),
    (On::Reply, "body.conn_cnt", Equal),
    (On::Request, "body.timeout", Learned),
    (On::Early, "body.timeout", Second),
    (On::Reply, "body.timeout", Free(HISTORY)),
    (On::All, "body.service_time", Second),
    (On::All, "body.limit", Free(LOCK_VOLUME)),
    (On::All, "body.slv", Free(LOCK_VOLUME)),
    (On::All, "body.pre_versions", Equal),
    (On::All, "body.mbits", Bits),
    (On::All, "body.uid", Free(CALLER)),
    (On::All, "body.gid", Free(CALLER)),
    (On::All, "body.jobid", Free(CALLER)),
    (On::All, "connect.handle", Alike(Client)),
    (
        On::All,
        "connect.version",
        Masked(0xffff_ff00, "the last byte is the build of a development version"),
    ),
    (On::All, "buffer", Equal),
    (On::All, "payload", Equal),
];

/// The rule for a field of a message.
///
/// # Panics
/// A field without a row: the table must be complete.
pub fn rule(message: &Message, field: &str) -> Rule {
    let request = message.role == Role::Request;
    let early = message.role == Role::Early;
    let fits = |on: On| match on {
        On::All => true,
        On::Request => request,
        On::Early => early,
        On::Reply => early || message.role == Role::Reply,
        On::Callback => request && message.is_callback(),
    };
    let name = field.split('[').next().unwrap_or(field);
    let row = TABLE.iter().find(|(on, row, _)| fits(*on) && *row == name);
    row.map(|(_, _, rule)| *rule).unwrap_or_else(|| panic!("no row for {field}"))
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// Bytes that are shown of a value.
const SHOWN: usize = 24;

impl Value {
    /// The value, of bytes those around the first one in which the other differs.
    pub fn beside(&self, other: &Self) -> String {
        let (Self::Bytes(bytes), Self::Bytes(others)) = (self, other) else {
            return self.to_string();
        };
        let same = bytes.iter().zip(others).take_while(|(a, b)| a == b).count();
        let from = same.saturating_sub(SHOWN / 3);
        if from == 0 {
            return self.to_string();
        }
        let rest = Self::Bytes(bytes.get(from..).unwrap_or_default().to_vec());
        format!("{} bytes, from byte {from} on {rest}", bytes.len())
    }
}

impl core::fmt::Display for Value {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Number(n) if *n > 0xffff => write!(f, "{n:#x}"),
            Self::Number(n) => write!(f, "{n}"),
            Self::Bytes(bytes) => {
                write!(f, "{} bytes", bytes.len())?;
                for byte in bytes.iter().take(SHOWN) {
                    write!(f, " {byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

/// A field with its value.
pub type Field = (String, Value);

/// All fields of a message.
pub fn fields(message: &Message) -> Vec<Field> {
    let mut all = envelope(&message.hdr);
    match message.role {
        Role::Request | Role::Reply | Role::Early => rpc(message, &mut all),
        Role::BulkPut | Role::Data => {
            all.push(("payload".to_owned(), Value::Bytes(message.payload.clone())));
        }
        Role::BulkGet | Role::Ack => {}
    }
    all
}

fn envelope(hdr: &Hdr) -> Vec<Field> {
    let mut all = Vec::new();
    let mut put = |name: &str, n: u64| all.push((format!("lnet.{name}"), Value::Number(n)));
    let object = |handle: Handle| handle.object;
    match hdr.kind {
        Kind::Put { ack, match_bits, hdr_data, portal, offset } => {
            put("portal", portal.into());
            put("bits", match_bits);
            put("offset", offset.into());
            put("hdr_data", hdr_data);
            put("ack_wanted", u64::from(ack != Handle::NONE));
            put("length", hdr.payload_len.into());
        }
        Kind::Get { match_bits, portal, offset, sink_len, .. } => {
            put("portal", portal.into());
            put("bits", match_bits);
            put("offset", offset.into());
            put("sink_len", sink_len.into());
        }
        Kind::Ack { dst, match_bits, mlength, .. } => {
            put("answers", object(dst));
            put("bits", match_bits);
            put("mlength", mlength.into());
        }
        Kind::Reply { dst, .. } => {
            put("answers", object(dst));
            put("length", hdr.payload_len.into());
        }
    }
    all
}

fn rpc(message: &Message, all: &mut Vec<Field>) {
    let Some((header, body)) = message.rpc else { return };
    let Ok(msg) = Msg::parse(&message.payload) else { return };
    let mut put = |name: &str, n: u64| all.push((name.to_owned(), Value::Number(n)));
    put("header.secflvr", header.secflvr.into());
    put("header.repsize", header.repsize.into());
    put("header.cksum_holds", u64::from(header.cksum == 0 || msg.checksum_holds()));
    put("header.flags", header.flags.bits().into());
    put("header.opc", header.opc.into());
    put("body.handle", body.handle);
    put("body.type", body.kind.0.into());
    put("body.version", body.version.into());
    put("body.opc", body.opcode.0.into());
    put("body.status", u64::from(body.status as u32));
    put("body.last_xid", body.last_xid);
    put("body.tag", body.tag.into());
    put("body.projid", body.projid.into());
    put("body.last_committed", body.last_committed);
    put("body.transno", body.transno);
    put("body.flags", body.flags.bits().into());
    put("body.op_flags", body.op_flags.bits().into());
    put("body.conn_cnt", body.conn_cnt.into());
    put("body.timeout", body.timeout.into());
    put("body.service_time", body.service_time.into());
    put("body.limit", body.limit.into());
    put("body.slv", body.slv);
    for (n, version) in body.pre_versions.into_iter().enumerate() {
        put(&format!("body.pre_versions[{n}]"), version);
    }
    put("body.mbits", body.mbits);
    put("body.uid", body.uid.into());
    put("body.gid", body.gid.into());
    let lens: Vec<u8> = msg.buffers().flat_map(|b| (b.len() as u32).to_le_bytes()).collect();
    all.push(("buflens".to_owned(), Value::Bytes(lens)));
    let jobid = body.jobid.to_bytes(msg.order);
    all.push(("body.jobid".to_owned(), Value::Bytes(jobid)));
    let request = message.role == Role::Request;
    let connects = body.opcode.is_connect();
    for (index, bytes) in msg.buffers().enumerate().skip(1) {
        match index {
            3 if connects && request => {
                let handle = msg.get::<u64>(3).unwrap_or_default();
                all.push(("connect.handle".to_owned(), Value::Number(handle)));
            }
            4 if connects && request => data(bytes, all),
            1 if connects && !request => data(bytes, all),
            _ => all.push((format!("buffer[{index}]"), Value::Bytes(bytes.to_vec()))),
        }
    }
}

/// Connect data: word by word, so that a difference has a place; the version has its own rule.
fn data(bytes: &[u8], all: &mut Vec<Field>) {
    for (n, word) in bytes.chunks(4).enumerate() {
        let at = 4 * n;
        let name =
            if at == 8 { "connect.version".to_owned() } else { format!("buffer[data @{at}]") };
        let value = word.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        all.push((name, Value::Number(value.into())));
    }
}
