//! The envelope of a message, version 2: a header, the lengths of its buffers, the buffers (P-5 …
//! P-10).
//!
//! [`Msg::parse`] borrows the buffers of what was received, in the byte order of its sender;
//! [`MsgBuilder`], [`message`] and [`pack`] write a message, [`rewrite`] header and body of one that is packed
//! already, for a resend. What the buffers mean stands in `format.rs` and in the modules of the
//! structures.

use lnet_types::ByteOrder;
use smallvec::SmallVec;

use crate::body::Body;
use crate::buffers::Buffers;
use crate::layout::{flags, layout, part, part_mut};
use crate::{Layout, WireError};

/// The magic number of a message of version 2.
pub const MAGIC: u32 = 0x0BD0_0BD3;
/// Most buffers of one message.
pub const BUFFERS_MAX: usize = 32;
/// Most bytes of one buffer, and of a whole message (P-8): 1000 KiB, which is more than the largest
/// request for object I/O.
pub const LEN_MAX: usize = 1000 << 10;
/// Bytes of the header before the lengths of the buffers.
pub const HEADER_LEN: usize = 32;
/// Bytes of a message with a body and nothing else: a ping, an early reply (P-20).
pub const BODY_ONLY_LEN: usize = size(&[Body::LEN as u32]);

const WHAT: &str = "message";

flags! {
    /// Flags of the header.
    pub struct HeaderFlags(u32) {
        /// The sender uses adaptive timeouts: the real reply stands behind the early ones.
        AT_SUPPORT = 1, "AT_SUPPORT";
        /// The checksum of an early reply is over the body alone.
        CKSUM_INCOMPAT18 = 2, "CKSUM_INCOMPAT18";
    }
}

layout! {
    /// The header as it is on the wire.
    pub struct RawHeader("message header", 32) {
        /// Number of buffers.
        0 count: u32,
        /// Security flavour.
        4 secflvr: u32,
        /// [`MAGIC`].
        8 magic: u32,
        /// Planned size of the reply.
        12 repsize: u32,
        /// Checksum.
        16 cksum: u32,
        /// Flags.
        20 flags: HeaderFlags,
        /// Sub-opcode.
        24 opc: u32,
    }
}

/// What the header says beside the buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Security flavour; for the null flavour the highest byte names the part of the system that
    /// sends (P-15).
    pub secflvr: u32,
    /// Request: size of the reply that the client has planned for. 0 in replies.
    pub repsize: u32,
    /// Early reply: [`checksum`] of the body. 0 otherwise.
    pub cksum: u32,
    /// Flags.
    pub flags: HeaderFlags,
    /// Sub-opcode or result, in a batched message alone.
    pub opc: u32,
}

/// Bytes of a message with buffers of these lengths (P-7).
pub const fn size(lens: &[u32]) -> usize {
    let mut size = header_area(lens.len());
    let mut i = 0;
    while i < lens.len() {
        size = size.saturating_add(round8(lens[i] as usize));
        i += 1;
    }
    size
}

/// Bytes of a message with a body and buffers of these lengths behind it.
pub const fn size_behind_body(lens: &[u32]) -> usize {
    let mut size = header_area(1 + lens.len()).saturating_add(round8(Body::LEN));
    let mut i = 0;
    while i < lens.len() {
        size = size.saturating_add(round8(lens[i] as usize));
        i += 1;
    }
    size
}

/// Bytes of the header and of the lengths of `count` buffers.
const fn header_area(count: usize) -> usize {
    round8(HEADER_LEN + 4 * count)
}

pub(crate) const fn round8(n: usize) -> usize {
    n.saturating_add(7) & !7
}

/// The checksum of an early reply (P-99): CRC-32 of the body's bytes as they are sent, without the
/// final inversion.
pub fn checksum(body: &[u8]) -> u32 {
    !crc32fast::hash(body)
}

/// A received message. Its lengths were checked when it was parsed; a buffer is found when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msg<'a> {
    /// Byte order of the sender, in which header and structures are.
    pub order: ByteOrder,
    /// The header.
    pub header: Header,
    /// The whole message, padding included.
    bytes: &'a [u8],
    /// Number of buffers.
    count: usize,
}

impl<'a> Msg<'a> {
    /// The message at the front of `b`. What follows it is ignored.
    ///
    /// # Errors
    /// Fewer bytes than the message says, another magic, no buffer or more than [`BUFFERS_MAX`],
    /// more than [`LEN_MAX`] bytes in a buffer or in all (P-8).
    pub fn parse(b: &'a [u8]) -> Result<Self, WireError> {
        Self::parse_within(b, LEN_MAX)
    }

