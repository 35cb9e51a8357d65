//! The tables of each node agree with each other (`lnet::Node::check`), and no id that must exist was
//! missing. Looked at in release builds too, where nodes do not check themselves.

use crate::directory::HostId;
use crate::observe::{Observer, Seen, View};

/// One host at each sample, in turn; each when it dies and at the end.
#[derive(Default)]
pub(super) struct Tables {
    next: usize,
}

fn check(view: &View<'_>, id: HostId) -> Result<(), String> {
    let Some(host) = view.host(id) else { return Ok(()) };
    host.node.check().map_err(|violation| format!("{}: {violation}", view.name(id)))?;
    match host.node.invariant_violations() {
        0 => Ok(()),
        n => Err(format!("{}: {n} entries were missing that must exist", view.name(id))),
    }
}

impl Observer for Tables {
    fn name(&self) -> &'static str {
        "tables"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        match *seen {
            Seen::Sample if !view.hosts.is_empty() => {
                self.next = (self.next + 1) % view.hosts.len();
                check(view, HostId(self.next as u32))
            }
            Seen::Died { host } => check(view, host),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, view: &View<'_>) -> Result<(), String> {
        (0u32..).zip(view.hosts).try_for_each(|(n, _)| check(view, HostId(n)))
    }
}
