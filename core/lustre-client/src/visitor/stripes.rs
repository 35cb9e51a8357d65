//! Where the bytes of a file are: its layout as a list of components, which parts of which objects a
//! range of the file is, and which size of the file the size of an object means (C-175 … C-184).
//! Pure. The arithmetic of one component is in `raid0.rs`.

use std::collections::BTreeSet;

use lustre_wire::fid::ObjectId;
use lustre_wire::ost::StripeInfo;
use lustre_wire::striping::{ComponentEntry, ComponentFlags, Pattern, Stripes, Striping};

use crate::raid0::{Raid0, Raid0Error};

/// Behind the last byte of a file.
pub const END: u64 = u64::MAX;

/// An object of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileObject {
    /// Its name on its target.
    pub id: ObjectId,
    /// Index of the target.
    pub ost: u32,
}

/// What holds the data of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nothing: it reads as zeros.
    Nothing,
    /// The metadata target of the file.
    Mdt,
    /// Objects in turn; `None` is one that is missing, whose data is lost.
    Objects {
        /// How they share it.
        raid: Raid0,
        /// One for each stripe.
        objects: Vec<Option<FileObject>>,
    },
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its number in the layout, 0 in a plain one.
    pub id: u32,
    /// First byte.
    pub start: u64,
    /// Behind its last byte; [`END`] for the end of the file.
    pub end: u64,
    /// What holds its data.
    pub holder: Holder,
}

/// Where the data of a file is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLayout {
    /// From byte 0 on, without gap or overlap. None: the file has no objects.
    pub components: Vec<Component>,
    /// It is one of several mirrors.
    pub mirrored: bool,
    /// The other mirrors that are not out of date, those first that are to be read first: one of them has
    /// the data where a target of this one does not answer (C-190).
    pub others: Vec<Self>,
}

/// Why the data of a file can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The data is in the archive.
    #[error("released to the archive: restore it on a node that has the file system mounted")]
    Released,
    /// The data is elsewhere.
    #[error("foreign layout of kind {0:#x}: its data is outside of the file system")]
    Foreign(u32),
    /// Data in a form that is not read here.
    #[error("pattern {0}: expected raid0, raid0 with overstriping, or mdt")]
    Pattern(Pattern),
    /// A component in a state that is not known here.
    #[error("component flags {0}: not supported")]
    Flags(ComponentFlags),
    /// Data of which there are several copies.
    #[error("mirrored: not written, as the other mirrors would be out of date")]
    Mirrored,
    /// Data that only a key can tell.
    #[error("encrypted: its data can't be read or written without the key")]
    Encrypted,
    /// No layout says where data is to go.
    #[error("no objects for bytes {0} and what follows")]
    NotMade(u64),
    /// All mirrors are out of date.
    #[error("all mirrors of the file are out of date")]
    Stale,
    /// No file can be spread in this way.
    #[error("bad layout: {0}")]
    Spread(#[from] Raid0Error),
    /// What the server sent is no layout of a file.
    #[error("bad layout: {0}")]
    Bad(&'static str),
}

/// A part of a range of a file that one request can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Where they are.
    pub at: Spot,
}

/// A place of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// Nowhere: zeros.
    Hole,
    /// In an object that is missing.
    Lost,
    /// On the metadata target of the file, from the offset in the file on.
    Mdt,
    /// In an object.
    Object {
        /// Place of the component in the layout.
        component: usize,
        /// Stripe in the component.
        stripe: usize,
        /// The object.
        object: FileObject,
        /// First byte in the object.
        offset: u64,
    },
}