    /// [`Self::parse`] with another limit for buffers and message: that of a receiver whose requests
    /// are larger (P-8, P-37).
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_within(b: &'a [u8], len_max: usize) -> Result<Self, WireError> {
        let short = |need| WireError::Short { what: WHAT, need, have: b.len() };
        let (order, raw, mut at) = front(b)?;
        let count = raw.count as usize;
        for len in lens(order, b, count) {
            let end = at.saturating_add(round8(len));
            if len > len_max || end > len_max {
                let (field, value) = if len > len_max { ("buflen", len) } else { ("length", end) };
                let (value, max) = (value as u64, len_max as u64);
                return Err(WireError::Limit { what: WHAT, field, value, min: 0, max });
            }
            if b.len() < end {
                return Err(short(end));
            }
            at = end;
        }
        let RawHeader { secflvr, repsize, cksum, flags, opc, .. } = raw;
        Ok(Self {
            order,
            header: Header { secflvr, repsize, cksum, flags, opc },
            bytes: part(b, 0, at),
            count,
        })
    }

    /// Bytes of the whole message, padding included.
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// All buffers; the first is the body.
    pub fn buffers(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Self { order, bytes, count, .. } = *self;
        lens(order, bytes, count).scan(header_area(count), move |at, len| {
            let buffer = part(bytes, *at, len);
            *at += round8(len);
            Some(buffer)
        })
    }

