//! The table of opcodes: what each needs, where it goes, what it may do (P-12, P-16, P-17, P-32,
//! P-105, P-150). Services, clients and listings read this table and have none of their own.

use core::fmt;

use lnet_types::ByteOrder;

use crate::Layout;
use crate::format::{Format, Part};
use crate::portal::{ImportKind, Portal};

/// What is asked for. Values without a row are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(pub u32);

/// The part of the system that an opcode belongs to: the high half of the version word (P-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Service {
    /// Connections.
    Obd = 1,
    /// Metadata.
    Mds = 2,
    /// Objects.
    Ost = 3,
    /// Locks.
    Dlm = 4,
    /// Logs.
    Log = 5,
    /// Management.
    Mgs = 6,
}

impl Service {
    /// The protocol version: the low half of the version word.
    pub const VERSION: u32 = 3;
    /// The bits of the protocol version.
    pub const VERSION_MASK: u32 = 0xFFFF;

    /// The version word of requests.
    pub const fn word(self) -> u32 {
        (self as u32) << 16 | Self::VERSION
    }
}

/// Whether an operation changes something that must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing that has a transaction.
    Reads,
    /// It has a transaction.
    Modifies,
    /// The intent of the lock request decides.
    ByIntent,
}

/// What becomes of a request while its target recovers (P-150).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InRecovery {
    /// A connect: it has its own rules.
    Connect,
    /// Handled at once.
    AtOnce,
    /// Taken: handled, queued or dropped by transaction and flags.
    Taken,
    /// Refused with EAGAIN.
    Refused,
}

/// Direction of the bulk data of an operation, as the client sees it (P-105).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bulk {
    /// None.
    None,
    /// The server puts.
    Read,
    /// The server gets.
    Write,
}

/// Portals of requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Those of the import.
    Import,
    /// Always the same.
    Fixed(Portal, Portal),
    /// The first row with the kind of import; those of the import otherwise.
    By(&'static [(ImportKind, Portal, Portal)]),
}

/// What is known of an opcode.
#[derive(Clone, Copy, Debug)]
pub struct OpcodeRow {
    /// The opcode.
    pub opcode: Opcode,
    /// Its name.
    pub name: &'static str,
    /// The service in the version word, if it is known which.
    pub service: Option<Service>,
    /// Where requests and replies go.
    pub route: Route,
    /// Whether it changes something.
    pub effect: Effect,
    /// What becomes of it during recovery.
    pub recovery: InRecovery,
    /// Bulk data.
    pub bulk: Bulk,
    /// Buffers of the request behind the body, if they are known. Those of a lock request with an
    /// intent, and of a change of metadata, are in [`format`](crate::format).
    pub request: Option<Format>,
    /// Buffers of the reply behind the body, if they are known.
    pub reply: Option<Format>,
}

macro_rules! format {
    (?) => { None };
    ([$($part:ident)*]) => { format!([$($part)* |]) };
    ([$($part:ident)* | $($option:ident)*]) => {
        Some(Format::new(
            &[$(Part::$part,)* $(Part::$option,)*],
            <[Part]>::len(&[$(Part::$part,)*]),
        ))
    };
}

macro_rules! opcodes {
    ($(
        $number:literal $name:ident $service:expr, $route:expr, $effect:ident, $recovery:ident,
        $bulk:ident, $request:tt -> $reply:tt;
    )*) => {
        impl Opcode {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: Self = Self($number);)*
        }

        /// All opcodes, in ascending order.
        pub static OPCODES: &[OpcodeRow] = &[$(OpcodeRow {
            opcode: Opcode::$name,
            name: stringify!($name),
            service: $service,
            route: $route,
            effect: Effect::$effect,
            recovery: InRecovery::$recovery,
            bulk: Bulk::$bulk,
            request: format!($request),
            reply: format!($reply),
        },)*];
    };
}

const OBD: Option<Service> = Some(Service::Obd);
const MDS: Option<Service> = Some(Service::Mds);
const OST: Option<Service> = Some(Service::Ost);
const DLM: Option<Service> = Some(Service::Dlm);
const LOG: Option<Service> = Some(Service::Log);
const MGS: Option<Service> = Some(Service::Mgs);
/// Not seen on the wire, and no document says.
const UNSEEN: Option<Service> = None;