impl Component {
    fn of(
        id: u32,
        range: (u64, u64),
        flags: ComponentFlags,
        stripes: &Stripes,
    ) -> Result<Self, LayoutError> {
        let (start, end) = range;
        if start >= end {
            return Err(LayoutError::Bad("a component ends before it begins"));
        }
        let refused = ComponentFlags::PARITY
            | ComponentFlags::COMPRESS
            | ComponentFlags::PARTIAL
            | ComponentFlags::IS_LINK_ID;
        let known = ComponentFlags::from_bits_retain(0x7ff);
        let pattern = stripes.head.pattern;
        let flags_refused = flags.intersection(refused).union(flags.difference(known));
        if !flags_refused.is_empty() {
            return Err(LayoutError::Flags(flags_refused));
        }
        if pattern.contains(Pattern::RELEASED) {
            return Err(LayoutError::Released);
        }
        let component = |holder| Ok(Self { id, start, end, holder });
        if pattern == Pattern::MDT {
            return component(Holder::Mdt);
        }
        let kind = pattern.difference(Pattern::HOLE);
        if kind != Pattern::RAID0 && kind != Pattern::RAID0 | Pattern::OVERSTRIPING {
            return Err(LayoutError::Pattern(pattern));
        }
        if flags.contains(ComponentFlags::EXTENSION) || !flags.contains(ComponentFlags::INIT) {
            return component(Holder::Nothing);
        }
        let count = stripes.head.stripe_count;
        let raid = Raid0::new(stripes.head.stripe_size.into(), count.into())?;
        let count = usize::from(count);
        if stripes.objects.len() < count {
            return Err(LayoutError::Bad("objects are missing"));
        }
        let objects = stripes.objects.iter().take(count).map(|object| {
            let missing = object.id == ObjectId::default();
            (!missing).then_some(FileObject { id: object.id, ost: object.index })
        });
        component(Holder::Objects { raid, objects: objects.collect() })
    }

    /// What the holders of its data learn of it (C-202, C-220).
    pub fn info(&self) -> StripeInfo {
        let (start, end) = if self.id == 0 { (0, 0) } else { (self.start, self.end) };
        let (stripe_size, stripe_count) = match &self.holder {
            Holder::Objects { raid, .. } => (raid.stripe(), raid.objects()),
            Holder::Mdt => (self.end, 0),
            Holder::Nothing => (0, 0),
        };
        // A stripe has less than 4 GiB.
        let stripe_size = u32::try_from(stripe_size).unwrap_or(u32::MAX);
        StripeInfo { stripe_size, stripe_count, start, end, id: self.id }
    }

    /// Where the object of a stripe ends if the file ends at `size`; `None`: it stays as it is
    /// (C-180).
    pub fn cut(&self, stripe: usize, size: u64) -> Option<u64> {
        if size > self.end {
            return None;
        }
        let Holder::Objects { raid, .. } = &self.holder else { return None };
        if size <= self.start {
            return Some(0);
        }
        Some(raid.object_end(u32::try_from(stripe).ok()?, size))
    }

    /// Size of the file that the size of the object of a stripe proves, cut at the end of the
    /// component; 0 without a stripe of this number.
    pub fn size_of(&self, stripe: usize, object_size: u64) -> u64 {
        match &self.holder {
            Holder::Objects { raid, .. } => {
                let stripe = u32::try_from(stripe).unwrap_or(u32::MAX);
                raid.file_end_by(stripe, object_size).min(self.end)
            }
            Holder::Mdt => object_size.min(self.end),
            Holder::Nothing => 0,
        }
    }
}

/// The mirror of a component, by its number (C-172).
const fn mirror_of(id: u32) -> u32 {
    id >> 16 & 0x7fff
}

impl FileLayout {
    /// The same, with [`Sabotage::StripeBorder`](crate::Sabotage::StripeBorder).
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub(super) fn sabotaged(mut self) -> Self {
        for component in &mut self.components {
            if let Holder::Objects { raid, .. } = &mut component.holder {
                raid.sabotage();
            }
        }
        self
    }

