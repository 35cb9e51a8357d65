//! A visit to a file system: its files are listed, read, made, written and removed, and no lock is kept.
//!
//! ```text
//!  place.rs    MGSNID:/FSNAME/PATH
//!  mgs.rs      the client log of the file system ─► config.rs: its targets, remote.rs: calls to one
//!  walk.rs     a path ─► a node, by lookups (mdc.rs; hash.rs: of which stripe, places.rs: of which target)
//!  listing.rs  pages ─► names
//!  names.rs    names and attributes are changed, by records (reint.rs) and new FIDs (fids.rs)   xattr.rs
//!  redirect.rs a target that has to make a change in place of the one that was asked
//!  file.rs     opens and closes (intent.rs); opens.rs: after a crash of a server   wish.rs: new layouts
//!  dirs.rs     metadata targets that are chosen for new directories   defaults.rs: and those by default
//!  balance.rs  or by turns and room, where the default leaves it open
//!  settle.rs   what is not committed when a visit ends, and what evictions have lost
//!  unwanted.rs locks that came with opens are given back
//!  data.rs     bytes: stripes.rs and runs.rs (where they are), ost.rs (requests)   attributes.rs: sizes
//!  cached.rs   bytes behind caches, for programs that want them
//! ```
//!
//! A visit is a set of asynchronous functions over [`Wire`], which makes calls: the runtime's over a
//! node, a test's from a recording. Nothing here knows threads, sockets or clocks. Opens and layouts that
//! are made are the calls that hand a lock out in any case: it is given back at once (C-67). All else takes
//! none (C-55, C-205, C-208): no other client waits for a visitor. What was written is committed when the
//! write has ended; what was changed of names is repeated to a server that has lost it, and committed before
//! the visit ends.

mod attributes;
mod balance;
mod cached;
mod config;
mod data;
mod defaults;
mod dirs;
mod error;
mod fids;
mod file;
mod hash;
mod intent;
mod join;
mod listing;
mod mdc;
mod mgs;
mod names;
mod opens;
mod ost;
pub mod pattern;
mod place;
mod places;
mod redirect;
mod reint;
mod remote;
mod runs;
mod settle;
pub mod stripes;
mod table;
#[cfg(test)]
mod tests;
mod unwanted;
mod walk;
mod wire;
mod wish;
mod xattr;

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::OnceLock;

use lnet_types::Nid;
use lustre_wire::{ConnectData, Fid, ImportKind};
use ptlrpc::ImportConfig;

use balance::Balance;
use fids::Fids;
use places::Places;
use remote::Remote;

use crate::sabotage::Sabotage;

pub use attributes::Attributes;
pub use cached::{CACHING, CacheWire, FileCache, ObjectAsk, ObjectEnd};
pub use config::{Config, ConfigError, SiteTimes, TARGETS_MAX, TargetEntry, Targets};
pub use data::Part;
pub use defaults::DirStripes;
pub use dirs::{DirHash, DirWish};
pub use error::VisitError;
pub use file::{Create, OpenFile, OpenHow, WHOLE_MAX, Whole};
pub use join::{both, join};
pub use listing::{Listing, ListingError, Name};
pub use lustre_wire::ost::Statfs;
pub use lustre_wire::striping::DirDefault;
pub use mdc::{Access, Identity};
pub use names::{Changes, LINK_MAX};
pub use opens::Opens;
pub use place::{FSNAME_MAX, ParsePlaceError, Place};
pub use reint::SetXattr;
pub use stripes::{END, FileLayout, LayoutError};
pub use walk::{FileKind, LINKS_MAX, Node, OpenDir};
pub use wire::{End, LEAVE_MAX, Moved, Tried, Wire};
pub use wish::{ParseWishError, Wish};
pub use xattr::XATTR_MAX;

/// Calls of a visit that are under way at a time.
pub const IN_FLIGHT: usize = 8;

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
    /// What it may do.
    pub access: Access,
    /// Seed of cookies.
    pub seed: u64,
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

/// A target, and what it lets this client do.
#[derive(Clone, Debug)]
pub struct TargetInfo {
    /// `MDT` or `OST`.
    pub kind: &'static str,
    /// Index.
    pub index: u32,
    /// Uuid.
    pub uuid: String,
    /// The nodes that may serve it.
    pub nids: Vec<Nid>,
    /// Its space, or why there is no answer.
    pub space: Result<Statfs, VisitError>,
    /// What it has granted.
    pub granted: ConnectData,
}

/// A visit under way.
#[derive(Debug)]
pub struct Visitor<W: Wire> {
    wire: W,
    client: String,
    who: Identity,
    mdts: BTreeMap<u32, Remote<W::Link>>,
    osts: BTreeMap<u32, Remote<W::Link>>,
    root: Fid,
    places: Places,
    /// The room of metadata targets.
    balance: Balance,
    /// The default layout of directories, of the root.
    root_default: OnceLock<Option<DirDefault>>,
    cookies: AtomicU64,
    /// Changes of which the program knows that they are lost.
    said_losses: AtomicU64,
    #[cfg(feature = "sabotage")]
    sabotage: Option<Sabotage>,
}

