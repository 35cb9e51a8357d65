//! How each entry ends: with 0, or with a negative error number and a text that this thread can ask for.
//! A panic ends here.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lnet_rt::{Errno, NiError, OpError, OpFailed, OpStage, RouteError, TunableError};

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    pub(crate) stage: u32,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno, stage: 0, text: text.into() }
    }

    /// An argument out of bounds.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(Errno::EINVAL, text)
    }
}

/// The number of a stage: `ULNET_STAGE_…`.
const fn stage(error: OpError) -> u32 {
    let OpError::Operation { stage, .. } = error else { return 0 };
    match stage {
        OpStage::NoPath => 1,
        OpStage::Refused => 2,
        OpStage::Transmission => 3,
        OpStage::Answer => 4,
        OpStage::NoAnswer => 5,
        // A stage that was added without a number here.
        _ => 0,
    }
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Self {
        Self { errno: error.errno(), stage: stage(error), text: error.to_string() }
    }
}

impl From<OpFailed> for Failure {
    fn from(failed: OpFailed) -> Self {
        failed.error.into()
    }
}

impl From<NiError> for Failure {
    fn from(error: NiError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<TunableError> for Failure {
    fn from(error: TunableError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<RouteError> for Failure {
    fn from(error: RouteError) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)), error.to_string())
    }
}

#[derive(Default)]
struct Last {
    text: CString,
    stage: u32,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Makes `failure` the last one of this thread; returns its code.
pub(crate) fn remember(failure: Failure) -> c_int {
    let mut text = failure.text.into_bytes();
    text.retain(|byte| *byte != 0);
    // No NUL is left; and a thread that is ending asks no more.
    let last = Last { text: CString::new(text).unwrap_or_default(), stage: failure.stage };
    let _ = LAST.try_with(|slot| *slot.borrow_mut() = last);
    // A number that the system does not know must not look like success.
    if failure.errno.0 > 0 { -failure.errno.0 } else { -Errno::EIO.0 }
}

/// The text of this thread's last failure, valid until its next.
pub(crate) fn last_text() -> *const c_char {
    let empty: &'static CStr = c"";
    LAST.try_with(|slot| slot.borrow().text.as_ptr()).unwrap_or(empty.as_ptr())
}

/// The stage of this thread's last failure.
pub(crate) fn last_stage() -> u32 {
    LAST.try_with(|slot| slot.borrow().stage).unwrap_or(0)
}

/// An entry: its value, or a negative code. No panic crosses it.
pub(crate) fn entry(f: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => remember(failure),
        Err(panic) => {
            let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
            let said = said.unwrap_or_else(|| "no text".to_owned());
            remember(Failure::new(Errno::EIO, format!("defect in libulnet: {said}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn a_panic_ends_as_an_error_with_its_text() {
        assert_eq!(entry(|| panic!("of {}", "ours")), -Errno::EIO.0);
        // SAFETY: valid until the next failure of this thread.
        let text = unsafe { CStr::from_ptr(last_text()) };
        assert_eq!(text.to_str(), Ok("defect in libulnet: of ours"));
    }

    #[test]
    fn an_error_number_that_is_none_does_not_look_like_success() {
        assert_eq!(remember(Failure::new(Errno(0), "nothing")), -Errno::EIO.0);
        assert_eq!(remember(Failure::new(Errno(-5), "negative")), -Errno::EIO.0);
    }
}