    /// The layout of a file, of one mirror that is not out of date.
    ///
    /// # Errors
    /// Data that can't be read, or a layout that is none of a file.
    pub fn of(striping: &Striping) -> Result<Self, LayoutError> {
        let entries = match striping {
            Striping::Plain(stripes) => {
                let plain = Component::of(0, (0, END), ComponentFlags::INIT, stripes)?;
                return Ok(Self { components: vec![plain], ..Self::default() });
            }
            Striping::Foreign(head, _) => return Err(LayoutError::Foreign(head.kind)),
            Striping::Composite(_, entries) => entries,
            Striping::Dir(..) | Striping::DirDefault(..) => {
                return Err(LayoutError::Bad("it is one of a directory"));
            }
        };
        let mut mirrors: Vec<(bool, u32)> = Vec::new();
        for (entry, _) in entries {
            let mirror = mirror_of(entry.id);
            if mirrors.iter().any(|(_, known)| *known == mirror) {
                continue;
            }
            let of = || entries.iter().filter(move |(entry, _)| mirror_of(entry.id) == mirror);
            let out = ComponentFlags::STALE | ComponentFlags::OFFLINE;
            if of().all(|(entry, _)| !entry.flags.intersects(out)) {
                let wanted = of().any(|(entry, _)| entry.flags.contains(ComponentFlags::PREF_RD));
                mirrors.push((!wanted, mirror));
            }
        }
        // Those to be read first are preferred; then the first one.
        mirrors.sort_by_key(|(later, _)| *later);
        let mut all = mirrors.into_iter().map(|(_, mirror)| Self::of_mirror(entries, mirror));
        let first = all.next().ok_or(match entries.is_empty() {
            true => LayoutError::Bad("it has no component"),
            false => LayoutError::Stale,
        })?;
        let mut others: Vec<Self> = all.flatten().collect();
        match first {
            Ok(first) => Ok(Self { others, ..first }),
            Err(e) if others.is_empty() => Err(e),
            Err(_) => {
                let next = others.remove(0);
                Ok(Self { others, ..next })
            }
        }
    }

    /// One mirror alone.
    fn of_mirror(entries: &[(ComponentEntry, Stripes)], mirror: u32) -> Result<Self, LayoutError> {
        let mut components = Vec::new();
        let mut covered = 0;
        for (entry, stripes) in entries.iter().filter(|(entry, _)| mirror_of(entry.id) == mirror) {
            if entry.start != covered {
                return Err(LayoutError::Bad("its components overlap, or leave a gap"));
            }
            covered = entry.end;
            // One that grows has no length before its first extension (C-183).
            if entry.start == entry.end {
                continue;
            }
            components.push(Component::of(
                entry.id,
                (entry.start, entry.end),
                entry.flags,
                stripes,
            )?);
        }
        if components.iter().skip(1).any(|component| component.holder == Holder::Mdt) {
            return Err(LayoutError::Bad("data on the metadata target is not at the front"));
        }
        let mirrored = entries.iter().any(|(entry, _)| mirror_of(entry.id) != mirror);
        Ok(Self { components, mirrored, others: Vec::new() })
    }

    /// Whether objects are to be made before a range is written (C-188).
    pub fn is_to_be_made(&self, start: u64, end: u64) -> bool {
        let lacks = |c: &Component| c.holder == Holder::Nothing && c.start < end && start < c.end;
        start < end && (self.components.is_empty() || self.components.iter().any(lacks))
    }

    /// Whether a part of it has no objects yet: a write of another client makes them, and this layout does
    /// not name them then (C-195).
    pub fn may_grow(&self) -> bool {
        let grows = |component: &Component| component.holder == Holder::Nothing;
        self.components.is_empty() || self.components.iter().any(grows)
    }

    /// Whether all that holds its data does so in a newer layout of the file too. Where objects were made
    /// since, the newer one has more, and another generation (C-193).
    pub fn is_kept_by(&self, newer: &Self) -> bool {
        let name = |FileObject { id, ost }: FileObject| (id.first, id.oid, id.ver, ost);
        let objects = |layout: &Self| -> BTreeSet<_> {
            layout.objects().filter_map(|(.., object)| object.map(name)).collect()
        };
        let mut left = objects(newer);
        left.extend(newer.others.iter().flat_map(objects));
        let on_mdt = self.on_mdt().is_none() || newer.on_mdt().is_some();
        on_mdt && objects(self).is_subset(&left)
    }

