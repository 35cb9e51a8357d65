//! Clients and servers on one node, over its loopback interface, in virtual time. `bench.rs` is the
//! bench; the others are named for their subjects.

mod bench;
mod bulk;
mod calls;
mod hostile;
mod outage;
mod records;
mod replay;
mod store;
mod storms;