impl<W: Wire> Visitor<W> {
    /// Reads the configuration of a file system, and finds its root. Other targets are connected when
    /// they are first asked.
    ///
    /// # Errors
    /// No management server, no such file system, no metadata target, or a refusal.
    pub async fn begin(wire: W, config: VisitConfig) -> Result<Self, VisitError> {
        let VisitConfig { mgs, fsname, client, who, access, seed } = config;
        let remote = |kind, entry: TargetEntry| {
            let TargetEntry { uuid, nids, active } = entry;
            let wanted = match kind {
                ImportKind::Mgc => mgs::wanted(),
                ImportKind::Mdc => mdc::wanted(access),
                _ => ost::wanted(),
            };
            let config = ImportConfig {
                kind,
                target: uuid.clone(),
                client: client.clone(),
                nids: nids.clone(),
                wanted,
            };
            let fids = if kind == ImportKind::Mdc { Fids::new() } else { Fids::default() };
            let link = active.then(|| wire.link(config)).transpose();
            let link = link.map_err(|error| VisitError::Call { target: uuid.clone(), error })?;
            Ok::<_, VisitError>(Remote::new(uuid, nids, link, fids))
        };
        let entry = TargetEntry { uuid: "MGS".to_owned(), nids: mgs, active: true };
        let mgs = remote(ImportKind::Mgc, entry)?;
        let all = |kind, entries: BTreeMap<u32, TargetEntry>| {
            let made = entries.into_iter().map(|(index, entry)| Ok((index, remote(kind, entry)?)));
            made.collect::<Result<BTreeMap<_, _>, VisitError>>()
        };
        let linked = |Targets { mdts, osts, times }| {
            if !times.is_empty() {
                wire.follow(&times);
            }
            Ok::<_, VisitError>((all(ImportKind::Mdc, mdts)?, all(ImportKind::Osc, osts)?))
        };
        let targets = mgs::targets(&wire, &mgs, &fsname).await.and_then(linked);
        let (mdts, osts) = match targets {
            Ok(targets) => targets,
            Err(e) => {
                Self::part(&wire, &mgs).await;
                return Err(e);
            }
        };
        let mut visitor = Self {
            root: Fid::default(),
            places: Places::default(),
            balance: Balance::new(seed, mdts.keys().copied()),
            root_default: OnceLock::new(),
            cookies: AtomicU64::new(seed | 1),
            said_losses: AtomicU64::new(0),
            wire,
            client,
            who,
            mdts,
            osts,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        };
        // The management server has no more to say.
        let (root, ()) = both(visitor.find_root(), Self::part(&visitor.wire, &mgs)).await;
        visitor.root = match root {
            Ok(root) => root,
            Err(e) => {
                // Nothing was changed that could be lost.
                let _ = visitor.end().await;
                return Err(e);
            }
        };
        Ok(visitor)
    }

    /// The root, or the part of the file system that this client may see.
    pub const fn root(&self) -> Fid {
        self.root
    }

    /// The same, with a rule broken, to see whether it is noticed.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn sabotaged(mut self, rule: Sabotage) -> Self {
        self.sabotage = Some(rule);
        self
    }

    /// Whether a rule is broken, to see whether it is noticed.
    #[cfg_attr(not(feature = "sabotage"), allow(clippy::unused_self))]
    const fn breaks(&self, rule: Sabotage) -> bool {
        #[cfg(feature = "sabotage")]
        return matches!(self.sabotage, Some(broken) if broken as u8 == rule as u8);
        #[cfg(not(feature = "sabotage"))]
        {
            let _ = rule;
            false
        }
    }

    /// Waits until all that was changed is committed ([`Visitor::settle`]), and ends all connections that were
    /// used in any case. A visit that has changed nothing waits for no commit.
    ///
    /// # Errors
    /// As [`Visitor::settle`]: what was changed last may be lost.
    pub async fn end(self) -> Result<(), VisitError> {
        let settled = self.settle().await;
        let all = self.mdts.values().chain(self.osts.values());
        // Collected: held over an await, the closure would keep this future from being `Send`.
        let all: Vec<_> = all.map(|remote| Self::part(&self.wire, remote)).collect();
        join(all, usize::MAX).await;
        settled
    }

    async fn part(wire: &W, remote: &Remote<W::Link>) {
        if let Some(link) = &remote.link {
            wire.close(link).await;
        }
    }

    fn ost(&self, index: u32) -> Result<&Remote<W::Link>, VisitError> {
        self.osts.get(&index).ok_or(VisitError::NoTarget { kind: "OST", index })
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
            let space = remote.ask(&self.wire, call).await.and_then(|answer| {
                answer.get(1).ok_or_else(|| remote.bad("expected the space of a target"))
            });
            TargetSpace { kind, index, uuid: remote.uuid.clone(), space }
        };
        join(mdts.chain(osts).map(one), IN_FLIGHT).await
    }

    /// Each target as it answers, metadata targets first.
    pub async fn targets(&self) -> Vec<TargetInfo> {
        let spaces = self.space().await;
        let one = |found: TargetSpace| async move {
            let TargetSpace { kind, index, uuid, space } = found;
            let all = if kind == "MDT" { &self.mdts } else { &self.osts };
            let remote = all.get(&index);
            let nids = remote.map(|remote| remote.nids.clone()).unwrap_or_default();
            let granted = match remote {
                Some(remote) => remote.terms(&self.wire).await,
                None => ConnectData::default(),
            };
            TargetInfo { kind, index, uuid, nids, space, granted }
        };
        join(spaces.into_iter().map(one), IN_FLIGHT).await
    }
}
