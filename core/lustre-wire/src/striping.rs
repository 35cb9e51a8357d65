//! Where the data of a file and the names of a directory lie (C-153, C-155, C-168 … C-176).
//!
//! These structures are little-endian whatever the order of the message is. They are read whole, as
//! values; the bytes can be written again.

use lnet_types::ByteOrder;

use crate::fid::{Fid, ObjectId};
use crate::layout::{Text, codes, flags, layout, part};
use crate::{Layout, WireError};

const ORDER: ByteOrder = ByteOrder::Little;

codes! {
    /// The first word of a layout.
    pub struct Magic(u32) {
        /// One component.
        V1 = 0x0BD1_0BD0 "V1",
        /// One component, with the name of a pool.
        V3 = 0x0BD3_0BD0 "V3",
        /// Several components.
        COMPOSITE = 0x0BD6_0BD0 "composite",
        /// Data that is elsewhere.
        FOREIGN = 0x0BD7_0BD0 "foreign",
        /// A request with a list of targets.
        SPECIFIC = 0x0BD5_0BD0 "specific",
        /// A striped directory.
        DIR = 0x0CD2_0CD0 "directory",
        /// A directory that is to be made, or a default.
        DIR_USER = 0x0CD3_0CD0 "directory default",
        /// The same with a list of targets; also a stripe of a directory, which has no list.
        DIR_USER_SPECIFIC = 0x0CD4_0CD0 "directory specific",
        /// A directory that is elsewhere.
        DIR_FOREIGN = 0x0CD5_0CD0 "foreign directory",
    }
}

flags! {
    /// How stripes hold data (C-170).
    pub struct Pattern(u32) {
        /// In turn.
        RAID0 = 0x1, "raid0";
        /// Each all of it.
        RAID1 = 0x2, "raid1";
        /// Erasure codes.
        PARITY = 0x4, "parity";
        /// On the MDT.
        MDT = 0x100, "mdt";
        /// Several objects on one target.
        OVERSTRIPING = 0x200, "overstriping";
        /// Elsewhere.
        FOREIGN = 0x400, "foreign";
        /// Compressed.
        COMPRESS = 0x800, "compress";
        /// An object is missing.
        HOLE = 0x4000_0000, "hole";
        /// In the archive.
        RELEASED = 0x8000_0000, "released";
    }

    /// State of a component (C-173).
    pub struct ComponentFlags(u32) {
        /// Out of date.
        STALE = 0x1, "stale";
        /// Preferred for reading.
        PREF_RD = 0x2, "pref_rd";
        /// Preferred for writing.
        PREF_WR = 0x4, "pref_wr";
        /// Not available.
        OFFLINE = 0x8, "offline";
        /// It has objects.
        INIT = 0x10, "init";
        /// Not resynchronised.
        NOSYNC = 0x20, "nosync";
        /// It makes others longer.
        EXTENSION = 0x40, "extension";
        /// Erasure codes.
        PARITY = 0x80, "parity";
        /// Compressed.
        COMPRESS = 0x100, "compress";
        /// Compressed in part.
        PARTIAL = 0x200, "partial";
        /// Not to be compressed.
        NOCOMPR = 0x400, "nocompr";
        /// The id is that of a link.
        IS_LINK_ID = 0x4000_0000, "link_id";
    }
}

