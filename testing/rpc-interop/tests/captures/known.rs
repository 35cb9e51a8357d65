//! Differences that are known, each with its reason. The test names rows that no recording needs any
//! more, so that they go.

use rpc_interop::player::Side;
use rpc_interop::report::Known;

const SLOTS: &str = "modify slots and their tags are not built (P-82)";
const DIFFICULT: &str = "replies that ask for an ACK are not built (P-144)";
const CALLBACKS: &str = "callbacks to clients are not built (P-130)";
const GRANTS: &str = "numbers that a target grants are the target's: space, checksums, sizes";
const OPENS: &str = "committed opens are not kept for replay (P-75)";
const EVICTOR: &str = "an MGS evicts no silent client (P-134), ours does";
const RECORDS: &str = "a disconnect leaves no transaction without client records (P-104)";
const RESTART: &str = "the server dies: its recovery is not built (P-145 to P-153)";
const CUT: &str = "the link was cut: attempts and pings of that time are not in the recording";
const PASSES: &str = "the recorded pinger looks at all imports in passes: up to 5 s early (P-101), or late when due soon";
const IDLE: &str = "an idle import does not disconnect and keep its count and handle (P-103)";
const LATE: &str = "the recorded timer of early replies was 2 s late";
const PLANNED: &str = "the recorded client planned for a reply of 0 bytes";

const fn server(row: Known) -> Known {
    Known { side: Some(Side::Server), ..row }
}

/// The rows; the first that fits counts.
pub(crate) const KNOWN: &[Known] = &[
    Known::at("ldiskfs-recovery", RESTART),
    Known { node: "10.78.0.11", ..Known::at("evict-lock-timer", CUT) },
    Known::everywhere("REQ", "body.tag", SLOTS),
    Known::everywhere("REP", "lnet.ack_wanted", DIFFICULT),
    Known::everywhere("", "open: callbacks", CALLBACKS),
    server(Known::everywhere("REP MDS_CONNECT", "buffer[data @", GRANTS)),
    server(Known::everywhere("REP OST_CONNECT", "buffer[data @", GRANTS)),
    Known {
        what: "REQ MDS_CONNECT",
        difference: "body.op_flags",
        ..Known::at("evict-admin-mdt", OPENS)
    },
    Known { what: "REP MGS_CONNECT", ..Known::at("evict-ping-and-lock", EVICTOR) },
    Known { what: "EARLY", difference: "time", ..Known::at("evict-ping-and-lock", LATE) },
    Known { node: "10.78.0.11", difference: "time", ..Known::at("evict-ping-and-lock", CUT) },
    Known { node: "10.78.0.11", difference: "extra", ..Known::at("evict-ping-and-lock", CUT) },
    Known { difference: "extra", ..Known::at("link-cut-reconnect", CUT) },
    Known { what: "REP MDS_DISCONNECT", ..Known::at("umount", RECORDS) },
    Known { what: "REQ OBD_PING", ..Known::at("", PASSES) },
    Known { difference: "body.conn_cnt", ..Known::at("idle-ping-disconnect", IDLE) },
    Known { difference: "connect.handle", ..Known::at("idle-ping-disconnect", IDLE) },
    Known { difference: "header.repsize", ..Known::at("rename-mkdir-unlink", PLANNED) },
    // A ping of ours that the recording does not have is unanswered at that time.
    Known { difference: "body.last_xid", ..Known::at("callback-resend", PASSES) },
    Known { difference: "body.last_xid", ..Known::at("evict-lock-timer", PASSES) },
];
