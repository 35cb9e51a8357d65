//! Errors and the version.

#![allow(unsafe_code, reason = "entries of a C library")]

use core::ffi::c_char;

use crate::failure::{last_stage, last_text};

/// The text of the last call on this thread that failed, or of the last event with a status: field,
/// value and what was expected, or what the node says. An empty string if there was none. Valid until the
/// next failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_last_error() -> *const c_char {
    last_text()
}

/// ULNET_STAGE_... of the last call on this thread that failed.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_last_stage() -> u32 {
    last_stage()
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
