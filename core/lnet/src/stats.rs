//! Counters: plain numbers in their owners, copied out whole. Names are the keys that operators
//! know from `lnetctl stats show` and `net show` (behaviour.md 11).

use lnet_types::HealthStatus;
use lnet_wire::MsgType;

macro_rules! node_stats {
    ($($(#[doc = $doc:literal])* $name:ident: $ty:ty;)*) => {
        /// Counters of the whole node, in the order of `stats show` (S-stats-1).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub struct NodeStats {
            $($(#[doc = $doc])* pub $name: $ty,)*
        }

        impl NodeStats {
            /// One message more in hand (T-1).
            pub(crate) fn count_in(&mut self) {
                self.msgs_alloc = self.msgs_alloc.wrapping_add(1);
                self.msgs_max = self.msgs_max.max(self.msgs_alloc);
            }

            /// Name and value of each, in order of printing.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), u64::from(self.$name)),)*]
            }

            /// Name of each and what it counts, in order of printing.
            pub const HELP: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), concat!($($doc),*)),)*];
        }
    };
}

node_stats! {
    /// Messages in hand (gauge).
    msgs_alloc: u32;
    /// Most messages in hand.
    msgs_max: u32;
    /// Response trackers in existence (gauge).
    rst_alloc: u32;
    /// Never counted, kept for its place.
    errors: u32;
    /// Messages of our own sent.
    send_count: u32;
    /// Messages sent again.
    resend_count: u32;
    /// Responses that did not come in time.
    response_timeout_count: u32;
    /// Failures (H-14): the local interface was interrupted.
    local_interrupt_count: u32;
    /// Failures (H-14): the local interface dropped the message.
    local_dropped_count: u32;
    /// Failures (H-14): the local interface gave up.
    local_aborted_count: u32;
    /// Failures (H-14): the local interface found no way.
    local_no_route_count: u32;
    /// Failures (H-14): it took too long on this side.
    local_timeout_count: u32;
    /// Failures (H-14): the local interface failed for good.
    local_error_count: u32;
    /// Failures (H-14): the remote interface dropped the message.
    remote_dropped_count: u32;
    /// Failures (H-14): the remote interface failed for good.
    remote_error_count: u32;
    /// Failures (H-14): it took too long on the other side.
    remote_timeout_count: u32;
    /// Failures (H-14): it took too long on the way.
    network_timeout_count: u32;
    /// Messages that failed although they could have been sent again once more (H-22).
    failed_resends: u32;
    /// Messages that a resend saved.
    successful_resends: u32;
    /// Messages for us received.
    recv_count: u32;
    /// Messages forwarded.
    route_count: u32;
    /// Messages dropped.
    drop_count: u32;
    /// Bytes of our own sent.
    send_length: u64;
    /// Bytes for us received.
    recv_length: u64;
    /// Bytes forwarded.
    route_length: u64;
    /// Bytes dropped.
    drop_length: u64;
}

impl NodeStats {
    /// Counts one failure by class (H-14).
    pub(crate) fn count_failure(&mut self, status: HealthStatus) {
        let counter = match status {
            HealthStatus::Ok => return,
            HealthStatus::LocalInterrupt => &mut self.local_interrupt_count,
            HealthStatus::LocalDropped => &mut self.local_dropped_count,
            HealthStatus::LocalAborted => &mut self.local_aborted_count,
            HealthStatus::LocalNoRoute => &mut self.local_no_route_count,
            HealthStatus::LocalError => &mut self.local_error_count,
            HealthStatus::LocalTimeout => &mut self.local_timeout_count,
            HealthStatus::RemoteError => &mut self.remote_error_count,
            HealthStatus::RemoteDropped => &mut self.remote_dropped_count,
            HealthStatus::RemoteTimeout => &mut self.remote_timeout_count,
            HealthStatus::NetworkTimeout => &mut self.network_timeout_count,
        };
        *counter = counter.wrapping_add(1);
    }
}

/// Messages by kind (T-10). HELLOs are the driver's affair and stay 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KindCounts {
    /// PUTs.
    pub put: u32,
    /// GETs.
    pub get: u32,
    /// REPLYs.
    pub reply: u32,
    /// ACKs.
    pub ack: u32,
}

impl KindCounts {
    /// One more of `kind`.
    pub(crate) fn bump(&mut self, kind: MsgType) {
        let counter = match kind {
            MsgType::Ack => &mut self.ack,
            MsgType::Put => &mut self.put,
            MsgType::Get => &mut self.get,
            MsgType::Reply => &mut self.reply,
        };
        *counter = counter.wrapping_add(1);
    }

    /// All kinds together.
    pub const fn sum(&self) -> u32 {
        self.put.wrapping_add(self.get).wrapping_add(self.reply).wrapping_add(self.ack)
    }
}

