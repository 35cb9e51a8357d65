//! The protocol of socklnd as values: what to do with bytes and facts, without doing it. The driver
//! (`driver/`) feeds these machines and carries out what they say.
//!
//! `kinds.rs` which connection a message takes · `admit.rs` who is let in · `hello.rs` what a HELLO
//! leads to · `conn.rs` the phases of
//! a connection · `frame.rs` where messages begin and end · `sink.rs` where payload goes · `txq.rs`
//! what is to be written · `zc.rs` acknowledgements owed ·
//! `watch.rs` which rails are doubtful

pub(crate) mod admit;
pub(crate) mod conn;
pub(crate) mod frame;
pub(crate) mod hello;
pub(crate) mod kinds;
pub(crate) mod load;
pub(crate) mod retained;
pub(crate) mod sink;
pub(crate) mod txq;
pub(crate) mod watch;
pub(crate) mod zc;