layout! {
    /// The front of a component with or without pool.
    pub struct StripeHead("file layout", 32) {
        /// V1 or V3.
        0 magic: Magic,
        /// Pattern.
        4 pattern: Pattern,
        /// Number of the file in its sequence.
        8 file_oid: u64,
        /// Sequence of the file.
        16 file_seq: u64,
        /// Bytes of a stripe.
        24 stripe_size: u32,
        /// Number of stripes.
        28 stripe_count: u16,
        /// Generation; in requests the first target.
        30 generation: u16,
    }

    /// An object of a component.
    pub struct StripeObject("stripe object", 24) {
        /// The object.
        0 id: ObjectId,
        /// Generation of the target.
        16 generation: u32,
        /// Index of the target.
        20 index: u32,
    }

    /// The front of a layout with several components.
    pub struct CompositeHead("composite layout", 32) {
        /// [`Magic::COMPOSITE`].
        0 magic: Magic,
        /// Bytes of everything.
        4 size: u32,
        /// Generation.
        8 generation: u32,
        /// State of the mirrors.
        12 flags: u16,
        /// Number of components.
        14 count: u16,
        /// Number of mirrors less one.
        16 mirrors: u16,
        /// Number of components with erasure codes.
        18 code_count: u8,
    }

    /// A component, without its stripes.
    pub struct ComponentEntry("layout component", 48) {
        /// Mirror in the upper, number in the lower half.
        0 id: u32,
        /// State.
        4 flags: ComponentFlags,
        /// Where it begins.
        8 start: u64,
        /// Where it ends; all ones for the end of the file.
        16 end: u64,
        /// Where its stripes stand, from the front of the layout.
        24 offset: u32,
        /// Bytes of its stripes.
        28 size: u32,
        /// Generation.
        32 generation: u32,
        /// Time, and mirror that it is linked to.
        36 time: u64,
        /// Data stripes of an erasure code.
        44 data_stripes: u8,
        /// Code stripes of an erasure code.
        45 code_stripes: u8,
        /// Kind of compression.
        46 compr_type: u8,
        /// Level and chunk of the compression.
        47 compr_level: u8,
    }

    /// The front of a foreign layout.
    pub struct ForeignHead("foreign layout", 16) {
        /// [`Magic::FOREIGN`] or [`Magic::DIR_FOREIGN`].
        0 magic: Magic,
        /// Bytes of the value.
        4 len: u32,
        /// Kind.
        8 kind: u32,
        /// Flags.
        12 flags: u32,
    }

    /// The front of a striped directory's layout.
    pub struct DirHead("directory layout", 56) {
        /// Magic.
        0 magic: Magic,
        /// Number of stripes.
        4 stripe_count: u32,
        /// Index of the master MDT; of a stripe its number.
        8 master: u32,
        /// Kind of the hash, and flags.
        12 hash: u32,
        /// Version.
        16 version: u32,
        /// How far a migration is.
        20 migrate_offset: u32,
        /// Kind of the hash before or after it.
        24 migrate_hash: u32,
        /// Pool.
        40 pool: Text<16>,
    }

    /// What a new directory is to be like.
    pub struct DirDefault("directory default", 48) {
        /// Magic.
        0 magic: Magic,
        /// Number of stripes: 0 and 1 none, -1 all.
        4 stripe_count: i32,
        /// Index of the MDT, all ones for any.
        8 master: u32,
        /// Kind of the hash.
        12 hash: u32,
        /// Kind.
        16 kind: u32,
        /// How deep it is inherited.
        20 inherit: u8,
        /// How deep directories are spread in turn.
        21 inherit_rr: u8,
        /// Pool.
        32 pool: Text<16>,
    }
}

/// The name of a pool, where a component has one.
type Pool = Text<16>;

/// One component: a front, perhaps a pool, objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripes {
    /// The front.
    pub head: StripeHead,
    /// The pool.
    pub pool: Option<Pool>,
    /// The objects, as many as there are bytes for: without [`ComponentFlags::INIT`], and in a
    /// released file, they mean nothing.
    pub objects: Vec<StripeObject>,
}

impl Stripes {
    fn parse(b: &[u8]) -> Result<Self, WireError> {
        let head = StripeHead::parse(ORDER, b)?;
        let (pool, rest) = match head.magic {
            Magic::V3 | Magic::SPECIFIC => {
                let rest = b.get(StripeHead::LEN..).unwrap_or_default();
                let pool = Pool::parse(ORDER, rest)?;
                (Some(pool), rest.get(Pool::LEN..).unwrap_or_default())
            }
            _ => (None, b.get(StripeHead::LEN..).unwrap_or_default()),
        };
        let objects = rest.chunks_exact(StripeObject::LEN);
        // Room in a request is filled with zeros.
        if objects.remainder().iter().any(|byte| *byte != 0) {
            let (what, need) = (StripeObject::NAME, StripeObject::LEN);
            return Err(WireError::Size { what, need, have: objects.remainder().len() });
        }
        let objects = objects.map(|b| StripeObject::get(ORDER, b)).collect();
        Ok(Self { head, pool, objects })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.to_bytes(ORDER);
        bytes.extend(self.pool.iter().flat_map(|pool| pool.to_bytes(ORDER)));
        bytes.extend(self.objects.iter().flat_map(|object| object.to_bytes(ORDER)));
        bytes
    }
}

/// The layout of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Striping {
    /// One component.
    Plain(Stripes),
    /// Several components.
    Composite(CompositeHead, Vec<(ComponentEntry, Stripes)>),
    /// Data that is elsewhere.
    Foreign(ForeignHead, Vec<u8>),
    /// A striped directory and its stripes; or one of these, without.
    Dir(DirHead, Vec<Fid>),
    /// What a new directory is to be like, and on which targets.
    DirDefault(DirDefault, Vec<StripeObject>),
}

