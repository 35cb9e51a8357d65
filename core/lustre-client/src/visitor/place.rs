//! What a mount names: the nodes of the MGS, a file system, a path in it.

use core::fmt;
use core::str::FromStr;

use lnet_types::{Nid, ParseNidError};

/// Most bytes of the name of a file system.
pub const FSNAME_MAX: usize = 8;

/// A file system, and a path in it: `MGSNID[,NID…][:MGSNID…]:/FSNAME[/PATH]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// NIDs of each node that may serve the MGS, the likeliest first.
    pub nodes: Vec<Vec<Nid>>,
    /// Name of the file system.
    pub fsname: String,
    /// Path from the root of the file system, with a slash at its front. Names are bytes, which are seldom no
    /// UTF-8.
    pub path: Vec<u8>,
}

/// Why a text is no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePlaceError {
    /// Nodes and file system are not apart.
    #[error("place '{place}': expected MGSNID:/FSNAME[/PATH], such as 10.0.0.1@tcp:/lfs/data")]
    Form {
        /// The text.
        place: String,
    },
    /// A NID without network, or none at all.
    #[error("place '{place}': NID '{nid}': expected ADDRESS@NETWORK, such as 10.0.0.1@tcp")]
    NidForm {
        /// The text.
        place: String,
        /// The part.
        nid: String,
    },
    /// A NID that is none.
    #[error("place '{place}': {source}")]
    Nid {
        /// The text.
        place: String,
        /// Why.
        source: ParseNidError,
    },
    /// The name of the file system.
    #[error(
        "place '{place}': file system '{fsname}': expected 1 to 8 letters, digits, '-' or '_', such \
         as lfs"
    )]
    Name {
        /// The text.
        place: String,
        /// The part.
        fsname: String,
    },
}

impl Place {
    /// All NIDs of the MGS, in their order.
    pub fn nids(&self) -> Vec<Nid> {
        self.nodes.concat()
    }

    /// The same file system, with another path.
    #[must_use]
    pub fn with_path(&self, path: impl AsRef<[u8]>) -> Self {
        Self { path: rooted(path.as_ref()), ..self.clone() }
    }

    /// Reads a place whose path is any bytes.
    ///
    /// # Errors
    /// As [`ParsePlaceError`] says.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParsePlaceError> {
        let shown = || shown(bytes);
        let end = bytes.windows(2).position(|two| two == b":/");
        // What stands before the path, and the path behind the name of the file system.
        let behind = end.and_then(|end| bytes.get(end + 2..)).unwrap_or_default();
        let path = behind.iter().position(|byte| *byte == b'/');
        let front = path.map_or(bytes.len(), |path| bytes.len() - behind.len() + path);
        let front = core::str::from_utf8(bytes.get(..front).unwrap_or_default());
        let front = front.map_err(|_| ParsePlaceError::Form { place: shown() })?;
        let path = path.and_then(|path| behind.get(path + 1..)).unwrap_or_default();
        Ok(Self { path: [b"/", path].concat(), ..Self::root_of(front, &shown)? })
    }

    /// The root of a file system: what stands before the path.
    fn root_of(text: &str, place: &dyn Fn() -> String) -> Result<Self, ParsePlaceError> {
        let (nodes, fsname) =
            text.split_once(":/").ok_or_else(|| ParsePlaceError::Form { place: place() })?;
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if fsname.is_empty() || fsname.len() > FSNAME_MAX || !fsname.chars().all(valid) {
            return Err(ParsePlaceError::Name { place: place(), fsname: fsname.to_owned() });
        }
        let mut found = vec![Vec::new()];
        let mut rest = nodes;
        loop {
            // An address may contain colons, a network contains none.
            let at = rest.find('@');
            let end = at.and_then(|at| Some(at + rest.get(at..)?.find([',', ':'])?));
            let nid = end.map_or(rest, |end| rest.get(..end).unwrap_or(rest));
            if at.is_none() || nid.starts_with('@') {
                let nid = nid.to_owned();
                return Err(ParsePlaceError::NidForm { place: place(), nid });
            }
            let nid =
                nid.parse().map_err(|source| ParsePlaceError::Nid { place: place(), source })?;
            if let Some(node) = found.last_mut() {
                node.push(nid);
            }
            let Some(end) = end else { break };
            if rest.get(end..).is_some_and(|rest| rest.starts_with(':')) {
                found.push(Vec::new());
            }
            rest = rest.get(end + 1..).unwrap_or_default();
        }
        Ok(Self { nodes: found, fsname: fsname.to_owned(), path: b"/".to_vec() })
    }
}

