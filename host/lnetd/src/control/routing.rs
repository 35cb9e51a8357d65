//! `route` and `routing`: from requests to the node and back, with the words of C-route-5.

use std::time::Duration;

use lnet::{Node, RouteError, RouteSpec};
use lnet_admin::{AdminError, ROUTES_PER_PAGE, Reply, RoutePage};
use lnet_config::{BUFFER_KEYS, RouteAdd, RouteDel, Setting};
use lnet_rt::Stack;
use lnet_types::{Errno, Instant, Net};

use super::Control;
use crate::views;

/// How long `set routing 0` waits for the end of forwarding: more than a router is given.
const ROUTING_STOP_LIMIT: Duration = Duration::from_secs(20);
const ROUTING_GLANCE: Duration = Duration::from_millis(20);

impl Control {
    pub(super) fn route_add(&self, route: RouteAdd) -> Result<Reply, AdminError> {
        self.on_node(Errno::ESHUTDOWN, move |stack, now| {
            add(stack.node_mut(), now, &route).map(|()| Reply::Done)
        })
    }

    pub(super) fn route_del(&self, route: RouteDel) -> Result<Reply, AdminError> {
        self.on_node(Errno::ESHUTDOWN, move |stack, now| {
            del(stack.node_mut(), now, &route).map(|()| Reply::Done)
        })
    }

    pub(super) fn route_show(&self, from: Option<u64>) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| Ok(Reply::Routes(page(stack, from))))
    }

    pub(super) fn routing_show(&self) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, |stack, _| {
            Ok(Reply::Routing(views::routing(&stack.node().routing_view())))
        })
    }

    /// C-set-6. Ends when forwarding has ended, unless peers have to find out by themselves: that takes
    /// minutes, and scripts expect not to wait.
    pub(super) fn routing_set(&self, on: bool) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, _| set(stack, on))?;
        let until = std::time::Instant::now() + ROUTING_STOP_LIMIT;
        while !on && self.state().tunables.conduct.announces_routing_stop {
            let state =
                self.on_node(Errno::ENETDOWN, |stack, _| Ok(stack.node().routing_state()))?;
            if state != lnet::RoutingState::Stopping || std::time::Instant::now() > until {
                break;
            }
            std::thread::sleep(ROUTING_GLANCE);
        }
        Ok(Reply::Done)
    }
}

/// C-route-1.
pub(super) fn add(node: &mut Node, now: Instant, route: &RouteAdd) -> Result<(), AdminError> {
    let RouteAdd { net, gateway, hops, priority } = *route;
    let spec = RouteSpec { net, gateway, hops, priority };
    node.add_route(now, spec).map_err(refused)
}

/// The routes of module parameters (N-14): those that are there already, and those whose gateway
/// cannot be reached, are passed over; one by this node itself makes it a router, and says so.
pub(super) fn add_configured(
    stack: &mut Stack,
    now: Instant,
    routes: &[RouteAdd],
) -> Result<bool, AdminError> {
    let mut is_gateway = false;
    for route in routes {
        let RouteAdd { net, gateway, hops, priority } = *route;
        match stack.node_mut().add_route(now, RouteSpec { net, gateway, hops, priority }) {
            Ok(()) => {}
            Err(RouteError::Oneself(_)) => is_gateway = true,
            Err(
                e @ (RouteError::Exists { .. } | RouteError::Local(_) | RouteError::Unreachable(_)),
            ) => {
                tracing::warn!(%net, %gateway, "route passed over: {e}");
            }
            Err(e) => return Err(refused(e)),
        }
    }
    Ok(is_gateway)
}

/// C-route-2.
pub(super) fn del(node: &mut Node, now: Instant, route: &RouteDel) -> Result<(), AdminError> {
    let RouteDel { net, gateway } = *route;
    node.del_route(now, Some(net), Some(gateway)).map_err(refused)
}

/// The node says what is wrong; scripts know these words for it.
fn refused(e: RouteError) -> AdminError {
    let text = match e {
        RouteError::Local(_) | RouteError::Exists { .. } => {
            "Route already exists or the specified network is local"
        }
        RouteError::Unreachable(_) => "No interface configured on the same net as gateway",
        RouteError::Loop { .. } | RouteError::Oneself(_) | RouteError::Gateway(_) => {
            "invalid settings for route creation"
        }
        RouteError::Net(net) if net == Net::LO => {
            return AdminError::new(Errno::EACCES, "setting @lo not allowed").because(e);
        }
        RouteError::Net(_) => {
            return AdminError::new(Errno::ENXIO, "setting LNET_NET_ANY not allowed").because(e);
        }
        RouteError::Hops(_) => "invalid hop count must be between 1 and 255",
        RouteError::NoSuchNet(_) => "failed to delete route",
        _ => return AdminError::errno(e.errno()).because(e),
    };
    AdminError::new(e.errno(), text).because(e)
}

