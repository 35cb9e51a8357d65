//! Whole conversations of consoles, clients and servers in virtual time, and one machine against
//! messages made by hand. `world.rs` is the bench: machines joined by an LNet that does what
//! portals do and nothing else.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

mod conversations;
mod failures;
mod hostile;
mod responder;
mod world;