    /// A buffer, if the message has so many.
    pub fn buffer(&self, index: usize) -> Option<&'a [u8]> {
        self.buffers().nth(index)
    }

    /// The body.
    ///
    /// # Errors
    /// A first buffer shorter than the body of version 2, another protocol version.
    pub fn body(&self) -> Result<Body, WireError> {
        Body::parse(self.order, self.buffer(0).unwrap_or_default())
    }

    /// The structure in a buffer, which must have exactly its length (P-19).
    ///
    /// # Errors
    /// No such buffer, another length.
    pub fn get<T: Layout>(&self, index: usize) -> Result<T, WireError> {
        T::parse_exact(self.order, self.required(T::NAME, index)?)
    }

    /// The structures that fill a buffer.
    ///
    /// # Errors
    /// No such buffer, a length that is no multiple of an element's.
    pub fn array<T: Layout>(&self, index: usize) -> Result<Vec<T>, WireError> {
        let b = self.required(T::NAME, index)?;
        if !b.len().is_multiple_of(T::LEN) {
            return Err(WireError::Size { what: T::NAME, need: T::LEN, have: b.len() });
        }
        Ok(b.chunks_exact(T::LEN).map(|b| T::get(self.order, b)).collect())
    }

    /// The text in a buffer, up to its NUL. An empty buffer is an empty text.
    ///
    /// # Errors
    /// No such buffer, no NUL in it (P-17).
    pub fn text(&self, what: &'static str, index: usize) -> Result<&'a [u8], WireError> {
        let b = self.required(what, index)?;
        match b.iter().position(|byte| *byte == 0) {
            Some(end) => Ok(part(b, 0, end)),
            None if b.is_empty() => Ok(b),
            None => Err(WireError::Unterminated { what, len: b.len() }),
        }
    }

    /// A buffer that must be there; `what` names it in the error.
    ///
    /// # Errors
    /// No such buffer.
    pub fn required(&self, what: &'static str, index: usize) -> Result<&'a [u8], WireError> {
        let missing = WireError::Missing { what, index, count: self.count };
        self.buffer(index).ok_or(missing)
    }

    /// Whether the header holds the checksum of the body: an early reply that may be believed.
    pub fn checksum_holds(&self) -> bool {
        self.buffer(0).is_some_and(|body| checksum(body) == self.header.cksum)
    }
}

/// The lengths of the buffers of a message.
fn lens(order: ByteOrder, b: &[u8], count: usize) -> impl Iterator<Item = usize> {
    let lens = b.get(HEADER_LEN..).unwrap_or_default().chunks_exact(4).take(count);
    lens.map(move |len| u32::get(order, len) as usize)
}

/// The front of a message, up to the lengths of its buffers: byte order, header, bytes of the header and
/// of these lengths.
fn front(b: &[u8]) -> Result<(ByteOrder, RawHeader, usize), WireError> {
    let short = |need| WireError::Short { what: WHAT, need, have: b.len() };
    let magic = b.get(8..HEADER_LEN).and_then(|rest| rest.first_chunk());
    let magic = *magic.ok_or_else(|| short(HEADER_LEN))?;
    let order = ByteOrder::of_magic(magic, MAGIC)
        .ok_or_else(|| WireError::Magic { magic: u32::from_le_bytes(magic) })?;
    let raw = RawHeader::get(order, b);
    let count = raw.count as usize;
    if count == 0 || count > BUFFERS_MAX {
        let (value, max) = (u64::from(raw.count), BUFFERS_MAX as u64);
        return Err(WireError::Limit { what: WHAT, field: "bufcount", value, min: 1, max });
    }
    let area = header_area(count);
    if b.len() < area { Err(short(area)) } else { Ok((order, raw, area)) }
}

/// A message that is being written, buffer after buffer; the first must be the body.
#[derive(Clone, Debug)]
pub struct MsgBuilder {
    order: ByteOrder,
    header: Header,
    lens: SmallVec<[u32; 12]>,
    /// The buffers, each with its padding.
    bytes: Vec<u8>,
}

impl MsgBuilder {
    /// A message with this body, in our byte order.
    pub fn new(header: Header, body: &Body) -> Self {
        Self::in_order(ByteOrder::Little, header, body)
    }

    /// A message with this body, in the given byte order.
    pub fn in_order(order: ByteOrder, header: Header, body: &Body) -> Self {
        let bytes = Vec::with_capacity(Body::LEN);
        Self { order, header, lens: SmallVec::new(), bytes }.layout(body)
    }

    /// Appends a structure as the next buffer.
    #[must_use]
    pub fn layout<T: Layout>(self, value: &T) -> Self {
        self.array(core::slice::from_ref(value))
    }

    /// Appends structures as the next buffer.
    #[must_use]
    pub fn array<T: Layout>(mut self, values: &[T]) -> Self {
        let at = self.bytes.len();
        self.bytes.resize(at + T::LEN * values.len(), 0);
        let out = self.bytes.get_mut(at..).unwrap_or_default();
        for (value, out) in values.iter().zip(out.chunks_mut(T::LEN)) {
            value.put(self.order, out);
        }
        self.end(at)
    }

    /// Appends bytes as the next buffer; none keep their index.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.end(at)
    }

    /// Appends a text and its NUL as the next buffer.
    #[must_use]
    pub fn text(mut self, text: &[u8]) -> Self {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
        self.end(at)
    }

    /// Closes the buffer that began at `at`.
    fn end(mut self, at: usize) -> Self {
        self.lens.push(u32::try_from(self.bytes.len() - at).unwrap_or(u32::MAX));
        self.bytes.resize(round8(self.bytes.len()), 0);
        self
    }

    /// Bytes of the message as it is so far.
    pub fn size(&self) -> usize {
        header_area(self.lens.len()) + self.bytes.len()
    }

    /// The message.
    ///
    /// # Errors
    /// More than [`BUFFERS_MAX`] buffers or [`LEN_MAX`] bytes.
    pub fn build(&self) -> Result<Vec<u8>, WireError> {
        check_sizes(self.lens.len(), self.size())?;
        let mut out = vec![0; self.size()];
        self.write(&mut out);
        Ok(out)
    }

    /// Writes the message to the front of `out`; gives its size.
    ///
    /// # Errors
    /// As [`Self::build`], and an `out` that is too short.
    pub fn build_into(&self, out: &mut [u8]) -> Result<usize, WireError> {
        check_sizes(self.lens.len(), self.size())?;
        let have = out.len();
        let short = WireError::Short { what: WHAT, need: self.size(), have };
        self.write(out.get_mut(..self.size()).ok_or(short)?);
        Ok(self.size())
    }

    fn write(&self, out: &mut [u8]) {
        write_header(self.order, &self.header, &self.lens, out);
        let area = header_area(self.lens.len());
        let rest = out.get_mut(area..).unwrap_or_default();
        rest.iter_mut().zip(&self.bytes).for_each(|(to, from)| *to = *from);
    }
}

/// The message with this body and these buffers behind it, in our byte order: as [`MsgBuilder`] makes
/// it, for buffers that are there already.
///
/// # Errors
/// As [`MsgBuilder::build`].
pub fn message(header: &Header, body: &Body, buffers: &Buffers) -> Result<Vec<u8>, WireError> {
    let mut out = vec![0; message_size(buffers)?];
    message_into(header, body, buffers, &mut out);
    Ok(out)
}

