//! A visit over TCP sockets, to a node that answers what recorded servers have answered: requests,
//! bulk data, the lock of an open that is given back, the end of all connections.

use std::collections::BTreeMap;
use std::time::Duration;

use lnet_rt::{Errno, Nid, NodeBuilder, NodeHandle, Span};
use lustre_client::visitor::{Access, VisitError};
use lustre_rt::{
    Answer, ConnectData, ConnectFlags, ConnectFlags2, Direction, Handler, Mount, MountConfig,
    Opcode, Past, Portal, Rpc, RpcNode, Served, ServedId, ServiceConfig, TargetConfig, wait,
};
use lustre_wire::Fid;
use rpc_interop::archive::Archive;
use rpc_interop::visit::capture;

const PORT: u16 = 7973;

/// Answers from recordings.
struct Recorded {
    archive: Archive,
    /// Where the recorded table says that targets are, and where they are here. The recorded log leads
    /// nowhere: a visit finds the targets by the table alone (C-28).
    moved: (Nid, Nid),
    moving: BTreeMap<ServedId, (Span, Answer)>,
}

impl Handler for Recorded {
    fn serve(&mut self, served: Served, rpc: &mut Rpc<'_, '_>) {
        let msg = served.msg().expect("a message");
        let asked: Vec<Vec<u8>> = msg.buffers().skip(1).map(|b| b.to_vec()).collect();
        let Some(mut found) = self.archive.answer(served.opcode, &asked) else {
            return rpc.refuse(served.id, Errno::EOPNOTSUPP);
        };
        if served.opcode == Opcode::MGS_CONFIG_READ {
            let (from, to) = self.moved;
            let len = from.as_wire().len();
            for at in 0..found.bulk.len().saturating_sub(len - 1) {
                if found.bulk[at..at + len] == *from.as_wire() {
                    found.bulk[at..at + len].copy_from_slice(to.as_wire());
                }
            }
        }
        let buffers = found.buffers.into_iter().collect();
        let answer = Answer { status: found.status, buffers, ..Answer::default() };
        if found.bulk.is_empty() {
            return rpc.reply(served.id, answer);
        }
        let span = rpc.below().alloc(found.bulk.len() as u32).expect("memory");
        rpc.below().bytes_mut(span).copy_from_slice(&found.bulk);
        self.moving.insert(served.id, (span, answer));
        rpc.bulk(served.id, Direction::Read, &[span].into_iter().collect()).expect("bulk data");
    }

    fn bulk_done(&mut self, id: ServedId, result: Result<(), Errno>, rpc: &mut Rpc<'_, '_>) {
        let Some((span, answer)) = self.moving.remove(&id) else { return };
        if result.is_ok() {
            rpc.reply(id, answer);
        }
        rpc.below().free(span);
    }
}

fn offer() -> ConnectData {
    ConnectData {
        flags: ConnectFlags::VERSION
            | ConnectFlags::AT
            | ConnectFlags::FULL20
            | ConnectFlags::FID
            | ConnectFlags::ATTRFID
            | ConnectFlags::IBITS
            | ConnectFlags::BRW_SIZE
            | ConnectFlags::IMP_RECOV
            | ConnectFlags::SRVLOCK
            | ConnectFlags::BULK_MBITS
            | ConnectFlags::FLAGS2,
        flags2: ConnectFlags2::REP_MBITS,
        ibits_known: 0x7f,
        brw_size: 1 << 20,
        ..ConnectData::default()
    }
}

const TARGETS: [&str; 7] = [
    "MGS",
    "lfs-MDT0000_UUID",
    "lfs-MDT0001_UUID",
    "lfs-OST0000_UUID",
    "lfs-OST0001_UUID",
    "lfs-OST0002_UUID",
    "lfs-OST0003_UUID",
];

const SERVICES: [(Portal, Portal, Portal); 9] = [
    (Portal::MGS_REQUEST, Portal::MGC_REPLY, Portal::MGS_BULK),
    (Portal::MDS_REQUEST, Portal::MDC_REPLY, Portal::MDS_BULK),
    (Portal::MDS_IO, Portal::MDC_REPLY, Portal::OST_BULK),
    (Portal::MDS_READPAGE, Portal::MDC_REPLY, Portal::MDS_BULK),
    (Portal::FLD, Portal::MDC_REPLY, Portal::MDS_BULK),
    (Portal::OST_REQUEST, Portal::OSC_REPLY, Portal::OST_BULK),
    (Portal::OST_IO, Portal::OSC_REPLY, Portal::OST_BULK),
    (Portal::OST_CREATE, Portal::OSC_REPLY, Portal::OST_BULK),
    (Portal::LDLM_CANCEL, Portal::LDLM_CANCEL_REPLY, Portal::OST_BULK),
];

