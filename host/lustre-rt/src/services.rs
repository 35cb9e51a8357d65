//! The services of targets: the portals on which their requests are waited for. A node has those of the
//! kinds that it serves, so that a request for another kind is answered by no one, as on a kernel node
//! without that kind of server.

use lustre_wire::Portal;
use ptlrpc::ServiceConfig;

use crate::node::{RpcError, RpcNode};
use crate::spec::TargetKind;

/// Services that belong together: name, portal, the largest request, and request buffers. A value or the
/// data of an object goes inside of a message, with what stands around it; many ranges do, and the value
/// of an extended attribute.
type Row = (&'static str, Portal, u32, u32);

const OBJECTS: [Row; 3] = [
    ("target", Portal::OST_REQUEST, 32 << 10, 64),
    ("target_io", Portal::OST_IO, 96 << 10, 64),
    ("target_create", Portal::OST_CREATE, 16 << 10, 64),
];

const NAMES: [Row; 6] = [
    ("mds", Portal::MDS_REQUEST, 96 << 10, 16),
    ("mds_io", Portal::MDS_IO, 96 << 10, 16),
    ("mds_readpage", Portal::MDS_READPAGE, 16 << 10, 16),
    ("fld", Portal::FLD, 4 << 10, 16),
    ("sequence", Portal::SEQ_METADATA, 4 << 10, 16),
    // Of metadata targets alone: what one asks never waits behind clients that wait for it.
    ("mds_out", Portal::OUT, 16 << 10, 16),
];

const CONFIGURATION: [Row; 1] = [("mgs", Portal::MGS_REQUEST, 16 << 10, 16)];

/// Of every kind: what gives locks back never waits behind what waits for them.
const CANCEL: Row = ("cancel", Portal::LDLM_CANCEL, 16 << 10, 64);

/// The services of a kind, but that for cancels.
const fn of(kind: TargetKind) -> &'static [Row] {
    match kind {
        TargetKind::Kv | TargetKind::Lock | TargetKind::Ost | TargetKind::Echo => &OBJECTS,
        TargetKind::Mgs => &CONFIGURATION,
        TargetKind::Mdt => &NAMES,
    }
}

/// Where the replies of a service go, and its bulk data.
const fn answers(portal: Portal) -> (Portal, Portal) {
    match portal {
        Portal::LDLM_CANCEL => (Portal::LDLM_CANCEL_REPLY, Portal::OST_BULK),
        Portal::MGS_REQUEST => (Portal::MGC_REPLY, Portal::MGS_BULK),
        Portal::OST_REQUEST | Portal::OST_IO | Portal::OST_CREATE => {
            (Portal::OSC_REPLY, Portal::OST_BULK)
        }
        Portal::OUT => (Portal::OSC_REPLY, Portal::MDS_BULK),
        // Data of files that are on a metadata target move like those of objects.
        Portal::MDS_IO => (Portal::MDC_REPLY, Portal::OST_BULK),
        _ => (Portal::MDC_REPLY, Portal::MDS_BULK),
    }
}

impl RpcNode {
    /// Starts the services of targets of all kinds, those of programs' own kinds included, which are
    /// not there yet.
    ///
    /// # Errors
    /// A service of the program is on one of the portals, or no memory.
    pub fn serve_targets(&self) -> Result<(), RpcError> {
        TargetKind::ALL.into_iter().try_for_each(|kind| self.serve_kind(kind))
    }

    /// Starts the services of targets of a kind that are not there yet, before the first target of it
    /// is: until then clients are answered with `ENODEV`, and try the partner.
    ///
    /// # Errors
    /// A service of the program is on one of the portals, or no memory.
    pub fn serve_kind(&self, kind: TargetKind) -> Result<(), RpcError> {
        of(kind).iter().chain([&CANCEL]).try_for_each(|row| self.start_service(*row))
    }

    fn start_service(&self, (name, portal, request_max, buffers): Row) -> Result<(), RpcError> {
        let (reply, bulk) = answers(portal);
        let mut service = ServiceConfig::new(name, portal.0, reply.0, bulk.0);
        service.request_max = request_max;
        service.buffers = buffers;
        // What others wait for is data under locks (P-114).
        service.hears_of_waiting = matches!(portal, Portal::OST_IO | Portal::MDS_IO);
        let what = format!("service {name} on portal {}", portal.0);
        let served = self.run(move |host, below| {
            let there = host.ptlrpc.service_views();
            if there.iter().any(|view| view.portal == portal.0 && view.name == name) {
                return Ok(());
            }
            host.ptlrpc.rpc(below).serve(service).map(|_| ())
        })?;
        served.map_err(|errno| RpcError::Start { what, errno })
    }
}
