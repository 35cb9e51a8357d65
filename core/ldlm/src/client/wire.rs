//! Lock requests of a client as calls, and what their replies say (L-12 … L-14, L-43).

use lnet_types::ByteOrder;
use lustre_wire::ldlm::LockMode;
use lustre_wire::ldlm::{
    LockDesc, LockFlags, LockReply, LockRequest, LockRequestHead, Policy, PolicyWords, ResourceName,
};
use lustre_wire::msg::size;
use lustre_wire::{Body, Buffers, Layout, Opcode};
use ptlrpc::{Call, Reply};
use smallvec::SmallVec;

use crate::{Kind, Mode};

const LITTLE: ByteOrder = ByteOrder::Little;

/// Most bytes of a request with cancels: what servers of all releases take (L-43).
const CANCEL_BYTES: usize = 4096 - 512;

/// Flags that a request may have (L-17).
pub(super) const REQUEST_FLAGS: LockFlags = LockFlags::from_bits_retain(0xe08c_131a);

/// Most cookies in one cancel request (L-43): about 400.
pub(super) const CANCELS_MAX: usize = {
    let without = size(&[Body::LEN as u32, LockRequest::LEN_MIN as u32]);
    (CANCEL_BYTES - without) / 8 + 2
};

/// Most cookies that an enqueue carries along: the first of a request is the lock's own.
pub(super) const EARLY_MAX: usize = CANCELS_MAX - 1;

/// What is said of a lock.
pub(super) fn desc(
    kind: Kind,
    resource: ResourceName,
    requested: Mode,
    granted: Option<Mode>,
    policy: PolicyWords,
) -> LockDesc {
    let granted = granted.map_or(LockMode::NONE, Mode::word);
    LockDesc { kind: kind.word(), resource, requested: requested.word(), granted, policy }
}

/// An enqueue, a replay among them. `early`: cookies of locks that go with it; `beside`: buffers
/// behind the lock request.
pub(super) fn enqueue(
    flags: LockFlags,
    desc: LockDesc,
    own: u64,
    early: &[u64],
    beside: &Buffers,
    lvb_max: u32,
) -> Call {
    let mut handles: SmallVec<[u64; 2]> = SmallVec::from_slice(&[own]);
    handles.extend_from_slice(early);
    let count = u32::try_from(handles.len()).unwrap_or(1);
    let request = LockRequest::new(flags, count, desc, &handles);
    let buffers = Buffers::from([request.to_bytes(LITTLE)]).and(beside);
    Call::new(Opcode::LDLM_ENQUEUE, buffers).answered_by(&[LockReply::LEN as u32, lvb_max])
}

/// A cancel (L-13: the description is all zeros).
pub(super) fn cancel(cookies: &[u64]) -> Call {
    let count = u32::try_from(cookies.len()).unwrap_or(1);
    let head = LockRequestHead::get(LITTLE, &[0; LockRequestHead::LEN]);
    let request = LockRequest::new(LockFlags::empty(), count, head.desc, cookies);
    Call::new(Opcode::LDLM_CANCEL, Buffers::from([request.to_bytes(LITTLE)]))
}

/// A conversion (L-45): the description has the bits to be kept.
pub(super) fn convert(desc: LockDesc, remote: u64) -> Call {
    let request = LockRequest::new(LockFlags::empty(), 1, desc, &[remote]);
    Call::new(Opcode::LDLM_CONVERT, Buffers::from([request.to_bytes(LITTLE)]))
        .answered_by(&[LockReply::LEN as u32])
}

/// What a reply says.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) status: i32,
    /// The lock, if the reply has one that can be read.
    pub(super) reply: Option<LockReply>,
    pub(super) lvb: Vec<u8>,
    /// Server lock volume and limit, 0 if it has none (L-58).
    pub(super) slv: u64,
}

impl Said {
    pub(super) fn of(reply: &Reply) -> Self {
        let status = reply.status;
        let Ok(msg) = reply.msg() else {
            return Self { status, reply: None, lvb: Vec::new(), slv: 0 };
        };
        Self {
            status,
            reply: msg.get::<LockReply>(1).ok(),
            lvb: msg.buffer(2).unwrap_or_default().to_vec(),
            slv: msg.buffer(0).map_or(0, |body| Body::slv_of(msg.order, body)),
        }
    }
}

/// Whether `outer` has all of `inner`; both of the same kind.
pub(super) fn contains(outer: &Policy, inner: &Policy) -> bool {
    match (outer, inner) {
        (Policy::Plain, Policy::Plain) => true,
        (Policy::Extent { start, end, gid }, Policy::Extent { start: s, end: e, gid: g }) => {
            start <= s && e <= end && gid == g
        }
        (Policy::Ibits { bits, .. }, Policy::Ibits { bits: inner, .. }) => bits.contains(*inner),
        // Owners of file locks are separated by the server.
        _ => false,
    }
}

/// Whether both have a part in common; both of the same kind.
pub(super) fn overlap(a: &Policy, b: &Policy) -> bool {
    match (a, b) {
        (Policy::Extent { start, end, .. }, Policy::Extent { start: s, end: e, .. })
        | (Policy::Flock { start, end, .. }, Policy::Flock { start: s, end: e, .. }) => {
            start <= e && s <= end
        }
        (Policy::Ibits { bits, .. }, Policy::Ibits { bits: b, .. }) => bits.intersects(*b),
        _ => true,
    }
}

/// Whether a lock of mode `held` serves for `wanted`: all that `wanted` excludes is excluded, so that
/// a stronger lock does for a weaker one. Modes with rules of their own serve for themselves alone.
pub(super) fn covers(held: Mode, wanted: Mode) -> bool {
    let plain = |mode| !matches!(mode, Mode::Group | Mode::Cos | Mode::Txn);
    held == wanted
        || plain(held)
            && plain(wanted)
            && Mode::ALL.into_iter().all(|other| wanted.allows(other) || !held.allows(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l43_a_cancel_request_has_about_four_hundred_cookies_and_fits() {
        assert_eq!(CANCELS_MAX, 409);
        let call = cancel(&[7; CANCELS_MAX]);
        let request = call.buffers.get(0).unwrap();
        let len = size(&[Body::LEN as u32, request.len() as u32]);
        assert!(len <= CANCEL_BYTES, "{len}");
        // L-13: nothing is said of the lock.
        assert!(request[8..88].iter().all(|b| *b == 0));
        assert_eq!(request[4..8], 409u32.to_le_bytes());
    }

    #[test]
    fn a_stronger_mode_serves_for_a_weaker_one() {
        use Mode::{Cr, Cw, Ex, Group, Nl, Pr, Pw};
        let of = |held| -> Vec<Mode> {
            Mode::ALL.into_iter().filter(|wanted| covers(held, *wanted)).collect()
        };
        assert_eq!(of(Ex), [Ex, Pw, Pr, Cw, Cr, Nl]);
        assert_eq!(of(Pw), [Pw, Pr, Cw, Cr, Nl]);
        assert_eq!(of(Pr), [Pr, Cr, Nl]);
        assert_eq!(of(Cw), [Cw, Cr, Nl]);
        assert_eq!((of(Cr), of(Nl), of(Group)), (vec![Cr, Nl], vec![Nl], vec![Group]));
    }
}
