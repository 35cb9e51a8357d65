//! `route show` (S-route-1).

use lnet_admin::RouteSnapshot;
use lnet_config::{RouteAdd, Tree};

use super::Rows;

/// The document of these routes; `None` without routes.
pub(crate) fn tree(routes: &[RouteSnapshot], verbose: bool) -> Option<Tree> {
    let route = |route: &RouteSnapshot| {
        let mut rows: Rows =
            vec![("net", Tree::plain(route.net)), ("gateway", Tree::plain(route.gateway))];
        if verbose {
            rows.extend([
                ("hop", Tree::plain(route.hops.map_or(-1, i64::from))),
                ("priority", Tree::plain(route.priority)),
                ("state", Tree::plain(if route.up { "up" } else { "down" })),
                ("type", Tree::plain(if route.single_hop { "single-hop" } else { "multi-hop" })),
            ]);
        }
        Tree::map(rows)
    };
    document(routes.iter().map(route).collect())
}

/// The document of these routes in the form of backups (I-3).
pub(crate) fn backup(routes: &[RouteSnapshot]) -> Option<Tree> {
    let block = |route: &RouteSnapshot| {
        let RouteSnapshot { net, gateway, hops, priority, .. } = *route;
        RouteAdd { net, gateway, hops, priority }.tree()
    };
    document(routes.iter().map(block).collect())
}

fn document(items: Vec<Tree>) -> Option<Tree> {
    (!items.is_empty()).then(|| Tree::map([("route", Tree::List(items))]))
}
