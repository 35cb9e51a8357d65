//! RDMA operations out of packet captures: RoCE version 2, that is InfiniBand's transport on UDP.
//!
//! Packets of reliable connections are put together to the work requests that they came from, and
//! the messages of the connection manager (datagrams to queue pair 1) are taken apart as far as
//! their private data. Repeated packets count once; an operation with a missing packet is left out.
//! Start at [`operations`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::PcapError;
use crate::packet::{self, Frame};

/// The UDP port of RoCE version 2.
const PORT: u16 = 4791;
/// The queue pair of the connection manager.
const CM_QP: u32 = 1;
/// Bytes of the invariant checksum behind every packet.
const ICRC: usize = 4;
/// More than any operation in a capture of ours: what is longer is not collected.
const OPERATION_MAX: usize = 16 << 20;

/// A message of the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmKind {
    /// Asks for a connection.
    Request,
    /// The request takes longer.
    Ack,
    /// Refuses a request.
    Reject,
    /// Accepts a request.
    Reply,
    /// The reply has arrived.
    Ready,
    /// Ends a connection.
    Disconnect,
    /// The end has been noticed.
    Disconnected,
}

impl CmKind {
    /// From the number of the attribute; with the place of the private data.
    const fn of(attribute: u16) -> Option<(Self, usize)> {
        Some(match attribute {
            0x10 => (Self::Request, 140),
            0x11 => (Self::Ack, 10),
            0x12 => (Self::Reject, 84),
            0x13 => (Self::Reply, 36),
            0x14 => (Self::Ready, 8),
            0x15 => (Self::Disconnect, 12),
            0x16 => (Self::Disconnected, 8),
            _ => return None,
        })
    }
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The connection manager spoke.
    Cm {
        /// What it is.
        kind: CmKind,
        /// The service of a request.
        service: Option<u64>,
        /// The sender's queue pair, in requests and replies.
        qp: Option<u32>,
        /// The private data, with the padding up to their fixed length.
        private: Vec<u8>,
    },
    /// A send.
    Send {
        /// What fills a receive buffer.
        bytes: Vec<u8>,
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// An RDMA write.
    Write {
        /// Where it begins in the memory of the receiver.
        addr: u64,
        /// The receiver's key.
        key: u32,
        /// What is written.
        bytes: Vec<u8>,
        /// Immediate data.
        immediate: Option<u32>,
    },
}

/// An operation, and when its last packet was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// Number of that frame, the first of the file being 1.
    pub frame: u32,
    /// Nanoseconds since the first frame of the file.
    pub time_ns: u64,
    /// The sender.
    pub src: IpAddr,
    /// The receiver.
    pub dst: IpAddr,
    /// The queue pair of the receiver.
    pub qp: u32,
    /// What it was.
    pub operation: Operation,
}

/// The operations in a capture in memory, in the order in which they were complete.
///
/// # Errors
/// As [`crate::parse`].
pub fn operations(file: &[u8]) -> Result<Vec<Happened>, PcapError> {
    let mut flows: BTreeMap<(IpAddr, IpAddr, u32), Flow> = BTreeMap::new();
    let mut found = Vec::new();
    for frame in packet::frames(file)? {
        let frame = frame?;
        let Some(packet) = Packet::of(&frame) else { continue };
        let operation = if packet.qp == CM_QP {
            packet.cm()
        } else {
            let flow = flows.entry((packet.src, packet.dst, packet.qp)).or_default();
            flow.take(&packet)
        };
        if let Some(operation) = operation {
            let (frame, time_ns) = (frame.number, frame.time_ns);
            let Packet { src, dst, qp, .. } = packet;
            found.push(Happened { frame, time_ns, src, dst, qp, operation });
        }
    }
    Ok(found)
}

/// A packet of the transport.
struct Packet<'a> {
    src: IpAddr,
    dst: IpAddr,
    opcode: u8,
    qp: u32,
    psn: u32,
    /// What follows the base header, without padding and checksum.
    rest: &'a [u8],
}

impl<'a> Packet<'a> {
    fn of(frame: &Frame<'a>) -> Option<Self> {
        let udp = packet::udp(frame).filter(|udp| udp.dst.port() == PORT)?;
        let (base, rest) = udp.payload.split_first_chunk::<12>()?;
        let padding = usize::from(base[1] >> 4 & 3);
        let end = rest.len().checked_sub(ICRC + padding)?;
        Some(Self {
            src: udp.src.ip(),
            dst: udp.dst.ip(),
            opcode: base[0],
            qp: be24(base, 5)?,
            psn: be24(base, 9)?,
            rest: rest.get(..end)?,
        })
    }

    /// The message of the connection manager in a datagram.
    fn cm(&self) -> Option<Operation> {
        const DATAGRAM: u8 = 0x64;
        const CLASS: u8 = 7;
        // Behind the datagram header and that of management datagrams.
        let mad = self.rest.get(8..).filter(|_| self.opcode == DATAGRAM)?;
        let (kind, private) = CmKind::of(be(mad, 16).filter(|_| mad.get(1) == Some(&CLASS))?)?;
        let data = mad.get(24..)?;
        let (service, qp) = match kind {
            CmKind::Request => (data.get(8..)?.first_chunk(), be24(data, 32)),
            CmKind::Reply => (None, be24(data, 12)),
            _ => (None, None),
        };
        let service = service.map(|bytes| u64::from_be_bytes(*bytes));
        Some(Operation::Cm { kind, service, qp, private: data.get(private..)?.to_vec() })
    }
}