    /// The parts of a range, in order, each of at most `max` bytes, and up to a multiple of `max` in what
    /// holds it: where a part ends inside of a page all that follow begin inside of one. A range that ends
    /// behind the largest offset ends there.
    pub fn pieces(&self, offset: u64, len: u64, max: u64) -> Vec<Piece> {
        let end = offset.saturating_add(len);
        let max = max.max(1);
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < end {
            let found =
                self.components.iter().enumerate().find(|(_, c)| c.start <= at && at < c.end);
            let Some((place, component)) = found else {
                pieces.push(Piece { offset: at, len: end - at, at: Spot::Hole });
                break;
            };
            let mut to = end.min(component.end);
            let spot = match &component.holder {
                Holder::Nothing => Spot::Hole,
                Holder::Mdt => {
                    to = to.min(at.saturating_add(max - at % max));
                    Spot::Mdt
                }
                Holder::Objects { raid, objects } => {
                    let (stripe, inside) = raid.place(at);
                    // With one object all of a component is in one piece.
                    let most = max - inside % max;
                    let run = match objects.len() {
                        1 => most,
                        _ => (raid.stripe() - inside % raid.stripe()).min(most),
                    };
                    to = to.min(at.saturating_add(run));
                    let stripe = stripe as usize;
                    match objects.get(stripe).copied().flatten() {
                        Some(object) => {
                            Spot::Object { component: place, stripe, object, offset: inside }
                        }
                        None => Spot::Lost,
                    }
                }
            };
            pieces.push(Piece { offset: at, len: to - at, at: spot });
            at = to;
        }
        pieces
    }

    /// What the holder of a place learns of its component.
    pub(super) fn info_at(&self, at: Spot) -> StripeInfo {
        let Spot::Object { component, .. } = at else { return StripeInfo::default() };
        self.components.get(component).map(Component::info).unwrap_or_default()
    }

    /// All objects, each with the place of its component and its stripe.
    pub fn objects(&self) -> impl Iterator<Item = (usize, usize, Option<FileObject>)> {
        self.components.iter().enumerate().flat_map(|(place, component)| {
            let objects = match &component.holder {
                Holder::Objects { objects, .. } => objects.as_slice(),
                Holder::Nothing | Holder::Mdt => &[],
            };
            objects.iter().enumerate().map(move |(stripe, object)| (place, stripe, *object))
        })
    }

    /// The most objects that a part of the file is spread over.
    pub fn width(&self) -> usize {
        let width = |component: &Component| match &component.holder {
            Holder::Objects { objects, .. } => objects.len(),
            Holder::Nothing | Holder::Mdt => 0,
        };
        self.components.iter().map(width).max().unwrap_or(0)
    }

    /// The part that the metadata target holds, if there is one.
    pub fn on_mdt(&self) -> Option<&Component> {
        self.components.first().filter(|component| component.holder == Holder::Mdt)
    }
}

#[cfg(test)]
mod tests {
    use lustre_wire::striping::{ComponentEntry, CompositeHead, Magic, StripeHead, StripeObject};
    use proptest::prelude::*;

    use super::*;
    use crate::raid0::STRIPE_UNIT;

    fn stripes(stripe_size: u32, count: u16) -> Stripes {
        let object = |n: u16| StripeObject {
            id: ObjectId::old(u64::from(n) + 1),
            generation: 0,
            index: n.into(),
        };
        Stripes {
            head: StripeHead {
                magic: Magic::V1,
                pattern: Pattern::RAID0,
                stripe_size,
                stripe_count: count,
                ..StripeHead::default()
            },
            pool: None,
            objects: (0..count).map(object).collect(),
        }
    }

    fn entry(id: u32, flags: ComponentFlags, start: u64, end: u64) -> ComponentEntry {
        ComponentEntry { id, flags, start, end, ..ComponentEntry::default() }
    }

    fn composite(entries: Vec<(ComponentEntry, Stripes)>) -> Result<FileLayout, LayoutError> {
        FileLayout::of(&Striping::Composite(CompositeHead::default(), entries))
    }

    const INIT: ComponentFlags = ComponentFlags::INIT;

    #[test]
    fn file_is_as_wide_as_its_widest_part() {
        let parts = [(1, 0, 1 << 20, 4), (2, 1 << 20, END, 2)];
        let part = |(id, start, end, count)| (entry(id, INIT, start, end), stripes(1 << 20, count));
        let layout = composite(parts.map(part).to_vec()).unwrap();
        assert_eq!((layout.width(), FileLayout::default().width()), (4, 0));
    }

    #[test]
    fn c177_offsets_are_those_that_were_recorded() {
        let of = |size, count, offset| Raid0::new(size, count).unwrap().place(offset);
        for (offset, size, count, stripe, inside) in [
            (1 << 20, 128 << 10, 2, 0, 524_288),
            ((16 << 20) - (64 << 10), 128 << 10, 2, 1, 8_323_072),
            (16 << 20, 256 << 10, 4, 0, 4_194_304),
        ] {
            assert_eq!(of(size, count, offset), (stripe, inside), "{offset}");
        }
    }