impl FromStr for Place {
    type Err = ParsePlaceError;

    fn from_str(text: &str) -> Result<Self, ParsePlaceError> {
        Self::parse(text.as_bytes())
    }
}

/// A path with one slash at its front.
fn rooted(path: &[u8]) -> Vec<u8> {
    let slashes = path.iter().take_while(|byte| **byte == b'/').count();
    [b"/", path.get(slashes..).unwrap_or_default()].concat()
}

/// Bytes for an error: those that are no text are escaped.
fn shown(bytes: &[u8]) -> String {
    match core::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, node) in self.nodes.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ":" })?;
            for (k, nid) in node.iter().enumerate() {
                write!(f, "{}{nid}", if k == 0 { "" } else { "," })?;
            }
        }
        let path = if self.path == b"/" { String::new() } else { shown(&self.path) };
        write!(f, ":/{}{path}", self.fsname)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_has_nodes_with_nids_a_file_system_and_a_path() {
        let text = "10.0.0.1@tcp,10.1.0.1@tcp1:10.0.0.2@tcp:/lfs/data/f 1";
        let place: Place = text.parse().unwrap();
        assert_eq!(place.nodes.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((place.fsname.as_str(), &place.path[..]), ("lfs", &b"/data/f 1"[..]));
        assert_eq!(place.to_string(), text);
        for (text, path) in [("10.0.0.1@tcp:/lfs", "/"), ("10.0.0.1@tcp:/lfs/", "/")] {
            let place: Place = text.parse().unwrap();
            assert_eq!(place.path, path.as_bytes());
            assert_eq!(place.to_string(), "10.0.0.1@tcp:/lfs");
            assert_eq!(place.with_path("/a/b").to_string(), "10.0.0.1@tcp:/lfs/a/b");
        }
    }

    #[test]
    fn path_of_a_place_is_any_bytes_and_shown_as_text() {
        let place = Place::parse(b"10.0.0.1@tcp:/lfs/a:/\xff/b").unwrap();
        assert_eq!((place.fsname.as_str(), &place.path[..]), ("lfs", &b"/a:/\xff/b"[..]));
        assert_eq!(place.to_string(), "10.0.0.1@tcp:/lfs/a:/\\xff/b");
        assert_eq!(place.with_path(b"//\xfe").path, b"/\xfe");
        let e = Place::parse(b"10.0.0.1@tcp:/l\xff/a").unwrap_err().to_string();
        assert!(e.contains("10.0.0.1@tcp:/l\\xff/a"), "{e}");
    }

    #[test]
    fn colons_of_an_address_do_not_end_its_nid() {
        let place: Place = "fd00::1@tcp:fd00::2@tcp:/lfs".parse().unwrap();
        assert_eq!(place.nids(), ["fd00::1@tcp".parse().unwrap(), "fd00::2@tcp".parse().unwrap()]);
        assert_eq!(place.nodes.len(), 2);
    }

    #[test]
    fn errors_name_the_part_and_show_an_example() {
        for (text, part) in [
            ("lfs", "such as 10.0.0.1@tcp:/lfs/data"),
            ("10.0.0.1@tcp/lfs", "such as 10.0.0.1@tcp:/lfs/data"),
            (":/lfs", "NID ''"),
            ("10.0.0.1:/lfs", "NID '10.0.0.1'"),
            ("10.0.0.1@tcp,:/lfs", "NID ''"),
            ("10.0.0.1@tcp::10.0.0.2@tcp:/lfs", "place"),
            ("10.0.0.1@nosuch:/lfs", "nosuch"),
            ("host@tcp:/lfs", "host@tcp"),
            ("10.0.0.1@tcp:/", "file system ''"),
            ("10.0.0.1@tcp:/longer-than-8", "file system 'longer-than-8'"),
            ("10.0.0.1@tcp:/l.s", "file system 'l.s'"),
        ] {
            let e = text.parse::<Place>().unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
