//! Targets with clients in virtual time. `world.rs` is the node they are on; the others are named for
//! their subjects.

mod captures;
mod kv_recovery;
mod ost;
mod ost_hostile;
mod ost_locks;
mod ost_recovery;
mod world;
