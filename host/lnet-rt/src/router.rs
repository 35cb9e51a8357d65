//! A stack that is a router: the node decides what is forwarded, the stack lends it the memory that
//! forwarded messages wait in.

use lnet_types::Errno;

use crate::Stack;

impl Stack {
    /// Makes the node a router, with buffers out of this stack's memory. Without effect if it
    /// is one.
    ///
    /// # Errors
    /// `EBUSY`: it is just being stopped. `ENOMEM`: no buffers. `ESHUTDOWN`.
    pub fn enable_routing(&mut self) -> Result<(), Errno> {
        let now = self.tick();
        self.unfinished = true;
        self.node.enable_routing(now, &mut self.mem)
    }

    /// Ends being a router: it is announced, what is under way is forwarded, then it is
    /// over.
    ///
    /// # Errors
    /// `EBUSY`: it is just being started.
    pub fn disable_routing(&mut self) -> Result<(), Errno> {
        let now = self.tick();
        self.node_mut().disable_routing(now)
    }

    /// Brings the router's buffers to the numbers that the tunables ask for. To be called
    /// after `tiny_buffers`, `small_buffers` or `large_buffers` was set.
    ///
    /// # Errors
    /// `ENOMEM`; the tunable of the pool that could not grow has its old value again.
    pub fn fit_router_buffers(&mut self) -> Result<(), Errno> {
        let now = self.tick();
        self.unfinished = true;
        self.node.fit_router_buffers(now, &mut self.mem)
    }
}