/// A page of routes, from the one at `from`.
fn page(stack: &Stack, from: Option<u64>) -> RoutePage {
    let skip = usize::try_from(from.unwrap_or(0)).unwrap_or(usize::MAX);
    let all = stack.node().route_views();
    let routes: Vec<_> = all.iter().skip(skip).take(ROUTES_PER_PAGE).map(views::route).collect();
    let end = skip.saturating_add(routes.len());
    RoutePage { routes, next: (end < all.len()).then_some(end as u64) }
}

/// C-set-6.
pub(super) fn set(stack: &mut Stack, on: bool) -> Result<(), AdminError> {
    let done = if on { stack.enable_routing() } else { stack.disable_routing() };
    done.map_err(|errno| not_set(on, errno))
}

/// Whether routing can be set, as far as that depends on where it stands. `reopens`: a router that is
/// being stopped can be switched on again.
pub(super) fn may_set(
    state: lnet::RoutingState,
    reopens: bool,
    on: bool,
) -> Result<(), AdminError> {
    use lnet::RoutingState::{Starting, Stopping};
    match (state, on) {
        (Stopping, true) if !reopens => Err(not_set(on, Errno::EBUSY)),
        (Starting, false) => Err(not_set(on, Errno::EBUSY)),
        _ => Ok(()),
    }
}

fn not_set(on: bool, errno: Errno) -> AdminError {
    let why = match (on, errno) {
        (true, Errno::EBUSY) => "routing 1: must wait until forwarding has stopped".to_owned(),
        (false, Errno::EBUSY) => "routing 0: must wait until forwarding has started".to_owned(),
        (true, Errno::ENOMEM) => "routing 1: no memory for router buffers".to_owned(),
        (on, errno) => format!("routing {}: {errno}", u8::from(on)),
    };
    AdminError::errno(errno).because(why)
}

/// Whether tunables of router buffers are among these.
pub(super) fn are_buffers(settings: &[Setting]) -> bool {
    settings.iter().any(|s| BUFFER_KEYS.iter().any(|(_, name)| *name == s.name))
}

#[cfg(test)]
mod tests {
    use lnet::Tunables;
    use lnet_config::{BUFFER_KEYS, GLOBAL_KEYS, OWN_KEYS};
    use lnet_types::Instant;

    #[test]
    fn every_tunable_of_the_node_has_its_place_in_a_configuration() {
        let mut placed: Vec<&str> = GLOBAL_KEYS.to_vec();
        placed.extend(BUFFER_KEYS.iter().map(|(_, name)| *name));
        placed.extend(OWN_KEYS);
        placed.sort_unstable();
        let mut all: Vec<&str> = Tunables::TABLE.iter().map(|row| row.name).collect();
        all.sort_unstable();
        assert_eq!(placed, all);
    }

    #[test]
    fn a_trial_reopens_routing_where_the_node_does() {
        use lnet::RoutingState::{Starting, Stopping};
        assert!(super::may_set(Stopping, true, true).is_ok());
        assert!(super::may_set(Stopping, false, true).is_err());
        for reopens in [true, false] {
            assert!(super::may_set(Starting, reopens, false).is_err());
            assert!(super::may_set(Stopping, reopens, false).is_ok());
        }
    }

    #[test]
    fn values_that_the_node_bounds_are_compared_as_it_bounds_them() {
        for row in Tunables::TABLE {
            let paths = (row.name == "retry_count").then_some(-1);
            for value in (row.min..=row.min + 20).chain(paths) {
                let mut tunables = Tunables::default();
                let before = tunables.value(row.name);
                if tunables.set(row.name, value).is_err() {
                    continue;
                }
                let after = tunables.value(row.name);
                let settled = lnet_config::settled_tunable(row.name, value).or(before);
                let buffers = BUFFER_KEYS.iter().position(|(_, name)| *name == row.name);
                let Some(at) = buffers else {
                    assert_eq!(settled, after, "{} {value}", row.name);
                    continue;
                };
                let config =
                    lnet::NodeConfig { seed: 1, interface_cookie: 1, ping_seq: 0, tunables };
                let node = lnet::Node::new(config, Instant::ZERO);
                let wanted = node.routing_view().wanted[at];
                assert_eq!(settled, Some(i64::from(wanted)), "{} {value}", row.name);
            }
        }
    }

    #[test]
    fn limits_that_an_import_raises_first_have_these_defaults_in_every_profile() {
        for (name, default) in lnet_config::LIMITS {
            assert_eq!(Tunables::row(name).unwrap().defaults, [default; 5], "{name}");
        }
    }
}
