//! What the tests share.

pub(crate) mod fabric;
pub(crate) mod host;
