//! Connections of a metadata target to the other targets of its file system: object targets, and other
//! metadata targets. They keep no records (LIGHTWEIGHT): who has asked says with each connection what is
//! under way.

use lustre_wire::ImportKind;
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use ptlrpc::{ImportConfig, ImportId, Rpc};

use crate::site::{Part, Site, SiteTarget};

/// Connects metadata target `mdt` to another target.
pub(super) fn connect(
    site: &Site,
    mdt: u32,
    target: &SiteTarget,
    rpc: &mut Rpc<'_, '_>,
) -> Option<ImportId> {
    let common = ConnectFlags::VERSION
        | ConnectFlags::INDEX
        | ConnectFlags::MDS
        | ConnectFlags::AT
        | ConnectFlags::FID
        | ConnectFlags::FULL20
        | ConnectFlags::LIGHTWEIGHT
        | ConnectFlags::BULK_MBITS
        | ConnectFlags::FLAGS2;
    // An object target has its own index in it, a metadata target that of the one that asks.
    let (kind, flags, index) = match target.part {
        Part::Ost => (ImportKind::MdtToOst, common | ConnectFlags::SKIP_ORPHAN, target.index),
        Part::Mdt => (ImportKind::MdtToMdt, common, mdt),
    };
    let flags2 = ConnectFlags2::REP_MBITS;
    let config = ImportConfig {
        kind,
        target: site.uuid(target),
        client: site.mdt_client(mdt),
        nids: target.nodes.iter().flatten().copied().collect(),
        wanted: ConnectData { flags, flags2, index, ..ConnectData::default() },
    };
    // Names and NIDs of a description are such as an import takes.
    let import = rpc.import(config).ok()?;
    rpc.connect(import);
    Some(import)
}