const IMPORT: Route = Route::Import;
/// Object I/O. A data-on-MDT file's goes to its MDT.
const IO: Route = Route::By(&[
    (ImportKind::Osc, Portal::OST_IO, Portal::OSC_REPLY),
    (ImportKind::MdtToOst, Portal::OST_IO, Portal::OSC_REPLY),
    (ImportKind::Mdc, Portal::MDS_IO, Portal::MDC_REPLY),
]);
/// A client's; that of an MDT goes to the ordinary portal.
const DESTROY: Route = Route::By(&[(ImportKind::Osc, Portal::OST_IO, Portal::OSC_REPLY)]);
const SPACE: Route = Route::Fixed(Portal::OST_CREATE, Portal::OSC_REPLY);
const CANCEL: Route = Route::Fixed(Portal::LDLM_CANCEL, Portal::LDLM_CANCEL_REPLY);
const CALLBACK: Route = Route::Fixed(Portal::LDLM_CALLBACK, Portal::LDLM_CALLBACK_REPLY);
const READPAGE: Route = Route::Fixed(Portal::MDS_READPAGE, Portal::MDC_REPLY);
const BATCH: Route = Route::Fixed(Portal::OUT, Portal::OSC_REPLY);
const SEQUENCE: Route = Route::By(&[
    (ImportKind::Mdc, Portal::SEQ_METADATA, Portal::MDC_REPLY),
    (ImportKind::MdtToOst, Portal::SEQ_DATA, Portal::OSC_REPLY),
    (ImportKind::Lightweight, Portal::SEQ_CONTROLLER, Portal::MDC_REPLY),
]);
const LOCATION: Route = Route::Fixed(Portal::FLD, Portal::MDC_REPLY);

