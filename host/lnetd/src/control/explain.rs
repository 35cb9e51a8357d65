//! `explain`: why messages go as they go, and which rails are under doubt.

use lnet_admin::{AdminError, Reply};
use lnet_types::{Errno, Nid};
use lnet_wire::PAYLOAD_MAX;

use super::Control;
use super::net::not_ours;
use crate::views;

impl Control {
    pub(super) fn explain(
        &self,
        target: Nid,
        source: Option<Nid>,
        size: u64,
    ) -> Result<Reply, AdminError> {
        if size > PAYLOAD_MAX.into() {
            return Err(AdminError::errno(Errno::EMSGSIZE)
                .because(format_args!("size {size}: must be at most {PAYLOAD_MAX}")));
        }
        if let Some(source) = source
            && !self.owns(source)?
        {
            return Err(AdminError::errno(Errno::EINVAL).because(not_ours(source)));
        }
        self.on_node(Errno::ENETDOWN, move |stack, _| {
            let why = stack.node().explain(target, source, size);
            Ok(Reply::Texts(vec![why.to_string()]))
        })
    }

    pub(super) fn explain_resends(&self, count: u32) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| Ok(last(stack.node().resends(), count)))
    }

    pub(super) fn explain_last(&self, count: u32) -> Result<Reply, AdminError> {
        if self.state().tunables.explain_last == 0 {
            let text = "nothing is recorded: the tunable explain_last is 0";
            return Err(AdminError::new(Errno::ENODATA, text));
        }
        self.on_node(Errno::ENETDOWN, move |stack, _| Ok(last(stack.node().explained(), count)))
    }

    pub(super) fn suspicion_show(&self) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, |stack, _| {
            Ok(Reply::Texts(vec![stack.node().suspicion().to_string()]))
        })
    }

    pub(super) fn rails_show(&self) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, |stack, _| {
            Ok(Reply::Rails(views::rails(&stack.node().suspicion())))
        })
    }

    pub(super) fn timers_show(&self) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, |stack, now| Ok(views::timers(stack.node(), now)))
    }
}

/// The last `count` texts.
fn last<T: ToString>(all: impl ExactSizeIterator<Item = T>, count: u32) -> Reply {
    let before = all.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
    Reply::Texts(all.skip(before).map(|text| text.to_string()).collect())
}
