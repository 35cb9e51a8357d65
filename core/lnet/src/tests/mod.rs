//! Tests of whole nodes over a simulated wire in virtual time. `world.rs` is the bench; the others
//! are named for their subjects. Scenarios `x…` are those of behaviour.md 13, with the outcomes
//! that were recorded from real nodes.

mod check;
mod cpt;
mod credits;
mod cut_off;
mod dedup;
mod dedup_routed;
mod discovery;
mod explain;
mod fault;
mod forward;
mod health;
mod hostile;
mod in_doubt;
mod memory;
mod phases;
mod policy;
mod requirements;
mod rest;
mod retransmit;
mod routing;
mod selection;
mod storm;
mod suspicion;
mod timers;
mod walk;
mod world;
