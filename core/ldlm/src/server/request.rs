//! Requests for locks as they arrive (L-12, L-13, L-15).

use lnet_types::Errno;
use lustre_wire::ldlm::{Intent, LockFlags, LockRequest, ResourceName};
use ptlrpc::Served;

use crate::Cookie;

/// A request for locks, read.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub(super) lock: LockRequest,
    /// What is asked for beside the lock.
    pub(super) intent: Option<Intent>,
    beside: Option<&'a [u8]>,
}

impl Request<'_> {
    /// The resource that is named.
    pub const fn resource(&self) -> ResourceName {
        self.lock.desc.resource
    }

    /// The buffer behind the lock request.
    pub const fn beside(&self) -> Option<&[u8]> {
        self.beside
    }
}

/// Reads a request.
///
/// # Errors
/// `EPROTO` if its buffers are not those of a lock request.
pub(super) fn read(served: &Served) -> Result<Request<'_>, Errno> {
    let msg = served.msg().map_err(|_| Errno::EPROTO)?;
    let lock = LockRequest::of(&msg, 1).map_err(|_| Errno::EPROTO)?;
    let intent = if lock.flags.contains(LockFlags::HAS_INTENT) {
        // Without its buffer it is the intent of a glimpse, as some clients send it.
        match msg.buffer(2) {
            None => Some(Intent::GLIMPSE),
            Some(_) => {
                let bits = msg.get::<u64>(2).map_err(|_| Errno::EPROTO)?;
                Some(Intent::from_bits_retain(bits))
            }
        }
    } else {
        None
    };
    Ok(Request { lock, intent, beside: msg.buffer(2) })
}

/// The locks that a cancel names; a count of 0 means one (L-13).
pub(super) fn cancelled(request: &LockRequest) -> Vec<Cookie> {
    let handles = match request.count {
        0 => request.handles.get(..1).unwrap_or_default(),
        _ => request.counted(),
    };
    handles.iter().copied().map(Cookie).collect()
}

/// The locks that an enqueue gives back beside (L-60).
pub(super) fn early(request: &LockRequest) -> Vec<Cookie> {
    request.counted().iter().skip(1).copied().map(Cookie).collect()
}

/// The handle at a place; 0 if there is none.
pub(super) fn handle(request: &LockRequest, index: usize) -> u64 {
    request.handles.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use lustre_wire::ldlm::LockDesc;

    use super::*;

    #[test]
    fn l13_a_cancel_counts_from_one_and_an_enqueue_has_its_own_lock_first() {
        let request = |count, handles: &[u64]| {
            LockRequest::new(LockFlags::empty(), count, LockDesc::default(), handles)
        };
        let cookies = |all: &[u64]| all.iter().copied().map(Cookie).collect::<Vec<_>>();
        for (count, cancels, earlies) in [
            (0, &[7][..], &[][..]),
            (1, &[7][..], &[][..]),
            (2, &[7, 8][..], &[8][..]),
            (3, &[7, 8, 9][..], &[8, 9][..]),
        ] {
            let request = request(count, &[7, 8, 9]);
            assert_eq!(cancelled(&request), cookies(cancels), "{count}");
            assert_eq!(early(&request), cookies(earlies), "{count}");
        }
        assert_eq!(handle(&request(0, &[7]), 1), 0);
        assert_eq!(handle(&request(0, &[7]), 2), 0);
    }
}