impl Striping {
    /// The layout that `b` begins with. Zeros behind it, which fill planned room, are ignored.
    ///
    /// # Errors
    /// Another magic, lengths that do not fit.
    pub fn parse(b: &[u8]) -> Result<Self, WireError> {
        let magic = Magic::parse(ORDER, b)?;
        match magic {
            Magic::V1 | Magic::V3 | Magic::SPECIFIC => Ok(Self::Plain(Stripes::parse(b)?)),
            Magic::COMPOSITE => Self::composite(b),
            Magic::FOREIGN | Magic::DIR_FOREIGN => {
                let head = ForeignHead::parse(ORDER, b)?;
                let need = ForeignHead::LEN.saturating_add(head.len as usize);
                let value = b.get(ForeignHead::LEN..need).ok_or(WireError::Short {
                    what: ForeignHead::NAME,
                    need,
                    have: b.len(),
                })?;
                Ok(Self::Foreign(head, value.to_vec()))
            }
            Magic::DIR => {
                let head = DirHead::parse(ORDER, b)?;
                let rest = b.get(DirHead::LEN..).unwrap_or_default();
                Ok(Self::Dir(head, elements(head.stripe_count as usize, rest)?))
            }
            Magic::DIR_USER_SPECIFIC if b.len() == DirHead::LEN => {
                Ok(Self::Dir(DirHead::get(ORDER, b), Vec::new()))
            }
            Magic::DIR_USER | Magic::DIR_USER_SPECIFIC => {
                let head = DirDefault::parse(ORDER, b)?;
                let rest = b.get(DirDefault::LEN..).unwrap_or_default();
                let listed = if magic == Magic::DIR_USER { 0 } else { head.stripe_count };
                let count = usize::try_from(listed).unwrap_or(0);
                Ok(Self::DirDefault(head, elements(count, rest)?))
            }
            Magic(other) => {
                let (what, field) = ("layout", "magic");
                Err(WireError::Value { what, field, value: other.into() })
            }
        }
    }

    fn composite(b: &[u8]) -> Result<Self, WireError> {
        let what = CompositeHead::NAME;
        let head = CompositeHead::parse(ORDER, b)?;
        let need = head.size as usize;
        if need < CompositeHead::LEN {
            let (value, min, max) = (head.size.into(), CompositeHead::LEN as u64, u32::MAX.into());
            return Err(WireError::Limit { what, field: "size", value, min, max });
        }
        let b = b.get(..need).ok_or(WireError::Short { what, need, have: b.len() })?;
        let rest = b.get(CompositeHead::LEN..).unwrap_or_default();
        let entries: Vec<ComponentEntry> = elements(head.count.into(), rest)?;
        // Components that share their bytes would need more memory than the layout has.
        let value = entries.iter().map(|entry| u64::from(entry.size)).sum();
        if value > head.size.into() {
            let (field, max) = ("size of all components", head.size.into());
            return Err(WireError::Limit { what, field, value, min: 0, max });
        }
        let with_stripes = |entry: ComponentEntry| {
            let start = entry.offset as usize;
            let need = start.saturating_add(entry.size as usize);
            let stripes = b.get(start..need);
            let stripes = stripes.ok_or(WireError::Short { what, need, have: b.len() })?;
            Ok((entry, Stripes::parse(stripes)?))
        };
        let components = entries.into_iter().map(with_stripes).collect::<Result<_, _>>()?;
        Ok(Self::Composite(head, components))
    }

    /// The bytes of the layout. Stripes of components are written where their entries say, as far
    /// as there is room in the size of the whole.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Plain(stripes) => stripes.to_bytes(),
            Self::Composite(head, components) => {
                let mut bytes = head.to_bytes(ORDER);
                for (entry, _) in components {
                    bytes.extend(entry.to_bytes(ORDER));
                }
                bytes.resize(head.size as usize, 0);
                for (entry, stripes) in components {
                    let to = crate::layout::part_mut(
                        &mut bytes,
                        entry.offset as usize,
                        entry.size as usize,
                    );
                    to.iter_mut().zip(stripes.to_bytes()).for_each(|(to, from)| *to = from);
                }
                bytes
            }
            Self::Foreign(head, value) => [head.to_bytes(ORDER), value.clone()].concat(),
            Self::Dir(head, stripes) => {
                let stripes = stripes.iter().flat_map(|fid| fid.to_bytes(ORDER));
                head.to_bytes(ORDER).into_iter().chain(stripes).collect()
            }
            Self::DirDefault(head, targets) => {
                let targets = targets.iter().flat_map(|target| target.to_bytes(ORDER));
                head.to_bytes(ORDER).into_iter().chain(targets).collect()
            }
        }
    }
}

/// `count` structures at the front of `b`.
fn elements<T: Layout>(count: usize, b: &[u8]) -> Result<Vec<T>, WireError> {
    let need = T::LEN.saturating_mul(count);
    if b.len() < need {
        return Err(WireError::Short { what: T::NAME, need, have: b.len() });
    }
    Ok(part(b, 0, need).chunks_exact(T::LEN).map(|b| T::get(ORDER, b)).collect())
}
