//! Errors in the words of the original (L-22, L-23), with the exit codes of lnetctl.md 9.3.

use lnet_admin::ClientError;
use lnet_selftest::{NodeResult, Nodes};
use lnet_types::{Errno, ProcessId};

use crate::Lst;

/// Return code of a local error.
pub(crate) const LOCAL: i32 = -1;
/// Return code when nodes did not do what was asked.
pub(crate) const REMOTE: i32 = -2;

impl Lst<'_> {
    /// Reports why a command was refused. `what`: what it is about, as "Can't find what" has it;
    /// `doing`: what failed, as "Failed to doing" has it.
    pub(crate) fn failed(&mut self, error: &ClientError, what: &str, doing: &str) -> i32 {
        match error {
            ClientError::Refused(refusal) => {
                match refusal.errno {
                    Errno::ESRCH => self.complain("No session exists"),
                    Errno::ESHUTDOWN => self.complain("Session is shutting down"),
                    Errno::EACCES => self.complain("Unmatched session key or not root"),
                    Errno::ENOENT => {
                        self.complain(format_args!("Can't find {what} in current session"));
                    }
                    Errno::EINVAL => self.complain("Invalid parameters list in command line"),
                    Errno::EEXIST => self.complain(format_args!("{what} already exists")),
                    errno => self.complain(format_args!("Failed to {doing}: {errno}")),
                }
                if let Some(why) = &refusal.detail {
                    self.complain(format_args!("lst: {why}"));
                }
            }
            unreachable => self.complain(format_args!("lst: {unreachable}")),
        }
        LOCAL
    }

    /// Reports the nodes that did not do it (L-23); gives their number.
    pub(crate) fn node_failures(&mut self, nodes: &Nodes) -> usize {
        let mut failed = 0;
        for node in nodes {
            let Err(failure) = &node.outcome else { continue };
            failed += 1;
            let (operation, errno) = (&node.operation, failure.errno());
            let id = id(node);
            if failure.refused {
                self.complain(format_args!("operation {operation} failed on {id}: {errno}"));
            } else {
                self.complain(format_args!("{operation} RPC failed on {id}: {errno}"));
            }
        }
        failed
    }
}

/// A node as `PID-NID`.
pub(crate) fn id(node: &NodeResult) -> String {
    ProcessId { nid: node.nid, pid: lnet_types::Pid(node.pid) }.to_string()
}
