//! Files by FID, name and path, and what is read of them without a change (C-25 … C-65, C-186).

use lnet_types::Errno;
use lustre_wire::fid::{RangeKind, SeqRange, Valid};
use lustre_wire::ldlm::Disposition;
use lustre_wire::mds::MdtBody;
use lustre_wire::{Fid, Layout};

use super::access::{EXECUTE, Who};
use super::inode::{DIRECTORY, Id, Inode};
use super::tree::SEQUENCES;
use super::{Mdt, ORDER, objects, show};

impl Mdt {
    pub(super) fn file(&self, fid: Fid) -> Result<(Id, &Inode), Errno> {
        let id = Id::of(fid).ok_or(Errno::ENOENT)?;
        Ok((id, self.tree.inode(id).ok_or(Errno::ENOENT)?))
    }

    /// A directory in which a name is looked up or changed.
    pub(super) fn dir(&self, fid: Fid) -> Result<(Id, &Inode), Errno> {
        let (id, inode) = self.file(fid).map_err(|_| Errno::ESTALE)?;
        if inode.is_dir() { Ok((id, inode)) } else { Err(Errno::ENOTDIR) }
    }

    /// A name in a directory.
    pub(super) fn find(&self, dir: Fid, name: &[u8], who: &Who) -> Result<(Id, &Inode), Errno> {
        let (id, inode) = self.dir(dir)?;
        who.may(inode, EXECUTE)?;
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        let entry = self.tree.lookup(id, name).ok_or(Errno::ENOENT)?;
        Ok((entry.id, self.tree.inode(entry.id).ok_or(Errno::EIO)?))
    }

    /// C-31, C-25.
    pub(super) fn root(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
        let mut at = Id::ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let entry = self.tree.lookup(at, name).ok_or(Errno::ENOENT)?;
            if entry.kind != DIRECTORY {
                return Err(Errno::ENOTDIR);
            }
            at = entry.id;
        }
        let body = MdtBody { fid1: at.fid(), valid: Valid::ID, ..MdtBody::default() };
        Ok(vec![body.to_bytes(ORDER), Vec::new()])
    }

    /// Attributes with what is wanted beside, as the buffers of a plain answer (C-56).
    pub(super) fn shown(found: (Id, &Inode), asked: &MdtBody) -> Vec<Vec<u8>> {
        let (body, data) = show::attributes(found.0, found.1, asked);
        let mut buffers = vec![body.to_bytes(ORDER), data];
        buffers.resize(6, Vec::new());
        buffers
    }

    /// C-57, C-58.
    pub(super) fn lookup(&self, asked: &MdtBody, name: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
        let found = self.find(asked.fid1, name, &Who::from(asked))?;
        if asked.valid == Valid::ID {
            let body = MdtBody { fid1: found.0.fid(), valid: Valid::ID, ..MdtBody::default() };
            return Ok(vec![body.to_bytes(ORDER)]);
        }
        Ok(Self::shown(found, asked))
    }

    /// C-60 … C-65.
    pub(super) fn intent(
        &self,
        asked: &MdtBody,
        name: &[u8],
    ) -> (Disposition, Result<Vec<Vec<u8>>, Errno>) {
        let looked = Disposition::EXECUTED | Disposition::LOOKED_UP;
        let found = if name.is_empty() {
            let named = asked.fid2 != Fid::default() && !asked.valid.contains(Valid::CROSSREF);
            self.file(if named { asked.fid2 } else { asked.fid1 })
        } else {
            self.find(asked.fid1, name, &Who::from(asked))
        };
        match found {
            Ok(found) => {
                let (body, data) = show::attributes(found.0, found.1, asked);
                let mut buffers = vec![body.to_bytes(ORDER), data];
                buffers.resize(7, Vec::new());
                (looked | Disposition::POSITIVE, Ok(buffers))
            }
            // A name that does not exist is a result, and no failure (C-64).
            Err(Errno::ENOENT) if !name.is_empty() => {
                let mut buffers = vec![MdtBody::default().to_bytes(ORDER)];
                buffers.resize(7, Vec::new());
                (looked | Disposition::NEGATIVE, Ok(buffers))
            }
            Err(errno) => (Disposition::EXECUTED, Err(errno)),
        }
    }

    /// C-41.
    pub(super) fn locate(&self, seq: u64) -> Result<Vec<Vec<u8>>, Errno> {
        let range = if seq == Id::ROOT.seq {
            SeqRange { start: seq, end: seq + 1, index: 0, flags: RangeKind::MDT }
        } else if SEQUENCES.contains(&seq) {
            let (start, end) = (SEQUENCES.start, SEQUENCES.end);
            SeqRange { start, end, index: 0, flags: RangeKind::MDT }
        } else {
            let of = |index: &u32| objects::sequence(*index) == seq;
            let index = self.objects.indexes().find(of).ok_or(Errno::ENOENT)?;
            SeqRange { start: seq, end: seq + 1, index, flags: RangeKind::OST }
        };
        Ok(vec![range.to_bytes(ORDER)])
    }

    /// The layout of a file: all of it is there (C-186, C-187).
    pub(super) fn layout(&self, fid: Fid) -> (Disposition, Result<Vec<Vec<u8>>, Errno>) {
        let found = self.file(fid).and_then(|(_, inode)| {
            if inode.is_file() { Ok(inode.layout.clone()) } else { Err(Errno::EINVAL) }
        });
        (Disposition::EXECUTED, found.map(|layout| vec![layout]))
    }
}
