//! The control socket of a node: what is asked, what is answered, how both look as bytes, and a
//! blocking client.
//!
//! It carries typed data and never text to print, and decides nothing. One connection carries any
//! number of requests, one after the other; each gets exactly one reply with its number.
//!
//! ```text
//!   client                                        server (lnetd)
//!   RequestEnvelope { version, id, request } ──►  FrameDecoder::push / next_frame
//!                                                 decode_request
//!   Ask::ask                ◄──  encode_reply(id, Result<Reply, AdminError>)
//! ```
//!
//! Read `request.rs` and `reply.rs` for the conversation, `snapshot.rs` for the state that is shown, `rpc.rs` for that of
//! the request layer,
//! `access.rs` for who may ask what, `frame.rs` for the bytes, `client.rs` for the blocking side. A new command is a variant of
//! [`Request`], one of [`Reply`] and, where it helps, a method of [`Client`].

mod access;
mod block;
mod client;
mod descriptor;
mod driver;
mod error;
mod fault;
mod frame;
mod hex;
mod lock;
mod reply;
mod request;
mod routing;
mod rpc;
mod snapshot;
mod socket;
mod state;

pub use access::Access;
pub use client::{Ask, Client, ClientError, REPLY_TIMEOUT, SEND_TIMEOUT};
pub use descriptor::receive_with;
pub use driver::{DRIVER_LINES_PER_PAGE, DriverLine, DriverList, DriverPage, ParamInfo};
pub use error::{AdminError, ProtocolError};
pub use fault::{FaultAction, FaultDel, FaultKind, FaultRule, FaultSnapshot};
pub use frame::{
    FrameDecoder, REPLY_MAX, REQUEST_MAX, VERSION, decode_reply, decode_request, encode_reply,
    encode_request,
};
pub use lock::{LockPage, LockSelection, LockSnapshot, NamespaceSnapshot};
pub use reply::{
    Contact, Contacted, PeerPage, RailSnapshot, RecordingPart, Reply, Status, TimerSnapshot,
};
pub use request::{
    Discover, NiTarget, PEER_NIDS_PER_REQUEST, PEER_NIS_PER_PAGE, Ping, ROUTES_PER_PAGE, Request,
    TIMERS_MAX, TRIAL_STEPS_PER_REQUEST, TrialPart, batches, peers_of,
};
pub use routing::{
    POOL_NAMES, PoolSnapshot, RoutePage, RouteSnapshot, RoutingSnapshot, RoutingState,
};
pub use rpc::{
    EXPLAINED_MAX, EvictionSnapshot, ExportPage, ExportSnapshot, HistogramSnapshot,
    ImportExplanation, ImportPage, ImportSnapshot, NodeChoice, NodeExplanation, RPC_ROWS_PER_PAGE,
    RecoverySnapshot, RpcDelay, RpcFaultDel, RpcFaults, RpcLose, RpcPart, ServiceSnapshot,
    TargetSnapshot,
};
pub use snapshot::{
    GlobalSnapshot, KindCounts, Latency, LndSnapshot, NetSnapshot, NetTunablesSnapshot, NiDetail,
    NiHealth, NiMore, NiSnapshot, PeerNiCredits, PeerNiDetail, PeerNiHealth, PeerNiSnapshot,
    PeerNiState, PeerSnapshot, RdmaPortSnapshot, RefusedSnapshot, StatsSnapshot, TimesSnapshot,
    Traffic, UdspInfo, UsageSnapshot,
};
pub use socket::{SOCKET_ENV, SOCKET_SYSTEM, default_socket};
pub use state::{HEALTH_MAX, InterfaceState, PeerFlags, host_name};