    #[test]
    fn uninstantiated_and_extension_components_read_as_holes_and_mirrors_as_one() {
        let mdt = Stripes {
            head: StripeHead { pattern: Pattern::MDT, ..StripeHead::default() },
            pool: None,
            objects: Vec::new(),
        };
        let layout = composite(vec![
            (entry(1, INIT, 0, 65_536), mdt),
            (entry(2, INIT, 65_536, 1 << 20), stripes(65_536, 2)),
            (entry(3, ComponentFlags::empty(), 1 << 20, END), stripes(65_536, 1)),
        ])
        .unwrap();
        let spots: Vec<_> = layout.pieces(65_000, 1 << 20, 1 << 20);
        assert_eq!((spots[0].at, spots[0].len), (Spot::Mdt, 536));
        assert!(matches!(spots[1].at, Spot::Object { component: 1, stripe: 1, offset: 0, .. }));
        assert_eq!(spots.last().unwrap().at, Spot::Hole);
        let stale = ComponentFlags::STALE | INIT;
        let prefers = ComponentFlags::PREF_RD | INIT;
        let mirrors = |a, b| {
            composite(vec![
                (entry(0x10001, a, 0, END), stripes(65_536, 1)),
                (entry(0x20002, b, 0, END), stripes(65_536, 3)),
            ])
            .map(|layout| layout.components[0].id)
        };
        assert_eq!(mirrors(INIT, INIT), Ok(0x10001));
        assert_eq!(mirrors(stale, INIT), Ok(0x20002));
        assert_eq!(mirrors(INIT, prefers), Ok(0x20002));
        assert_eq!(mirrors(stale, stale), Err(LayoutError::Stale));
    }

    /// Its second component begins and ends where the first one ends, until the file has grown there.
    #[test]
    fn c183_component_that_has_not_grown_yet_holds_nothing() {
        let none = ComponentFlags::empty();
        let layout = composite(vec![
            (entry(1, INIT, 0, 1 << 30), stripes(65_536, 1)),
            (entry(2, none, 1 << 30, 1 << 30), stripes(65_536, 1)),
            (entry(3, ComponentFlags::EXTENSION, 1 << 30, END), stripes(65_536, 1)),
        ])
        .unwrap();
        assert_eq!(layout.components.len(), 2);
        assert_eq!(layout.pieces(1 << 30, 9, 9)[0].at, Spot::Hole);
        assert!(layout.is_to_be_made(1 << 30, (1 << 30) + 1) && !layout.is_to_be_made(0, 1 << 30));
    }

    #[test]
    fn c190_other_mirrors_that_are_not_out_of_date_are_kept_in_the_order_of_preference() {
        let prefers = ComponentFlags::PREF_RD | INIT;
        let mut mirrors = vec![
            (entry(0x10001, INIT, 0, END), stripes(65_536, 1)),
            (entry(0x20002, ComponentFlags::STALE | INIT, 0, END), stripes(65_536, 1)),
            (entry(0x30003, prefers, 0, END), stripes(65_536, 1)),
            (entry(0x40004, INIT, 0, END), stripes(65_536, 1)),
        ];
        let ids = |layout: &FileLayout| {
            let all = core::iter::once(layout).chain(&layout.others);
            all.map(|layout| layout.components[0].id).collect::<Vec<_>>()
        };
        let layout = composite(mirrors.clone()).unwrap();
        assert_eq!(ids(&layout), [0x30003, 0x10001, 0x40004]);
        assert!(layout.mirrored && layout.others.iter().all(|other| other.mirrored));
        // One in a form that is not read here does not keep the others from being read.
        mirrors[2].1.head.pattern = Pattern::PARITY;
        let layout = composite(mirrors).unwrap();
        assert_eq!((ids(&layout), layout.mirrored), (vec![0x10001, 0x40004], true));
    }

