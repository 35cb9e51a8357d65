//! Changes that a crash of the server loses, and what may be answered that stands on them.
//!
//! A client repeats the changes that it had an answer to (P-70); what was made and not answered is lost, and
//! its client asks for it anew behind all that. A change that stands on such a one and was answered does not
//! fit then, and its client would be evicted although it lives (P-152). So a change goes unanswered until it
//! is committed, unless what it stands on comes back before it in any case: it is the same client's, which is
//! known to have the answer.

use std::collections::BTreeMap;

use ptlrpc::{ExportId, Served};

use crate::journal::When;

/// The last change of a key.
struct Last {
    transno: u64,
    client: ExportId,
    xid: u64,
}

/// The last change of each key, if it is not committed.
#[derive(Default)]
pub(super) struct Uncommitted(BTreeMap<Vec<u8>, Last>);

impl Uncommitted {
    /// A request changes a key. When it may be answered.
    pub(super) fn change(&mut self, key: &[u8], transno: u64, served: &Served) -> When {
        let last = Last { transno, client: served.export, xid: served.xid };
        let before = self.0.insert(key.to_vec(), last);
        let comes_back =
            |last: &Last| last.client == served.export && last.xid <= served.body.last_xid;
        // One that is repeated was answered.
        if served.replay.is_some() || before.is_none_or(|last| comes_back(&last)) {
            When::Applied
        } else {
            When::Committed
        }
    }

    /// Changes up to this transaction survive a crash.
    pub(super) fn committed(&mut self, transno: u64) {
        self.0.retain(|_, last| last.transno > transno);
    }
}
