//! Whole stacks, joined by a wire of the tests' own: what a program sees of a node.

#![allow(clippy::unwrap_used)] // in helpers, which clippy does not take for tests

mod allocations;
mod attachments;
mod caller_driven;
mod cpts;
mod inboxes;
mod lifetimes;
mod links;
mod operations;
mod rails;
mod routed;
mod sockets;
mod spinning;
mod uppers;
mod wire;