    #[test]
    fn layouts_that_can_not_be_read_are_refused_by_name() {
        let with = |pattern, size, count| {
            let mut stripes = stripes(size, count);
            stripes.head.pattern = pattern;
            FileLayout::of(&Striping::Plain(stripes))
        };
        assert_eq!(with(Pattern::RAID0 | Pattern::RELEASED, 65_536, 1), Err(LayoutError::Released));
        assert!(matches!(with(Pattern::PARITY, 65_536, 1), Err(LayoutError::Pattern(_))));
        for (size, count) in [(0, 1), (65_537, 1), (65_536, 0)] {
            assert!(matches!(with(Pattern::RAID0, size, count), Err(LayoutError::Spread(_))));
        }
        let mut short = stripes(65_536, 3);
        short.objects.pop();
        assert!(matches!(FileLayout::of(&Striping::Plain(short)), Err(LayoutError::Bad(_))));
        for ranges in [[(0, 10), (20, END)], [(0, 20), (10, END)], [(10, 20), (20, END)]] {
            let [a, b] =
                ranges.map(|(start, end)| (entry(1, INIT, start, end), stripes(65_536, 1)));
            assert!(matches!(composite(vec![a, b]), Err(LayoutError::Bad(_))), "{ranges:?}");
        }
        assert!(matches!(composite(Vec::new()), Err(LayoutError::Bad(_))));
        let compressed = (entry(1, INIT | ComponentFlags::COMPRESS, 0, END), stripes(65_536, 1));
        assert!(matches!(composite(vec![compressed]), Err(LayoutError::Flags(_))));
    }

    #[test]
    fn c193_a_layout_with_more_objects_keeps_those_of_the_former_one() {
        let part = |id, flags, count| {
            (
                entry(id, flags, u64::from(id - 1) << 20, u64::from(id) << 20),
                stripes(1 << 20, count),
            )
        };
        let former =
            composite(vec![part(1, INIT, 1), part(2, ComponentFlags::empty(), 1)]).unwrap();
        let newer = composite(vec![part(1, INIT, 1), part(2, INIT, 3)]).unwrap();
        assert!(former.is_kept_by(&former) && former.is_kept_by(&newer));
        assert!(!newer.is_kept_by(&former));
    }

    #[test]
    fn a_missing_object_is_lost_data_and_no_hole() {
        let mut holed = stripes(65_536, 2);
        holed.head.pattern |= Pattern::HOLE;
        holed.objects[1].id = ObjectId::default();
        let layout = FileLayout::of(&Striping::Plain(holed)).unwrap();
        assert_eq!(layout.pieces(65_536, 10, 100)[0].at, Spot::Lost);
    }

    proptest! {
        #[test]
        fn pieces_cover_a_range_once_and_each_byte_where_the_arithmetic_says(
            unit in 1u32..4, count in 1u16..6, borders in prop::collection::btree_set(1u64..40, 0..4),
            offset in 0u64..2_500_000, len in 1u64..400_000, max in 1u64..300_000,
        ) {
            let size = unit * STRIPE_UNIT as u32;
            let mut starts: Vec<u64> = borders.iter().map(|b| b * STRIPE_UNIT).collect();
            starts.insert(0, 0);
            let ends = starts.iter().skip(1).copied().chain([END]);
            let entries = starts.iter().copied().zip(ends).enumerate();
            let layout = composite(entries.map(|(i, (start, end))| {
                (entry(i as u32 + 1, INIT, start, end), stripes(size, count))
            }).collect()).unwrap();
            let pieces = layout.pieces(offset, len, max);
            let mut at = offset;
            for piece in &pieces {
                prop_assert_eq!(piece.offset, at);
                prop_assert!(piece.len > 0 && piece.len <= max);
                let Spot::Object { component, stripe, object, offset: inside } = piece.at else {
                    panic!("every component has objects");
                };
                let component = &layout.components[component];
                prop_assert!(component.start <= at && at + piece.len <= component.end);
                prop_assert_eq!(u64::from(object.ost), stripe as u64);
                for byte in [0, piece.len - 1] {
                    let raid = Raid0::new(size.into(), count.into()).unwrap();
                    prop_assert_eq!(raid.origin(stripe as u32, inside + byte), Some(at + byte));
                }
                at += piece.len;
            }
            prop_assert_eq!(at, offset + len);
        }
    }
}
