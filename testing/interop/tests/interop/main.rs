//! Conversations of kernel nodes, played to a ulnet node. Needs root (namespaces, port 988); without
//! it every test says that it was skipped. What is compared and how stands in `interop`'s head.

mod cases;
mod judge;
mod mirror;
mod node;
mod script;
mod support;
mod unmarked;
