//! The buffers of a message behind its body, as one piece of memory.

use core::fmt;

use lnet_types::ByteOrder;

use crate::Layout;
use crate::msg::round8;

/// Bytes before each buffer, which say how long it is.
const PREFIX: usize = 8;
/// What the first buffer gets memory for: most messages that programs build need no more.
const FIRST: usize = 64;

/// Buffers behind the body of a message, in the byte order of the writer's choice: little-endian.
///
/// They stand one behind the other in one piece of memory, each with its padding, as the message has them;
/// a buffer is found by walking from the first one.
///
/// ```
/// use lustre_wire::Buffers;
///
/// let buffers = Buffers::new().layout(&7u64).bytes(b"").text(b"name");
/// assert_eq!(buffers.get(2), Some(&b"name\0"[..]));
/// assert_eq!(buffers, Buffers::from([&7u64.to_le_bytes()[..], b"", b"name\0"]));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Buffers {
    /// Of each buffer its length in eight bytes of the machine's order, and its bytes, with zeros up to a
    /// multiple of eight.
    memory: Vec<u8>,
    count: usize,
}

impl Buffers {
    /// None.
    pub const fn new() -> Self {
        Self { memory: Vec::new(), count: 0 }
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of all buffers, their padding included.
    pub(crate) const fn padded_len(&self) -> usize {
        self.memory.len() - PREFIX * self.count
    }

    /// Bytes of all buffers, without padding.
    pub fn total(&self) -> usize {
        self.iter().map(<[u8]>::len).sum()
    }

    /// Each buffer with its length and its padding.
    pub(crate) fn padded(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = self.memory.as_slice();
        core::iter::from_fn(move || {
            let (len, behind) = rest.split_first_chunk()?;
            let len = usize::from_ne_bytes(*len);
            let (buffer, behind) = behind.split_at_checked(round8(len))?;
            rest = behind;
            Some((len, buffer))
        })
    }

    /// The buffers, first to last.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.padded().map(|(len, buffer)| buffer.get(..len).unwrap_or(buffer))
    }

    /// A buffer, if there are so many.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.iter().nth(index)
    }

    /// A buffer whose bytes are to be changed, and not their number.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        let (before, len) = {
            let mut padded = self.padded();
            let before = padded.by_ref().take(index).map(|(_, b)| PREFIX + b.len()).sum::<usize>();
            (before, padded.next()?.0)
        };
        self.memory.get_mut(before + PREFIX..)?.get_mut(..len)
    }

    /// Puts other bytes into a buffer; nothing if there are not so many.
    pub fn replace(&mut self, index: usize, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let all = self.iter().enumerate();
        *self = all.map(|(i, before)| if i == index { bytes } else { before }).collect();
    }

    /// Puts other bytes into the last buffer; nothing if there is none.
    pub fn replace_last(&mut self, bytes: impl AsRef<[u8]>) {
        if let Some(last) = self.count.checked_sub(1) {
            self.replace(last, bytes);
        }
    }

    /// A further buffer.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.begin(bytes.len());
        self.memory.extend_from_slice(bytes);
        self.end();
    }

    /// The same with one more buffer, of these bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.push(bytes);
        self
    }

    /// The same with a structure as one more buffer.
    #[must_use]
    pub fn layout<T: Layout>(mut self, value: &T) -> Self {
        self.begin(T::LEN);
        let at = self.memory.len();
        self.memory.resize(at + T::LEN, 0);
        value.put(ByteOrder::Little, self.memory.get_mut(at..).unwrap_or_default());
        self.end();
        self
    }

    /// The same with a text and its NUL as one more buffer.
    #[must_use]
    pub fn text(mut self, text: &[u8]) -> Self {
        self.begin(text.len() + 1);
        self.memory.extend_from_slice(text);
        self.memory.push(0);
        self.end();
        self
    }

    /// The same with these behind.
    #[must_use]
    pub fn and(mut self, more: &Self) -> Self {
        self.memory.extend_from_slice(&more.memory);
        self.count += more.count;
        self
    }

    /// The same with empty buffers up to a number.
    #[must_use]
    pub fn up_to(mut self, count: usize) -> Self {
        while self.count < count {
            self.push(b"");
        }
        self
    }

    /// Begins a buffer of so many bytes.
    fn begin(&mut self, len: usize) {
        let need = PREFIX + round8(len);
        self.memory.reserve(if self.count == 0 { need.max(FIRST) } else { need });
        self.memory.extend_from_slice(&len.to_ne_bytes());
        self.count += 1;
    }

    /// Puts the padding behind it.
    fn end(&mut self) {
        self.memory.resize(round8(self.memory.len()), 0);
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<B: AsRef<[u8]>> Extend<B> for Buffers {
    fn extend<I: IntoIterator<Item = B>>(&mut self, buffers: I) {
        buffers.into_iter().for_each(|bytes| self.push(bytes));
    }
}

impl<B: AsRef<[u8]>> FromIterator<B> for Buffers {
    fn from_iter<I: IntoIterator<Item = B>>(buffers: I) -> Self {
        let mut all = Self::new();
        all.extend(buffers);
        all
    }
}

impl<B: AsRef<[u8]>, const N: usize> From<[B; N]> for Buffers {
    fn from(buffers: [B; N]) -> Self {
        buffers.into_iter().collect()
    }
}
