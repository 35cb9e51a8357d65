//! From a layout that is wished to one with objects (C-100, C-169 … C-175, C-196 … C-200). All components
//! of a file have their objects from the beginning: there is nothing to be instantiated by writers. The
//! first component may be on this target, without objects (C-182).

use lnet_types::Errno;
use lustre_wire::Layout;
use lustre_wire::striping::{
    ComponentEntry, ComponentFlags, CompositeHead, Magic, Pattern, StripeHead, StripeObject,
    Stripes, Striping,
};

use super::inode::Id;
use super::objects::{Objects, STRIPES_MAX};
use super::tree::Tree;

/// Bytes of a stripe if none are named, and what each is a multiple of.
const STRIPE_SIZE: u32 = 4 << 20;
const STRIPE_UNIT: u32 = 64 << 10;
/// Any object target; all of them; what a request leaves to the server.
const ANY: u16 = 0xffff;
const ALL: u16 = 0xffff;
const DEFAULT_PATTERN: u32 = u32::MAX;
/// Most components of a file.
pub(super) const COMPONENTS_MAX: usize = 32;
/// Bytes of the layout of a file: it has to fit into the reply of an open.
pub(super) const LAYOUT_MAX: usize = 4096;
/// Where a file ends that has no end.
const ENDLESS: u64 = u64::MAX;
/// Where a component on this target ends at the latest: the usual limit of kernel servers.
const HERE_MAX: u64 = 1 << 20;

/// Where the bytes of a range are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    start: u64,
    end: u64,
    stripe_size: u32,
    /// Its data are on this target.
    here: bool,
    /// 0: as many as are usual.
    count: u16,
    first: Option<u32>,
    listed: Vec<u32>,
    pool: Stripes,
}

/// The layout that a new file is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wished {
    parts: Vec<Wish>,
    composite: bool,
}

fn part(stripes: Stripes, start: u64, end: u64) -> Result<Wish, Errno> {
    let head = stripes.head;
    let plain = [0, Pattern::RAID0.bits(), DEFAULT_PATTERN];
    let here = head.pattern == Pattern::MDT;
    if !here && !plain.contains(&head.pattern.bits()) {
        return Err(Errno::EOPNOTSUPP);
    }
    // C-200; a plain layout has no end.
    if here && (start != 0 || end > HERE_MAX) {
        return Err(Errno::EINVAL);
    }
    if !head.stripe_size.is_multiple_of(STRIPE_UNIT) {
        return Err(Errno::EINVAL);
    }
    let stripe_size = if head.stripe_size == 0 { STRIPE_SIZE } else { head.stripe_size };
    let listed: Vec<u32> = match head.magic {
        Magic::SPECIFIC => {
            let named = stripes.objects.iter().take(head.stripe_count.into());
            named.map(|object| object.index).collect()
        }
        _ => Vec::new(),
    };
    let repeated = |(i, index): (usize, &u32)| listed.iter().take(i).any(|before| before == index);
    if listed.iter().enumerate().any(repeated) {
        return Err(Errno::EOPNOTSUPP);
    }
    let first = (listed.is_empty() && head.generation != ANY).then_some(head.generation.into());
    let count = head.stripe_count;
    Ok(Wish { start, end, stripe_size, here, count, first, listed, pool: stripes })
}

impl Wished {
    /// One stripe, anywhere.
    pub(super) fn usual() -> Self {
        let head = StripeHead { magic: Magic::V1, generation: ANY, ..StripeHead::default() };
        let pool = Stripes { head, pool: None, objects: Vec::new() };
        let one = Wish {
            start: 0,
            end: ENDLESS,
            stripe_size: STRIPE_SIZE,
            here: false,
            count: 0,
            first: None,
            listed: Vec::new(),
            pool,
        };
        Self { parts: vec![one], composite: false }
    }

