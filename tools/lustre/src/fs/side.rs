//! Which side of a copy is in a file system, and which one here.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use lustre_rt::visitor::Place;

/// What stands before a path of this machine that looks like one of a file system.
const HERE: &str = "file:";

/// A side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// On this machine.
    Here(PathBuf),
    /// In a file system.
    There(Place),
}

impl FromStr for Side {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix(HERE) {
            return Ok(Self::Here(path.into()));
        }
        let bare = text.starts_with('/') && std::env::var_os(super::VARIABLE).is_some();
        let named = text.split_once(":/").is_some_and(|(nids, _)| nids.contains('@'));
        if bare || named {
            return super::place(text).map(Self::There);
        }
        Ok(Self::Here(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_nid_and_all_else_is_here() {
        let side = |text: &str| text.parse::<Side>().unwrap();
        let Side::There(place) = side("10.0.0.1@tcp:/lfs/data") else { panic!("a place") };
        assert_eq!(place.path, "/data");
        for (text, path) in [
            ("./results", "./results"),
            ("a:/b", "a:/b"),
            ("file:/data/x", "/data/x"),
            ("file:10.0.0.1@tcp:/lfs", "10.0.0.1@tcp:/lfs"),
        ] {
            assert_eq!(side(text), Side::Here(path.into()), "{text}");
        }
    }
}
