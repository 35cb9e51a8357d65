//! What a connect brings: the terms that the server grants, the change of state, and what a failure
//! means (P-65, P-67). Pure; `connect.rs` applies it.

use core::time::Duration;

use lnet_types::{Errno, Instant};
use lustre_wire::connect::{ChecksumKinds, ConnectFlags};
use lustre_wire::{Body, ConnectData, ImportKind, Msg, OpFlags};

use super::state::Change;
use crate::common::alike;
use crate::error::CallError;
use crate::tunables::SWITCH;

/// Bytes of a page: what servers without `BRW_SIZE` move at a time (P-65.7).
const PAGE: u32 = 4096;

/// What a connect has settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The connect data of the reply.
    pub data: ConnectData,
    /// Kinds of checksums that both sides know.
    pub checksums: ChecksumKinds,
    /// Most bytes of bulk data in one request, whole pages.
    pub brw_size: u32,
    /// Most modifying requests at a time.
    pub mod_rpcs: u16,
}

/// Reads the connect data of a reply, and refuses what was not asked for (P-65.3, .5, .7).
///
/// # Errors
/// `EPROTO` as the protocol says it, [`CallError::BadReply`] if there are no connect data.
pub(crate) fn terms(
    kind: ImportKind,
    wanted: &ConnectData,
    message: &[u8],
) -> Result<(Body, Terms), CallError> {
    let msg = Msg::parse(message).map_err(CallError::BadReply)?;
    let body = msg.body().map_err(CallError::BadReply)?;
    let mut data = ConnectData::of(&msg, 1).map_err(CallError::BadReply)?;
    let eproto = Err(CallError::Refused(Errno::EPROTO));
    // P-22: fields without their flag do not count.
    if !data.flags.contains(ConnectFlags::FLAGS2) {
        data.flags2 = Default::default();
    }
    if !wanted.flags.contains(data.flags) || !wanted.flags2.contains(data.flags2) {
        return eproto;
    }
    if kind == ImportKind::MdtToMdt && !alike(data.version, crate::VERSION) {
        return eproto;
    }
    let checksums = if data.flags.contains(ConnectFlags::CKSUM) {
        let common = data.cksum_types & wanted.cksum_types;
        if common.is_empty() {
            return eproto;
        }
        common
    } else {
        ChecksumKinds::ADLER
    };
    let brw_size = if data.flags.contains(ConnectFlags::BRW_SIZE) {
        data.brw_size.min(wanted.brw_size) / PAGE * PAGE
    } else {
        PAGE
    };
    let mod_rpcs = if data.flags.contains(ConnectFlags::MULTIMODRPCS) {
        data.maxmodrpcs.min(wanted.maxmodrpcs).max(1)
    } else {
        1
    };
    Ok((body, Terms { data, checksums, brw_size, mod_rpcs }))
}

/// What the client knows before a connect is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// The server's cookie, 0 before the first connect.
    pub(crate) handle: u64,
    pub(crate) invalid: bool,
    /// Nothing of the server's state is here (P-66).
    pub(crate) no_cached_data: bool,
    pub(crate) lightweight: bool,
    /// Requests had all been replayed when the connection broke.
    pub(crate) locks: bool,
}

/// The change of state that a connect reply means (P-65.8 to P-65.12).
///
/// # Errors
/// `ENOTCONN`: the server knows us, and has no export for us.
pub(crate) fn outcome(before: Before, body: &Body) -> Result<Change, CallError> {
    let recovering = body.op_flags.contains(OpFlags::RECOVERING);
    let known = body.op_flags.contains(OpFlags::RECONNECT);
    if before.handle == 0 {
        return Ok(if recovering { Change::FreshRecovering } else { Change::Fresh });
    }
    if known {
        if body.handle == 0 {
            return Err(CallError::Refused(Errno::ENOTCONN));
        }
        let same = body.handle == before.handle;
        // A new export costs nothing if nothing of the server's state is here: the answer to the
        // connect that made it was lost.
        if before.invalid || (!same && !recovering && !before.no_cached_data) {
            return Ok(Change::Dropped);
        }
        let locks = before.locks;
        return Ok(match (recovering, same) {
            (false, _) => Change::SameExport,
            (true, true) => Change::SameRecovering { locks },
            // Nothing was repeated to this export, although it is known: the answer to the connect
            // that made it was lost.
            (true, false) => Change::NewRecovering,
        });
    }
    Ok(if before.invalid {
        Change::Dropped
    } else if recovering {
        Change::NewRecovering
    } else if before.lightweight {
        Change::SameExport
    } else if before.no_cached_data {
        Change::DroppedEmpty
    } else {
        Change::Dropped
    })
}