    /// What a request or the default of a directory says; `None`: nothing.
    ///
    /// # Errors
    /// `EINVAL` for what is no layout, `EOPNOTSUPP` for one that no file here can have.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Self>, Errno> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        match Striping::parse(bytes).map_err(|_| Errno::EINVAL)? {
            Striping::Plain(stripes) => {
                Ok(Some(Self { parts: vec![part(stripes, 0, ENDLESS)?], composite: false }))
            }
            Striping::Composite(_, parts) => {
                if parts.is_empty() || parts.len() > COMPONENTS_MAX {
                    return Err(Errno::EINVAL);
                }
                let mut wishes = Vec::new();
                let mut end = 0;
                for (entry, stripes) in parts {
                    let aligned = entry.end == ENDLESS || entry.end % u64::from(STRIPE_UNIT) == 0;
                    if entry.start != end || entry.end <= entry.start || !aligned {
                        return Err(Errno::EINVAL);
                    }
                    let special = ComponentFlags::EXTENSION | ComponentFlags::PARITY;
                    if entry.flags.intersects(special) {
                        return Err(Errno::EOPNOTSUPP);
                    }
                    end = entry.end;
                    wishes.push(part(stripes, entry.start, entry.end)?);
                }
                Ok(Some(Self { parts: wishes, composite: true }))
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The layout of a file with objects, and which these are.
    ///
    /// # Errors
    /// As [`Objects::take`].
    pub(super) fn make(
        &self,
        file: Id,
        objects: &mut Objects,
        tree: &Tree,
    ) -> Result<(Vec<u8>, Vec<StripeObject>), Errno> {
        let mut taken: Vec<StripeObject> = Vec::new();
        let mut parts = Vec::new();
        for wish in &self.parts {
            if wish.here {
                let head = StripeHead {
                    magic: Magic::V1,
                    pattern: Pattern::MDT,
                    file_oid: file.oid.into(),
                    file_seq: file.seq,
                    stripe_size: u32::try_from(wish.end).unwrap_or(u32::MAX),
                    stripe_count: 0,
                    generation: 0,
                };
                parts.push((wish, Stripes { head, pool: None, objects: Vec::new() }));
                continue;
            }
            let count = match wish.count {
                ALL => objects.count(),
                0 if wish.listed.is_empty() => 1,
                0 => wish.listed.len(),
                count => count.into(),
            };
            let count = count.min(STRIPES_MAX);
            let mut mine = objects.take(count, wish.first, &wish.listed, tree)?;
            for object in &mut mine {
                // Of a target that an earlier component uses, the next object.
                let before = taken.iter().filter(|other| other.index == object.index).count();
                object.id.oid = object.id.oid.saturating_add(before as u32);
            }
            taken.extend_from_slice(&mine);
            let pool = wish.pool.pool.filter(|pool| !pool.as_bytes().is_empty());
            let head = StripeHead {
                magic: if pool.is_some() { Magic::V3 } else { Magic::V1 },
                pattern: Pattern::RAID0,
                file_oid: file.oid.into(),
                file_seq: file.seq,
                stripe_size: wish.stripe_size,
                stripe_count: mine.len() as u16,
                generation: 0,
            };
            parts.push((wish, Stripes { head, pool, objects: mine }));
        }
        let layout = match parts.as_slice() {
            [(_, stripes)] if !self.composite => Striping::Plain(stripes.clone()),
            parts => composite(parts),
        };
        let bytes = layout.to_bytes();
        if bytes.len() > LAYOUT_MAX { Err(Errno::EINVAL) } else { Ok((bytes, taken)) }
    }
}

fn composite(parts: &[(&Wish, Stripes)]) -> Striping {
    let mut offset = CompositeHead::LEN + parts.len() * ComponentEntry::LEN;
    let mut components = Vec::new();
    for (i, (wish, stripes)) in parts.iter().enumerate() {
        let size = Striping::Plain(stripes.clone()).to_bytes().len();
        let entry = ComponentEntry {
            id: i as u32 + 1,
            flags: ComponentFlags::INIT,
            start: wish.start,
            end: wish.end,
            offset: offset as u32,
            size: size as u32,
            ..ComponentEntry::default()
        };
        offset += size;
        components.push((entry, stripes.clone()));
    }
    let head = CompositeHead {
        magic: Magic::COMPOSITE,
        size: offset as u32,
        generation: 1,
        count: components.len() as u16,
        ..CompositeHead::default()
    };
    Striping::Composite(head, components)
}

/// What a directory shows as its default, without objects (C-100).
///
/// # Errors
/// As [`Wished::read`]; `Ok(None)` takes a default away (C-199).
pub(super) fn default_of(bytes: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let Some(wished) = Wished::read(bytes)? else { return Ok(None) };
    if let [one] = wished.parts.as_slice()
        && !wished.composite
        && one.count == 0
        && !one.here
        && one.pool.head.stripe_size == 0
        && one.pool.pool.is_none_or(|pool| pool.as_bytes().is_empty())
        && one.first.is_none()
        && one.listed.is_empty()
    {
        return Ok(None);
    }
    if bytes.len() > LAYOUT_MAX { Err(Errno::EINVAL) } else { Ok(Some(bytes.to_vec())) }
}
