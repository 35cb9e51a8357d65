//! Tests of the driver as a whole. `support/` has a node's stand-in, `world.rs` streams in virtual
//! time that split, stall, break and refuse.

mod support;
mod suspicion;

mod admission;
mod conversations;
mod dawn;
mod faults;
mod loopback;
mod patience;
mod random;
mod raw_peer;
mod time;
mod turns;
