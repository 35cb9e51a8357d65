//! Clients and servers on one node, over its loopback interface, in virtual time. `bench.rs` is the
//! bench; the others are named for their subjects.

mod bench;
mod bulk;
mod callbacks;
mod calls;
mod checks;
mod connects;
mod difficult;
mod early;
mod ends;
mod evictor;
mod exports;
mod hostile;
mod hostile_server;
mod imports;
mod kept;
mod locks;
mod losses;
mod outage;
mod pinger;
mod queue;
mod raw;
mod records;
mod recovering;
mod replay;
mod requests;
mod restarted;
mod script;
mod store;
mod storms;
mod waiting;
mod writes;
