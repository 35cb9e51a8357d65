//! What C sees: types, constants and entries. `include/ulnet.h` is made from these files; their comments
//! are its documentation, which says what callers must keep to.

pub mod attachment;
pub mod config;
pub mod errors;
pub mod inbox;
pub mod node;
pub mod operation;
pub mod queue;
mod raw;
pub mod types;
