//! Routes, and routing switched on and off. The table of routes is in `router/routes.rs`, the state of a
//! router in `router/switch.rs`.

use lnet_types::{Errno, Instant, Net, Nid};

use crate::Node;
use crate::record::{Input, Lent, Remembering};
use crate::router::buffers::RouterMemory;
use crate::router::routes::{RouteError, RouteSpec};

impl Node {
    /// Adds a route. The gateway is checked at once.
    ///
    /// # Errors
    /// Names what is wrong with the network, the gateway or the hop count.
    pub fn add_route(&mut self, now: Instant, spec: RouteSpec) -> Result<(), RouteError> {
        self.note(|| Input::AddRoute { now, spec });
        let now = self.clock(now);
        self.insert_route(now, spec)?;
        self.settle(now);
        Ok(())
    }

    /// Removes routes: to one network or all, through one gateway, by any of its NIDs, or
    /// all.
    ///
    /// # Errors
    /// No route leads to the network named.
    pub fn del_route(
        &mut self,
        now: Instant,
        net: Option<Net>,
        gateway: Option<Nid>,
    ) -> Result<(), RouteError> {
        self.note(|| Input::DelRoute { now, net, gateway });
        let now = self.clock(now);
        self.remove_routes(net, gateway)?;
        self.settle(now);
        Ok(())
    }

    /// Makes this node a router. Without effect if it is one.
    ///
    /// # Errors
    /// `EBUSY`: it is just being stopped, with the kernel's clocks. `ENOMEM` or what `memory` said: no
    /// buffers. `ESHUTDOWN`.
    pub fn enable_routing(
        &mut self,
        now: Instant,
        memory: &mut dyn RouterMemory,
    ) -> Result<(), Errno> {
        let mut memory = Remembering { memory, lent: Lent::default() };
        let outcome = self.start(now, &mut memory);
        let lent = memory.lent;
        self.note_usual(|live| live.push(Input::EnableRouting { now, lent }));
        outcome
    }

    fn start(&mut self, now: Instant, memory: &mut dyn RouterMemory) -> Result<(), Errno> {
        let now = self.clock(now);
        self.start_routing(now, memory)?;
        self.settle(now);
        Ok(())
    }

    /// Ends being a router: it is announced, what is under way is forwarded, then it is
    /// over.
    ///
    /// # Errors
    /// `EBUSY`: it is just being started (C-set-6).
    pub fn disable_routing(&mut self, now: Instant) -> Result<(), Errno> {
        self.note(|| Input::DisableRouting { now });
        let now = self.clock(now);
        self.stop_routing(now)?;
        self.settle(now);
        Ok(())
    }

    /// Brings the pools of a router to the numbers that the tunables `tiny_buffers`,
    /// `small_buffers` and `large_buffers` ask for: more are there at once, fewer as they
    /// return. To be called when one of these was set; without effect while routing is off, where
    /// the numbers are used later.
    ///
    /// # Errors
    /// What `memory` said; the tunable of the pool that could not grow has its old value again.
    pub fn fit_router_buffers(
        &mut self,
        now: Instant,
        memory: &mut dyn RouterMemory,
    ) -> Result<(), Errno> {
        let mut memory = Remembering { memory, lent: Lent::default() };
        let outcome = self.fit(now, &mut memory);
        let lent = memory.lent;
        self.note_usual(|live| live.push(Input::FitRouterBuffers { now, lent }));
        outcome
    }

    fn fit(&mut self, now: Instant, memory: &mut dyn RouterMemory) -> Result<(), Errno> {
        let now = self.clock(now);
        let outcome = self.fit_buffers(memory);
        self.settle(now);
        outcome
    }
}