opcodes! {
    1 OST_GETATTR OST, IMPORT, Reads, Refused, None, [OstBody | Capability] -> [OstBody];
    2 OST_SETATTR OST, IMPORT, Modifies, Taken, None, [OstBody | Capability] -> [OstBody];
    3 OST_READ OST, IO, Reads, Refused, Read,
        [OstBody IoObj Niobufs | Capability ShortIo] -> [OstBody | ShortIo];
    4 OST_WRITE OST, IO, Modifies, Taken, Write,
        [OstBody IoObj Niobufs | Capability ShortIo] -> [OstBody Results];
    5 OST_CREATE OST, IMPORT, Modifies, Taken, None, [OstBody] -> [OstBody];
    6 OST_DESTROY OST, DESTROY, Modifies, Taken, None,
        [OstBody | LockRequest Capability] -> [OstBody];
    7 OST_GET_INFO OST, IMPORT, Reads, Refused, None, [Key | Value] -> [Value];
    8 OST_CONNECT OBD, IMPORT, Reads, Connect, None,
        [TargetUuid ClientUuid ClientHandle ConnectData | SelinuxPolicy] -> [ConnectData];
    9 OST_DISCONNECT OBD, IMPORT, Reads, AtOnce, None, [] -> [];
    10 OST_PUNCH OST, IO, Modifies, Taken, None, [OstBody | Capability] -> [OstBody];
    13 OST_STATFS OST, SPACE, Reads, Refused, None, [] -> [Statfs];
    16 OST_SYNC OST, IMPORT, Reads, Taken, None, [OstBody | Capability] -> [OstBody];
    17 OST_SET_INFO OST, IMPORT, Reads, Refused, None, [Key Value] -> [| OstBody];
    19 OST_QUOTACTL OST, IMPORT, Reads, Refused, None, [Quotactl] -> [Quotactl | Capability];
    21 OST_LADVISE OST, IO, Reads, Refused, None, [OstBody | Advice Advice] -> [OstBody];
    22 OST_FALLOCATE OST, IO, Modifies, Taken, None, [OstBody | Capability] -> [OstBody];
    23 OST_SEEK OST, IMPORT, Reads, Refused, None, [OstBody] -> [OstBody];
    33 MDS_GETATTR MDS, READPAGE, Reads, Refused, None, [MdtBody Capability]
        -> [MdtBody | Md Acl Capability Capability EncryptionContext];
    34 MDS_GETATTR_NAME MDS, IMPORT, Reads, Refused, None, [MdtBody Capability Name]
        -> [MdtBody | Md Acl Capability Capability EncryptionContext];
    35 MDS_CLOSE MDS, READPAGE, Modifies, Taken, None,
        [Epoch Record Capability | CloseData MirrorIds]
        -> [MdtBody | Md Cookies Capability Capability];
    36 MDS_REINT MDS, IMPORT, Modifies, Taken, None, [Record] -> [MdtBody];
    37 MDS_READPAGE MDS, READPAGE, Reads, Refused, Read, [MdtBody | Capability] -> [MdtBody];
    38 MDS_CONNECT OBD, IMPORT, Reads, Connect, None,
        [TargetUuid ClientUuid ClientHandle ConnectData | SelinuxPolicy] -> [ConnectData];
    39 MDS_DISCONNECT OBD, IMPORT, Reads, AtOnce, None, [] -> [];
    40 MDS_GET_ROOT MDS, IMPORT, Reads, Refused, None, [MdtBody | Name] -> [MdtBody | Capability];
    41 MDS_STATFS MDS, IMPORT, Reads, Refused, None, [| MdtBody] -> [Statfs];
    44 MDS_SYNC MDS, IMPORT, Reads, Taken, None, [MdtBody | Capability] -> [MdtBody];
    46 MDS_SET_INFO MDS, IMPORT, Reads, Refused, None, [Key Value] -> [];
    48 MDS_QUOTACTL MDS, IMPORT, Reads, Refused, None, [Quotactl] -> [Quotactl | Capability];
    49 MDS_GETXATTR MDS, READPAGE, Reads, Refused, None,
        [MdtBody | Capability Name EaData SelinuxPolicy] -> [MdtBody | EaData];
    53 MDS_GET_INFO MDS, IMPORT, Reads, Refused, None, ? -> ?;
    54 MDS_HSM_STATE_GET MDS, IMPORT, Reads, Refused, None, ? -> ?;
    55 MDS_HSM_STATE_SET MDS, IMPORT, Modifies, Taken, None, ? -> ?;
    56 MDS_HSM_ACTION MDS, IMPORT, Reads, Refused, None, ? -> ?;
    57 MDS_HSM_PROGRESS MDS, IMPORT, Modifies, Taken, None, ? -> ?;
    58 MDS_HSM_REQUEST MDS, IMPORT, Modifies, Taken, None, ? -> ?;
    59 MDS_HSM_CT_REGISTER MDS, IMPORT, Reads, Refused, None, ? -> ?;
    60 MDS_HSM_CT_UNREGISTER MDS, IMPORT, Reads, Refused, None, ? -> ?;
    61 MDS_SWAP_LAYOUTS MDS, IMPORT, Modifies, Refused, None, ? -> ?;
    62 MDS_RMFID MDS, IMPORT, Modifies, Refused, None, ? -> ?;
    63 MDS_BATCH MDS, BATCH, Reads, Taken, None, [Batch BatchReplySize] -> [Batch];
    64 MDS_HSM_DATA_VERSION MDS, IMPORT, Reads, Taken, None, ? -> ?;
    101 LDLM_ENQUEUE DLM, IMPORT, ByIntent, Taken, None, [LockRequest] -> [LockReply | Lvb];
    102 LDLM_CONVERT DLM, CANCEL, Reads, Refused, None, [LockRequest] -> [LockReply];
    103 LDLM_CANCEL DLM, CANCEL, Reads, Refused, None, [LockRequest] -> [];
    104 LDLM_BL_CALLBACK DLM, CALLBACK, Reads, Refused, None, [LockRequest] -> [];
    105 LDLM_CP_CALLBACK DLM, CALLBACK, Reads, Refused, None, [LockRequest | Lvb] -> [];
    106 LDLM_GL_CALLBACK DLM, CALLBACK, Reads, Refused, None,
        [LockRequest | GlimpseDescriptor] -> [Lvb];
    107 LDLM_SET_INFO DLM, CALLBACK, Reads, Refused, None, [Key Value] -> [];
    250 MGS_CONNECT OBD, IMPORT, Reads, Connect, None,
        [TargetUuid ClientUuid ClientHandle ConnectData | SelinuxPolicy] -> [ConnectData];
    251 MGS_DISCONNECT OBD, IMPORT, Reads, AtOnce, None, [] -> [];
    252 MGS_EXCEPTION MGS, IMPORT, Reads, Refused, None, ? -> ?;
    253 MGS_TARGET_REG MGS, IMPORT, Reads, Refused, None, [TargetInfo | NidList] -> [TargetInfo];
    254 MGS_TARGET_DEL MGS, IMPORT, Reads, Refused, None, ? -> ?;
    255 MGS_SET_INFO MGS, IMPORT, Reads, Refused, None, ? -> ?;
    256 MGS_CONFIG_READ MGS, IMPORT, Reads, Refused, Read, [ConfigBody] -> [ConfigResult];
    400 OBD_PING OBD, IMPORT, Reads, Taken, None, [] -> [];
    403 OBD_IDX_READ UNSEEN, IMPORT, Reads, AtOnce, Read, ? -> ?;
    501 LLOG_ORIGIN_HANDLE_CREATE LOG, IMPORT, Reads, Refused, None,
        [LlogdBody | Name MdtBody] -> [LlogdBody];
    502 LLOG_NEXT_BLOCK LOG, IMPORT, Reads, Refused, None, [LlogdBody] -> [LlogdBody | LogBlock];
    503 LLOG_READ_HEADER LOG, IMPORT, Reads, Refused, None, [LlogdBody] -> [LogHeader];
    508 LLOG_PREV_BLOCK LOG, IMPORT, Reads, Refused, None, [LlogdBody] -> [LlogdBody | LogBlock];
    601 QUOTA_ACQUIRE UNSEEN, READPAGE, Reads, Refused, None, ? -> ?;
    602 QUOTA_RELEASE UNSEEN, READPAGE, Reads, Refused, None, ? -> ?;
    700 SEQ_QUERY MDS, SEQUENCE, Reads, Taken, None, [SeqOp SeqRange] -> [SeqRange];
    801 SEC_CTX_INIT UNSEEN, IMPORT, Reads, Refused, None, ? -> ?;
    802 SEC_CTX_INIT_CONT UNSEEN, IMPORT, Reads, Refused, None, ? -> ?;
    803 SEC_CTX_FINI UNSEEN, IMPORT, Reads, Refused, None, ? -> ?;
    900 FLD_QUERY MDS, LOCATION, Reads, Taken, None, [SeqOp SeqRange] -> [SeqRange];
    901 FLD_READ MDS, LOCATION, Reads, Taken, None, [SeqRange] -> [SeqRanges];
    1000 OUT_UPDATE UNSEEN, BATCH, Modifies, Taken, Write, ? -> ?;
    1101 LFSCK_NOTIFY UNSEEN, IMPORT, Reads, Refused, None, ? -> ?;
    1102 LFSCK_QUERY UNSEEN, IMPORT, Reads, Refused, None, ? -> ?;
}

