//! Lists of NIDs: ranges, bracket lists and masks (wire.md 1.5), as used in UDSP rules, peer lists
//! and ip2nets. Parsing is total; nothing here expands a list without a limit.

use thiserror::Error;

use crate::Nid;

/// One range of NIDs on one network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NidRange {}

/// A list of ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NidList {
    ranges: Vec<NidRange>,
}

/// Why a text is not a list of NIDs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseNidListError {
    /// Nothing but blanks.
    #[error("empty NID list")]
    Empty,
}

impl NidList {
    /// Whether any range of the list contains `nid`.
    pub fn contains(&self, nid: Nid) -> bool {
        let _ = nid;
        !self.ranges.is_empty()
    }
}
