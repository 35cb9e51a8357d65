//! Registered memory: the bytes behind the spans that the node passes about.
//!
//! A [`Buffer`] belongs to one owner at a time. Given to an operation or an attachment, it moves
//! into the stack's [`Regions`] and comes back with the last event; while it is there, drivers read
//! and write it in place (the payload is never copied in user space) and no other code can. That
//! alone makes operations sound: there is no second reference to alias with.
//!
//! Attached buffers want more: their owner reads what has arrived while the rest still fills. For
//! those the allocation is shared ([`Landing`]), and the region keeps the ranges that have been
//! handed to the owner as *frozen*: the owner only ever sees frozen ranges, and
//! [`Regions::bytes_mut`] refuses them. Both sides are checked here, so soundness does not depend on
//! the node or a driver being free of bugs.
//!
//! Who owns a region, and when it may go, is decided in `stack.rs`.

use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use core::ptr::NonNull;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use lnet::RouterMemory;
use lnet::upper::Arena;
use lnet_types::{Errno, IoVec, Memory, RegionId, Span};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// Bytes that can be lent to a stack: from a `Vec`, a boxed slice, a mapped file, or another owner.
///
/// Reads and writes like a slice while the application has it.
pub struct Buffer {
    ptr: NonNull<u8>,
    len: usize,
    origin: Origin,
    /// Lives until the bytes are given back: see [`Memory::anchor`].
    anchor: OnceLock<Arc<()>>,
}

/// Where the bytes came from, and so how they are given back.
enum Origin {
    /// A `Vec<u8>` of this capacity.
    Heap { capacity: usize },
    /// A mapping that begins `skip` bytes before `ptr`.
    Map { skip: usize },
    /// Another owner's, which is dropped with the buffer.
    Foreign { _owner: Box<dyn Send + Sync> },
}

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapMode {
    /// Writes stay in memory; the file needs to be open for reading only.
    Private,
    /// Writes go to the file, which must be open for reading and writing.
    Shared,
}

