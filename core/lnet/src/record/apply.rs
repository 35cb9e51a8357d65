//! Makes recorded calls again.

use super::Input;
use super::input::calls;
use crate::{Node, Verdict};

macro_rules! apply {
    ($($variant:ident = $call:ident ($($arg:ident: $ty:ty),*);)*) => {
        impl Node {
            /// Makes a recorded call again. Returns the verdict for the driver, if this is such
            /// a call; everything else that a call returns shows in the state of the node.
            pub(super) fn apply(&mut self, input: Input) -> Option<Verdict> {
                match input {
                    $(Input::$variant { $($arg),* } => { let _ = self.$call($($arg),*); })*
                    Input::RxHeader { now, rx, hdr } => {
                        return Some(self.rx_header(now, rx, &hdr));
                    }
                    Input::RxDone { now, msg, outcome } => {
                        self.rx_done(now, msg, outcome.as_deref().map_err(|f| *f));
                    }
                    Input::SetTunables { now, changes } => {
                        let changes: Vec<_> =
                            changes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
                        let _ = self.set_tunables(now, &changes);
                    }
                    Input::PeerAdd { now, primary, nids, multi_rail, lock_primary } => {
                        let _ = self.peer_add(now, primary, &nids, multi_rail, lock_primary);
                    }
                    Input::PeerDel { now, primary, nids, force } => {
                        let _ = self.peer_del(now, primary, &nids, force);
                    }
                    Input::AddNi { now, spec } => {
                        let _ = self.add_ni(now, *spec);
                    }
                    Input::UdspAdd { now, rule, index } => {
                        let _ = self.udsp_add(now, *rule, index);
                    }
                    Input::AddDropRule { now, rule } => {
                        let _ = self.add_drop_rule(now, *rule);
                    }
                    Input::AddDelayRule { now, rule } => {
                        let _ = self.add_delay_rule(now, *rule);
                    }
                    Input::EnableRouting { now, mut lent } => {
                        let _ = self.enable_routing(now, &mut lent);
                    }
                    Input::FitRouterBuffers { now, mut lent } => {
                        let _ = self.fit_router_buffers(now, &mut lent);
                    }
                }
                None
            }
        }
    };
}

calls!(apply);
