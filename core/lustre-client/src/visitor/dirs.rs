//! Which metadata targets a user wants for a new directory (C-123, C-155). Pure.

use lnet_types::ByteOrder;
use lustre_wire::Layout as _;
use lustre_wire::striping::Magic;

use super::VisitError;

/// Bytes of the layout that a user chooses.
const LEN: usize = 48;
/// Any target.
const ANY: u32 = u32::MAX;

/// Where a new directory is to be. What is not said is decided by the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirWish {
    /// Index of the metadata target that gets the directory.
    pub mdt: Option<u32>,
}

impl DirWish {
    /// The bytes of the layout, for [`Visitor::make_dir`](super::Visitor::make_dir); empty if nothing is
    /// wanted.
    pub fn bytes(&self) -> Vec<u8> {
        let Some(mdt) = self.mdt else { return Vec::new() };
        let mut bytes = Magic::DIR_USER.to_bytes(ByteOrder::Little);
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(mdt.to_le_bytes());
        bytes.resize(LEN, 0);
        bytes
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
    let bad = || VisitError::Layout(super::LayoutError::Bad("expected one of a directory"));
    let word = |at: usize| {
        let bytes = layout.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    };
    if layout.len() != LEN || word(0) != Some(0x0cd3_0cd0) {
        return Err(bad());
    }
    let mdt = word(8).ok_or_else(bad)?;
    Ok((mdt != ANY).then_some(mdt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c155_a_target_that_is_chosen_has_the_bytes_that_servers_read() {
        assert_eq!(DirWish::default().bytes(), Vec::<u8>::new());
        let bytes = DirWish { mdt: Some(1) }.bytes();
        assert_eq!(bytes.len(), 48);
        assert_eq!(bytes[..12], [0xd0, 0x0c, 0xd3, 0x0c, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[12..], [0; 36]);
        assert_eq!(target_of(&bytes).unwrap(), Some(1));
    }

    #[test]
    fn layouts_without_a_target_leave_it_open_while_other_bytes_are_refused() {
        assert_eq!(target_of(b"").unwrap(), None);
        assert_eq!(target_of(&DirWish { mdt: Some(ANY) }.bytes()).unwrap(), None);
        assert!(target_of(&[0; 48]).is_err());
        assert!(target_of(&DirWish { mdt: Some(1) }.bytes()[..47]).is_err());
    }
}
