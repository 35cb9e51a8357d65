//! Routing (behaviour.md 7, 3.6 and 4.2): networks behind other networks.
//!
//! Two halves that share little but the word. A *user* of routers keeps routes (`routes.rs`),
//! records which gateways are alive (`life.rs`, `alive.rs`, kept up to date by `check.rs`) and chooses one per
//! message (`choose.rs`). A *router* takes messages that are for others (`forward.rs`,
//! `transit.rs`) into buffers of three sizes (`buffers.rs`), is switched on and off and watches its own
//! interfaces (`switch.rs`, `schedule.rs`). What operators see of both is in `view.rs`.
//!
//! Everything between arrival and departure of a forwarded message that is not special to routing
//! (credits of the next hop, resends, health) is where it is for other messages: `send/`.

mod admin;
pub(crate) mod alive;
pub(crate) mod buffers;
mod check;
pub(crate) mod choose;
pub(crate) mod forward;
pub(crate) mod life;
pub(crate) mod routes;
mod schedule;
mod switch;
mod transit;
mod view;

use std::collections::BTreeMap;

use lnet_types::{Instant, MsgId, Net, NiId, RxId};
use smallvec::SmallVec;

use crate::Transitions;
use buffers::Pool;
use life::{Life, Sign};
use routes::Routes;

pub use buffers::{PoolKind, RouterMemory};
pub use routes::{RouteError, RouteSpec};
pub use view::{Distance, PoolView, RouteView, RoutingView};

/// Everything of routing that belongs to the node as a whole.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Router {
    pub(crate) routes: Routes,
    pub(crate) state: RoutingState,
    /// When `state` began; zero as long as routing has never been on.
    since: Instant,
    pub(crate) pools: [Pool; 3],
    /// Arrived messages that wait for a credit or a buffer, by their driver's name.
    pub(crate) deferred: BTreeMap<(NiId, RxId), MsgId>,
}

impl Router {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            routes: Routes::new(seed),
            state: RoutingState::Disabled,
            since: Instant::ZERO,
            pools: PoolKind::ALL.map(Pool::new),
            deferred: BTreeMap::new(),
        }
    }

    /// Whether messages for others are taken.
    pub(crate) fn is_on(&self) -> bool {
        self.state != RoutingState::Disabled
    }
}

/// What is kept for a peer that serves as a gateway.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Gateway {
    /// Routes through it; a peer with at least one is a router.
    pub(crate) routes: u32,
    pub(crate) life: Life,
    /// Times that it was lost and came back.
    pub(crate) transitions: Transitions,
    /// The network that the last check went over.
    pub(crate) ping_net: Option<Net>,
    /// When the last check began.
    started: Instant,
    /// It has failed once, and is being repeated: perhaps an interface of ours was to blame.
    repeated: bool,
    /// When each of its networks is due for a check.
    next: SmallVec<[(Net, Instant); 2]>,
}

impl Gateway {
    /// Changes what is believed of it. Whether that says something else about its use.
    pub(crate) fn sign(&mut self, sign: Sign) -> bool {
        let before = self.life;
        self.life = before.after(sign);
        let changed = before.is_alive() != self.life.is_alive();
        if changed {
            self.transitions.count(self.life.is_alive());
        }
        changed
    }

    ///
    pub(crate) fn is_router(&self) -> bool {
        self.routes > 0
    }
}

/// Whether this node forwards. The numbers are those of `routing show` (S-routing-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum RoutingState {
    /// No.
    #[default]
    Disabled = 0,
    /// Yes.
    Enabled = 1,
    /// Still, but announced as off.
    Stopping = 2,
    /// Already, but not yet announced.
    Starting = 3,
}
