//! The configuration in force, and the way back to it: a reload that is refused leaves the node as it
//! was, whatever was changed by hand since the file was applied.

use lnet::{RoutingState, Tunables};
use lnet_admin::{AdminError, NetSnapshot, Request};
use lnet_config::yaml::Pos;
use lnet_config::{Block, Config, RouteAdd, Setting, UdspAdd, diff};
use lnet_types::{Errno, Net};

use super::Control;
use crate::nets::{Nets, SockDefaults};
use crate::views;

/// Peers that one call to the node's thread is about.
const PEERS_PER_CALL: usize = 1024;

/// All that a reload may change.
#[derive(Debug)]
pub(crate) struct InForce {
    /// Nets, peers, routes, rules and forwarding.
    node: Config,
    tunables: Tunables,
    sock: SockDefaults,
}

impl Control {
    /// What of the configuration file was last applied to this node.
    pub(crate) fn applied(&self) -> Config {
        self.state().applied.clone()
    }

    pub(crate) fn set_applied(&self, config: Config) {
        self.state().applied = config;
    }

    /// The configuration in force.
    pub(crate) fn in_force(&self) -> Result<InForce, AdminError> {
        let node = self.current()?;
        let state = self.state();
        Ok(InForce { node, tunables: state.tunables.clone(), sock: state.sock.clone() })
    }

    /// What configures nets, peers, routes, rules and forwarding of this node again.
    pub(crate) fn current(&self) -> Result<Config, AdminError> {
        let (_, settings) = self.handle_and_settings()?;
        let mut blocks = self.on_node(Errno::ENETDOWN, move |stack, now| {
            let nets = views::nets(stack, &settings, true, now);
            let nets = nets.iter().filter(|net| net.net != Net::LO);
            let mut blocks: Vec<Block> =
                nets.map(NetSnapshot::block_with_nids).map(Block::Net).collect();
            let node = stack.node();
            blocks.extend(node.route_views().iter().map(views::route).map(|route| {
                Block::Route(RouteAdd {
                    net: route.net,
                    gateway: route.gateway,
                    hops: route.hops,
                    priority: route.priority,
                })
            }));
            let rules = node.udsp_rules().iter().map(views::udsp_rule);
            blocks.extend(rules.map(|rule| Block::Udsp(UdspAdd { rule, index: None })));
            let on = matches!(node.routing_state(), RoutingState::Enabled | RoutingState::Starting);
            blocks.push(Block::Routing(on));
            Ok(blocks)
        })?;
        let mut after = None;
        loop {
            let page = self.on_node(Errno::ENETDOWN, move |stack, now| {
                let page = stack.node().peer_views(after, PEERS_PER_CALL);
                let last = page.last().map(|(age, _)| *age);
                let peers = page.iter().map(|(_, view)| views::peer(view, false, now));
                let peers = peers.filter(|peer| peer.is_configured());
                Ok((last, peers.map(|peer| Block::Peer(peer.block())).collect::<Vec<_>>()))
            })?;
            let (Some(last), peers) = page else { break };
            blocks.extend(peers);
            after = Some(last);
        }
        let blocks = blocks.into_iter().map(|block| (Pos::default(), block)).collect();
        Ok(Config { blocks, ..Config::default() })
    }

    /// Takes the node back to what was in force `before`, as far as that goes.
    ///
    /// # Errors
    /// Something did not go back.
    pub(crate) fn take_back(&self, before: &InForce) -> Result<(), AdminError> {
        let InForce { node, tunables, sock } = before;
        self.set_back(sock)?;
        // All of them together: their limits on each other hold for the whole.
        if self.state().tunables != *tunables {
            let rows = Tunables::TABLE.iter();
            let all =
                rows.filter_map(|row| Some(Setting::new(row.name, tunables.value(row.name)?)));
            self.set(&all.collect::<Vec<_>>())?;
        }
        let mut outcome = Ok(());
        for step in diff(&self.current()?, node) {
            let what = step.to_string();
            if let Err(e) = self.answer(Request::from(step)) {
                tracing::warn!("taking back: {what}: {e}");
                outcome = Err(e);
            }
        }
        outcome
    }

    /// Settings of the TCP driver as they were.
    fn set_back(&self, sock: &SockDefaults) -> Result<(), AdminError> {
        let mut state = self.state();
        state.sock = sock.clone();
        match &state.node {
            Some(node) => Nets::set_accept_from(&node.handle, sock),
            None => Ok(()),
        }
    }
}
