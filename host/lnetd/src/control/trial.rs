//! Changes on trial: steps are applied to a copy of the node by the functions that change the node itself,
//! so that what is refused there is refused here, in the same words. What only the system can refuse, a
//! port in use or memory that is missing, shows in the real change alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lnet::{Node, NodeConfig, Tunables};
use lnet_admin::{AdminError, Reply, Request, TrialPart};
use lnet_rt::Namespace;
use lnet_types::{CptTable, Errno, Instant};
use tracing::subscriber::NoSubscriber;

use super::{Control, peer, routing, tunables, udsp};
use crate::nets::{self, Nets, Prefer, Scene, SockDefaults};

/// The trial that is under way, at most one.
#[derive(Debug, Default)]
pub(super) struct Trials(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    number: u64,
    trial: Option<Trial>,
}

impl Trials {
    fn last(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy of all that a change is judged by.
#[derive(Debug)]
struct Trial {
    node: Node,
    now: Instant,
    nets: Nets,
    sock: SockDefaults,
    tunables: Tunables,
    cpts: CptTable,
}

impl Control {
    /// A part of a trial; part 0 begins a new one, in the place of any other.
    pub(super) fn trial(
        &self,
        part: TrialPart,
        namespace: Option<&Namespace>,
    ) -> Result<Reply, AdminError> {
        let TrialPart { number, first, last: is_last, steps } = part;
        let mut last = self.trials.last();
        if first {
            last.trial = Some(self.copied()?);
            last.number += 1;
        } else if number != last.number {
            let why = format!("trial {number}: another one has begun, try again");
            return Err(AdminError::errno(Errno::EAGAIN).because(why));
        }
        let number = last.number;
        let stale =
            || AdminError::errno(Errno::ESTALE).because(format!("trial {number} has ended"));
        let trial = last.trial.as_mut().ok_or_else(stale)?;
        let first_refused = || {
            steps.into_iter().enumerate().find_map(|(index, step)| {
                let refusal = trial.step(step, namespace).err()?;
                Some((u32::try_from(index).unwrap_or(u32::MAX), refusal))
            })
        };
        // What the copy would log has not happened.
        let tried = tracing::subscriber::with_default(NoSubscriber::new(), first_refused);
        if is_last || tried.is_some() {
            last.trial = None;
        }
        Ok(Reply::Trial { number, refused: tried })
    }

    /// A copy of what there is; of a node that would be made, where there is none.
    fn copied(&self) -> Result<Trial, AdminError> {
        let state = self.state();
        let (sock, tunables) = (state.sock.clone(), state.tunables.clone());
        let cpts = self.cpus.table().clone();
        let (nets, handle) = match &state.node {
            Some(node) => (node.nets.clone(), Some(node.handle.clone())),
            None => (Nets::default(), None),
        };
        drop(state);
        let (node, now) = match handle {
            Some(_) => self.on_node(Errno::ENETDOWN, |stack, now| {
                let none = || AdminError::errno(Errno::EIO).because("the node cannot be copied");
                Ok((stack.node().trial_copy().ok_or_else(none)?, now))
            })?,
            None => (unborn(&tunables, &cpts)?, Instant::ZERO),
        };
        Ok(Trial { node, now, nets, sock, tunables, cpts })
    }
}

/// The node that `lnet configure` would make.
fn unborn(tunables: &Tunables, cpts: &CptTable) -> Result<Node, AdminError> {
    let tunables = tunables.clone();
    let config = NodeConfig { seed: 1, interface_cookie: 1, ping_seq: 0, tunables };
    let mut node = Node::new(config, Instant::ZERO);
    node.set_cpts(cpts.clone())
        .map_err(|errno| AdminError::errno(errno).because("CPU partitions"))?;
    Ok(node)
}

impl Trial {
    fn step(&mut self, step: Request, namespace: Option<&Namespace>) -> Result<(), AdminError> {
        let (node, now) = (&mut self.node, self.now);
        let scene = Scene { prefer: Prefer::Small, namespace };
        match step {
            Request::Set { settings } => {
                self.tunables = tunables::changed(&self.tunables, &settings)?;
                let changes: Vec<(&str, i64)> =
                    settings.iter().map(|s| (s.name.as_str(), s.value)).collect();
                let set = node.set_tunables(now, &changes);
                set.map_err(|e| AdminError::errno(e.errno()).because(e))
            }
            Request::NetAdd(add) => {
                let behind = (&self.cpts, &self.sock);
                nets::try_add(node, &mut self.nets, behind, &add, scene, now)
            }
            Request::NetDel(del) => nets::try_del(node, &mut self.nets, &del, namespace, now),
            Request::NetCptsSet(set) => nets::try_set_cpts(node, &self.nets, &self.cpts, &set),
            Request::AcceptFromSet { net, list } => self.sock.set_accept_from(net, list.as_deref()),
            Request::PeerAdd(add) => peer::add(node, now, &add),
            Request::PeerDel(del) => peer::del(node, now, &del),
            Request::RouteAdd(route) => routing::add(node, now, &route),
            Request::RouteDel(route) => routing::del(node, now, &route),
            Request::UdspAdd(add) => udsp::add(node, now, &add),
            Request::UdspDel(del) => udsp::del(node, now, &del),
            Request::RoutingSet { on } => {
                let reopens = self.tunables.conduct.reopens_routing;
                routing::may_set(node.routing_state(), reopens, on)
            }
            other => Err(AdminError::errno(Errno::EINVAL)
                .because(format_args!("{}: no step of a trial", other.name()))),
        }
    }
}
