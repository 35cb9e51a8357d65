//! The vocabulary of LNet: who is meant (NIDs, networks, process ids), when (`Instant`), where bytes
//! lie (`Span`, `IoVec`, `Memory`), and what went wrong (`Errno`, `Fault`).
//!
//! Nothing here has a protocol, a socket or a clock; every other crate depends on this one and this
//! one on none of them. Read `nid.rs` first, then `mem.rs`; text forms of NID *lists* are in
//! `nidlist.rs`, failures and their health meaning in `fault.rs`, the parts of a machine in
//! `cpts.rs`, the byte order of a sender in `order.rs`.

mod cpts;
mod errno;
mod fault;
mod ids;
mod mem;
mod net;
mod nid;
mod nidlist;
mod order;
mod pid;
mod prng;
mod time;

pub use cpts::{Automatic, Cpt, CptError, CptTable, CpuPattern, ParseCpuPatternError, Topology};
pub use errno::Errno;
pub use fault::{Fault, HealthStatus, HealthStatuses, RETRY_PATHS};
pub use ids::{MdId, MsgId, NiId, PeerId, PeerNiId, RxId};
pub use mem::{IoVec, Memory, RegionId, Span, iovec_copy, iovec_len, iovec_slice};
pub use net::{Net, NetType, ParseNetError};
pub use nid::{Nid, NidError, ParseNidError};
pub use nidlist::{
    NidList, NidRange, NumberRange, NumberSet, ParseNidListError, ParseNumbersError, TooMany,
};
pub use order::ByteOrder;
pub use pid::{Pid, ProcessId};
pub use prng::Prng;
pub use time::Instant;
