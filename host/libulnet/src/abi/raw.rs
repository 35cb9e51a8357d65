//! The border to C's memory: strings, structures and places for results. Nothing else reads or writes
//! through a pointer of the caller.

#![allow(unsafe_code, reason = "pointers of C")]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;

use lnet_rt::{Nid, Pid, ProcessId};

use super::types::{ULNET_NID_SIZE, ulnet_nid};
use crate::failure::Failure;

/// A string that must be there.
///
/// # Safety
/// `text` is NULL, or ends with NUL and does not change while the result is in use.
pub(super) unsafe fn text<'a>(field: &str, text: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    let text = unsafe { optional_text(field, text)? };
    text.ok_or_else(|| Failure::argument(format!("{field} NULL: must be a string")))
}

/// A string that may be NULL.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn optional_text<'a>(
    field: &str,
    text: *const c_char,
) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, and ends with NUL by the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_str();
    text.map(Some).map_err(|_| Failure::argument(format!("{field}: must be UTF-8")))
}

/// A NID that must be there and name an interface.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn nid(field: &str, name: *const c_char) -> Result<Nid, Failure> {
    // SAFETY: the caller's promise.
    parse_nid(field, unsafe { text(field, name)? })
}

/// A NID that may be NULL.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn optional_nid(
    field: &str,
    name: *const c_char,
) -> Result<Option<Nid>, Failure> {
    // SAFETY: the caller's promise.
    let name = unsafe { optional_text(field, name)? };
    name.map(|name| parse_nid(field, name)).transpose()
}

/// The Lustre process at a NID.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn target(name: *const c_char) -> Result<ProcessId, Failure> {
    // SAFETY: the caller's promise.
    let nid = unsafe { nid("target", name)? };
    Ok(ProcessId { nid, pid: Pid::LUSTRE })
}

fn parse_nid(field: &str, name: &str) -> Result<Nid, Failure> {
    let nid: Nid = name.parse().map_err(|e| Failure::argument(format!("{field} '{name}': {e}")))?;
    if nid.is_any() {
        return Err(Failure::argument(format!("{field} '{name}': must be one NID")));
    }
    Ok(nid)
}

/// A structure that may be NULL.
///
/// # Safety
/// `at` is NULL or a readable `T`, of which any bytes are a value.
pub(super) unsafe fn read<T: Copy>(field: &str, at: *const T) -> Result<Option<T>, Failure> {
    if at.is_null() {
        return Ok(None);
    }
    aligned(field, at)?;
    // SAFETY: not NULL, aligned, readable by the caller's promise.
    Ok(Some(unsafe { at.read() }))
}

/// Checks a place for a result before there is a result.
pub(super) fn place<T>(field: &str, at: *const T) -> Result<(), Failure> {
    if at.is_null() {
        return Err(Failure::argument(format!("{field} NULL: must be a place for the result")));
    }
    aligned(field, at)
}

fn aligned<T>(field: &str, at: *const T) -> Result<(), Failure> {
    if at.is_aligned() {
        return Ok(());
    }
    Err(Failure::argument(format!("{field} {at:p}: must be aligned to {}", align_of::<T>())))
}

/// Writes a result to where [`place`] has looked.
///
/// # Safety
/// `at` has passed [`place`] and is writable.
pub(super) unsafe fn write<T>(at: *mut T, value: T) {
    // SAFETY: the caller's promise.
    unsafe { at.write(value) }
}

/// Writes a result if it is wanted.
///
/// # Safety
/// `at` is NULL or writable.
pub(super) unsafe fn write_if_wanted<T>(field: &str, at: *mut T, value: T) -> Result<(), Failure> {
    if at.is_null() {
        return Ok(());
    }
    aligned(field, at)?;
    // SAFETY: not NULL, aligned, writable by the caller's promise.
    unsafe { at.write(value) };
    Ok(())
}

/// The start of `len` bytes of the caller.
pub(super) fn memory(field: &str, at: *const c_void, len: usize) -> Result<NonNull<u8>, Failure> {
    match NonNull::new(at.cast_mut().cast()) {
        _ if isize::try_from(len).is_err() => {
            Err(Failure::argument(format!("{field}: length {len} exceeds the address space")))
        }
        Some(at) => Ok(at),
        None if len == 0 => Ok(NonNull::dangling()),
        None => Err(Failure::argument(format!("{field} NULL: must be {len} bytes"))),
    }
}

/// A number of a handle.
pub(super) fn number<T>(handle: *const T) -> usize {
    handle.addr()
}

/// A handle of a number. It is never followed.
pub(super) const fn handle<T>(number: usize) -> *mut T {
    core::ptr::without_provenance_mut(number)
}

/// A NID as C has it; cut if it were longer, which none is.
pub(super) fn nid_text(nid: Nid) -> ulnet_nid {
    let mut text = [0; ULNET_NID_SIZE];
    let bytes = nid.to_string().into_bytes();
    // The last byte stays NUL.
    for (to, from) in text.iter_mut().take(ULNET_NID_SIZE - 1).zip(bytes) {
        *to = from.cast_signed() as c_char;
    }
    ulnet_nid { text }
}

/// No NID.
pub(super) const NO_NID: ulnet_nid = ulnet_nid { text: [0; ULNET_NID_SIZE] };

/// Fields that are there for later versions.
pub(super) fn reserved(structure: &str, fields: &[u64]) -> Result<(), Failure> {
    match fields.iter().find(|field| **field != 0) {
        None => Ok(()),
        Some(value) => {
            Err(Failure::argument(format!("{structure}, reserved field {value:#x}: must be 0")))
        }
    }
}

/// Flags, of which only some exist.
pub(super) fn flags(structure: &str, flags: u32, known: u32) -> Result<(), Failure> {
    match flags & !known {
        0 => Ok(()),
        unknown => {
            Err(Failure::argument(format!("{structure}, flags {flags:#x}: {unknown:#x} must be 0")))
        }
    }
}
