//! `stats`: counters of the node and of interfaces.

use lnet::Reset;
use lnet_admin::{AdminError, Reply};
use lnet_types::{Errno, Nid};

use super::Control;
use crate::views;

impl Control {
    pub(super) fn stats_show(&self) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, |stack, _| {
            views::stats(&stack.node().stats()).map(Reply::Stats).map_err(|name| {
                AdminError::errno(Errno::ERANGE).because(format_args!("counter {name}"))
            })
        })
    }

    pub(super) fn stats_reset(&self) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, |stack, _| {
            stack.node_mut().reset_stats();
            Ok(Reply::Done)
        })
    }

    /// `nid`: of that interface alone; else the node's.
    pub(super) fn counters_reset(
        &self,
        nid: Option<Nid>,
        failures: bool,
    ) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| {
            let what = nid.map_or(Reset::Node, Reset::Interface);
            let done = stack.node_mut().reset_counters(what, failures);
            done.map(|()| Reply::Done).map_err(|errno| {
                let nid = nid.map_or_else(|| "the node".to_owned(), |nid| nid.to_string());
                AdminError::errno(errno)
                    .because(format_args!("{nid}: must be a NID of this node or of a peer"))
            })
        })
    }
}