// SAFETY: a `Buffer` is the only owner of its bytes, like the `Vec` or mapping that it came from,
// and plain bytes have no ties to a thread.
#[allow(unsafe_code)]
unsafe impl Send for Buffer {}
// SAFETY: through `&Buffer` bytes can only be read.
#[allow(unsafe_code)]
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        vec![0; len].into()
    }

    /// `len` bytes of `file` from `offset`, without reading them first.
    ///
    /// # Errors
    /// Those of `mmap(2)`, and `InvalidInput` if the range does not fit the address space.
    ///
    /// # Safety
    /// While the buffer exists, no other mapping and no process may change these bytes of
    /// the file or cut it short: the first would be a data race with the reader of the buffer, the
    /// second ends the process by `SIGBUS`.
    #[allow(unsafe_code)]
    pub unsafe fn map_file(
        file: &File,
        offset: u64,
        len: usize,
        mode: MapMode,
    ) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self::zeroed(0));
        }
        let skip = (offset % rustix::param::page_size() as u64) as usize;
        let mapped = len
            .checked_add(skip)
            .filter(|n| isize::try_from(*n).is_ok())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let flags = match mode {
            MapMode::Private => MapFlags::PRIVATE,
            MapMode::Shared => MapFlags::SHARED,
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        // That the bytes behind it hold still is the caller's promise.
        let base = unsafe {
            mmap(core::ptr::null_mut(), mapped, protection, flags, file, offset - skip as u64)?
        };
        // SAFETY: `skip` is less than a page and `len > 0`, so this stays inside the mapping.
        let ptr = unsafe { base.cast::<u8>().add(skip) };
        let ptr = NonNull::new(ptr).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(Self { ptr, len, origin: Origin::Map { skip }, anchor: OnceLock::new() })
    }

    /// `len` bytes at `ptr` that belong to another owner: of another language, or of a pool. `owner` is
    /// dropped when the buffer is, wherever that happens: from then on the bytes are not touched.
    ///
    /// # Safety
    /// Until `owner` is dropped, the `len` bytes at `ptr` must be initialised, readable, and changed by
    /// Until `owner` is dropped, the `len` bytes at `ptr` must be initialised, readable, and changed by
    /// no other code; where the buffer is used to receive, or written to, no other code may read them
    /// either, and they must be writable.
    #[allow(unsafe_code)]
    pub unsafe fn foreign(ptr: NonNull<u8>, len: usize, owner: impl Send + Sync + 'static) -> Self {
        let origin = Origin::Foreign { _owner: Box::new(owner) };
        Self { ptr, len, origin, anchor: OnceLock::new() }
    }

    /// Waits until what was written to a file mapped with [`MapMode::Shared`] is on the disk. Does
    /// nothing for other buffers.
    ///
    /// # Errors
    /// Those of `msync(2)`: here a full or failing disk shows.
    #[allow(unsafe_code)]
    pub fn sync(&self) -> io::Result<()> {
        let Origin::Map { skip } = &self.origin else { return Ok(()) };
        // SAFETY: exactly the range that `map_file` mapped; `self` keeps it alive.
        unsafe {
            let base = self.ptr.as_ptr().sub(*skip);
            Ok(msync(base.cast(), self.len + *skip, MsyncFlags::SYNC)?)
        }
    }

    /// The bytes as a `Vec`: without copying, if they came from one.
    #[allow(unsafe_code)]
    pub fn into_vec(self) -> Vec<u8> {
        match &self.origin {
            &Origin::Heap { capacity } => {
                let mut this = ManuallyDrop::new(self);
                // The bytes are another owner's from here on.
                drop(this.anchor.take());
                // SAFETY: these three came from a `Vec<u8>` in `From<Vec<u8>>`, and `this` will
                // not free them a second time.
                unsafe { Vec::from_raw_parts(this.ptr.as_ptr(), this.len, capacity) }
            }
            Origin::Map { .. } | Origin::Foreign { .. } => self.to_vec(),
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(v: Vec<u8>) -> Self {
        let mut v = ManuallyDrop::new(v);
        let capacity = v.capacity();
        // `as_mut_ptr` of a `Vec` is never null.
        let ptr = NonNull::new(v.as_mut_ptr()).unwrap_or(NonNull::dangling());
        let origin = Origin::Heap { capacity };
        Self { ptr, len: v.len(), origin, anchor: OnceLock::new() }
    }
}

impl From<Box<[u8]>> for Buffer {
    fn from(b: Box<[u8]>) -> Self {
        b.into_vec().into()
    }
}

impl From<&[u8]> for Buffer {
    fn from(s: &[u8]) -> Self {
        s.to_vec().into()
    }
}

impl<const N: usize> From<&[u8; N]> for Buffer {
    fn from(s: &[u8; N]) -> Self {
        s.to_vec().into()
    }
}

impl From<&str> for Buffer {
    fn from(s: &str) -> Self {
        s.as_bytes().into()
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[allow(unsafe_code)]
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` and `len` name initialised bytes that `self` owns, and nothing writes to
        // them while `self` is borrowed.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            Origin::Heap { .. } => "heap",
            Origin::Map { .. } => "mapped file",
            Origin::Foreign { .. } => "foreign",
        };
        write!(f, "Buffer({} bytes, {origin})", self.len)
    }
}

impl Drop for Buffer {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // First: from the moment that the bytes are free they may be another buffer's.
        drop(self.anchor.take());
        match &self.origin {
            // SAFETY: the parts of a `Vec<u8>`, see `From<Vec<u8>>`; they have no other owner.
            &Origin::Heap { capacity } => unsafe {
                drop(Vec::from_raw_parts(self.ptr.as_ptr(), self.len, capacity));
            },
            // SAFETY: exactly the range that `map_file` mapped, and no borrow of it can be left.
            &Origin::Map { skip } => unsafe {
                let base = self.ptr.as_ptr().sub(skip);
                if let Err(e) = munmap(base.cast(), self.len + skip) {
                    tracing::error!("munmap of a buffer: {e}");
                }
            },
            // The owner is dropped behind this.
            Origin::Foreign { .. } => {}
        }
    }
}

/// An attached buffer as seen by its owner: only what has been delivered can be read.
pub(crate) struct Landing(Buffer);

impl Landing {
    /// The bytes of a range that the region has frozen.
    ///
    /// # Safety
    /// `range` was frozen by [`Regions::freeze`] on the region made from this landing, and that
    /// happened before this call (the event that carries the range came through a queue).
    #[allow(unsafe_code)]
    pub(crate) unsafe fn frozen(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.0.len, "delivery outside its buffer");
        // SAFETY: in bounds by the line above. Frozen bytes are never written again while the
        // region lives (`bytes_mut` refuses them), and once it is gone the buffer has no other
        // owner.
        unsafe {
            core::slice::from_raw_parts(
                self.0.ptr.as_ptr().add(range.start),
                range.end - range.start,
            )
        }
    }

    pub(crate) fn empty() -> Self {
        Self(Buffer::zeroed(0))
    }

    /// The buffer, once it has no other owner.
    pub(crate) fn into_buffer(this: Arc<Self>) -> Option<Buffer> {
        Arc::into_inner(this).map(|l| l.0)
    }
}

enum Bytes {
    /// Lent for an operation or by a caller-driven program: no other reference exists.
    Lent(Buffer),
    /// Attached: the owner reads frozen ranges. Ordered, disjoint, not touching.
    Landing(Arc<Landing>, Vec<Range<u64>>),
}

impl Bytes {
    fn len(&self) -> usize {
        match self {
            Self::Lent(b) => b.len,
            Self::Landing(l, _) => l.0.len,
        }
    }
}

struct Slot {
    generation: u16,
    bytes: Option<Bytes>,
    /// Descriptors that stand on it.
    descriptors: u32,
}

/// The regions of one stack.
#[derive(Default)]
pub struct Regions {
    slots: Vec<Slot>,
    free: Vec<u16>,
}

impl Regions {
    /// Regions that one stack can have at a time. Sum: 40,000 operations in hand and 25,535
    /// attachments; the slot number is 16 bits of a `RegionId`, its generation the other 16.
    pub const MAX: usize = 65_535;

    /// Registers memory that only the stack touches until it is taken back.
    ///
    /// # Errors
    /// Gives the buffer back when there are [`Regions::MAX`] regions.
    pub(crate) fn lend(&mut self, buffer: Buffer) -> Result<RegionId, Buffer> {
        self.insert(Bytes::Lent(buffer)).map_err(|b| match b {
            Bytes::Lent(b) => b,
            Bytes::Landing(..) => unreachable!("just made"),
        })
    }

    /// Registers memory whose owner reads what has arrived.
    pub(crate) fn land(&mut self, buffer: Buffer) -> Result<(RegionId, Arc<Landing>), Buffer> {
        let landing = Arc::new(Landing(buffer));
        match self.insert(Bytes::Landing(Arc::clone(&landing), Vec::new())) {
            Ok(id) => Ok((id, landing)),
            Err(refused) => {
                drop(refused);
                // The only other reference was dropped by the line above.
                Err(Landing::into_buffer(landing).unwrap_or_else(|| Buffer::zeroed(0)))
            }
        }
    }

    fn insert(&mut self, bytes: Bytes) -> Result<RegionId, Bytes> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < Self::MAX => {
                self.slots.push(Slot { generation: 0, bytes: None, descriptors: 0 });
                (self.slots.len() - 1) as u16
            }
            None => return Err(bytes),
        };
        let slot = &mut self.slots[usize::from(index)];
        slot.bytes = Some(bytes);
        Ok(RegionId(u32::from(slot.generation) << 16 | u32::from(index)))
    }

    /// Takes a region away from the stack. The buffer of a landing comes back through its owner's
    /// reference, so `None` is returned for it. Panics while descriptors stand on the region: the
    /// callers in `stack.rs` wait for the last event.
    pub(crate) fn remove(&mut self, id: RegionId) -> Option<Buffer> {
        let slot = self.slot_mut(id);
        assert_eq!(slot.descriptors, 0, "region {id:?} goes with descriptors on it");
        slot.generation = slot.generation.wrapping_add(1);
        let bytes = slot.bytes.take();
        self.free.push(id.0 as u16);
        match bytes {
            Some(Bytes::Lent(buffer)) => Some(buffer),
            _ => None,
        }
    }

    /// Regions there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether `id` names a region, and its length.
    pub(crate) fn len_of(&self, id: RegionId) -> Option<usize> {
        let slot = self.slots.get((id.0 & 0xffff) as usize)?;
        (slot.generation == (id.0 >> 16) as u16).then_some(slot.bytes.as_ref()?.len())
    }

    /// The first span that does not lie inside a region.
    pub(crate) fn first_outside(&self, spans: &[Span]) -> Option<Span> {
        let outside = |s: &Span| {
            let end = s.offset.saturating_add(u64::from(s.len));
            self.len_of(s.region).is_none_or(|has| end > has as u64)
        };
        spans.iter().copied().find(outside)
    }

    /// Descriptors on `id`.
    pub(crate) fn descriptors(&self, id: RegionId) -> u32 {
        self.slot(id).descriptors
    }

    pub(crate) fn add_descriptor(&mut self, id: RegionId) {
        self.slot_mut(id).descriptors += 1;
    }

    pub(crate) fn drop_descriptor(&mut self, id: RegionId) {
        let slot = self.slot_mut(id);
        assert!(slot.descriptors > 0, "region {id:?} has no descriptor to lose");
        slot.descriptors -= 1;
    }

    /// From now on `range` of a landing is never written: its owner may look at it.
    pub(crate) fn freeze(&mut self, id: RegionId, range: Range<u64>) {
        let len = self.len_of(id).unwrap_or(0) as u64;
        assert!(range.start <= range.end && range.end <= len, "{range:?} outside of {id:?}");
        let Some(Bytes::Landing(_, frozen)) = &mut self.slot_mut(id).bytes else { return };
        if range.is_empty() {
            return;
        }
        // Messages land one behind the other, so nearly always the last range just grows.
        let from = frozen.partition_point(|r| r.end < range.start);
        let to = frozen.partition_point(|r| r.start <= range.end);
        if from == to {
            frozen.insert(from, range);
        } else {
            let start = frozen[from].start.min(range.start);
            let end = frozen[to - 1].end.max(range.end);
            frozen[from] = start..end;
            frozen.drain(from + 1..to);
        }
    }

    /// Whether any byte of `range` is frozen.
    pub(crate) fn is_frozen(&self, id: RegionId, range: &Range<u64>) -> bool {
        match &self.slot(id).bytes {
            Some(Bytes::Landing(_, frozen)) => overlaps(frozen, range),
            _ => false,
        }
    }

    fn slot(&self, id: RegionId) -> &Slot {
        let slot = &self.slots[(id.0 & 0xffff) as usize];
        assert_eq!(slot.generation, (id.0 >> 16) as u16, "stale region {id:?}");
        slot
    }

    fn slot_mut(&mut self, id: RegionId) -> &mut Slot {
        let slot = &mut self.slots[(id.0 & 0xffff) as usize];
        assert_eq!(slot.generation, (id.0 >> 16) as u16, "stale region {id:?}");
        slot
    }
}

impl RouterMemory for Regions {
    /// A router's buffers: zero pages, of which the system provides those that are written to.
    fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        self.lend(Buffer::zeroed(len as usize)).map_err(|_| Errno::ENOMEM)
    }
}

impl Arena for Regions {
    fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        RouterMemory::register(self, len)
    }

    fn unregister(&mut self, region: RegionId) {
        drop(self.remove(region));
    }

    fn contains(&self, spans: &[Span]) -> bool {
        self.first_outside(spans).is_none()
    }

    fn hold(&mut self, spans: &[Span]) {
        spans.iter().for_each(|s| self.add_descriptor(s.region));
    }

    fn release(&mut self, spans: &[Span]) {
        spans.iter().for_each(|s| self.drop_descriptor(s.region));
    }
}

impl Memory for Regions {
    #[allow(unsafe_code)]
    fn bytes(&self, span: Span) -> &[u8] {
        let range = range_of(span);
        match &self.slot(span.region).bytes {
            Some(Bytes::Lent(b)) => &b[range],
            Some(Bytes::Landing(l, _)) => {
                assert!(range.end <= l.0.len, "{span:?} outside its region");
                // SAFETY: in bounds. The owner of a landing only reads, and a writer
                // does so through `&mut self`, which can't exist beside this borrow.
                unsafe {
                    core::slice::from_raw_parts(l.0.ptr.as_ptr().add(range.start), range.len())
                }
            }
            None => panic!("{span:?} of a region that is gone"),
        }
    }

    /// As [`Stack::take_back`](crate::Stack::take_back) does it, and lends other bytes under the same name.
    fn exchange(&mut self, span: Span, bytes: Vec<u8>) -> Result<Vec<u8>, Vec<u8>> {
        let range = range_of(span);
        let slot = self.slot_mut(span.region);
        let free = slot.descriptors == 0;
        match &mut slot.bytes {
            Some(Bytes::Lent(buffer))
                if free
                    && matches!(buffer.origin, Origin::Heap { .. })
                    // Registering other bytes with a device costs more than a copy.
                    && buffer.anchor.get().is_none()
                    && range == (0..buffer.len)
                    && bytes.len() == buffer.len =>
            {
                Ok(core::mem::replace(buffer, bytes.into()).into_vec())
            }
            _ => Err(bytes),
        }
    }

    fn anchor(&self, region: RegionId) -> Option<&Arc<()>> {
        let buffer = match self.slot(region).bytes.as_ref()? {
            Bytes::Lent(b) => b,
            Bytes::Landing(l, _) => &l.0,
        };
        Some(buffer.anchor.get_or_init(Arc::default))
    }

    #[allow(unsafe_code)]
    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        let range = range_of(span);
        match &mut self.slot_mut(span.region).bytes {
            Some(Bytes::Lent(b)) => &mut b[range],
            Some(Bytes::Landing(l, frozen)) => {
                assert!(range.end <= l.0.len, "{span:?} outside its region");
                let wide = range.start as u64..range.end as u64;
                assert!(!overlaps(frozen, &wide), "{span:?} has been delivered already");
                // SAFETY: in bounds. Inside the stack `&mut self` excludes every other borrow; the
                // owner outside sees frozen ranges only, and this one is not. `ptr` reaches the
                // whole allocation and no reference to all of it is ever made.
                unsafe {
                    core::slice::from_raw_parts_mut(l.0.ptr.as_ptr().add(range.start), range.len())
                }
            }
            None => panic!("{span:?} of a region that is gone"),
        }
    }
}

impl fmt::Debug for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Regions({})", self.len())
    }
}

fn range_of(span: Span) -> Range<usize> {
    // Regions are no longer than the address space; an offset beyond it fails the bounds check.
    let start = usize::try_from(span.offset).unwrap_or(usize::MAX);
    start..start.saturating_add(span.len as usize)
}

fn overlaps(frozen: &[Range<u64>], range: &Range<u64>) -> bool {
    if range.is_empty() {
        return false;
    }
    let after = frozen.partition_point(|r| r.end <= range.start);
    frozen.get(after).is_some_and(|r| r.start < range.end)
}

/// `range` of a region as spans, each of which is at most 4 GiB long.
pub(crate) fn spans(region: RegionId, range: Range<u64>) -> IoVec {
    let mut out = IoVec::new();
    if let Ok(len @ 1..) = u32::try_from(range.end.saturating_sub(range.start)) {
        return IoVec::from_buf([Span { region, len, offset: range.start }]);
    }
    let mut offset = range.start;
    while offset < range.end {
        let len = (range.end - offset).min(u64::from(u32::MAX)) as u32;
        out.push(Span { region, len, offset });
        offset += u64::from(len);
    }
    out
}

#[cfg(test)]
mod tests;
