//! `live!`: the lookup of an id that must exist.

/// The entry of a table whose id must exist: `live!(self.msgs, id)`, `live!(mut self.msgs, id)`.
/// `None` is a defect of the node: it ends tests and debug builds, and counts in
/// `invariant_violations` elsewhere. Ids from outside are looked up with `get`.
macro_rules! live {
    (mut $node:ident . $($table:ident).+, $id:expr) => {{
        let id = $id;
        let found = $node.$($table).+.get_mut(id);
        if found.is_none() {
            $node.invariants.missing(stringify!($($table).+), &id);
        }
        found
    }};
    ($node:ident . $($table:ident).+, $id:expr) => {{
        let id = $id;
        let found = $node.$($table).+.get(id);
        if found.is_none() {
            $node.invariants.missing(stringify!($($table).+), &id);
        }
        found
    }};
}

pub(crate) use live;
