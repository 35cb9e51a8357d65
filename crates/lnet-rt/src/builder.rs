//! Making a node: on its own thread, or to be driven by the caller.

use core::time::Duration;

use lnet::{Node, NodeConfig, Tunables};

use crate::{NiError, NodeHandle, Spin, Stack, clock};

/// What a node starts with. Everything can be changed later through the stack.
#[derive(Debug)]
#[must_use = "a builder does nothing until `start` or `build`"]
pub struct NodeBuilder {
    seed: Option<u64>,
    tunables: Tunables,
    spin: Spin,
    thread_name: String,
}

impl NodeBuilder {
    /// A node without interfaces.
    pub fn new() -> Self {
        Self {
            seed: None,
            tunables: Tunables::default(),
            spin: Spin::default(),
            thread_name: "lnet".to_owned(),
        }
    }

    /// Fixes all of the node's random choices. From the operating system if not called.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The node's tunables to begin with.
    pub fn tunables(mut self, tunables: Tunables) -> Self {
        self.tunables = tunables;
        self
    }

    /// How long the node's own thread looks for work before it sleeps: see [`Spin`].
    pub fn spin(mut self, max: Duration) -> Self {
        self.spin = Spin { max };
        self
    }

    /// Name of the node's own thread; `lnet` if not called.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// A node for the caller to drive with [`Stack::turn`].
    ///
    /// # Errors
    /// An interface could not be started, or the system refused a poller.
    pub fn build(self) -> Result<Stack, NiError> {
        let seed = match self.seed {
            Some(seed) => seed,
            None => clock::random_seed()?,
        };
        let config =
            NodeConfig { seed, interface_cookie: clock::incarnation(), tunables: self.tunables };
        Ok(Stack::new(|now| Node::new(config, now))?)
    }

    /// A node on a thread of its own.
    ///
    /// # Errors
    /// As [`NodeBuilder::build`], or the system refused a thread.
    pub fn start(mut self) -> Result<NodeHandle, NiError> {
        let (spin, name) = (self.spin, core::mem::take(&mut self.thread_name));
        Ok(self.build()?.spawn(name, spin)?)
    }
}

impl Default for NodeBuilder {
    fn default() -> Self {
        Self::new()
    }
}
