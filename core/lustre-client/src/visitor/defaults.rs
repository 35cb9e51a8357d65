//! Directories as several metadata targets have them: the default layout of those that are made in one
//! (C-125, C-155), and which targets have its names (C-153).

use lnet_types::ByteOrder;
use lustre_wire::fid::Valid;
use lustre_wire::mds::MdtBody;
use lustre_wire::striping::{DirDefault, Striping};
use lustre_wire::{Fid, Layout};
use ptlrpc::Reply;

use super::dirs::{ANY, target_of};
use super::remote::Remote;
use super::walk::{FileKind, Node};
use super::{VisitError, Visitor, Wire, mdc};

/// Inherited without end, and never (C-155).
const UNLIMITED: u8 = 0;
const DEPTH_MAX: u8 = 250;

/// Who makes a new file, and how.
#[derive(Debug)]
pub(super) struct Maker<'a, L> {
    pub(super) mdt: &'a Remote<L>,
    /// A user has chosen the target.
    pub(super) chosen: bool,
    /// The layout that the file gets by a default.
    pub(super) by_default: Option<Vec<u8>>,
}

impl<'a, L> Maker<'a, L> {
    pub(super) const fn of(mdt: &'a Remote<L>) -> Self {
        Self { mdt, chosen: false, by_default: None }
    }
}

/// Where the names of a directory are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirStripes {
    /// Index of the metadata target that has the directory itself.
    pub mdt: u32,
    /// By which rule its names are spread, with flags; 0 for one that is not striped (C-154).
    pub hash: u32,
    /// Its stripes, with the index of the target of each; none for one that is not striped.
    pub stripes: Vec<(u32, Fid)>,
}

/// The default layout of directories in a reply: behind the attributes, wherever the release has it
/// (C-278, C-285).
fn default_in(reply: &Reply) -> Option<DirDefault> {
    let msg = reply.msg().ok()?;
    let body: MdtBody = msg.get(1).ok()?;
    if !body.valid.contains(Valid::DEFAULT_MEA) {
        return None;
    }
    let mut behind = msg.buffers().skip(2);
    behind.find_map(|bytes| match Striping::parse(bytes) {
        Ok(Striping::DirDefault(head, _)) => Some(head),
        _ => None,
    })
}

/// Whether the default of the root counts for what is made so many levels below it.
fn reaches(default: &DirDefault, depth: Option<u16>) -> bool {
    match default.inherit {
        UNLIMITED => true,
        levels @ ..=DEPTH_MAX => depth.is_some_and(|depth| depth < levels.into()),
        _ => depth == Some(0),
    }
}

impl<W: Wire> Visitor<W> {
    /// Who makes a directory in another one, of which `parent` has its name, with this layout of a user's
    /// choice.
    ///
    /// # Errors
    /// A layout that is none, a target that is not there, no answer.
    pub(super) async fn maker(
        &self,
        dir: &Node,
        parent: Fid,
        layout: &[u8],
    ) -> Result<Maker<'_, W::Link>, VisitError> {
        if let Some(index) = target_of(layout)? {
            let mdt = self.mdts.get(&index).ok_or(VisitError::NoTarget { kind: "MDT", index })?;
            return Ok(Maker { chosen: true, ..Maker::of(mdt) });
        }
        if layout.is_empty()
            && let Some((default, levels)) = self.default_for(dir).await?
        {
            if default.master != ANY
                && let Some(mdt) = self.mdts.get(&default.master)
            {
                let by_default = Some(default.to_bytes(ByteOrder::Little));
                return Ok(Maker { by_default, ..Maker::of(mdt) });
            }
            // The FID says where it is; recorded clients say no more.
            if default.master == ANY
                && let Some(index) = self.balanced(&default, levels).await
                && let Some(mdt) = self.mdts.get(&index)
            {
                return Ok(Maker::of(mdt));
            }
        }
        Ok(Maker::of(self.mdt_of(parent).await?))
    }

    async fn default_of(&self, dir: Fid) -> Result<Option<DirDefault>, VisitError> {
        let mdt = self.mdt_of(dir).await?;
        match mdt.ask(&self.wire, mdc::default_dir_layout(&self.who, dir)).await {
            Ok(answer) => Ok(default_in(&answer.reply)),
            // Without permission, or of old servers.
            Err(VisitError::Refused { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The default layout of the directories that are made in one, of its own; `None`: it has none.
    ///
    /// # Errors
    /// No answer.
    pub async fn dir_default(&self, dir: &Node) -> Result<Option<DirDefault>, VisitError> {
        self.default_of(dir.fid).await
    }

    /// The default layout that counts in a directory, and how many levels below the directory that has it: its
    /// own, or that of the root, which is read once in a visit.
    async fn default_for(
        &self,
        dir: &Node,
    ) -> Result<Option<(DirDefault, Option<u16>)>, VisitError> {
        // One target has them all.
        if self.mdts.len() < 2 {
            return Ok(None);
        }
        let own = self.default_of(dir.fid).await?;
        if own.is_some() || dir.fid == self.root {
            return Ok(own.map(|own| (own, Some(0))));
        }
        let of_root = match self.root_default.get() {
            Some(known) => known,
            None => {
                let found = self.default_of(self.root).await?;
                self.root_default.get_or_init(|| found)
            }
        };
        let reaching = (*of_root).filter(|default| reaches(default, dir.depth));
        Ok(reaching.map(|default| (default, dir.depth)))
    }

    /// Which targets have a directory, and its names.
    ///
    /// # Errors
    /// A layout that can't be read, a target of which the configuration knows nothing, no answer.
    pub async fn dir_stripes(&self, dir: &Node) -> Result<DirStripes, VisitError> {
        let failed = |errno| VisitError::Path { path: dir.parent.2.clone(), errno };
        if dir.kind() != FileKind::Dir {
            return Err(failed(lnet_types::Errno::ENOTDIR));
        }
        let (hash, fids) = match dir.dir_layout().map_err(failed)? {
            Some((head, stripes)) => (head.hash, stripes),
            None => (0, Vec::new()),
        };
        let mdt = self.index_of(dir.fid).await?;
        let mut stripes = Vec::new();
        for fid in fids {
            stripes.push((self.index_of(fid).await?, fid));
        }
        Ok(DirStripes { mdt, hash, stripes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c155_a_default_of_the_root_counts_as_many_levels_below_it_as_it_says() {
        let default = |inherit| DirDefault { inherit, master: 1, ..DirDefault::default() };
        for (inherit, depth, counts) in [
            (0, Some(0), true),
            (0, Some(400), true),
            (0, None, true),
            (1, Some(0), true),
            (1, Some(1), false),
            (3, Some(2), true),
            (3, Some(3), false),
            (3, None, false),
            (250, Some(249), true),
            (255, Some(0), true),
            (255, Some(1), false),
            (255, None, false),
        ] {
            assert_eq!(reaches(&default(inherit), depth), counts, "{inherit} {depth:?}");
        }
    }
}
