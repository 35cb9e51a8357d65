//! Whether a request of a known client may be served (P-106): asked at its arrival, and again when its
//! turn has come.

use lnet_types::Errno;
use lustre_wire::{Body, BodyFlags};

/// What is known of the target and the export of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The client's count of connections.
    pub(super) conn_cnt: u32,
    /// The target is about to be served by another node.
    pub(super) failed: bool,
    /// The target takes what repeats its past.
    pub(super) recovers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Pass,
    /// No reply: it belongs to a connection that its client has given up.
    Drop,
    Refuse(Errno),
    /// Refused, and its client evicted: what it repeats is too late.
    Evict(Errno),
}

/// P-106, first match wins.
pub(super) fn check(standing: Standing, body: &Body) -> Check {
    let replays = BodyFlags::REPLAY | BodyFlags::REQ_REPLAY_DONE;
    if body.conn_cnt < standing.conn_cnt {
        Check::Drop
    } else if standing.failed {
        Check::Refuse(Errno::ENODEV)
    } else if !standing.recovers && (body.flags.intersects(replays) || body.transno != 0) {
        Check::Evict(Errno::ENODEV)
    } else {
        Check::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p106_each_row_of_the_check_goes_before_the_rows_behind_it() {
        // Count of connections of the request (the export's is 2), failed, recovers, flags, transno.
        use BodyFlags as F;
        let none = F::empty();
        let rows = [
            (2, false, false, none, 0, Check::Pass),
            (3, false, false, none, 0, Check::Pass),
            (1, false, false, none, 0, Check::Drop),
            (1, true, false, F::REPLAY, 9, Check::Drop),
            (2, true, false, none, 0, Check::Refuse(Errno::ENODEV)),
            (2, true, false, F::REPLAY, 0, Check::Refuse(Errno::ENODEV)),
            (2, true, true, F::REPLAY, 9, Check::Refuse(Errno::ENODEV)),
            (2, false, false, F::REPLAY, 0, Check::Evict(Errno::ENODEV)),
            (2, false, false, F::REQ_REPLAY_DONE, 0, Check::Evict(Errno::ENODEV)),
            (2, false, false, F::REPLAY | F::RESENT, 9, Check::Evict(Errno::ENODEV)),
            (2, false, false, none, 9, Check::Evict(Errno::ENODEV)),
            (2, false, false, F::RESENT, 0, Check::Pass),
            (2, false, false, F::LOCK_REPLAY_DONE, 0, Check::Pass),
            (2, false, true, F::REPLAY, 9, Check::Pass),
            (2, false, true, F::REQ_REPLAY_DONE, 0, Check::Pass),
            (2, false, true, none, 9, Check::Pass),
        ];
        for (conn_cnt, failed, recovers, flags, transno, expected) in rows {
            let standing = Standing { conn_cnt: 2, failed, recovers };
            let body = Body { conn_cnt, flags, transno, ..Body::default() };
            assert_eq!(check(standing, &body), expected, "{standing:?} {body:?}");
        }
    }
}
