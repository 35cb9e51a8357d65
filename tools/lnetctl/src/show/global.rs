//! `global show` (S-global-1).

use lnet_admin::GlobalSnapshot;
use lnet_config::{GLOBAL_KEYS, OWN_KEYS, Tree, setting_text};

/// The tunable that exists only while LNet is configured, as does the LND time-out (G-18).
const NUMA_RANGE: &str = "numa_range";
/// The LND time-out is printed behind this one.
const BEFORE_LND_TIMEOUT: &str = "router_sensitivity";

/// The document of the tunables that only nodes of this kind have; `None` without any. `changed`:
/// only those that are not at their defaults, which is what another node has to be given.
pub(crate) fn own(global: &GlobalSnapshot, changed: bool) -> Option<Tree> {
    let rows: Vec<_> = OWN_KEYS
        .iter()
        .filter(|key| !changed || global.changed.iter().any(|name| name == *key))
        .filter_map(|key| Some((*key, Tree::plain(setting_text(key, global.value(key)?)))))
        .collect();
    (!rows.is_empty()).then(|| Tree::map([("ulnet", Tree::map(rows))]))
}

/// The document. Values that the node does not have are left out.
pub(crate) fn tree(global: &GlobalSnapshot) -> Tree {
    let mut rows = Vec::new();
    for key in GLOBAL_KEYS {
        let there = key != NUMA_RANGE || global.configured;
        if let (Some(value), true) = (global.value(key), there) {
            rows.push((key, Tree::plain(setting_text(key, value))));
        }
        if key == BEFORE_LND_TIMEOUT && global.configured {
            // Whole seconds, as kernels count them; a shorter one is not none.
            let seconds = (global.lnd_timeout_ms / 1000).max(1);
            rows.push(("lnd_timeout", Tree::plain(seconds)));
        }
    }
    Tree::map([("global", Tree::map(rows))])
}
