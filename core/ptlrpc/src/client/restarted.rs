//! Imperative recovery: an import connects at once to a target that has started again, instead of
//! waiting until a request is not answered (P-154).

use lnet_types::Nid;

use super::connections::Connection;
use super::request::Purpose;
use super::{Client, ImportState, Next};
use crate::common::Cx;
use crate::error::CallError;
use crate::table::{CallId, ImportId};

/// Most nodes that an import knows for its target: as many as a target may register (P-162).
const NODES_MAX: usize = 32;

impl Client {
    /// A target runs at `nid` as this incarnation.
    pub(crate) fn restarted(
        &mut self,
        cx: &mut Cx<'_, '_>,
        import: ImportId,
        nid: Nid,
        instance: u32,
    ) -> bool {
        let Some(im) = self.imports.get(import) else { return false };
        let (conn_cnt, here) = (im.conn_cnt, im.nid() == nid);
        let under_way = im.connecting.or(im.recovering);
        if im.deactivated || im.closing || im.leaving.is_some() {
            return false;
        }
        let known = im.terms.data.instance == instance;
        match im.state {
            ImportState::Closed | ImportState::New | ImportState::Idle | ImportState::Evicted => {
                return false;
            }
            // What is being connected to is what has started.
            ImportState::Connecting if here => return false,
            ImportState::Connecting | ImportState::Disconnected => {}
            ImportState::Full
            | ImportState::Replay
            | ImportState::ReplayLocks
            | ImportState::ReplayWait
            | ImportState::Recover => {
                if known {
                    return false;
                }
            }
        }
        if !im.connections.iter().any(|c| c.nid == nid) && im.connections.len() >= NODES_MAX {
            return false;
        }
        self.lost(cx, import, conn_cnt);
        self.aim(import, nid);
        // What was sent to the incarnation before gets no answer any more.
        let lock =
            |id: &CallId| self.calls.get(*id).is_some_and(|r| r.purpose == Purpose::LockReplay);
        let lock = self.calls_of(import).into_iter().find(lock);
        if let Some(call) = under_way.or(lock) {
            self.release(cx, call, Next::End(Err(CallError::TimedOut(nid))));
        }
        if self.imports.get(import).is_some_and(|im| im.state != ImportState::Connecting) {
            self.aim(import, nid);
            self.connect(cx, import);
        }
        true
    }

    /// The next connect goes to this node.
    fn aim(&mut self, import: ImportId, nid: Nid) {
        let Some(im) = self.imports.get_mut(import) else { return };
        let at = im.connections.iter().position(|c| c.nid == nid);
        im.current = at.unwrap_or_else(|| {
            im.connections.push(Connection::new(nid));
            im.connections.len() - 1
        });
        im.force_reconnect = true;
    }
}
