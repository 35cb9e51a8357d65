//! What can be seen of a world from outside, and who looks.
//!
//! An [`Observer`] is shown everything in the order in which it happens, with the world as it is at
//! that moment. Checkers, the trace, recorders of samples and reports are all observers; a checker
//! stops the run with a [`Violation`].

use core::fmt;
use core::time::Duration;

use lnet::{Doubt, Event, Payload, TimerView, Transmit};
use lnet_scenario::{FaultKind, Scenario};
use lnet_types::{Errno, Fault, Instant, Nid};
use lnet_wire::{Kind, ping};

use crate::directory::{Directory, HostId, RailIx};
use crate::host::Host;
use crate::links::Links;
use crate::rpc::RpcSeen;

/// One attempt of an exchange of a workload: its number is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub u64);

/// A memory descriptor of a program, by a number that is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u64);

/// Something that was seen.
#[derive(Clone, Debug)]
pub enum Seen<'a> {
    /// A program has begun an attempt. `again` counts the earlier ones of the same exchange.
    Begun {
        /// Who.
        host: HostId,
        /// Index in [`Scenario::workload`].
        workload: usize,
        /// Which attempt.
        attempt: AttemptId,
        /// Its target.
        to: Nid,
        /// How many attempts there were before.
        again: u32,
    },
    /// An attempt has failed; another one may follow.
    Failed {
        /// Whose.
        host: HostId,
        /// Which.
        attempt: AttemptId,
        /// The error that the program got; `None`: its patience ended.
        why: Option<Errno>,
    },
    /// An exchange is over.
    Ended {
        /// Whose.
        host: HostId,
        /// Index in [`Scenario::workload`].
        workload: usize,
        /// Its last attempt.
        attempt: AttemptId,
        /// From its first beginning.
        took: Duration,
        /// Whether well.
        well: bool,
    },
    /// A message of an attempt has reached the program at the other end.
    Delivered {
        /// The receiver.
        host: HostId,
        /// Which attempt.
        attempt: AttemptId,
        /// Whether it is the answer to a request, rather than the request.
        answer: bool,
        /// Whether every byte was right; `None`: not checked.
        intact: Option<bool>,
    },
    /// A program has made a descriptor.
    Posted {
        /// Whose.
        host: HostId,
        /// Which.
        buffer: BufferId,
        /// Whether it is free-floating: for one PUT or GET of its own.
        floating: bool,
    },
    /// A node has given a program an event of a descriptor.
    Event {
        /// Whose.
        host: HostId,
        /// Which.
        buffer: BufferId,
        /// What.
        event: &'a Event,
    },
    /// A node has handed a message to a driver.
    Sent {
        /// Which node.
        host: HostId,
        /// From which of its rails.
        rail: RailIx,
        /// What.
        transmit: &'a Transmit,
        /// Whether the driver refused it.
        refused: Option<Fault>,
    },
    /// The health that a node gives to an interface, its own or a peer's, has changed.
    Health {
        /// Whose opinion.
        host: HostId,
        /// Of which interface.
        nid: Nid,
        /// What it was.
        from: u32,
        /// What it is.
        to: u32,
    },
    /// A node's judgement of the way from one of its interfaces to one of a peer has changed
    /// (DEC-31).
    Doubt {
        /// Whose opinion.
        host: HostId,
        /// Its interface.
        local: Nid,
        /// The peer's.
        peer: Nid,
        /// The new judgement.
        doubt: Doubt,
    },
    /// A route of a node went up or down.
    Route {
        /// Whose.
        host: HostId,
        /// Its gateway.
        gateway: Nid,
        /// What it is now.
        up: bool,
    },
    /// A fault has begun, or ended.
    Fault {
        /// Index in [`Scenario::faults`].
        index: usize,
        /// What.
        kind: &'a FaultKind,
        /// Whether it began.
        begins: bool,
    },
    /// A timer of a node is due: the first one where there are several.
    Timer {
        /// Whose.
        host: HostId,
        /// Which, and what it is about.
        timer: &'a TimerView,
    },
    /// Something of targets and clients above LNet.
    Rpc {
        /// Where.
        host: HostId,
        /// What.
        seen: &'a RpcSeen,
    },
    /// A line on the console of a host, or in the log of the fabric's coordinator.
    Console {
        /// Where; `None`: the coordinator.
        host: Option<HostId>,
        /// What it says.
        line: &'a str,
    },
    /// A host has died.
    Died {
        /// Which.
        host: HostId,
    },
    /// A host has come to life, again perhaps.
    Born {
        /// Which.
        host: HostId,
    },
    /// Time to take samples; comes at regular intervals.
    Sample,
}

/// The world as it is.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The time, since the beginning of the scenario.
    pub now: Instant,
    /// What is being played.
    pub scenario: &'a Scenario,
    /// All hosts.
    pub hosts: &'a [Host],
    /// Who has which NID.
    pub directory: &'a Directory,
    /// What passes where.
    pub links: &'a Links,
    /// Messages in the hands of drivers.
    pub in_hand: usize,
}

impl View<'_> {
    /// What a host is called.
    pub fn name(&self, host: HostId) -> String {
        self.scenario.world.name(lnet_scenario::NodeId(host.0))
    }

    /// A host.
    pub fn host(&self, id: HostId) -> Option<&Host> {
        self.hosts.get(id.0 as usize)
    }
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, since the beginning of the scenario.
    pub at: Instant,
    /// Which checker saw it.
    pub checker: &'static str,
    /// What.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.at, self.checker, self.what)
    }
}

impl std::error::Error for Violation {}

/// An observer of a run.
pub trait Observer {
    /// What it is called, in violations.
    fn name(&self) -> &'static str;

    /// Is shown something.
    ///
    /// # Errors
    /// It must not be: the run ends.
    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String>;

    /// The run is over, and all that was under way has had time to end.
    ///
    /// # Errors
    /// It must not end so.
    fn finish(&mut self, view: &View<'_>) -> Result<(), String> {
        let _ = view;
        Ok(())
    }
}

/// Whether a message is LNet's own: pings, pushes, and the data that answer pings.
pub fn is_control(transmit: &Transmit) -> bool {
    match transmit.hdr.kind {
        Kind::Put { portal, .. } | Kind::Get { portal, .. } => portal == 0,
        // Copies of any other reply may be bytes too, which a driver has kept until they were acknowledged.
        Kind::Reply { .. } => {
            let magic = ping::MAGIC.to_le_bytes();
            matches!(&transmit.payload, Payload::Bytes(b) if b.starts_with(&magic))
        }
        Kind::Ack { .. } => false,
    }
}