/// Bytes of [`message`] with these buffers.
///
/// # Errors
/// As [`message`].
pub fn message_size(buffers: &Buffers) -> Result<usize, WireError> {
    let count = 1 + buffers.len();
    let size = header_area(count) + round8(Body::LEN) + buffers.padded_len();
    check_sizes(count, size)?;
    Ok(size)
}

/// Writes [`message`] to `out`, which has [`message_size`] bytes of any content; if it has fewer, so
/// much of the message is left out.
pub fn message_into(header: &Header, body: &Body, buffers: &Buffers, out: &mut [u8]) {
    let order = ByteOrder::Little;
    let count = 1 + buffers.len();
    let (front, rest) = out.split_at_mut(header_area(count).min(out.len()));
    raw(header, count).put(order, front);
    let mut lens = front.get_mut(HEADER_LEN..).unwrap_or_default().chunks_exact_mut(4);
    let mut say = |len: usize| {
        let word = lens.next().unwrap_or_default();
        u32::try_from(len).unwrap_or(u32::MAX).put(order, word);
    };
    say(Body::LEN);
    body.put(order, part_mut(rest, 0, Body::LEN));
    let mut rest = rest.get_mut(round8(Body::LEN)..).unwrap_or_default();
    for (len, buffer) in buffers.padded() {
        say(len);
        let (to, behind) = rest.split_at_mut(buffer.len().min(rest.len()));
        to.copy_from_slice(buffer.get(..to.len()).unwrap_or_default());
        rest = behind;
    }
    if count % 2 == 1 {
        // The lengths end at a multiple of eight.
        say(0);
    }
}

/// The message with these buffers, the first being the body.
///
/// # Errors
/// No buffers or more than [`BUFFERS_MAX`], more than [`LEN_MAX`] bytes.
pub fn pack(order: ByteOrder, header: &Header, buffers: &[&[u8]]) -> Result<Vec<u8>, WireError> {
    let lens: SmallVec<[u32; 12]> =
        buffers.iter().map(|b| u32::try_from(b.len()).unwrap_or(u32::MAX)).collect();
    let size = size(&lens);
    check_sizes(lens.len(), size)?;
    let mut out = vec![0; size];
    write_header(order, header, &lens, &mut out);
    let mut rest = out.get_mut(header_area(lens.len())..).unwrap_or_default();
    for buffer in buffers {
        let (to, after) = rest.split_at_mut(round8(buffer.len()).min(rest.len()));
        to.iter_mut().zip(*buffer).for_each(|(to, from)| *to = *from);
        rest = after;
    }
    Ok(out)
}

fn write_header(order: ByteOrder, header: &Header, lens: &[u32], out: &mut [u8]) {
    raw(header, lens.len()).put(order, out);
    let (words, pad) = (4 * lens.len(), header_area(lens.len()));
    for (len, out) in lens.iter().zip(part_mut(out, HEADER_LEN, words).chunks_mut(4)) {
        len.put(order, out);
    }
    let end = HEADER_LEN + words;
    part_mut(out, end, pad - end).fill(0);
}

const fn raw(header: &Header, buffers: usize) -> RawHeader {
    let Header { secflvr, repsize, cksum, flags, opc } = *header;
    RawHeader { count: buffers as u32, secflvr, magic: MAGIC, repsize, cksum, flags, opc }
}

fn check_sizes(count: usize, size: usize) -> Result<(), WireError> {
    let limit = |field, value, min, max| WireError::Limit { what: WHAT, field, value, min, max };
    if count == 0 || count > BUFFERS_MAX {
        return Err(limit("bufcount", count as u64, 1, BUFFERS_MAX as u64));
    }
    if size > LEN_MAX {
        return Err(limit("length", size as u64, 0, LEN_MAX as u64));
    }
    Ok(())
}

/// Writes header and body of a packed message anew; its other buffers stay. For a resend, whose
/// flags, match bits and handle differ (P-84).
///
/// # Errors
/// Bytes that are no message, or one whose first buffer is not as long as a body.
pub fn rewrite(message: &mut [u8], header: &Header, body: &Body) -> Result<(), WireError> {
    let (order, before, area) = front(message)?;
    let have = u32::get(order, part(message, HEADER_LEN, 4)) as usize;
    if have != Body::LEN {
        return Err(WireError::Size { what: Body::NAME, need: Body::LEN, have });
    }
    let need = area + Body::LEN;
    if message.len() < need {
        return Err(WireError::Short { what: WHAT, need, have: message.len() });
    }
    raw(header, before.count as usize).put(order, message);
    body.put(order, part_mut(message, area, Body::LEN));
    Ok(())
}
