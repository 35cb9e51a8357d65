//! Which metadata targets a user wants for a new directory (C-123, C-155). Pure.

use lustre_wire::striping::{DirDefault, Magic, StripeObject, Striping};

use super::{LayoutError, VisitError};

/// Any target.
pub(super) const ANY: u32 = u32::MAX;
/// The rule in the hash of a layout, without flags (C-154).
const KIND: u32 = 0xffff;
/// Levels below a striped directory that are striped like it: as `lfs mkdir` asks for (C-155).
const DEPTH: u8 = 3;

/// By which rule a striped directory spreads its names (C-154).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirHash {
    /// The sum of all characters.
    AllChars = 1,
    /// FNV-1a of 64 bits.
    Fnv1a64 = 2,
    /// Crush.
    Crush = 3,
    /// Crush, with names of temporary files where their final ones will be.
    Crush2 = 4,
}

impl DirHash {
    /// Each, with its name as `lfs` has it.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::AllChars, "all_char"),
        (Self::Fnv1a64, "fnv_1a_64"),
        (Self::Crush, "crush"),
        (Self::Crush2, "crush2"),
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(hash, _)| hash)
    }

    /// The name of the rule in a layout, whatever its flags are; `None`: there is none, or it is not known.
    pub fn name_of(hash: u32) -> Option<&'static str> {
        let kind = hash & KIND;
        Self::ALL.into_iter().find(|(known, _)| *known as u32 == kind).map(|(_, name)| name)
    }
}

/// Where a new directory is to be. What is not said is decided by the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirWish {
    /// Indexes of the metadata targets that get it: the first one has the directory. Over several its names
    /// are spread.
    pub mdts: Vec<u32>,
    /// Over how many metadata targets its names are spread, -1 for all; of several that are named, over
    /// each.
    pub count: Option<i32>,
    /// By which rule.
    pub hash: Option<DirHash>,
}

impl DirWish {
    /// The bytes of the layout, for [`Visitor::make_dir`](super::Visitor::make_dir); empty if nothing is
    /// wanted.
    pub fn bytes(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        let listed = if self.mdts.len() > 1 { self.mdts.as_slice() } else { &[] };
        let count = match listed.len() {
            0 => self.count.unwrap_or(0),
            listed => i32::try_from(listed).unwrap_or(i32::MAX),
        };
        let spread = count != 0 && count != 1;
        let layout = DirDefault {
            magic: if listed.is_empty() { Magic::DIR_USER } else { Magic::DIR_USER_SPECIFIC },
            stripe_count: count,
            master: self.mdts.first().copied().unwrap_or(ANY),
            hash: self.hash.map_or(0, |hash| hash as u32),
            inherit: if spread { DEPTH } else { 0 },
            ..DirDefault::default()
        };
        let target = |index: &u32| StripeObject { index: *index, ..StripeObject::default() };
        Striping::DirDefault(layout, listed.iter().map(target).collect()).to_bytes()
    }
}

/// The target that a layout names: it makes the directory, and its FID is of that target (C-125).
/// `None`: any target.
///
/// # Errors
/// Bytes that are no layout of a user's choice.
pub(super) fn target_of(layout: &[u8]) -> Result<Option<u32>, VisitError> {
    if layout.is_empty() {
        return Ok(None);
    }
    match Striping::parse(layout) {
        Ok(Striping::DirDefault(head, _)) => Ok((head.master != ANY).then_some(head.master)),
        _ => Err(VisitError::Layout(LayoutError::Bad("expected one of a directory"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c155_a_target_that_is_chosen_has_the_bytes_that_servers_read() {
        assert_eq!(DirWish::default().bytes(), Vec::<u8>::new());
        let bytes = DirWish { mdts: vec![1], ..DirWish::default() }.bytes();
        assert_eq!(bytes.len(), 48);
        assert_eq!(bytes[..12], [0xd0, 0x0c, 0xd3, 0x0c, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[12..], [0; 36]);
        assert_eq!(target_of(&bytes).unwrap(), Some(1));
    }

    #[test]
    fn c155_a_spread_directory_has_the_bytes_that_were_recorded() {
        let two = DirWish { count: Some(2), ..DirWish::default() };
        let bytes = two.bytes();
        assert_eq!(bytes[..12], [0xd0, 0x0c, 0xd3, 0x0c, 2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!((&bytes[12..20], bytes[20], &bytes[21..]), (&[0; 8][..], 3, &[0; 27][..]));
        assert_eq!(target_of(&bytes).unwrap(), None);
        let crush = DirWish { hash: DirHash::named("crush"), ..two }.bytes();
        assert_eq!(crush[12..16], [3, 0, 0, 0]);
        assert_eq!(DirHash::named("md5"), None);
    }

    #[test]
    fn layouts_without_a_target_leave_it_open_while_other_bytes_are_refused() {
        assert_eq!(target_of(b"").unwrap(), None);
        let on = |mdt| DirWish { mdts: vec![mdt], ..DirWish::default() }.bytes();
        assert_eq!(target_of(&on(ANY)).unwrap(), None);
        assert!(target_of(&[0; 48]).is_err());
        assert!(target_of(&on(1)[..47]).is_err());
    }

    #[test]
    fn c155_a_list_of_targets_has_the_bytes_that_were_recorded() {
        // `lfs mkdir -i 1,0 -c 2` in dne-2-mdt, frame 1708.
        let bytes = DirWish { mdts: vec![1, 0], count: Some(2), hash: None }.bytes();
        let mut recorded = [0; 96];
        recorded[..12].copy_from_slice(&[0xd0, 0x0c, 0xd4, 0x0c, 2, 0, 0, 0, 1, 0, 0, 0]);
        (recorded[20], recorded[68]) = (3, 1);
        assert_eq!(bytes, recorded);
        assert_eq!(target_of(&bytes).unwrap(), Some(1));
        // The number follows from the list.
        assert_eq!(DirWish { mdts: vec![1, 0], count: None, hash: None }.bytes(), recorded);
    }

    #[test]
    fn c154_rules_in_layouts_have_names_whatever_their_flags_are() {
        assert_eq!([1, 2, 3, 4].map(DirHash::name_of), DirHash::ALL.map(|(_, name)| Some(name)));
        assert_eq!(DirHash::name_of(0x8200_0003), Some("crush"));
        assert_eq!([0, 5].map(DirHash::name_of), [None; 2]);
    }
}
