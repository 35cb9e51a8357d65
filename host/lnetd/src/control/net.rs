//! `net`: interfaces, and what the driver does for a network. How interfaces come and go is `nets.rs`.

use lnet_admin::{AdminError, NiTarget, Reply};
use lnet_config::{NetAdd, NetCpts, NetDel, NetRules};
use lnet_rt::{Namespace, NodeHandle, Stack};
use lnet_types::{Errno, Net, Nid};

use super::{Control, NOT_CONFIGURED, State, nid_of, off, stopped};
use crate::nets::{self, Prefer, Scene, Settings};
use crate::views;

impl Control {
    pub(super) fn net_add(
        &self,
        add: &NetAdd,
        namespace: Option<&Namespace>,
    ) -> Result<Reply, AdminError> {
        self.with_node(down_text("cannot add LNet NI"), |node, sock| {
            nets::add(node, sock, add, Scene { prefer: Prefer::Small, namespace }).map(|_| ())
        })
    }

    pub(super) fn net_del(
        &self,
        del: &NetDel,
        namespace: Option<&Namespace>,
    ) -> Result<Reply, AdminError> {
        self.with_node(down_text("cannot del LNet NI"), |node, _| nets::del(node, del, namespace))
    }

    pub(super) fn net_cpts_set(&self, set: &NetCpts) -> Result<Reply, AdminError> {
        self.with_node(down_text("cannot set CPT"), |node, _| nets::set_cpts(node, set))
    }

    /// I-10, N-13.
    pub(super) fn net_rules(
        &self,
        rules: &NetRules,
        add: bool,
        namespace: Option<&Namespace>,
    ) -> Result<Reply, AdminError> {
        let text = if add { "cannot add LNet NI" } else { "cannot del LNet NI" };
        let nets = nets::choose(rules, namespace)?;
        self.with_node(down_text(text), |node, sock| match add {
            true => {
                let scene = Scene { prefer: Prefer::Small, namespace };
                nets::add_all(node, sock, &nets, scene)
            }
            false => nets::del_all(node, &nets, namespace),
        })
    }

    /// The node, and the settings of its interfaces that the driver has.
    pub(crate) fn handle_and_settings(&self) -> Result<(NodeHandle, Settings), AdminError> {
        let state = self.state();
        let node = state.node.as_ref().ok_or_else(|| off(Errno::ENETDOWN))?;
        Ok((node.handle.clone(), node.nets.settings(&state.sock, state.tunables.lnd_timeout())))
    }

    pub(super) fn net_show(&self, net: Option<Net>, detail: bool) -> Result<Reply, AdminError> {
        let (handle, settings) = self.handle_and_settings()?;
        let all = handle
            .call(move |stack, now| views::nets(stack, &settings, detail, now))
            .blocking()
            .map_err(|e| stopped(&e))?;
        let configured: Vec<Net> = all.iter().map(|view| view.net).collect();
        let shown: Vec<_> = all.into_iter().filter(|v| net.is_none_or(|n| n == v.net)).collect();
        if shown.is_empty() {
            // C-netshow-2
            let refused = AdminError::new(Errno::ESRCH, "Network is down");
            return Err(match net {
                Some(net) => refused.because(not_configured(net, &configured)),
                None => refused.because("no network is configured"),
            });
        }
        Ok(Reply::Nets(shown))
    }

    pub(super) fn net_set(
        &self,
        target: NiTarget,
        health: Option<u16>,
        conns_per_peer: Option<u8>,
    ) -> Result<Reply, AdminError> {
        let nid = nid_of(target);
        if let Some(n) = conns_per_peer {
            let mut state = self.state();
            let node = state.node.as_mut().ok_or_else(|| off(Errno::ENETDOWN))?;
            node.nets.set_conns_per_peer(&node.handle, nid, n)?;
        }
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            if let Some(nid) = nid.filter(|nid| !has_ni(stack, *nid)) {
                return Err(
                    AdminError::new(Errno::ENOENT, "cannot set LNet NI").because(not_ours(nid))
                );
            }
            if let Some(health) = health {
                stack.node_mut().set_ni_health(now, nid, u32::from(health));
            }
            Ok(Reply::Done)
        })
    }

    /// Whether an interface of this node has the NID.
    pub(super) fn owns(&self, nid: Nid) -> Result<bool, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| Ok(has_ni(stack, nid)))
    }

    pub(super) fn accept_from_set(
        &self,
        net: Net,
        list: Option<&str>,
    ) -> Result<Reply, AdminError> {
        let mut state = self.state();
        state.sock.set_accept_from(net, list)?;
        let State { node, sock, .. } = &*state;
        if let Some(node) = node {
            nets::Nets::set_accept_from(&node.handle, sock)?;
        }
        Ok(Reply::Done)
    }

    pub(super) fn lnd_timeout_set(&self, net: Net, seconds: u32) -> Result<Reply, AdminError> {
        let mut state = self.state();
        state.sock.set_timeout(net, seconds)?;
        let State { node, sock, .. } = &*state;
        if let Some(node) = node {
            node.nets.set_timeout(&node.handle, sock)?;
        }
        Ok(Reply::Done)
    }
}

fn has_ni(stack: &Stack, nid: Nid) -> bool {
    stack.node().net_views().iter().flat_map(|net| &net.nis).any(|ni| ni.nid == nid)
}

/// What is wrong with a NID that no interface of this node has.
pub(super) fn not_ours(nid: Nid) -> String {
    format!("{nid}: must be one of this node's NIDs")
}

/// What is wrong with a network that this node has no interface on.
fn not_configured(net: Net, configured: &[Net]) -> String {
    let there: Vec<String> = configured.iter().map(Net::to_string).collect();
    format!("net {net}: not configured, expected {}", there.join(", "))
}

/// LNet is not configured, for commands that change interfaces (C-netadd-4).
fn down_text(text: &str) -> AdminError {
    AdminError::new(Errno::ESHUTDOWN, text).because(NOT_CONFIGURED)
}
