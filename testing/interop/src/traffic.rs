//! Writes what went over our sockets as a classic pcap with Ethernet, IP and TCP headers made up
//! around it, so that analysers can be asked what they see. No privileges needed for capturing.

use std::net::{IpAddr, SocketAddr};

use crate::capture::Conn;
use crate::layout::End;
use crate::player::Sent;

const PCAP_MAGIC: u32 = 0xa1b2_c3d4;
const LINK_ETHERNET: u32 = 1;
const SEGMENT_MAX: usize = 1400;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// A pcap of `sent` over `conns`; ports are as in `conns`, so that dissectors know the service.
pub fn pcap(conns: &[Conn], sent: &[Sent]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [PCAP_MAGIC, 0x0004_0002, 0, 0, 0x0004_0000, LINK_ETHERNET] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    // Next sequence number of client and server; a connection opens with its first bytes.
    let mut next: Vec<Option<[u32; 2]>> = vec![None; conns.len()];
    for sent in sent {
        let conn = &conns[sent.conn];
        let micros = u64::try_from(sent.at.as_micros()).unwrap_or(u64::MAX);
        let numbers = next[sent.conn].get_or_insert_with(|| {
            packet(&mut file, micros, conn, End::Client, SYN, [0, 0], &[]);
            packet(&mut file, micros, conn, End::Server, SYN | ACK, [0, 1], &[]);
            packet(&mut file, micros, conn, End::Client, ACK, [1, 1], &[]);
            [1, 1]
        });
        for segment in sent.bytes.chunks(SEGMENT_MAX) {
            let (own, other) = (sent.from as usize, sent.from.other() as usize);
            let now = [numbers[own], numbers[other]];
            packet(&mut file, micros, conn, sent.from, PSH | ACK, now, segment);
            numbers[own] = numbers[own].wrapping_add(u32::try_from(segment.len()).unwrap_or(0));
            // Acknowledged at once: nothing is lost on this wire.
            let now = [numbers[other], numbers[own]];
            packet(&mut file, micros, conn, sent.from.other(), ACK, now, &[]);
        }
    }
    file
}

fn packet(
    file: &mut Vec<u8>,
    micros: u64,
    conn: &Conn,
    from: End,
    flags: u8,
    [seq, ack]: [u32; 2],
    payload: &[u8],
) {
    let (src, dst) = (conn.addr(from), conn.addr(from.other()));
    let frame = [ethernet(src, dst), ip(src, dst, 20 + payload.len())].concat();
    let mut tcp = Vec::with_capacity(20);
    tcp.extend_from_slice(&src.port().to_be_bytes());
    tcp.extend_from_slice(&dst.port().to_be_bytes());
    tcp.extend_from_slice(&seq.to_be_bytes());
    tcp.extend_from_slice(&ack.to_be_bytes());
    tcp.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    let len = u32::try_from(frame.len() + tcp.len() + payload.len()).unwrap_or(u32::MAX);
    let seconds = u32::try_from(micros / 1_000_000).unwrap_or(0);
    let rest = u32::try_from(micros % 1_000_000).unwrap_or(0);
    for word in [seconds, rest, len, len] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&frame);
    file.extend_from_slice(&tcp);
    file.extend_from_slice(payload);
}

fn ethernet(src: SocketAddr, dst: SocketAddr) -> Vec<u8> {
    let mac = |addr: SocketAddr| {
        let tail = match addr.ip() {
            IpAddr::V4(v4) => v4.octets(),
            IpAddr::V6(v6) => [0xfd, 0x77, v6.octets()[14], v6.octets()[15]],
        };
        [vec![2, 0], tail.to_vec()].concat()
    };
    let kind: u16 = if src.is_ipv4() { 0x0800 } else { 0x86dd };
    [mac(dst), mac(src), kind.to_be_bytes().to_vec()].concat()
}

fn ip(src: SocketAddr, dst: SocketAddr, len: usize) -> Vec<u8> {
    let word = |n: usize| u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes();
    match (src.ip(), dst.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let mut header = vec![0x45, 0];
            header.extend_from_slice(&word(20 + len));
            header.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
            header.extend_from_slice(&a.octets());
            header.extend_from_slice(&b.octets());
            let pairs = header.chunks(2).map(|c| u32::from(u16::from_be_bytes([c[0], c[1]])));
            let sum: u32 = pairs.sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(0);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        (a, b) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let mut header = vec![0x60, 0, 0, 0];
            header.extend_from_slice(&word(len));
            header.extend_from_slice(&[6, 64]);
            header.extend_from_slice(&octets(a));
            header.extend_from_slice(&octets(b));
            header
        }
    }
}
