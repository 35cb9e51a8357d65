//! Counters of an interface.

use std::collections::BTreeMap;

use lnet_wire::ib::RejectReason;

/// What has happened on an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections that this side asked for and got.
    pub connected: u64,
    /// Connections that peers asked for and got.
    pub accepted: u64,
    /// Requests of peers that were refused, by the reason.
    pub refused: BTreeMap<RejectReason, u64>,
    /// Requests of this side that were refused, by the reason.
    pub rejected: BTreeMap<RejectReason, u64>,
    /// Attempts that failed without a refusal.
    pub failed: u64,
    /// Connections that ended, by the name of the reason.
    pub closed: BTreeMap<&'static str, u64>,
    /// Connections whose queue pair was destroyed before it had drained.
    pub undrained: u64,
    /// Messages that were read behind the end of their connection, and had come before it.
    pub last_words: u64,
    /// Deferred messages that were kept behind the end of their connection.
    pub kept: u64,
    /// Bytes of messages and RDMA writes that were posted.
    pub bytes_out: u64,
    /// NOOP messages sent.
    pub noops: u64,
    /// Deliveries into several spans that went through a buffer, because the adapter maps one span.
    pub bounced: u64,
    /// IMMEDIATE messages that end before the payload that they announce.
    pub cut: u64,
}
