//! `udsp show` (S-udsp-1).

use lnet_config::{Tree, UdspRule};

/// The document of these rules, or of the one at `only`; `None` if there is none.
pub(crate) fn tree(rules: &[UdspRule], only: Option<u32>) -> Option<Tree> {
    let items: Vec<Tree> = (0u32..)
        .zip(rules)
        .filter(|(index, _)| only.is_none_or(|only| only == *index))
        .map(|(index, rule)| rule.tree(Some(index)))
        .collect();
    (!items.is_empty()).then(|| Tree::map([("udsp", Tree::List(items))]))
}
