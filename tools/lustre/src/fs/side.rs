//! Which side of a copy is in a file system, and which one here.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use anyhow::Result;
use clap::builder::{OsStringValueParser, TypedValueParser};
use lustre_rt::visitor::Place;

/// What stands before a path of this machine that looks like one of a file system.
const HERE: &[u8] = b"file:";

/// A side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// On this machine.
    Here(PathBuf),
    /// In a file system.
    There(Place),
}

impl Side {
    pub(super) fn parse(text: &[u8]) -> Result<Self> {
        let here = |path| Ok(Self::Here(OsStr::from_bytes(path).into()));
        if let Some(path) = text.strip_prefix(HERE) {
            return here(path);
        }
        let bare = text.starts_with(b"/") && std::env::var_os(super::VARIABLE).is_some();
        let nids = text.windows(2).position(|two| two == b":/").and_then(|end| text.get(..end));
        if bare || nids.is_some_and(|nids| nids.contains(&b'@')) {
            return super::place(text).map(Self::There);
        }
        here(text)
    }
}

/// Sides of a command line, whose paths are any bytes.
pub(super) fn sides() -> impl TypedValueParser<Value = Side> {
    OsStringValueParser::new().try_map(|text: OsString| Side::parse(&text.into_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_nid_and_all_else_is_here() {
        let side = |text: &str| Side::parse(text.as_bytes()).unwrap();
        let Side::There(place) = side("10.0.0.1@tcp:/lfs/data") else { panic!("a place") };
        assert_eq!(place.path, b"/data");
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