/// Which part of an operation a packet is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    write: bool,
    first: bool,
    last: bool,
    immediate: bool,
    invalidates: bool,
}

impl Part {
    /// From the opcode of a packet of a reliable connection.
    const fn of(opcode: u8) -> Option<Self> {
        let (write, first, last, immediate, invalidates) = match opcode {
            0x00 => (false, true, false, false, false),
            0x01 => (false, false, false, false, false),
            0x02 => (false, false, true, false, false),
            0x03 => (false, false, true, true, false),
            0x04 => (false, true, true, false, false),
            0x05 => (false, true, true, true, false),
            0x06 => (true, true, false, false, false),
            0x07 => (true, false, false, false, false),
            0x08 => (true, false, true, false, false),
            0x09 => (true, false, true, true, false),
            0x0a => (true, true, true, false, false),
            0x0b => (true, true, true, true, false),
            0x16 => (false, false, true, false, true),
            0x17 => (false, true, true, false, true),
            _ => return None,
        };
        Some(Self { write, first, last, immediate, invalidates })
    }
}

/// One direction of a reliable connection.
#[derive(Default)]
struct Flow {
    /// Number of the next packet.
    next: Option<u32>,
    /// The operation under way.
    open: Option<Open>,
}

/// An operation whose last packet is still to come.
struct Open {
    /// Address and key of a write; a send has none.
    place: Option<(u64, u32)>,
    bytes: Vec<u8>,
}

const PSN: u32 = 1 << 24;

impl Flow {
    /// Takes a packet; gives the operation that it completes.
    fn take(&mut self, packet: &Packet<'_>) -> Option<Operation> {
        let part = Part::of(packet.opcode)?;
        let next = *self.next.get_or_insert(packet.psn);
        // Numbers wrap; what is meant lies within half of them.
        let ahead = packet.psn.wrapping_sub(next) % PSN;
        if ahead >= PSN / 2 {
            return None;
        }
        if ahead > 0 {
            self.open = None;
        }
        self.next = Some((packet.psn + 1) % PSN);
        let mut rest = packet.rest;
        if part.first {
            let place = if part.write {
                let (header, behind) = rest.split_at_checked(16)?;
                rest = behind;
                let addr = u64::from_be_bytes(*header.first_chunk()?);
                Some((addr, u32::from_be_bytes(*header.get(8..)?.first_chunk()?)))
            } else {
                None
            };
            self.open = Some(Open { place, bytes: Vec::new() });
        }
        let immediate = if part.immediate {
            let (word, behind) = rest.split_first_chunk()?;
            rest = behind;
            Some(u32::from_be_bytes(*word))
        } else {
            None
        };
        if part.invalidates {
            rest = rest.get(4..)?;
        }
        let Open { place, bytes } = self.open.as_mut()?;
        if place.is_some() != part.write || bytes.len() + rest.len() > OPERATION_MAX {
            self.open = None;
            return None;
        }
        bytes.extend_from_slice(rest);
        if !part.last {
            return None;
        }
        let Open { place, bytes } = self.open.take()?;
        Some(match place {
            Some((addr, key)) => Operation::Write { addr, key, bytes, immediate },
            None => Operation::Send { bytes, immediate },
        })
    }
}

fn be(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*b.get(at..)?.first_chunk()?))
}

fn be24(b: &[u8], at: usize) -> Option<u32> {
    let [x, y, z] = *b.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes([0, x, y, z]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(opcode: u8, psn: u32, rest: &[u8]) -> Packet<'_> {
        let addr = IpAddr::from([10, 0, 0, 1]);
        Packet { src: addr, dst: addr, opcode, qp: 17, psn, rest }
    }

    fn send(bytes: &[u8]) -> Option<Operation> {
        Some(Operation::Send { bytes: bytes.to_vec(), immediate: None })
    }

    #[test]
    fn packets_give_operations_once_also_where_numbers_wrap() {
        let mut flow = Flow::default();
        let steps: [(u8, u32, &[u8], Option<Operation>); 7] = [
            (0x00, PSN - 2, b"ab", None),
            (0x01, PSN - 1, b"cd", None),
            (0x01, PSN - 1, b"cd", None),
            (0x02, 0, b"e", send(b"abcde")),
            (0x02, 0, b"e", None),
            (0x11, 0, b"acknowledgement", None),
            (
                0x05,
                1,
                b"\0\0\0\x07x",
                Some(Operation::Send { bytes: b"x".into(), immediate: Some(7) }),
            ),
        ];
        for (opcode, psn, rest, expected) in steps {
            assert_eq!(flow.take(&packet(opcode, psn, rest)), expected, "{opcode:#x} {psn}");
        }
    }

    #[test]
    fn a_write_has_a_place_and_one_with_a_missing_packet_is_left_out() {
        let first = [&[0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 9, 0, 0, 0, 4][..], b"ab"].concat();
        let mut flow = Flow::default();
        assert_eq!(flow.take(&packet(0x06, 5, &first)), None);
        let write = Operation::Write { addr: 4096, key: 9, bytes: b"abcd".into(), immediate: None };
        assert_eq!(flow.take(&packet(0x08, 6, b"cd")), Some(write));
        assert_eq!(flow.take(&packet(0x06, 7, &first)), None);
        assert_eq!(flow.take(&packet(0x08, 9, b"cd")), None, "packet 8 is missing");
        assert_eq!(flow.take(&packet(0x04, 10, b"next")), send(b"next"));
        assert_eq!(flow.take(&packet(0x02, 11, b"end of nothing")), None);
        assert_eq!(flow.take(&packet(0x0a, 12, b"short")), None);
    }
}
