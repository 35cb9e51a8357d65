//! `lnet`: the node's life, from nothing or from a whole configuration, to its end.

use std::process;
use std::time::Duration;

use lnet_admin::{AdminError, Reply, Request, Status, batches, peers_of};
use lnet_config::{Block, Config};
use lnet_rt::{Namespace, NodeBuilder};
use lnet_types::Errno;

use super::{Control, Running, State, routing};
use crate::nets::{self, Scene};

/// How long `lnet unconfigure` lets messages finish.
const UNCONFIGURE_GRACE: Duration = Duration::from_millis(200);

impl Control {
    pub(super) fn status(&self) -> Reply {
        let state = self.state();
        Reply::Status(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: process::id(),
            configured: state.node.is_some(),
            profile: state.tunables.profile.name().to_owned(),
            incarnation: self.incarnation,
            host: lnet_admin::host_name().unwrap_or_default(),
        })
    }

    /// Starts the node if it does not run yet (C-lnet-1).
    fn start(&self, state: &mut State) -> Result<(), AdminError> {
        if state.node.is_some() {
            return Ok(());
        }
        let handle = NodeBuilder::new()
            .tunables(state.tunables.clone())
            .cpts(self.cpus.table().clone())
            .start()
            .map_err(|e| AdminError::errno(Errno::ENOMEM).because(e))?;
        let calls = self.options.record;
        handle
            .call(move |stack, _| stack.node_mut().record(calls))
            .blocking()
            .map_err(|e| AdminError::errno(Errno::ENOMEM).because(e))?;
        let nets = nets::Nets::start(&handle, &state.sock)?;
        let selftest = match self.options.selftest {
            true => Some(self.start_selftest(&handle)?),
            false => None,
        };
        let cpts = self.cpus.table().clone();
        state.node = Some(Running { handle, nets, cpts, selftest, rpc: None });
        Ok(())
    }

    pub(super) fn lnet_configure(&self, all: bool, scene: Scene<'_>) -> Result<Reply, AdminError> {
        if self.state().node.is_some() {
            return Ok(Reply::Done);
        }
        match &self.options.config {
            _ if !all => self.start(&mut self.state())?,
            Some(file) => {
                let refuse = |e: &dyn core::fmt::Display| {
                    AdminError::errno(Errno::EINVAL)
                        .because(format_args!("{}: {e}", file.display()))
                };
                let text = std::fs::read_to_string(file).map_err(|e| refuse(&e))?;
                let config = Config::from_yaml(&text).map_err(|e| refuse(&e))?;
                self.configure_in(&config, scene.namespace)?;
            }
            None => self.configure_by_parameters(scene)?,
        }
        Ok(Reply::Done)
    }

    /// Starts the node and does what its module parameters say (C-lnet-1); if a part is refused,
    /// nothing stays.
    pub(crate) fn configure_by_parameters(&self, scene: Scene<'_>) -> Result<(), AdminError> {
        self.start(&mut self.state())?;
        let outcome = self.apply_parameters(scene);
        if outcome.is_err() {
            self.unconfigure(Duration::ZERO);
        }
        outcome.map_err(|e| {
            let why = e.detail.unwrap_or_else(|| e.text.clone());
            AdminError::errno(e.errno).because(why)
        })
    }

    fn apply_parameters(&self, scene: Scene<'_>) -> Result<(), AdminError> {
        let parameters = &self.parameters;
        let nets = match &parameters.ip2nets {
            Some(rules) => nets::choose(rules, scene.namespace)?,
            None => parameters.networks_or_default().iter().map(|spec| spec.to_add()).collect(),
        };
        self.with_node(AdminError::errno(Errno::ENETDOWN), |node, sock| {
            nets::add_all(node, sock, &nets, scene)
        })?;
        let routes = parameters.routes.clone();
        let is_gateway = self.on_node(Errno::ENETDOWN, move |stack, now| {
            routing::add_configured(stack, now, &routes)
        })?;
        if parameters.forwarding.unwrap_or(is_gateway) {
            self.on_node(Errno::ENETDOWN, |stack, _| routing::set(stack, true))?;
        }
        Ok(())
    }

    /// Starts the node and applies a whole configuration; if a part is refused, nothing stays.
    pub(crate) fn configure(&self, config: &Config) -> Result<(), AdminError> {
        self.configure_in(config, None)?;
        self.set_applied(config.clone());
        Ok(())
    }

    fn configure_in(
        &self,
        config: &Config,
        namespace: Option<&Namespace>,
    ) -> Result<(), AdminError> {
        self.start(&mut self.state())?;
        let (tunables, sock) = {
            let state = self.state();
            (state.tunables.clone(), state.sock.clone())
        };
        for batch in batches(config.add_steps_placed()) {
            if peers_of(&batch).is_some_and(|all| self.answer(all).is_ok()) {
                continue;
            }
            for (pos, step) in batch {
                let what = format!("{step} at {pos}");
                if let Err(e) = self.answer_in(Request::from(step), namespace) {
                    self.unconfigure(Duration::ZERO);
                    // They outlive the node, and so would who may connect.
                    let mut state = self.state();
                    (state.tunables, state.sock) = (tunables, sock);
                    let why = e.detail.clone().unwrap_or_else(|| e.text.clone());
                    return Err(e.because(format_args!("{what}: {why}")));
                }
            }
        }
        self.state().applied.blocks = config.blocks.clone();
        Ok(())
    }

    /// `lnet unconfigure`, unless something uses the node (C-lnet-2).
    pub(super) fn lnet_unconfigure(&self) -> Result<Reply, AdminError> {
        let (rpc, selftest) = {
            let state = self.state();
            let node = state.node.as_ref();
            let rpc = node.and_then(|node| node.rpc.clone());
            (rpc, node.and_then(|node| node.selftest.clone()))
        };
        let busy = |why: String| Err(AdminError::new(Errno::EBUSY, "LNET busy").because(why));
        let served = rpc.map(|rpc| rpc.names()).unwrap_or_default();
        if !served.is_empty() {
            let names = served.join(", ");
            return busy(format!("targets are served: {names}: 'target del' must come first"));
        }
        if selftest.is_some_and(|selftest| !selftest.is_idle()) {
            return busy(
                "a selftest session uses the node: 'lst end_session' must come first".into(),
            );
        }
        self.unconfigure(UNCONFIGURE_GRACE);
        Ok(Reply::Done)
    }

    /// C-lnet-2, C-lnet-4.
    fn unconfigure(&self, grace: Duration) {
        let node = {
            let mut state = self.state();
            // Nothing of the file is in force any more but its tunables (C-lnet-4).
            state.applied.blocks.retain(|(_, block)| {
                matches!(block, Block::Settings(_) | Block::Own(_) | Block::Buffers(_))
            });
            state.node.take()
        };
        if let Some(node) = node {
            if let Some(selftest) = &node.selftest {
                selftest.stop(grace);
            }
            if let Some(rpc) = &node.rpc {
                rpc.stop(grace);
            }
            node.handle.stop(grace).blocking();
        }
    }

    /// The end of the daemon.
    pub(crate) fn stop(&self, grace: Duration) {
        self.unconfigure(grace);
    }
}