/// What follows from a connect that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The next attempt.
    Again {
        /// At this connection, and at no other.
        same: bool,
        /// When.
        at: Instant,
    },
    /// The server will have nothing to do with this client.
    Deactivated,
    /// The server speaks another version.
    Incompatible,
}

/// A connect that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub(crate) kind: ImportKind,
    pub(crate) errno: Errno,
    /// There was a reply, of another version than ours.
    pub(crate) other_version: bool,
    /// When it was sent.
    pub(crate) attempt: Instant,
    /// From its sending to its deadline.
    pub(crate) waited: Duration,
    /// The pinger made the attempt, and planned the next one with it (P-101).
    pub(crate) planned: bool,
    /// The connection that is to be tried next was not tried lately.
    pub(crate) rested: bool,
}

/// P-65.2 and P-67.
pub(crate) fn failure(failed: Failed, now: Instant) -> Failure {
    let Failed { kind, errno, other_version, attempt, waited, planned, rested } = failed;
    let server =
        matches!(kind, ImportKind::Lightweight | ImportKind::MdtToMdt | ImportKind::MdtToOst);
    let mut same = matches!(errno, Errno::EBUSY | Errno::EAGAIN);
    let mut at_once = false;
    match errno {
        Errno::EACCES | Errno::EROFS if server => same = true,
        Errno::EACCES | Errno::EROFS => return Failure::Deactivated,
        // A node map that lets no client of this node in (C-252): a program hears it at once.
        Errno::EPERM if !server => return Failure::Deactivated,
        Errno::EPROTO if other_version => return Failure::Incompatible,
        Errno::ENODEV | Errno::ETIMEDOUT => at_once = rested,
        _ => {}
    }
    let later = (attempt + waited).max(now) + Duration::from_secs(1);
    let planned = Some(attempt + SWITCH).filter(|at| planned && *at >= now);
    let next = planned.map_or(later, |at| at.min(later));
    Failure::Again { same, at: if at_once { now } else { next } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p65_5_metadata_servers_have_the_same_release_and_nearly_the_same_patches() {
        let version = |major: u32, minor: u32, patch: u32| major << 24 | minor << 16 | patch << 8;
        for (a, b, wanted) in [
            (version(2, 17, 57), version(2, 17, 57), true),
            (version(2, 17, 57), version(2, 17, 54), true),
            (version(2, 17, 57), version(2, 17, 60), true),
            (version(2, 17, 57), version(2, 17, 53), false),
            (version(2, 17, 57), version(2, 15, 57), false),
            (version(3, 17, 57), version(2, 17, 57), false),
        ] {
            assert_eq!(alike(a, b), wanted, "{a:#x} {b:#x}");
        }
    }

    #[test]
    fn p65_8_to_12_each_answer_to_each_client() {
        let reply = |handle, known, recovering| {
            let mut body = Body { handle, ..Body::default() };
            body.op_flags.set(OpFlags::RECONNECT, known);
            body.op_flags.set(OpFlags::RECOVERING, recovering);
            body
        };
        let free = Before {
            handle: 7,
            invalid: false,
            no_cached_data: false,
            lightweight: false,
            locks: false,
        };
        let invalid = Before { invalid: true, ..free };
        let light = Before { lightweight: true, ..free };
        let empty = Before { no_cached_data: true, ..free };
        let locks = Before { locks: true, ..free };
        let first = Before { handle: 0, ..free };
        let stage = |locks| Change::SameRecovering { locks };
        for (row, before, handle, known, recovering, wanted) in [
            ("8", first, 7, false, false, Change::Fresh),
            ("8 recovering", first, 7, false, true, Change::FreshRecovering),
            ("9", free, 7, true, false, Change::SameExport),
            ("9 new", free, 8, true, false, Change::Dropped),
            ("9 new, recovering", free, 8, true, true, Change::NewRecovering),
            ("9 new, nothing cached", empty, 8, true, false, Change::SameExport),
            ("9 invalid", invalid, 7, true, false, Change::Dropped),
            ("9 invalid, recovering", invalid, 7, true, true, Change::Dropped),
            ("9 recovering", free, 7, true, true, stage(false)),
            ("9 recovering, locks", locks, 7, true, true, stage(true)),
            ("10", free, 8, false, true, Change::NewRecovering),
            ("10 lightweight", light, 8, false, true, Change::NewRecovering),
            ("11", light, 8, false, false, Change::SameExport),
            ("12", free, 8, false, false, Change::Dropped),
            ("12 nothing cached", empty, 8, false, false, Change::DroppedEmpty),
            ("12 invalid", invalid, 8, false, false, Change::Dropped),
            ("12 invalid, recovering", invalid, 8, false, true, Change::Dropped),
        ] {
            assert_eq!(outcome(before, &reply(handle, known, recovering)), Ok(wanted), "{row}");
        }
        let nameless = outcome(free, &reply(0, true, false));
        assert_eq!(nameless, Err(CallError::Refused(Errno::ENOTCONN)), "9 without a handle");
    }

    #[test]
    fn p67_each_failure_of_a_connect() {
        use ImportKind as K;
        let second = |n: u64| Instant::from_secs(n);
        // Sent at 100 with a deadline 10 s later; the next attempt is planned for 105.
        let again = |same, at| Failure::Again { same, at: second(at) };
        for (row, kind, errno, other_version, rested, now, wanted) in [
            ("busy", K::Osc, Errno::EBUSY, false, true, 103, again(true, 105)),
            ("not yet", K::Osc, Errno::EAGAIN, false, true, 103, again(true, 105)),
            ("forbidden", K::Osc, Errno::EACCES, false, true, 103, Failure::Deactivated),
            ("read-only", K::Mdc, Errno::EROFS, false, true, 103, Failure::Deactivated),
            ("forbidden, LWP", K::Lightweight, Errno::EACCES, false, true, 103, again(true, 105)),
            ("forbidden, MDT", K::MdtToMdt, Errno::EACCES, false, true, 103, again(true, 105)),
            ("read-only, OSP", K::MdtToOst, Errno::EROFS, false, true, 103, again(true, 105)),
            ("denied", K::Mdc, Errno::EPERM, false, true, 103, Failure::Deactivated),
            ("denied, MDT", K::MdtToMdt, Errno::EPERM, false, true, 103, again(false, 105)),
            ("version", K::Osc, Errno::EPROTO, true, true, 103, Failure::Incompatible),
            ("protocol", K::Osc, Errno::EPROTO, false, true, 103, again(false, 105)),
            ("no device", K::Osc, Errno::ENODEV, false, true, 103, again(false, 103)),
            ("no device, just tried", K::Osc, Errno::ENODEV, false, false, 103, again(false, 105)),
            ("timed out", K::Osc, Errno::ETIMEDOUT, false, true, 110, again(false, 110)),
            ("any other", K::Osc, Errno::ENOMEM, false, true, 103, again(false, 105)),
            ("any other, late", K::Osc, Errno::ENOMEM, false, true, 120, again(false, 121)),
        ] {
            let (attempt, waited) = (second(100), Duration::from_secs(10));
            let failed =
                Failed { kind, errno, other_version, attempt, waited, planned: true, rested };
            assert_eq!(failure(failed, second(now)), wanted, "{row}");
        }
    }

    #[test]
    fn p67_an_attempt_that_the_pinger_did_not_make_is_followed_by_one_after_its_deadline() {
        let second = |n: u64| Instant::from_secs(n);
        for (now, planned, at) in [(100, false, 111), (100, true, 105), (112, false, 113)] {
            let failed = Failed {
                kind: ImportKind::Mdc,
                errno: Errno::ENODEV,
                other_version: false,
                attempt: second(100),
                waited: Duration::from_secs(10),
                planned,
                // Beside the one that was just tried there is none.
                rested: false,
            };
            let again = Failure::Again { same: false, at: second(at) };
            assert_eq!(failure(failed, second(now)), again, "{now} {planned}");
        }
    }
}
