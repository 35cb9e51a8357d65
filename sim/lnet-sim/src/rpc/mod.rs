//! What stands on LNet in a world: targets and clients over the real request layer (`ptlrpc`), one
//! value on each node that has any.
//!
//! ```text
//!   [[target]], [[client]]          stage.rs: who serves what, disks from life to life, faults
//!            │                          │
//!            ╰──► host.rs (an Upper) ◄──╯──► seen.rs ──► ledger.rs ─► tally.rs (figures)
//!                  ├ late.rs     requests at a slow target       └──► model.rs (what must hold)
//!                  ├ serving.rs  lists and their commits
//!                  ├ keeping.rs  key-value and lock targets ─► store.rs
//!                  ├ calling.rs  calls at their pace
//!                  ├ lock/       programs that take locks, and what must hold of them
//!                  └ file/       programs that visit a file system, and what must hold of its files
//! ```
//!
//! A host dies with its memory. What its targets had committed lies on a disk of the world (`disk.rs`),
//! and is there in its next life, or at the node that takes over.

mod ascending;
mod calling;
mod calls;
mod disk;
mod file;
mod host;
mod keeping;
mod late;
mod ledger;
mod lock;
mod model;
mod seen;
mod serving;
mod stage;
mod store;
mod tally;

pub use file::{
    Dump, Dumps, FileAnswer, FileAt, FileBytes, FileFailure, FileModel, FileOp, FilePath, FileSeen,
    FileShown, Found,
};
pub use lock::{LockModel, LockSeen, LockWant};
pub use model::RpcModel;
pub(crate) use model::settled_after;
pub use seen::{Answered, Asked, CallNo, KeyNo, RpcSeen};
pub(crate) use stage::Stage;
pub use tally::{RpcFigures, RpcTally};

use lnet_scenario::TargetKind;
use lustre_wire::Opcode;
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};

/// Appends to a list.
const APPEND: Opcode = Opcode(20_000);
/// Reads how long a list is.
const READ: Opcode = Opcode(20_001);

/// Reads or writes under a lock.
const IO: Opcode = Opcode(20_002);

/// What clients of a target ask for when they connect.
fn wanted(kind: TargetKind) -> ConnectData {
    let plain = connect_data();
    let flags2 = match kind {
        TargetKind::Lock => ConnectFlags2::LOCK_CONVERT,
        _ => ConnectFlags2::empty(),
    };
    let flags = match kind {
        TargetKind::List | TargetKind::Kv => ConnectFlags::empty(),
        // Visitors say themselves what they want of these.
        TargetKind::Mgs | TargetKind::Mdt | TargetKind::Ost => ConnectFlags::empty(),
        TargetKind::Lock => {
            ConnectFlags::LVB_TYPE | ConnectFlags::CANCELSET | ConnectFlags::LRU_RESIZE
        }
    };
    ConnectData { flags: plain.flags | flags, flags2: plain.flags2 | flags2, ..plain }
}

/// What clients ask for, and targets grant.
pub(crate) fn connect_data() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ..ConnectData::default()
    }
}
