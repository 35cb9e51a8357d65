//! The description of a file system: its targets and the nodes that serve them. One text, which its
//! management target, its metadata target and an operator read alike:
//!
//! ```text
//! # target           NIDs of the node, then those of the nodes that may take over
//! lfs-MDT0000_UUID   10.0.0.1@tcp
//! lfs-MDT0001_UUID   10.0.0.2@tcp
//! lfs-OST0000_UUID   10.0.0.1@tcp,10.1.0.1@tcp1:10.0.0.2@tcp
//! ```
//!
//! The order of lines is the order of the configuration log: a target that is added is added at the end.

use core::fmt;
use core::str::FromStr;

use lnet_types::Nid;

/// Most bytes of the name of a file system.
const NAME_MAX: usize = 8;
/// Most object targets.
pub const OSTS_MAX: u32 = 1024;
/// Most metadata targets.
pub const MDTS_MAX: u32 = 64;
/// Most nodes of a target, and most NIDs of a node.
const NODES_MAX: usize = 16;

/// What a target of a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Names and attributes.
    Mdt,
    /// Data.
    Ost,
}

impl Part {
    const fn word(self) -> &'static str {
        match self {
            Self::Mdt => "MDT",
            Self::Ost => "OST",
        }
    }
}

/// A target of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteTarget {
    /// What it is.
    pub part: Part,
    /// Its index.
    pub index: u32,
    /// The NIDs of each node that may serve it, the likeliest first.
    pub nodes: Vec<Vec<Nid>>,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    fsname: String,
    targets: Vec<SiteTarget>,
}

/// A text is no description of a file system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SiteError(String);

fn check_name(fsname: &str) -> Result<(), SiteError> {
    let word = fsname.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if fsname.is_empty() || fsname.len() > NAME_MAX || !word {
        let fsname = fsname.escape_debug();
        return Err(SiteError(format!(
            "file system '{fsname}': expected 1 to {NAME_MAX} letters, digits or '_'"
        )));
    }
    Ok(())
}

impl Site {
    /// A file system with a metadata target and so many object targets, all on one node.
    ///
    /// # Errors
    /// A name that no file system may have, no object target or more than [`OSTS_MAX`].
    pub fn on_one_node(fsname: &str, osts: u32, nids: &[Nid]) -> Result<Self, SiteError> {
        Self::of_counts(fsname, (1, osts), nids)
    }

    /// The same with so many metadata and object targets.
    ///
    /// # Errors
    /// As [`Site::on_one_node`]; no metadata target or more than [`MDTS_MAX`].
    pub fn of_counts(
        fsname: &str,
        (mdts, osts): (u32, u32),
        nids: &[Nid],
    ) -> Result<Self, SiteError> {
        let target = |part, index| SiteTarget { part, index, nodes: vec![nids.to_vec()] };
        let objects = (0..osts).map(|index| target(Part::Ost, index));
        let targets = (0..mdts).map(|index| target(Part::Mdt, index)).chain(objects).collect();
        Self::checked(fsname.to_owned(), targets)
    }

    fn checked(fsname: String, targets: Vec<SiteTarget>) -> Result<Self, SiteError> {
        check_name(&fsname)?;
        let site = Self { fsname, targets };
        for (i, target) in site.targets.iter().enumerate() {
            let (uuid, before) = (site.uuid(target), site.targets.iter().take(i));
            if before.clone().any(|other| (other.part, other.index) == (target.part, target.index))
            {
                return Err(SiteError(format!("target {uuid}: expected one line, found two")));
            }
            let lens =
                core::iter::once(target.nodes.len()).chain(target.nodes.iter().map(Vec::len));
            if lens.clone().any(|len| len == 0 || len > NODES_MAX) {
                return Err(SiteError(format!(
                    "target {uuid}: expected 1 to {NODES_MAX} nodes with 1 to {NODES_MAX} NIDs"
                )));
            }
            let max = if target.part == Part::Mdt { MDTS_MAX } else { OSTS_MAX } - 1;
            if target.index > max {
                let part = target.part.word();
                return Err(SiteError(format!("target {uuid}: the limit of {part} is {max:04x}")));
            }
        }
        for part in [Part::Mdt, Part::Ost] {
            if !site.targets.iter().any(|target| target.part == part) {
                let part = part.word();
                return Err(SiteError(format!("file system '{}': it has no {part}", site.fsname)));
            }
        }
        // The root is there.
        if site.mdts().all(|index| index != 0) {
            return Err(SiteError(format!("file system '{}': it has no MDT0000", site.fsname)));
        }
        Ok(site)
    }

    /// Its name.
    pub fn fsname(&self) -> &str {
        &self.fsname
    }

    /// Its targets, in the order of the description.
    pub fn targets(&self) -> &[SiteTarget] {
        &self.targets
    }

    /// Indexes of its metadata targets, in the order of the description.
    pub fn mdts(&self) -> impl Iterator<Item = u32> {
        let mdts = self.targets.iter().filter(|target| target.part == Part::Mdt);
        mdts.map(|target| target.index)
    }

    /// The metadata target of a uuid: its index.
    pub fn mdt(&self, uuid: &str) -> Option<u32> {
        let mut mdts = self.targets.iter().filter(|target| target.part == Part::Mdt);
        mdts.find(|target| self.uuid(target) == uuid).map(|target| target.index)
    }

    /// The name of a metadata target as a client of other targets.
    pub(crate) fn mdt_client(&self, index: u32) -> String {
        format!("{}-MDT{index:04x}-mdtlov_UUID", self.fsname)
    }

