//! A visit to a file system: what it has is listed and read, nothing is changed, no lock is kept.
//!
//! ```text
//!  place.rs    MGSNID:/FSNAME/PATH
//!  mgs.rs      the client log of the file system ─► config.rs: its targets
//!  walk.rs     a path ─► a node, by lookups (mdc.rs)          listing.rs: pages ─► names
//!  data.rs     sizes and bytes: stripes.rs (where they are), ost.rs (requests)
//! ```
//!
//! A visit is a set of asynchronous functions over [`Wire`], which makes calls: the runtime's over a
//! node, a test's from a recording. Nothing here knows threads, sockets or clocks. An open is the one
//! call that hands a lock out in any case: it is given back at once (C-67), and the file is closed when
//! it was read. All else takes none (C-55, C-205, C-208).

mod config;
mod data;
mod join;
mod listing;
mod mdc;
mod mgs;
mod ost;
mod place;
pub mod stripes;
mod walk;
mod wire;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::OnceLock;

use lnet_types::{Errno, Nid};
use lustre_wire::fid::{RangeKind, SeqRange};
use lustre_wire::mds::MdtBody;
use lustre_wire::{Fid, ImportKind};
use ptlrpc::{Call, CallError, ImportConfig, Reply};

pub use config::{Config, ConfigError, TARGETS_MAX, TargetEntry, Targets};
pub use data::{Attributes, OpenFile, Part};
pub use listing::{Listing, ListingError, Name};
pub use lustre_wire::ost::Statfs;
pub use mdc::Identity;
pub use place::{FSNAME_MAX, ParsePlaceError, Place};
pub use stripes::LayoutError;
pub use walk::{FileKind, LINKS_MAX, Node, OpenDir};
pub use wire::Wire;

/// Calls of a visit that are under way at a time.
pub const IN_FLIGHT: usize = 8;
/// Ranges of sequences that are remembered.
const RANGES_MAX: usize = 256;

/// Where a visit goes, and in whose name.
#[derive(Clone, Debug)]
pub struct VisitConfig {
    /// NIDs of the management server, the likeliest first.
    pub mgs: Vec<Nid>,
    /// Name of the file system.
    pub fsname: String,
    /// Uuid of this client, at most 38 bytes; no other client has it.
    pub client: String,
    /// In whose name.
    pub who: Identity,
    /// Seed of cookies.
    pub seed: u64,
}

/// Why a visit fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VisitError {
    /// A target has refused a call.
    #[error("{target}: {errno} ({})", .errno.negative())]
    Refused {
        /// Uuid of the target.
        target: String,
        /// Why.
        errno: Errno,
    },
    /// A target has not answered in time. It is not asked again in this visit.
    #[error("{target}: no answer in time from {}", joined(.nids))]
    Unreachable {
        /// Uuid of the target.
        target: String,
        /// The nodes that may serve it.
        nids: Vec<Nid>,
    },
    /// A call has failed.
    #[error("{target}: {error}")]
    Call {
        /// Uuid of the target.
        target: String,
        /// Why.
        error: CallError,
    },
    /// A target has answered with something that is no reply of its kind.
    #[error("{target}: bad reply: {what}")]
    BadReply {
        /// Uuid of the target.
        target: String,
        /// What was expected.
        what: &'static str,
    },
    /// The management server has no client log of this name.
    #[error("file system '{fsname}': the management server has none of this name")]
    NoFileSystem {
        /// The name.
        fsname: String,
    },
    /// A configuration that can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A target that no record names.
    #[error("{kind} {index}: the configuration has none of this index")]
    NoTarget {
        /// MDT or OST.
        kind: &'static str,
        /// Index.
        index: u32,
    },
    /// A target that an administrator has deactivated.
    #[error("{target}: deactivated by the configuration")]
    Inactive {
        /// Uuid of the target.
        target: String,
    },
    /// A path, or a name in it, that can't be used.
    #[error("{}: {errno}", .path.escape_ascii())]
    Path {
        /// The path up to the name.
        path: Vec<u8>,
        /// Why.
        errno: Errno,
    },
    /// A symbolic link to a path outside of the file system.
    #[error("{}: the link to '{}' leads out of the file system", .path.escape_ascii(), .to.escape_ascii())]
    Outside {
        /// The link.
        path: Vec<u8>,
        /// Its text.
        to: Vec<u8>,
    },
    /// Data that can't be read.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A directory that can't be read.
    #[error("directory {dir}: {error}")]
    Listing {
        /// The directory.
        dir: Fid,
        /// Why.
        error: ListingError,
    },
    /// Bytes that are in an object that is missing.
    #[error("bytes from {offset} on are lost: their object is missing")]
    Lost {
        /// The first of them.
        offset: u64,
    },
    /// Data that is not what its checksum says, however often it was read.
    #[error("{target}: checksum {have:#010x}: expected {expected:#010x}")]
    Checksum {
        /// Uuid of the target.
        target: String,
        /// Of the data that came.
        have: u32,
        /// That the target said.
        expected: u32,
    },
}

