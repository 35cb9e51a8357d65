//! `import` and `export`: the two ends of connections between clients and targets.

use lnet_admin::{AdminError, EXPLAINED_MAX, ExportPage, ImportPage, RPC_ROWS_PER_PAGE, Reply};
use lnet_types::{Errno, Nid};

use super::{Control, stopped};
use crate::rpc_views as views;

impl Control {
    pub(super) fn import_show(&self, from: Option<u64>) -> Result<Reply, AdminError> {
        let none = (Vec::new(), None);
        let (imports, next) = self.look(none, |node| {
            node.inspect(move |ptlrpc, now| {
                page(ptlrpc.import_views(), from, |view| views::import(view, now))
            })
        })?;
        Ok(Reply::Imports(ImportPage { imports, next }))
    }

    pub(super) fn import_explain(&self, name: String) -> Result<Reply, AdminError> {
        let what = name.escape_debug().to_string();
        let explained = self.look(Vec::new(), |node| {
            node.with(move |rpc| {
                let views = rpc.imports();
                let meant = views.iter().filter(|view| view.target == name || view.client == name);
                let ids: Vec<_> = meant.map(|view| view.id).take(EXPLAINED_MAX).collect();
                ids.into_iter().filter_map(|id| rpc.explain(id)).collect()
            })
        })?;
        if explained.is_empty() {
            return Err(AdminError::errno(Errno::ENOENT).because(format_args!(
                "import '{what}': no import of this node has this target or client; those of its targets \
                 lead to clients that they call back ('import show')"
            )));
        }
        Ok(Reply::ImportExplanations(explained.iter().map(views::explanation).collect()))
    }

    pub(super) fn export_show(&self, from: Option<u64>) -> Result<Reply, AdminError> {
        let none = ExportPage { exports: Vec::new(), evicted: Vec::new(), next: None };
        let shown = self.look(none, |node| {
            let evicted = if from.is_none() { node.evictions()? } else { Vec::new() };
            node.inspect(move |ptlrpc, now| {
                let (exports, next) =
                    page(ptlrpc.export_views(), from, |view| views::export(view, now));
                let evicted = evicted.iter().map(|e| views::eviction(e, now)).collect();
                ExportPage { exports, evicted, next }
            })
        })?;
        Ok(Reply::Exports(shown))
    }

    pub(super) fn export_evict(
        &self,
        uuid: Option<String>,
        nid: Option<Nid>,
    ) -> Result<Reply, AdminError> {
        let meant = match (&uuid, nid) {
            (Some(uuid), None) => format!("client '{}'", uuid.escape_debug()),
            (None, Some(nid)) => format!("client on {nid}"),
            _ => {
                let why = "expected the uuid of a client, or the NID of its node";
                return Err(AdminError::errno(Errno::EINVAL).because(why));
            }
        };
        let evicted = match self.rpc()? {
            None => 0,
            Some(rpc) => {
                let exports = rpc.node.exports().map_err(|e| stopped(&e))?;
                let ids: Vec<_> = exports
                    .iter()
                    .filter(|e| uuid.as_ref().is_some_and(|uuid| *uuid == e.client))
                    .chain(exports.iter().filter(|e| nid == Some(e.from)))
                    .map(|e| e.id)
                    .collect();
                let count = ids.len();
                let ordered =
                    rpc.node.with(move |rpc| ids.into_iter().for_each(|id| rpc.evict(id)));
                ordered.map_err(|e| stopped(&e))?;
                count
            }
        };
        match evicted {
            0 => Err(AdminError::errno(Errno::ENOENT)
                .because(format_args!("{meant}: not connected to a target of this node"))),
            _ => Ok(Reply::Done),
        }
    }
}

/// A page of a list, and where the next one begins.
fn page<T, R>(all: Vec<T>, from: Option<u64>, row: impl Fn(&T) -> R) -> (Vec<R>, Option<u64>) {
    let from = from.map_or(0, |from| usize::try_from(from).unwrap_or(usize::MAX));
    let rows: Vec<R> = all.iter().skip(from).take(RPC_ROWS_PER_PAGE).map(row).collect();
    let next = from.saturating_add(rows.len());
    (rows, (next < all.len()).then_some(next as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_each_row_once_and_the_last_one_says_so() {
        let all = |n: usize| (0..n).collect::<Vec<_>>();
        for n in [0, 1, RPC_ROWS_PER_PAGE, RPC_ROWS_PER_PAGE + 1, 2 * RPC_ROWS_PER_PAGE] {
            let (mut seen, mut from) = (Vec::new(), None);
            loop {
                let (rows, next) = page(all(n), from, |row| *row);
                assert!(rows.len() <= RPC_ROWS_PER_PAGE);
                seen.extend(rows);
                from = next;
                if from.is_none() {
                    break;
                }
            }
            assert_eq!(seen, all(n));
        }
        assert_eq!(page(all(1), Some(u64::MAX), |row| *row), (Vec::new(), None));
    }
}
