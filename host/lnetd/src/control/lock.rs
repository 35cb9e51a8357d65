//! `lock` and `namespace`: the locks of this node's targets.

use lnet_admin::{AdminError, LockPage, LockSelection, RPC_ROWS_PER_PAGE, Reply};
use lnet_types::Errno;
use lustre_rt::{Cookie, LockFilter};

use super::Control;
use crate::rpc_views as views;

impl Control {
    pub(super) fn lock_show(
        &self,
        which: LockSelection,
        from: Option<u64>,
    ) -> Result<Reply, AdminError> {
        let (filter, named) = match which {
            LockSelection::All => (LockFilter::All, None),
            LockSelection::Contended => (LockFilter::Contended, None),
            LockSelection::Named(name) => (LockFilter::Named(name.clone()), Some(name)),
        };
        let from = from.map_or(0, |from| usize::try_from(from).unwrap_or(usize::MAX));
        let page = self.look(LockPage { locks: Vec::new(), next: None }, |node| {
            let (rows, more, now) = node.locks(filter, from, RPC_ROWS_PER_PAGE)?;
            let next = from.saturating_add(rows.len()) as u64;
            let locks = rows.iter().map(|row| views::lock(row, now)).collect();
            Ok(LockPage { locks, next: more.then_some(next) })
        })?;
        match named {
            // A later page may be empty: the locks were given back since.
            Some(name) if page.locks.is_empty() && from == 0 => Err(AdminError::errno(
                Errno::ENOENT,
            )
            .because(format_args!(
                "lock '{}': no client has or awaits a lock on this name at a target of this node",
                name.escape_debug()
            ))),
            _ => Ok(Reply::Locks(page)),
        }
    }

    pub(super) fn lock_break(&self, lock: u64) -> Result<Reply, AdminError> {
        if self.look(false, |node| node.break_lock(Cookie(lock)))? {
            return Ok(Reply::Done);
        }
        Err(AdminError::errno(Errno::ENOENT)
            .because(format_args!("lock {lock:#x}: not one of this node's targets")))
    }

    pub(super) fn namespace_show(&self) -> Result<Reply, AdminError> {
        let rows = self.look(Vec::new(), |node| node.namespaces())?;
        Ok(Reply::Namespaces(rows.iter().map(views::namespace).collect()))
    }
}
