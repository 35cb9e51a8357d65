//! Differences that are known, each with its reason. The test names rows that no recording needs any
//! more, so that they go.

use rpc_interop::player::Side;
use rpc_interop::report::Known;

const COMMITTED: &str = "the transaction is committed: nothing is left to hold for an ACK (P-144)";
const GRANTS: &str = "numbers that a target grants are the target's: space, checksums, sizes";
const OPENS: &str = "opens from before the recording that are not repeated in it are unknown";
const RECORDS: &str = "a disconnect leaves no transaction without client records (P-104)";
const DEAD: &str = "the recorded server was dead by then";
const AGAIN: &str = "an MGS says RECONNECT to a client that it can't know, after its start";
const VERSION: &str = "the recorded node is of release 2.15";
const REBUILT: &str =
    "the recorded MDT makes the reply anew from its record (P-141), ours repeats it";
const REDONE: &str = "the recorded OST executes a resend again, ours answers from its record";
const UNSENT: &str =
    "a transaction whose reply the recorded server did not send is unknown to the player";
const STARTING: &str = "the recorded target starts, and says so by EAGAIN (P-129): ours is absent";
const NOTICED: &str = "the recorded client noticed a deadline of whole seconds a second late";
const BOUND: &str = "release 2.15 has bounds of its own for the first request to a service";
const LATER: &str = "follows a difference above: later, or counted otherwise";
const CUT: &str = "the link was cut: attempts and pings of that time are not in the recording";
const PASSES: &str =
    "the recorded pinger is woken by more than pings, and looks at all imports then (P-101)";
const IDLE: &str = "an idle import does not disconnect and keep its count and handle (P-103)";
const LATE: &str = "the recorded timer of early replies was 2 s late";
const CLOSED: &str =
    "the recorded list of opens begins with one that is closed, and is not repeated";
const HELD: &str =
    "grants that a client holds are the object layer's, as it reports them in a connect";
const BORROWED: &str =
    "a first connect has the instance of another target of the kind, whose reply came last";
const ATTEMPTS: &str =
    "attempts before the first recorded one are guessed: they go 5 s apart here (P-101)";
const TWINS: &str =
    "of two idle connections of one kind the recording shows one end each: taken for one";
const PLANNED: &str = "the recorded client planned for a reply of 0 bytes";

const fn server(row: Known) -> Known {
    Known { side: Some(Side::Server), ..row }
}

const fn client(row: Known) -> Known {
    Known { side: Some(Side::Client), ..row }
}

/// The rows; the first that fits counts.
pub(crate) const KNOWN: &[Known] = &[
    server(Known { difference: "extra", ..Known::at("ldiskfs-recovery", DEAD) }),
    server(Known { what: "REP MGS_CONNECT", ..Known::at("ldiskfs-recovery", AGAIN) }),
    server(Known {
        what: "REP MGS_CONNECT",
        difference: "body.op_flags",
        ..Known::at("mdt-restart", AGAIN)
    }),
    server(Known {
        what: "REQ LDLM_BL_CALLBACK",
        difference: "body.handle",
        ..Known::at("mdt-restart-recovery", TWINS)
    }),
    server(Known {
        what: "REP MGS_CONNECT",
        difference: "body.op_flags",
        ..Known::at("server-", AGAIN)
    }),
    Known::everywhere("", "connect.version", VERSION),
    server(Known { difference: "buffer", what: "REP LDLM_ENQUEUE", ..Known::at("lost-", REBUILT) }),
    server(Known { difference: "buffer", what: "REP MDS_REINT", ..Known::at("lost-", REBUILT) }),
    server(Known { what: "REP OST_", ..Known::at("lost-open-reply", REDONE) }),
    server(Known { difference: "body.last_committed", ..Known::at("lost-replies", UNSENT) }),
    server(Known { what: "ERR MDS_CONNECT", ..Known::at("server-crash", STARTING) }),
    client(Known {
        what: "REQ MDS_CONNECT",
        difference: "buffer[data @40]",
        ..Known::at("server-crash", CLOSED)
    }),
    client(Known {
        what: "REQ OST_CONNECT",
        difference: "buffer[data @12]",
        ..Known::at("server-crash", HELD)
    }),
    client(Known {
        what: "REQ MDS_CONNECT",
        difference: "body.conn_cnt",
        ..Known::at("server-crash", ATTEMPTS)
    }),
    client(Known {
        what: "REQ MDS_CONNECT",
        difference: "time",
        ..Known::at("server-crash", ATTEMPTS)
    }),
    client(Known {
        what: "REQ LDLM_ENQUEUE",
        difference: "body.service_time",
        ..Known::at("server-crash", LATER)
    }),
    client(Known {
        what: "REQ MDS_CONNECT",
        difference: "buffer[data @40]",
        ..Known::at("mdt-restart", OPENS)
    }),
    client(Known {
        what: "REQ OST_CONNECT",
        difference: "connect.handle",
        ..Known::at("mdt-restart-recovery", TWINS)
    }),
    client(Known {
        what: "REQ OST_CONNECT",
        difference: "buffer[data @12]",
        ..Known::at("ost-restart", HELD)
    }),
    client(Known {
        what: "REQ OST_CONNECT",
        difference: "buffer[data @60]",
        ..Known::at("ost-restart", BORROWED)
    }),
    Known { what: "REQ MDS_CONNECT", ..Known::at("lost-", OPENS) },
    Known::everywhere("REQ LDLM_ENQUEUE", "header.repsize", PLANNED),
    client(Known { what: "REQ OBD_PING", ..Known::at("lost-", PASSES) }),
    client(Known {
        what: "REQ OST_CONNECT",
        difference: "time",
        ..Known::at("lost-open", NOTICED)
    }),
    client(Known { what: "REQ LDLM_", difference: "body.timeout", ..Known::at("both-", BOUND) }),
    client(Known { what: "REQ OBD_PING", ..Known::at("server-2.15.8", PASSES) }),
    Known { node: "10.78.0.11", ..Known::at("evict-lock-timer", CUT) },
    Known::everywhere("REP", "lnet.ack_wanted", COMMITTED),
    Known { what: "REQ LDLM_BL_CALLBACK", difference: "extra", ..Known::at("evict-", CUT) },
    Known { what: "REQ LDLM_BL_CALLBACK", difference: "time", ..Known::at("evict-ping", CUT) },
    server(Known::everywhere("REP MDS_CONNECT", "buffer[data @", GRANTS)),
    server(Known::everywhere("REP OST_CONNECT", "buffer[data @", GRANTS)),
    Known {
        what: "REQ MDS_CONNECT",
        difference: "body.op_flags",
        ..Known::at("evict-admin-mdt", OPENS)
    },
    Known { what: "EARLY", difference: "time", ..Known::at("evict-ping-and-lock", LATE) },
    Known { node: "10.78.0.11", difference: "time", ..Known::at("evict-ping-and-lock", CUT) },
    Known { node: "10.78.0.11", difference: "extra", ..Known::at("evict-ping-and-lock", CUT) },
    Known { difference: "extra", ..Known::at("link-cut-reconnect", CUT) },
    Known { what: "REP MDS_DISCONNECT", ..Known::at("umount", RECORDS) },
    Known { what: "REQ OBD_PING", ..Known::at("", PASSES) },
    Known { difference: "body.conn_cnt", ..Known::at("idle-ping-disconnect", IDLE) },
    Known { difference: "connect.handle", ..Known::at("idle-ping-disconnect", IDLE) },
    // A ping of ours that the recording does not have is unanswered at that time.
    Known { difference: "body.last_xid", ..Known::at("evict-lock-timer", PASSES) },
];
