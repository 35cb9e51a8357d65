//! Many silent peers: raw connections, each from an address and as a NID of its own, that ping the
//! node once, so that it has a record of them, and then send nothing. For the memory that a peer
//! costs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use lnet_types::{Net, Nid, Pid};
use lnet_wire::acceptor::Request;
use lnet_wire::sock::{ConnType, FrameHdr, Hello, Version};
use lnet_wire::{ByteOrder, Handle, Hdr, HdrForm, Kind, MsgType, ping};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};

use super::options::IdlePeers;

/// The first peer's address.
const FIRST: Ipv4Addr = Ipv4Addr::new(127, 80, 0, 1);
/// The source port that nodes on privileged ports ask for; every peer has an address of its own.
const PRIVILEGED: u16 = 1023;
/// Ping info of a node: head and as many entries as fit.
const INFO_MAX: u32 = 272;

pub(super) fn run(options: &IdlePeers) -> anyhow::Result<()> {
    let to = SocketAddrV4::new(options.server, options.port);
    let memory = |what: &str| -> anyhow::Result<()> {
        if let Some(pid) = options.pid {
            println!("{what}: {}", resident(pid)?);
        }
        Ok(())
    };
    memory("before")?;
    let begin = Instant::now();
    let mut peers = Vec::with_capacity(options.peers as usize);
    for n in 0..options.peers {
        let own = Ipv4Addr::from_bits(FIRST.to_bits().wrapping_add(n));
        peers.push(peer(own, to).with_context(|| format!("peer {own}@tcp"))?);
    }
    println!("{} peers connected and answered in {:.1?}", peers.len(), begin.elapsed());
    memory("after")?;
    thread::sleep(Duration::from_secs_f64(options.hold));
    Ok(())
}

/// The resident memory of a process, as the kernel writes it.
fn resident(pid: u32) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    Ok(line.with_context(|| format!("{path}: no VmRSS"))?.trim().to_owned())
}

/// Connects as `own`, pings, and gives the open connection.
fn peer(own: Ipv4Addr, to: SocketAddrV4) -> anyhow::Result<TcpStream> {
    let port = if to.port() < 1024 { PRIVILEGED } else { 0 };
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    bind(&fd, &SocketAddrV4::new(own, port)).context("bind")?;
    connect(&fd, &to).with_context(|| format!("connecting to {to}"))?;
    let mut stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_nodelay(true)?;

    let nid = |ip: Ipv4Addr| Nid::from_ip(Net::TCP, ip.into());
    let (src, dst) = (nid(own), nid(*to.ip()));
    let hello = Hello {
        order: ByteOrder::Little,
        version: Version::V3,
        src,
        dst,
        src_pid: Pid::LUSTRE,
        dst_pid: Pid::LUSTRE,
        src_incarnation: 1,
        dst_incarnation: 0,
        conn_type: ConnType::CONTROL,
        ips: [own].into_iter().collect(),
    };
    let mut out = [0; Request::LEN_MAX + Hello::LEN_MAX];
    let mut n = Request::to(dst).emit(&mut out)?;
    n += hello.emit(out.get_mut(n..).unwrap_or_default())?;
    stream.write_all(out.get(..n).unwrap_or_default())?;
    let mut answer = Vec::new();
    loop {
        let need = Hello::need(&answer)?.bytes();
        if answer.len() >= need {
            break;
        }
        read_to(&mut stream, &mut answer, need).context("HELLO")?;
    }
    let (theirs, _) = Hello::parse(&answer)?;
    ensure!(theirs.version == Version::V3, "the node answered in version {}", theirs.version);

    let get = Hdr {
        dst,
        src,
        dst_pid: Pid::LUSTRE,
        src_pid: Pid::LUSTRE,
        payload_len: 0,
        kind: Kind::Get {
            ret: Handle { interface: 1, object: 1 },
            match_bits: ping::MATCH_BITS,
            portal: ping::PORTAL,
            offset: 0,
            sink_len: INFO_MAX,
            pad: [0; 4],
        },
    };
    let mut frame = FrameHdr::lnet(0, 0).to_bytes(ByteOrder::Little).to_vec();
    let mut hdr = [0; Hdr::LEN_MAX];
    let n = get.emit(HdrForm::Short, &mut hdr)?;
    frame.extend(hdr.get(..n).unwrap_or_default());
    stream.write_all(&frame)?;
    let mut answer = Vec::new();
    read_to(&mut stream, &mut answer, FrameHdr::LEN + HdrForm::Short.len()).context("REPLY")?;
    FrameHdr::parse(ByteOrder::Little, &answer)?;
    let reply = Hdr::parse(HdrForm::Short, answer.get(FrameHdr::LEN..).unwrap_or_default())?;
    ensure!(reply.kind.msg_type() == MsgType::Reply, "the node answered the ping by {reply}");
    let mut info = Vec::new();
    read_to(&mut stream, &mut info, reply.payload_len as usize).context("ping info")?;
    Ok(stream)
}

/// Reads until `to` has `len` bytes.
fn read_to(stream: &mut TcpStream, to: &mut Vec<u8>, len: usize) -> anyhow::Result<()> {
    let from = to.len();
    to.resize(len, 0);
    stream.read_exact(to.get_mut(from..).unwrap_or_default())?;
    Ok(())
}
