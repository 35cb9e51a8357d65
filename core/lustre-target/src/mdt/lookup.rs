//! Files by FID, name and path, and what is read of them without a change (C-25 … C-65, C-186).

use lnet_types::Errno;
use lustre_wire::fid::Valid;
use lustre_wire::ldlm::Disposition;
use lustre_wire::mds::MdtBody;
use lustre_wire::{Buffers, Fid};

use super::access::{EXECUTE, Who};
use super::inode::{DIRECTORY, Id, Inode};
use super::{Mdt, sequences, show};

/// What a FID or a name means.
pub(super) enum Meaning<'a> {
    /// A file of this target.
    Here(Id, &'a Inode),
    /// A file of another one: nothing else is known of it (C-46).
    Elsewhere(Id),
}

/// All that a target says of a file of another one (C-46, C-165).
pub(super) fn elsewhere(id: Id) -> MdtBody {
    MdtBody { fid1: id.fid(), valid: Valid::ID | Valid::MDS, ..MdtBody::default() }
}

impl Mdt {
    pub(super) fn file(&self, fid: Fid) -> Result<(Id, &Inode), Errno> {
        let id = Id::of(fid).ok_or(Errno::ENOENT)?;
        Ok((id, self.tree.inode(id).ok_or(Errno::ENOENT)?))
    }

    /// A file that may be another target's.
    pub(super) fn known(&self, fid: Fid) -> Result<Meaning<'_>, Errno> {
        match self.of_another(fid) {
            Some(id) => Ok(Meaning::Elsewhere(id)),
            None => self.file(fid).map(|(id, inode)| Meaning::Here(id, inode)),
        }
    }

    /// The file of a FID, if another target of the file system has those of its sequence.
    pub(super) fn of_another(&self, fid: Fid) -> Option<Id> {
        let id = Id::of(fid)?;
        let index = sequences::mdt_of(id).filter(|index| *index != self.index)?;
        self.site.mdts().any(|other| other == index).then_some(id)
    }

    /// A directory in which a name is looked up or changed (C-59, C-84).
    pub(super) fn dir(&self, fid: Fid) -> Result<(Id, &Inode), Errno> {
        if self.of_another(fid).is_some() {
            return Err(Errno::EPROTO);
        }
        let (id, inode) = self.file(fid).map_err(|_| Errno::ESTALE)?;
        if inode.is_dir() { Ok((id, inode)) } else { Err(Errno::ENOTDIR) }
    }

    /// A name in a directory.
    pub(super) fn find(&self, dir: Fid, name: &[u8], who: &Who) -> Result<Meaning<'_>, Errno> {
        let (id, inode) = self.dir(dir)?;
        who.may(inode, EXECUTE)?;
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        let entry = self.tree.lookup(id, name).ok_or(Errno::ENOENT)?;
        match self.tree.inode(entry.id) {
            Some(inode) => Ok(Meaning::Here(entry.id, inode)),
            None if self.tree.is_here(entry.id) => Err(Errno::EIO),
            None => Ok(Meaning::Elsewhere(entry.id)),
        }
    }

    /// C-31, C-25.
    pub(super) fn root(&self, path: &[u8]) -> Result<Buffers, Errno> {
        let mut at = Id::ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            if !self.tree.is_here(at) {
                return Err(Errno::EREMOTE);
            }
            let entry = self.tree.lookup(at, name).ok_or(Errno::ENOENT)?;
            if entry.kind != DIRECTORY {
                return Err(Errno::ENOTDIR);
            }
            at = entry.id;
        }
        let body = MdtBody { fid1: at.fid(), valid: Valid::ID, ..MdtBody::default() };
        Ok(Buffers::new().layout(&body).bytes(b""))
    }

    /// Attributes with what is wanted beside, as the buffers of a plain answer (C-56).
    pub(super) fn shown(found: &Meaning<'_>, asked: &MdtBody) -> Buffers {
        let (body, data) = match found {
            Meaning::Here(id, inode) => show::attributes(*id, inode, asked),
            Meaning::Elsewhere(id) => (elsewhere(*id), Vec::new()),
        };
        Buffers::new().layout(&body).bytes(data).up_to(6)
    }

    /// C-57, C-58.
    pub(super) fn lookup(&self, asked: &MdtBody, name: &[u8]) -> Result<Buffers, Errno> {
        let found = self.find(asked.fid1, name, &Who::from(asked))?;
        if asked.valid == Valid::ID {
            let (Meaning::Here(id, _) | Meaning::Elsewhere(id)) = found;
            let body = MdtBody { fid1: id.fid(), valid: Valid::ID, ..MdtBody::default() };
            return Ok(Buffers::new().layout(&body));
        }
        Ok(Self::shown(&found, asked))
    }

    /// C-60 … C-65.
    pub(super) fn intent(
        &self,
        asked: &MdtBody,
        name: &[u8],
    ) -> (Disposition, Result<Buffers, Errno>) {
        let looked = Disposition::EXECUTED | Disposition::LOOKED_UP;
        let found = if name.is_empty() {
            let named = asked.fid2 != Fid::default() && !asked.valid.contains(Valid::CROSSREF);
            self.known(if named { asked.fid2 } else { asked.fid1 })
        } else {
            self.find(asked.fid1, name, &Who::from(asked))
        };
        match found {
            Ok(found) => {
                let buffers = Self::shown(&found, asked).up_to(7);
                (looked | Disposition::POSITIVE, Ok(buffers))
            }
            // A name that does not exist is a result, and no failure (C-64).
            Err(Errno::ENOENT) if !name.is_empty() => {
                let buffers = Buffers::new().layout(&MdtBody::default()).up_to(7);
                (looked | Disposition::NEGATIVE, Ok(buffers))
            }
            Err(errno) => (Disposition::EXECUTED, Err(errno)),
        }
    }

    /// C-41.
    pub(super) fn locate(&self, seq: u64) -> Result<Buffers, Errno> {
        let range = sequences::locate(&self.site, seq).ok_or(Errno::ENOENT)?;
        Ok(Buffers::new().layout(&range))
    }

    /// The layout of a file: all of it is there (C-186, C-187).
    pub(super) fn layout(&self, fid: Fid) -> (Disposition, Result<Buffers, Errno>) {
        let found = self.file(fid).and_then(|(_, inode)| {
            if inode.is_file() { Ok(inode.layout.clone()) } else { Err(Errno::EINVAL) }
        });
        (Disposition::EXECUTED, found.map(|layout| Buffers::from([layout])))
    }
}