/// One more than the opcode of the last row.
const PLACES_LEN: usize = OPCODES[OPCODES.len() - 1].opcode.0 as usize + 1;

/// The row of each opcode, counted from 1; 0 where there is none. Each request is looked up several times.
static PLACES: [u8; PLACES_LEN] = {
    assert!(OPCODES.len() < 256);
    let mut places = [0; PLACES_LEN];
    let mut at = 0;
    while at < OPCODES.len() {
        places[OPCODES[at].opcode.0 as usize] = at as u8 + 1;
        at += 1;
    }
    places
};

impl Opcode {
    /// The row of the opcode, if it is in use.
    pub fn row(self) -> Option<&'static OpcodeRow> {
        let place = *PLACES.get(self.0 as usize)?;
        OPCODES.get(usize::from(place).checked_sub(1)?)
    }

    /// The name, if the opcode is in use.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|row| row.name)
    }

    /// Portals of requests and replies over an import of this kind; a rename has its own
    /// ([`RENAME`]).
    pub fn portals(self, import: ImportKind) -> (Portal, Portal) {
        let route = self.row().map_or(Route::Import, |row| row.route);
        match route {
            Route::Import => import.portals(),
            Route::Fixed(request, reply) => (request, reply),
            Route::By(rows) => {
                let row = rows.iter().find(|(kind, ..)| *kind == import);
                row.map_or_else(|| import.portals(), |(_, request, reply)| (*request, *reply))
            }
        }
    }

    /// Portal of the bulk data of this operation over an import of this kind. Object I/O has that of
    /// OSTs wherever the object lies: data on an MDT moves there too.
    pub fn bulk_portal(self, import: ImportKind) -> Portal {
        match self {
            Self::OST_READ | Self::OST_WRITE => Portal::OST_BULK,
            _ => import.bulk_portal(),
        }
    }

    /// Whether the opcode connects.
    pub fn is_connect(self) -> bool {
        self.row().is_some_and(|row| row.recovery == InRecovery::Connect)
    }

    /// Whether the opcode disconnects.
    pub const fn is_disconnect(self) -> bool {
        matches!(self, Self::OST_DISCONNECT | Self::MDS_DISCONNECT | Self::MGS_DISCONNECT)
    }
}

