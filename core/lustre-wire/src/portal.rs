//! Portals, and which pair an import uses (P-31, P-32).

use crate::layout::codes;

codes! {
    /// A portal.
    pub struct Portal(u32) {
        /// Requests of the connection manager.
        CONN_REQUEST = 1 "CONNMGR_REQ",
        /// Replies of the connection manager.
        CONN_REPLY = 2 "CONNMGR_REP",
        /// Replies of OSTs.
        OSC_REPLY = 4 "OSC_REP",
        /// Object I/O.
        OST_IO = 6 "OST_IO",
        /// Creation of objects, and space.
        OST_CREATE = 7 "OST_CREATE",
        /// Bulk data of OSTs.
        OST_BULK = 8 "OST_BULK",
        /// Replies of MDTs.
        MDC_REPLY = 10 "MDC_REP",
        /// Requests to MDTs.
        MDS_REQUEST = 12 "MDS_REQ",
        /// Rename, and object I/O on MDTs.
        MDS_IO = 13 "MDS_IO",
        /// Bulk data of MDTs.
        MDS_BULK = 14 "MDS_BULK",
        /// Lock callbacks.
        LDLM_CALLBACK = 15 "LDLM_CB_REQ",
        /// Replies to lock callbacks.
        LDLM_CALLBACK_REPLY = 16 "LDLM_CB_REP",
        /// Cancels of locks.
        LDLM_CANCEL = 17 "LDLM_CANCEL_REQ",
        /// Replies to cancels.
        LDLM_CANCEL_REPLY = 18 "LDLM_CANCEL_REP",
        /// Reading of directories and attributes, closing.
        MDS_READPAGE = 23 "MDS_READPAGE",
        /// Object updates between servers, batches.
        OUT = 24 "OUT",
        /// Replies of the MGS.
        MGC_REPLY = 25 "MGC_REP",
        /// Requests to the MGS.
        MGS_REQUEST = 26 "MGS_REQ",
        /// Replies to the MGS.
        MGS_REPLY = 27 "MGS_REP",
        /// Requests to OSTs.
        OST_REQUEST = 28 "OST_REQ",
        /// Location of sequences.
        FLD = 29 "FLD",
        /// Sequences for clients.
        SEQ_METADATA = 30 "SEQ_META",
        /// Sequences of OSTs for MDTs.
        SEQ_DATA = 31 "SEQ_DATA",
        /// Sequences for servers.
        SEQ_CONTROLLER = 32 "SEQ_CTRL",
        /// Bulk data of the MGS.
        MGS_BULK = 33 "MGS_BULK",
    }
}

/// Who is connected to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImportKind {
    /// Client to OST.
    Osc,
    /// Client to MDT.
    Mdc,
    /// Server to MDT 0, without a record there.
    Lightweight,
    /// Any node to the MGS.
    Mgc,
    /// MDT to OST.
    MdtToOst,
    /// MDT to MDT.
    MdtToMdt,
    /// Server to client, for callbacks.
    Callback,
}

impl ImportKind {
    /// Portals of requests and replies, for opcodes that have none of their own.
    pub const fn portals(self) -> (Portal, Portal) {
        match self {
            Self::Osc | Self::MdtToOst => (Portal::OST_REQUEST, Portal::OSC_REPLY),
            Self::Mdc | Self::Lightweight => (Portal::MDS_REQUEST, Portal::MDC_REPLY),
            Self::Mgc => (Portal::MGS_REQUEST, Portal::MGC_REPLY),
            Self::MdtToMdt => (Portal::OUT, Portal::OSC_REPLY),
            Self::Callback => (Portal::LDLM_CALLBACK, Portal::LDLM_CALLBACK_REPLY),
        }
    }
}
