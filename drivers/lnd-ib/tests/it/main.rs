//! Interfaces on an emulated fabric of queue pairs, in virtual time. `support/fabric.rs` is the
//! fabric, `support/host.rs` a host with a node's stand-in; `flows.rs` one exchange at a time,
//! `connect.rs` how connections come about, `ends.rs` how they end, `device.rs` what becomes of a
//! device, `random.rs` everything at once, `replay.rs` the recordings of kernel nodes, `nodes.rs` real nodes above two interfaces.

mod connect;
mod device;
mod ends;
mod flows;
mod nodes;
mod rails;
mod random;
mod replay;
mod support;
