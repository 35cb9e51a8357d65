//! Worlds played from their texts.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod bytes;
mod cabinets;
mod drivers;
mod files;
mod gni;
mod hostile;
mod hostile_locks;
mod judges;
mod locks;
mod operators;
mod paper;
mod quiesce;
mod rails;
mod rdma;
mod requests;
mod rounds;
mod rpc;
mod sabotage;
mod same;
mod scenarios;
mod selftest;
mod shared;
mod site;
mod sockets;
mod streams;
mod swarm;
mod uppers;
mod words;