/// A running minimum, maximum and average of durations (T-40).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Latency {
    /// How many.
    pub samples: u32,
    /// Shortest, nanoseconds.
    pub min_nsec: u64,
    /// Longest, nanoseconds.
    pub max_nsec: u64,
    /// Sum, nanoseconds.
    pub sum_nsec: u64,
}

impl Latency {
    pub(crate) fn add(&mut self, ns: u64) {
        self.min_nsec = if self.samples == 0 { ns } else { self.min_nsec.min(ns) };
        self.max_nsec = self.max_nsec.max(ns);
        self.sum_nsec = self.sum_nsec.saturating_add(ns);
        self.samples = self.samples.wrapping_add(1);
    }

    /// Average in nanoseconds; 0 without samples.
    pub const fn avg_nsec(&self) -> u64 {
        match self.samples {
            0 => 0,
            n => self.sum_nsec / n as u64,
        }
    }
}

/// What is counted for each NI and each peer NI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct InterfaceStats {
    /// Messages sent, by kind. ACKs count as PUTs and REPLYs as GETs, as in the kernel (T-12).
    pub sent: KindCounts,
    /// Messages received.
    pub received: KindCounts,
    /// Messages dropped.
    pub dropped: KindCounts,
    /// Payload bytes sent.
    pub sent_bytes: u64,
    /// Payload bytes received.
    pub received_bytes: u64,
    /// From commit to completed transmission of own PUTs, first attempts.
    pub put_egress: Latency,
    /// From GET to REPLY.
    pub get_rtt: Latency,
    /// From PUT to ACK.
    pub put_ack: Latency,
}

/// The counters of an interface. They take memory from its first message on; until then they cost a pointer.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct StatsSlot(Option<Box<InterfaceStats>>);

impl StatsSlot {
    /// What was counted.
    pub(crate) fn get(&self) -> InterfaceStats {
        self.0.as_deref().copied().unwrap_or_default()
    }

    /// To count.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut InterfaceStats {
        self.0.get_or_insert_default()
    }
}

impl core::ops::AddAssign for KindCounts {
    fn add_assign(&mut self, other: Self) {
        self.put = self.put.wrapping_add(other.put);
        self.get = self.get.wrapping_add(other.get);
        self.reply = self.reply.wrapping_add(other.reply);
        self.ack = self.ack.wrapping_add(other.ack);
    }
}

impl core::ops::AddAssign for Latency {
    fn add_assign(&mut self, other: Self) {
        if other.samples == 0 {
            return;
        }
        self.min_nsec =
            if self.samples == 0 { other.min_nsec } else { self.min_nsec.min(other.min_nsec) };
        self.max_nsec = self.max_nsec.max(other.max_nsec);
        self.sum_nsec = self.sum_nsec.saturating_add(other.sum_nsec);
        self.samples = self.samples.wrapping_add(other.samples);
    }
}

impl core::ops::AddAssign for InterfaceStats {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.dropped += other.dropped;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.put_egress += other.put_egress;
        self.get_rtt += other.get_rtt;
        self.put_ack += other.put_ack;
    }
}

impl core::iter::Sum for InterfaceStats {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

/// Failures charged to a local NI (T-20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NiFailures {
    /// `interrupts`.
    pub interrupt: u32,
    /// `dropped`.
    pub dropped: u32,
    /// `aborted`.
    pub aborted: u32,
    /// `no route`.
    pub no_route: u32,
    /// `timeouts`.
    pub timeout: u32,
    /// `error`.
    pub error: u32,
    /// Network time-outs, which count at both sides (HL-stt-015). The kernel keeps them at the
    /// peer's alone (H-14), so they are not among what is shown under its keys.
    pub network_timeout: u32,
}

/// Failures charged to a peer NI (T-20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PeerNiFailures {
    /// `dropped`.
    pub dropped: u32,
    /// `timeout`.
    pub timeout: u32,
    /// `error`.
    pub error: u32,
    /// `network timeout`.
    pub network_timeout: u32,
}

/// How often something went down and came back (HL-stt-020, HL-stt-025).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Transitions {
    /// From up to down.
    pub downs: u32,
    /// From down to up.
    pub ups: u32,
}

impl Transitions {
    /// One more.
    pub(crate) fn count(&mut self, up: bool) {
        let counter = if up { &mut self.ups } else { &mut self.downs };
        *counter = counter.wrapping_add(1);
    }
}

/// What becomes of messages in doubt, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct InDoubtStats {
    /// Messages that drivers handed back, and that left as further copies.
    pub repeated: u64,
    /// Messages that drivers handed back after their deadline: they may be lost.
    pub expired: u64,
}
