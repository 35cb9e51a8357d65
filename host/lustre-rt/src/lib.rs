//! The request layer of Lustre on a running node: calls that wait for their end on any thread, and
//! services that are run on the node's own. Decides nothing: what is sent, again, where and when is
//! `ptlrpc`'s.
//!
//! A *target* is what a client connects to, by its uuid; a *service* is a portal with request buffers
//! and a queue. An [`Import`] is the client's end of a connection: it connects with its first call,
//! connects again when the connection breaks, and sends again what was not answered. A call ends
//! once: with a reply, or with an error that says why there is none. A request that changes something
//! is answered with a transaction number; while the server lives a copy of it is not executed again.
//!
//! ```
//! use lnet_rt::{Nid, NodeBuilder};
//! use lustre_rt::*;
//!
//! /// Counts up by what it is asked for. Opcodes from 20,000 on are of no kind that Lustre has.
//! const ADD: Opcode = Opcode(20_000);
//! struct Counter(u64, u64);
//! impl Handler for Counter {
//!     fn serve(&mut self, served: Served, rpc: &mut Rpc<'_, '_>) {
//!         let asked = served.msg().ok().and_then(|msg| msg.get::<u64>(1).ok());
//!         let Some(by) = asked else { return rpc.refuse(served.id, lnet_rt::Errno::EPROTO) };
//!         self.0 += by;
//!         self.1 += 1;
//!         let buffers = Buffers::new().layout(&self.0);
//!         rpc.reply(served.id, Answer { transno: self.1, buffers, ..Answer::default() });
//!     }
//! }
//!
//! let flags = ConnectFlags::FULL20 | ConnectFlags::VERSION | ConnectFlags::AT;
//! let offer = ConnectData { flags, ..ConnectData::default() };
//! let server = NodeBuilder::new().tcp("127.86.0.1".parse()?, 7986).start()?;
//! let (request, reply) = ImportKind::Osc.portals();
//! RpcNode::start(&server, Default::default())?.serve(
//!     vec![TargetConfig {
//!         uuid: "counter".into(),
//!         offer,
//!         replayable: false,
//!         past: Past::default(),
//!     }],
//!     vec![ServiceConfig::new("counter", request.0, reply.0, Portal::OST_BULK.0)],
//!     Counter(0, 0),
//! )?;
//!
//! let client = NodeBuilder::new().tcp("127.86.0.2".parse()?, 7986).start()?;
//! let import = RpcNode::start(&client, Default::default())?.import(ImportConfig {
//!     kind: ImportKind::Osc,
//!     target: "counter".into(),
//!     client: "client-1".into(),
//!     nids: vec!["127.86.0.1@tcp".parse::<Nid>()?],
//!     wanted: offer,
//! })?;
//! let call = Call::new(ADD, Buffers::new().layout(&5u64)).answered_by(&[8]);
//! let (end, _) = import.call(call)?.blocking();
//! assert_eq!(end?.msg()?.get::<u64>(1)?, 5);
//! import.disconnect()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `node.rs` is how a program reaches the machine, `host.rs` what runs inside of the node's turn,
//! `store/` keeps targets on files, `spec.rs` starts them as operators name them, `lockers.rs` shows their
//! locks, `kv.rs` is the client of a key-value target, `locks.rs` that of a lock target, `obj.rs` that of an
//! object target, `objects.rs` with `seats.rs` one that caches, `mount.rs` that of a whole file system,
//! `interrupt.rs` its end before its time, `cached.rs` one that caches data.

mod cached;
mod host;
mod interrupt;
mod kv;
mod lockers;
mod locks;
mod mount;
mod node;
mod obj;
mod objects;
mod pace;
mod seats;
mod services;
mod spare;
mod spec;
pub mod store;

pub use cached::CachedMount;
pub use host::{EVICTIONS_KEPT, Eviction, Handler};
pub use interrupt::Interrupt;
pub use kv::{KvClient, KvError};
pub use lnet_rt::block_on as wait;
pub use lockers::{
    BLOCKERS_SHOWN, Cookie, LockDesc, LockFilter, LockKind, LockLine, LockMode, LockRow,
    LockServer, LockStats, NamespaceRow, Policy, SpaceView,
};
pub use locks::{Enqueue, Lock, LockWatch, Locks, LocksError};
pub use mount::{Mount, MountConfig, NodeLink, NodeWire};
pub use node::{Done, Import, RpcError, RpcNode};
pub use obj::{ObjClient, ObjError, ObjInfo, ObjSpace};
pub use objects::{Object, ObjectOp, ObjectRead, Objects, ObjectsError};
pub use pace::{Pace, REST_MAX};
pub use seats::{Callbacks, ObjectLock};
pub use spec::{ParseTargetError, TargetKind, TargetSpec};

pub use lustre_client::visitor;

pub use ldlm::Mode;
pub use ldlm::client::LockError;
pub use ldlm::space::CONTENDED_LOCKS;
pub use lustre_client::osc::{LockWaits, OscConfig, OscError, OscStats};
pub use lustre_client::raid0::{self, Raid0, Raid0Error};
pub use lustre_target::kv::Kv;
pub use lustre_target::kv::wire::{Entry, Info, InfoFlags, KEY_MAX, Operation as KvOperation};
pub use lustre_target::store::{Change, DataId, Outcome, Source, Space, StoreError, StoreOrder};
pub use lustre_target::{
    Cx, Kind, MDTS_MAX, MGS_UUID, OSTS_MAX, Ost, OstLimits, Site, SiteError, When,
};
pub use lustre_wire::connect::{ChecksumKinds, ConnectData, ConnectFlags, ConnectFlags2};
pub use lustre_wire::fid::{Fid, ObjectId};
pub use lustre_wire::opcode::OPCODES;
pub use lustre_wire::{Buffers, ImportKind, Opcode, Portal};
pub use ptlrpc::{
    Answer, Call, CallError, ClientStats, Direction, Estimate, EvictReason, Explanation, ExportId,
    ExportView, Histogram, ImportConfig, ImportId, ImportState, ImportView, Lose, LoseId, Losing,
    NrsError, Part, Past, PolicyKind, Ptlrpc, Readiness, RecoveryOutcome, RecoveryStage,
    RecoveryView, Reply, Rpc, Served, ServedId, ServerStats, ServiceConfig, ServiceId, ServiceView,
    Setting, SettingError, TargetConfig, TargetView, Tunables,
};
