//! A pcap file into frames, a frame into a TCP or UDP packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::PcapError;

/// One captured frame.
pub(crate) struct Frame<'a> {
    /// The first of the file is 1.
    pub(crate) number: u32,
    /// Since the first frame of the file.
    pub(crate) time_ns: u64,
    bytes: &'a [u8],
}

/// The frames of a pcap file.
pub(crate) fn frames(
    file: &[u8],
) -> Result<impl Iterator<Item = Result<Frame<'_>, PcapError>>, PcapError> {
    let short = |frame| PcapError::Short { frame };
    let magic = *file.first_chunk::<4>().ok_or_else(|| short(0))?;
    let (ns_per_tick, big) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
        (0xA1B2_C3D4, _) => (1000, false),
        (0xA1B2_3C4D, _) => (1, false),
        (_, 0xA1B2_C3D4) => (1000, true),
        (_, 0xA1B2_3C4D) => (1, true),
        (value, _) => return Err(PcapError::Format { field: "magic", value }),
    };
    let u32_at = move |b: &[u8], at: usize| {
        let word = *b.get(at..)?.first_chunk::<4>()?;
        Some(if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
    };
    let link = u32_at(file, 20).ok_or_else(|| short(0))?;
    if link != 1 {
        return Err(PcapError::Format { field: "link type", value: link });
    }
    let mut rest = file.get(24..).ok_or_else(|| short(0))?;
    let (mut number, mut began) = (0, None);
    Ok(std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        number += 1;
        let next = (|| {
            let word = |i: usize| u32_at(rest, 4 * i).ok_or_else(|| short(number));
            let (secs, ticks, captured, len) = (word(0)?, word(1)?, word(2)?, word(3)?);
            let end = 16usize.saturating_add(captured as usize);
            let (frame, next) = rest.split_at_checked(end).ok_or_else(|| short(number))?;
            if captured < len {
                return Err(PcapError::Cut { frame: number, captured, len });
            }
            let time = u64::from(secs) * 1_000_000_000 + u64::from(ticks) * ns_per_tick;
            let time_ns = time.saturating_sub(*began.get_or_insert(time));
            Ok((Frame { number, time_ns, bytes: &frame[16..] }, next))
        })();
        // After an error there is no telling where the next frame begins.
        let (frame, next) = match next {
            Ok((frame, next)) => (Ok(frame), next),
            Err(e) => (Err(e), [].as_slice()),
        };
        rest = next;
        Some(frame)
    }))
}

/// A TCP packet.
pub(crate) struct TcpPacket<'a> {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) payload: &'a [u8],
}

/// What an IP packet carries.
struct Ip<'a> {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    payload: &'a [u8],
}

fn ip<'a>(frame: &Frame<'a>) -> Option<Ip<'a>> {
    let ethertype = be16(frame.bytes, 12)?;
    let ip = frame.bytes.get(14..)?;
    // The IP length counts: short frames are padded.
    match ethertype {
        0x0800 => {
            let header = usize::from(ip.first()? & 0xF) * 4;
            let addr = |at| Some(Ipv4Addr::from(*ip.get(at..)?.first_chunk::<4>()?).into());
            let payload = ip.get(header..be16(ip, 2)?.into())?;
            Some(Ip { src: addr(12)?, dst: addr(16)?, protocol: *ip.get(9)?, payload })
        }
        0x86DD => {
            let addr = |at| Some(Ipv6Addr::from(*ip.get(at..)?.first_chunk::<16>()?).into());
            let payload = ip.get(40..40 + usize::from(be16(ip, 4)?))?;
            Some(Ip { src: addr(8)?, dst: addr(24)?, protocol: *ip.get(6)?, payload })
        }
        _ => None,
    }
}

/// A UDP packet.
pub(crate) struct UdpPacket<'a> {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    pub(crate) payload: &'a [u8],
}

/// The UDP packet in a frame, if it is one.
pub(crate) fn udp<'a>(frame: &Frame<'a>) -> Option<UdpPacket<'a>> {
    const UDP: u8 = 17;
    let Ip { src, dst, payload: udp, .. } = ip(frame).filter(|ip| ip.protocol == UDP)?;
    Some(UdpPacket {
        src: SocketAddr::new(src, be16(udp, 0)?),
        dst: SocketAddr::new(dst, be16(udp, 2)?),
        payload: udp.get(8..be16(udp, 4)?.into())?,
    })
}

/// The TCP packet in a frame, if it is one.
pub(crate) fn tcp<'a>(frame: &Frame<'a>) -> Option<TcpPacket<'a>> {
    const TCP: u8 = 6;
    let Ip { src, dst, payload: tcp, .. } = ip(frame).filter(|ip| ip.protocol == TCP)?;
    let flags = *tcp.get(13)?;
    Some(TcpPacket {
        src: SocketAddr::new(src, be16(tcp, 0)?),
        dst: SocketAddr::new(dst, be16(tcp, 2)?),
        seq: u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?),
        fin: flags & 0x01 != 0,
        syn: flags & 0x02 != 0,
        rst: flags & 0x04 != 0,
        ack: flags & 0x10 != 0,
        payload: tcp.get(usize::from(*tcp.get(12)? >> 4) * 4..)?,
    })
}

fn be16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*b.get(at..)?.first_chunk()?))
}