/// Portals of a change of metadata that renames (P-32).
pub const RENAME: (Portal, Portal) = (Portal::MDS_IO, Portal::MDC_REPLY);

impl ImportKind {
    /// The portal of bulk data (P-47).
    pub const fn bulk_portal(self) -> Portal {
        match self {
            Self::Osc | Self::MdtToOst | Self::Callback => Portal::OST_BULK,
            Self::Mdc | Self::Lightweight | Self::MdtToMdt => Portal::MDS_BULK,
            Self::Mgc => Portal::MGS_BULK,
        }
    }

    /// The opcodes that connect and disconnect, where there are some.
    pub const fn connects(self) -> Option<(Opcode, Opcode)> {
        match self {
            Self::Osc | Self::MdtToOst => Some((Opcode::OST_CONNECT, Opcode::OST_DISCONNECT)),
            Self::Mdc | Self::Lightweight | Self::MdtToMdt => {
                Some((Opcode::MDS_CONNECT, Opcode::MDS_DISCONNECT))
            }
            Self::Mgc => Some((Opcode::MGS_CONNECT, Opcode::MGS_DISCONNECT)),
            Self::Callback => None,
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Layout for Opcode {
    const LEN: usize = 4;
    const NAME: &'static str = "opcode";

    fn get(order: ByteOrder, b: &[u8]) -> Self {
        Self(u32::get(order, b))
    }

    fn put(&self, order: ByteOrder, out: &mut [u8]) {
        self.0.put(order, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_ascend_so_that_each_has_a_row() {
        assert!(OPCODES.is_sorted_by(|a, b| a.opcode < b.opcode));
        for row in OPCODES {
            assert_eq!(row.opcode.row().map(|r| r.name), Some(row.name));
        }
        assert!(Opcode(11).row().is_none());
        let rows = (0..70_000).filter(|opcode| Opcode(*opcode).row().is_some());
        assert_eq!(rows.count(), OPCODES.len());
    }

    #[test]
    fn portals_depend_on_the_import_where_the_reference_says_so() {
        let pair = |opcode: Opcode, import| {
            let (request, reply) = opcode.portals(import);
            (request.0, reply.0)
        };
        for (opcode, import, expected) in [
            (Opcode::OBD_PING, ImportKind::Osc, (28, 4)),
            (Opcode::OBD_PING, ImportKind::Mgc, (26, 25)),
            (Opcode::OST_WRITE, ImportKind::Osc, (6, 4)),
            (Opcode::OST_WRITE, ImportKind::Mdc, (13, 10)),
            (Opcode::OST_STATFS, ImportKind::Osc, (7, 4)),
            (Opcode::OST_DESTROY, ImportKind::Osc, (6, 4)),
            (Opcode::OST_DESTROY, ImportKind::MdtToOst, (28, 4)),
            (Opcode::LDLM_CANCEL, ImportKind::Mgc, (17, 18)),
            (Opcode::LDLM_BL_CALLBACK, ImportKind::Callback, (15, 16)),
            (Opcode::MDS_CLOSE, ImportKind::Mdc, (23, 10)),
            (Opcode::SEQ_QUERY, ImportKind::Mdc, (30, 10)),
            (Opcode::SEQ_QUERY, ImportKind::MdtToOst, (31, 4)),
            (Opcode::SEQ_QUERY, ImportKind::Lightweight, (32, 10)),
            (Opcode::MDS_BATCH, ImportKind::Mdc, (24, 4)),
        ] {
            assert_eq!(pair(opcode, import), expected, "{opcode} over {import:?}");
        }
    }

    #[test]
    fn bulk_data_of_objects_have_the_portal_of_osts_on_an_mdt_too() {
        for (opcode, import, portal) in [
            (Opcode::OST_READ, ImportKind::Mdc, 8),
            (Opcode::OST_WRITE, ImportKind::Osc, 8),
            (Opcode::MDS_READPAGE, ImportKind::Mdc, 14),
            (Opcode::MGS_CONFIG_READ, ImportKind::Mgc, 33),
        ] {
            assert_eq!(opcode.bulk_portal(import).0, portal, "{opcode} over {import:?}");
        }
    }

    #[test]
    fn version_words_name_the_service_and_protocol_3() {
        assert_eq!(Service::Obd.word(), 0x0001_0003);
        assert_eq!(
            Opcode::OST_WRITE.row().and_then(|r| r.service).map(Service::word),
            Some(0x3_0003)
        );
    }
}