fn joined(nids: &[Nid]) -> String {
    let texts: Vec<String> = nids.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

impl VisitError {
    /// The error number that stands for it.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Refused { errno, .. } | Self::Path { errno, .. } => *errno,
            Self::Unreachable { .. } => Errno::ETIMEDOUT,
            Self::Call { error, .. } => error.errno(),
            Self::NoFileSystem { .. } => Errno::ENOENT,
            Self::Outside { .. } => Errno::EXDEV,
            Self::Layout(LayoutError::Released) => Errno::ENODATA,
            Self::Layout(LayoutError::Bad(_)) => Errno::EPROTO,
            Self::Layout(_) => Errno::EOPNOTSUPP,
            Self::BadReply { .. } | Self::Config(_) | Self::Listing { .. } => Errno::EPROTO,
            Self::NoTarget { .. } => Errno::ENXIO,
            Self::Inactive { .. } | Self::Lost { .. } | Self::Checksum { .. } => Errno::EIO,
        }
    }

    /// The same for a path: what a target says of a name is said of the path.
    fn at(self, path: &[u8]) -> Self {
        match self {
            Self::Refused { errno, .. } => Self::Path { path: path.to_vec(), errno },
            other => other,
        }
    }
}

/// A target, and the connection to it.
#[derive(Debug)]
pub(crate) struct Remote<L> {
    uuid: String,
    nids: Vec<Nid>,
    /// `None` for a target that is not active.
    link: Option<L>,
    /// It was not reached once, and is not tried again.
    unreachable: AtomicBool,
    /// It has answered.
    reached: AtomicBool,
}

impl<L> Remote<L> {
    fn bad(&self, what: &'static str) -> VisitError {
        VisitError::BadReply { target: self.uuid.clone(), what }
    }
}

/// Space of a target, or why there is no answer.
#[derive(Clone, Debug)]
pub struct TargetSpace {
    /// `MDT` or `OST`.
    pub kind: &'static str,
    /// Index.
    pub index: u32,
    /// Uuid.
    pub uuid: String,
    /// Space.
    pub space: Result<Statfs, VisitError>,
}

/// A visit under way.
#[derive(Debug)]
pub struct Visitor<W: Wire> {
    wire: W,
    who: Identity,
    mdts: BTreeMap<u32, Remote<W::Link>>,
    osts: BTreeMap<u32, Remote<W::Link>>,
    root: Fid,
    /// Where sequences are, as far as it was asked.
    ranges: Vec<OnceLock<SeqRange>>,
    cookies: AtomicU64,
}

impl<W: Wire> Visitor<W> {
    /// Reads the configuration of a file system, and finds its root. Other targets are connected when
    /// they are first asked.
    ///
    /// # Errors
    /// No management server, no such file system, no metadata target, or a refusal.
    pub async fn begin(wire: W, config: VisitConfig) -> Result<Self, VisitError> {
        let VisitConfig { mgs, fsname, client, who, seed } = config;
        let remote = |kind, entry: TargetEntry| {
            let TargetEntry { uuid, nids, active } = entry;
            let wanted = match kind {
                ImportKind::Mgc => mgs::wanted(),
                ImportKind::Mdc => mdc::wanted(),
                _ => ost::wanted(),
            };
            let config = ImportConfig {
                kind,
                target: uuid.clone(),
                client: client.clone(),
                nids: nids.clone(),
                wanted,
            };
            let (unreachable, reached) = (AtomicBool::new(false), AtomicBool::new(false));
            let link = active.then(|| wire.link(config)).transpose();
            let link = link.map_err(|error| VisitError::Call { target: uuid.clone(), error })?;
            Ok::<_, VisitError>(Remote { uuid, nids, link, unreachable, reached })
        };
        let entry = TargetEntry { uuid: "MGS".to_owned(), nids: mgs, active: true };
        let mgs = remote(ImportKind::Mgc, entry)?;
        let targets = mgs::targets(&wire, &mgs, &fsname).await;
        Self::part(&wire, &mgs).await;
        let Targets { mdts, osts } = targets?;
        let all = |kind, entries: BTreeMap<u32, TargetEntry>| {
            let made = entries.into_iter().map(|(index, entry)| Ok((index, remote(kind, entry)?)));
            made.collect::<Result<BTreeMap<_, _>, VisitError>>()
        };
        let mdts = all(ImportKind::Mdc, mdts)?;
        let osts = all(ImportKind::Osc, osts)?;
        let mut visitor = Self {
            root: Fid::default(),
            ranges: (0..RANGES_MAX).map(|_| OnceLock::new()).collect(),
            cookies: AtomicU64::new(seed | 1),
            wire,
            who,
            mdts,
            osts,
        };
        visitor.root = match visitor.find_root().await {
            Ok(root) => root,
            Err(e) => {
                visitor.end().await;
                return Err(e);
            }
        };
        Ok(visitor)
    }