fn serve(nid: Nid, archive: Archive) -> (NodeHandle, RpcNode) {
    let ip = nid.ip().expect("an address");
    let node = NodeBuilder::new().tcp(ip, PORT).start().expect("a node");
    let rpc = RpcNode::start(&node, Default::default()).expect("a request layer");
    let recorded: Nid = "10.78.0.2@tcp".parse().expect("a NID");
    let handler = Recorded { archive, moved: (recorded, nid), moving: BTreeMap::new() };
    let target = |uuid: &str| TargetConfig {
        uuid: uuid.to_owned(),
        offer: offer(),
        replayable: false,
        past: Past::default(),
    };
    let service = |(request, reply, bulk): (Portal, Portal, Portal)| {
        ServiceConfig::new(format!("{request}"), request.0, reply.0, bulk.0)
    };
    let targets = TARGETS.into_iter().map(target).collect();
    rpc.serve(targets, SERVICES.into_iter().map(service).collect(), handler).expect("services");
    (node, rpc)
}

fn config(mgs: Nid, fsname: &str, limit: u64) -> MountConfig {
    MountConfig {
        mgs: vec![mgs],
        fsname: fsname.to_owned(),
        client: "visitor".to_owned(),
        who: Default::default(),
        access: Access::Read,
        limit: Duration::from_secs(limit),
        interrupt: Default::default(),
        pace: Default::default(),
    }
}

fn client(ip: &str) -> (NodeHandle, RpcNode) {
    let node = NodeBuilder::new().tcp(ip.parse().expect("an address"), PORT).start();
    let node = node.expect("a node");
    let rpc = RpcNode::start(&node, Default::default()).expect("a request layer");
    (node, rpc)
}

#[test]
fn a_striped_file_is_read_over_sockets_and_nothing_is_left_behind() {
    let root = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };
    let dir = Fid { seq: 0x2_0000_0402, oid: 1, ver: 0 };
    let archive = Archive::default()
        .with(&capture("fresh-mount"), u32::MAX)
        .with(&capture("striped-4-ost"), u32::MAX)
        .named(root, "f3", dir);
    let nid: Nid = "127.73.0.1@tcp".parse().expect("a NID");
    let (server, exports) = serve(nid, archive);
    let (node, rpc) = client("127.73.0.2");

    let e = wait(Mount::begin(&rpc, config(nid, "nosuch", 30))).expect_err("no such log");
    assert_eq!(e, VisitError::NoFileSystem { fsname: "nosuch".to_owned() });

    let bytes = wait(async {
        let mount = Mount::begin(&rpc, config(nid, "lfs", 30)).await?;
        let node = mount.find(b"/f3/a", true).await?;
        let file = mount.open_file(&node).await?;
        let parts = mount.read(&file, 0, u64::MAX).await?;
        mount.close(file).await?;
        mount.end().await?;
        let bytes = parts.into_iter().flat_map(|part| part.bytes);
        Ok::<Vec<u8>, VisitError>(bytes.collect())
    });
    let mut expected: Vec<u8> = (0..1_048_576u32).map(|i| ((i / 65_536) % 251) as u8).collect();
    expected.extend(b"tail-of-the-file");
    assert!(bytes.expect("the file") == expected);
    assert!(exports.exports().expect("a node that runs").is_empty());
    node.stop(Duration::from_secs(1)).blocking();
    server.stop(Duration::from_secs(1)).blocking();
}

#[test]
fn a_management_server_that_is_not_there_ends_the_visit_within_its_limit() {
    let (node, rpc) = client("127.73.0.3");
    let nid: Nid = "127.73.0.4@tcp".parse().expect("a NID");
    let e = wait(Mount::begin(&rpc, config(nid, "lfs", 2))).expect_err("no server");
    let VisitError::Unreachable { target, nids, tried } = &e else { panic!("{e}") };
    assert_eq!((target.as_str(), nids), ("MGS", &vec![nid]));
    assert_eq!((tried.len(), tried[0].nid), (1, nid), "{e}");
    assert!(tried[0].attempts > 0, "{e}");
    node.stop(Duration::from_secs(1)).blocking();
}