    /// The name of a target without the end of its uuid.
    pub(crate) fn name(&self, target: &SiteTarget) -> String {
        format!("{}-{}{:04x}", self.fsname, target.part.word(), target.index)
    }

    /// The uuid of a target.
    pub fn uuid(&self, target: &SiteTarget) -> String {
        format!("{}_UUID", self.name(target))
    }
}

fn target_of(line: &str) -> Option<(String, SiteTarget)> {
    let mut words = line.split_whitespace();
    let (uuid, nids) = (words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let (fsname, name) = uuid.strip_suffix("_UUID")?.rsplit_once('-')?;
    let part = [Part::Mdt, Part::Ost].into_iter().find(|part| name.starts_with(part.word()))?;
    let digits = name.get(3..).filter(|digits| digits.len() == 4)?;
    let index = u32::from_str_radix(digits, 16).ok()?;
    // An address may have colons of its own (IPv6): a node begins behind the network of the one before.
    let mut nodes = vec![Vec::new()];
    for word in nids.split(',') {
        if word.is_empty() {
            return None;
        }
        let mut rest = word;
        while !rest.is_empty() {
            let net = rest.find('@')?;
            let colon = rest.get(net..)?.find(':').map(|colon| net + colon);
            nodes.last_mut()?.push(rest.get(..colon.unwrap_or(rest.len()))?.parse().ok()?);
            rest = match colon {
                Some(colon) => {
                    nodes.push(Vec::new());
                    rest.get(colon + 1..)?
                }
                None => "",
            };
        }
    }
    Some((fsname.to_owned(), SiteTarget { part, index, nodes }))
}

impl FromStr for Site {
    type Err = SiteError;

    fn from_str(text: &str) -> Result<Self, SiteError> {
        let mut fsname: Option<String> = None;
        let mut targets = Vec::new();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        for (i, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
            let number = i + 1;
            let (of, target) = target_of(line).ok_or_else(|| {
                let line = line.escape_debug();
                SiteError(format!(
                    "line {number} '{line}': expected FSNAME-MDTxxxx_UUID or FSNAME-OSTxxxx_UUID, then NID[,NID…][:NID…]"
                ))
            })?;
            if fsname.as_ref().is_some_and(|fsname| *fsname != of) {
                return Err(SiteError(format!("line {number} '{line}': expected one file system")));
            }
            fsname = Some(of);
            targets.push(target);
        }
        let fsname = fsname.ok_or_else(|| SiteError("description: it has no target".to_owned()))?;
        Self::checked(fsname, targets)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for target in &self.targets {
            let node = |nids: &Vec<Nid>| {
                nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            };
            let nodes: Vec<String> = target.nodes.iter().map(node).collect();
            writeln!(f, "{} {}", self.uuid(target), nodes.join(":"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_is_read_as_it_was_written() {
        let text = "lfs-MDT0000_UUID 10.0.0.1@tcp\n\
                    lfs-MDT0001_UUID 10.0.0.2@tcp\n\
                    lfs-OST0000_UUID 10.0.0.1@tcp,10.1.0.1@tcp1:10.0.0.2@tcp\n\
                    lfs-OST000a_UUID 10.0.0.2@tcp\n";
        let site: Site = text.parse().unwrap();
        assert_eq!((site.fsname(), site.to_string()), ("lfs", text.to_owned()));
        let nodes: Vec<_> = site.targets()[2].nodes.iter().map(Vec::len).collect();
        assert_eq!((site.targets()[3].index, nodes), (10, vec![2, 1]));
        assert_eq!((site.mdt("lfs-MDT0001_UUID"), site.mdt("lfs-OST0000_UUID")), (Some(1), None));
        let commented = format!("# a try-out\n\n{text}");
        assert_eq!(commented.parse(), Ok(site));
        let nid = "10.0.0.1@tcp".parse().unwrap();
        let one = Site::on_one_node("lfs", 2, &[nid]).unwrap();
        assert_eq!(one.to_string().parse(), Ok(one));
        let two = Site::of_counts("lfs", (2, 1), &[nid]).unwrap();
        assert_eq!(
            (two.mdts().collect::<Vec<_>>(), two.to_string().parse()),
            (vec![0, 1], Ok(two))
        );
    }

    #[test]
    fn text_that_is_no_description_is_refused_by_what_it_lacks() {
        let mdt = "lfs-MDT0000_UUID 10.0.0.1@tcp\n";
        let with = |line: &str| format!("{mdt}{line}");
        for (text, part) in [
            (String::new(), "no target"),
            (mdt.to_owned(), "no OST"),
            (with("lfs-OST0000 10.0.0.1@tcp"), "line 2"),
            (with("lfs-OST0000_UUID"), "line 2"),
            (with("lfs-OST0000_UUID 10.0.0.1"), "line 2"),
            (with("lfs-OST0000_UUID 10.0.0.1@tcp:"), "1 to 16"),
            (with("lfs-OST000_UUID 10.0.0.1@tcp"), "line 2"),
            (with("old-OST0000_UUID 10.0.0.1@tcp"), "one file system"),
            (with("lfs-OST0400_UUID 10.0.0.1@tcp"), "limit"),
            (with("lfs-MDT0040_UUID 10.0.0.1@tcp"), "limit"),
            (
                "lfs-MDT0001_UUID 10.0.0.1@tcp\nlfs-OST0000_UUID 10.0.0.1@tcp".to_owned(),
                "no MDT0000",
            ),
            (with(mdt), "found two"),
            ("far-too-long-MDT0000_UUID 10.0.0.1@tcp".to_owned(), "1 to 8"),
        ] {
            let e = text.parse::<Site>().unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