    async fn find_root(&self) -> Result<Fid, VisitError> {
        let first = self.mdts.values().next();
        let first = first.ok_or(VisitError::NoTarget { kind: "MDT", index: 0 })?;
        let (reply, _) = Self::ask(&self.wire, first, mdc::root(), 0).await?;
        let body: Option<MdtBody> = reply.msg().ok().and_then(|msg| msg.get(1).ok());
        Ok(body.ok_or_else(|| first.bad("expected the root"))?.fid1)
    }

    /// The root, or the part of the file system that this client may see.
    pub const fn root(&self) -> Fid {
        self.root
    }

    /// Ends all connections that were used.
    pub async fn end(self) {
        let all = self.mdts.values().chain(self.osts.values());
        join::join(all.map(|remote| Self::part(&self.wire, remote)), usize::MAX).await;
    }

    async fn part(wire: &W, remote: &Remote<W::Link>) {
        if let Some(link) = &remote.link {
            wire.close(link).await;
        }
    }

    /// A call to a target. One that was not reached once is not tried again: each target costs a visit
    /// the time of one call at most.
    async fn ask(
        wire: &W,
        remote: &Remote<W::Link>,
        call: Call,
        room: u32,
    ) -> Result<(Reply, Vec<u8>), VisitError> {
        let target = || remote.uuid.clone();
        let lost = || VisitError::Unreachable { target: target(), nids: remote.nids.clone() };
        let link = remote.link.as_ref().ok_or_else(|| VisitError::Inactive { target: target() })?;
        if remote.unreachable.load(Ordering::Relaxed) {
            return Err(lost());
        }
        match wire.call(link, call, room).await {
            Ok(answer) => {
                remote.reached.store(true, Ordering::Relaxed);
                Ok(answer)
            }
            Err(CallError::LimitPassed) => {
                remote.unreachable.store(true, Ordering::Relaxed);
                Err(lost())
            }
            Err(CallError::Refused(errno)) => Err(VisitError::Refused { target: target(), errno }),
            Err(error) => Err(VisitError::Call { target: target(), error }),
        }
    }

    fn ost(&self, index: u32) -> Result<&Remote<W::Link>, VisitError> {
        self.osts.get(&index).ok_or(VisitError::NoTarget { kind: "OST", index })
    }

    /// The metadata target that has a file (C-41, C-166).
    async fn mdt_of(&self, fid: Fid) -> Result<&Remote<W::Link>, VisitError> {
        let first = self.mdts.values().next();
        let first = first.ok_or(VisitError::NoTarget { kind: "MDT", index: 0 })?;
        if self.mdts.len() == 1 {
            return Ok(first);
        }
        let holds = |range: &SeqRange| range.start <= fid.seq && fid.seq < range.end;
        let known = self.ranges.iter().map_while(OnceLock::get).find(|range| holds(range));
        let known = known.map(|range| range.index);
        let index = match known {
            Some(index) => index,
            None => {
                let (reply, _) = Self::ask(&self.wire, first, mdc::locate(fid.seq), 0).await?;
                let range: Option<SeqRange> = reply.msg().ok().and_then(|msg| msg.get(1).ok());
                let range = range.filter(|range| holds(range) && range.flags == RangeKind::MDT);
                let range = range.ok_or_else(|| first.bad("expected the place of a sequence"))?;
                // The first place that is free; without one it is asked again.
                let _ = self.ranges.iter().find(|place| place.set(range).is_ok());
                range.index
            }
        };
        self.mdts.get(&index).ok_or(VisitError::NoTarget { kind: "MDT", index })
    }

    /// A cookie that no lock of this visit has had.
    fn cookie(&self) -> u64 {
        self.cookies.fetch_add(2, Ordering::Relaxed)
    }

    /// The space of each target, metadata targets first.
    pub async fn space(&self) -> Vec<TargetSpace> {
        let mdts = self.mdts.iter().map(|(index, remote)| ("MDT", *index, remote));
        let osts = self.osts.iter().map(|(index, remote)| ("OST", *index, remote));
        let one = |(kind, index, remote): (&'static str, u32, _)| async move {
            let remote: &Remote<W::Link> = remote;
            let call = if kind == "MDT" { mdc::statfs() } else { ost::statfs() };
            let space = Self::ask(&self.wire, remote, call, 0).await.and_then(|(reply, _)| {
                let space: Option<Statfs> = reply.msg().ok().and_then(|msg| msg.get(1).ok());
                space.ok_or_else(|| remote.bad("expected the space of a target"))
            });
            TargetSpace { kind, index, uuid: remote.uuid.clone(), space }
        };
        join::join(mdts.chain(osts).map(one), IN_FLIGHT).await
    }
}
