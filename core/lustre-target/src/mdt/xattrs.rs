//! Extended attributes (C-235 … C-239). Layouts are among them: what `trusted.lov` says of a directory is
//! the default for files in it (C-199); access control lists are too (C-240).

use lnet_types::Errno;
use lustre_wire::fid::Valid;
use lustre_wire::mds::{MdtBody, SetxattrRecord};
use lustre_wire::{Buffers, Layout};

use super::access::{READ, WRITE, Who};
use super::acl::{self, Acl};
use super::inode::{Id, Inode, SYMLINK};
use super::layouts;
use super::tree::Edit;
use super::{Mdt, ORDER, VALUE_MAX};

/// Names of the layout.
const LAYOUT_NAMES: [&[u8]; 2] = [b"trusted.lov", b"lustre.lov"];
/// Attributes that servers set, and no user does.
const OWN: [&[u8]; 6] = [
    b"trusted.lma",
    b"trusted.link",
    b"trusted.som",
    b"trusted.fid",
    b"trusted.version",
    b"trusted.hsm",
];
/// Most attributes of a file, and most bytes of their names: what a list has room for.
const COUNT_MAX: usize = 256;
/// Set-group-id bit.
const SETGID: u32 = 0o2000;
/// Flags of a change: the attribute must not exist, or must.
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// Whether the user may see or set an attribute of this name.
fn check(who: &Who, inode: &Inode, name: &[u8], want: u32) -> Result<(), Errno> {
    if name.is_empty() || name.len() > 255 {
        return Err(Errno::ERANGE);
    }
    let is = |prefix: &[u8]| name.starts_with(prefix) && name.len() > prefix.len();
    if is(b"user.") {
        if !inode.is_file() && !inode.is_dir() {
            return Err(Errno::EPERM);
        }
        who.may(inode, want)
    } else if is(b"trusted.") || LAYOUT_NAMES.contains(&name) {
        if who.uid == 0 { Ok(()) } else { who.owns(inode) }
    } else if name == acl::ACCESS || name == acl::DEFAULT {
        match want {
            WRITE if inode.kind() == SYMLINK => Err(Errno::EOPNOTSUPP),
            WRITE => who.owns(inode),
            _ => Ok(()),
        }
    } else if is(b"security.") {
        if want == WRITE { who.owns(inode) } else { Ok(()) }
    } else {
        Err(Errno::EOPNOTSUPP)
    }
}

impl Mdt {
    fn value(&self, id: Id, inode: &Inode, name: &[u8]) -> Option<Vec<u8>> {
        if LAYOUT_NAMES.contains(&name) {
            return (!inode.layout.is_empty()).then(|| inode.layout.clone());
        }
        if name == acl::ACCESS {
            return inode.acl.as_ref().map(|acl| acl.to_bytes());
        }
        self.tree.xattr(id, name).map(<[u8]>::to_vec)
    }

    /// The names that a user may see.
    fn names(&self, id: Id, inode: &Inode, who: &Who) -> Vec<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        if !inode.layout.is_empty() && who.uid == 0 {
            names.push(b"trusted.lov".to_vec());
        }
        if inode.acl.is_some() {
            names.push(acl::ACCESS.to_vec());
        }
        let seen =
            self.tree.xattrs(id).filter(|(name, _)| !name.starts_with(b"trusted.") || who.uid == 0);
        names.extend(seen.map(|(name, _)| name.to_vec()));
        names
    }

    /// One attribute, or the names of all.
    pub(super) fn get_xattr(&self, asked: &MdtBody, name: &[u8]) -> Result<Buffers, Errno> {
        let (id, inode) = self.file(asked.fid1)?;
        let who = Who::from(asked);
        let value = if asked.valid.contains(Valid::XATTRLS) {
            let names = self.names(id, inode, &who);
            names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect()
        } else {
            match check(&who, inode, name, READ) {
                // There are none: that is known without a look.
                Err(Errno::EOPNOTSUPP) => return Err(Errno::ENODATA),
                checked => checked?,
            }
            self.value(id, inode, name).ok_or(Errno::ENODATA)?
        };
        let room = asked.eadatasize as usize;
        if room != 0 && room < value.len() {
            return Err(Errno::ERANGE);
        }
        let eadatasize = value.len() as u32;
        let valid = Valid::XATTR | asked.valid & Valid::XATTRLS;
        let body = MdtBody { valid, eadatasize, ..MdtBody::default() };
        let value = if room == 0 { Vec::new() } else { value };
        Ok(Buffers::new().layout(&body).bytes(value))
    }

    /// All attributes of a file at once (C-236).
    pub(super) fn all_xattrs(&self, asked: &MdtBody) -> Result<Buffers, Errno> {
        let (id, inode) = self.file(asked.fid1)?;
        let names = self.names(id, inode, &Who::from(asked));
        let values: Vec<Vec<u8>> =
            names.iter().map(|name| self.value(id, inode, name).unwrap_or_default()).collect();
        let lens: Vec<u8> =
            values.iter().flat_map(|value| (value.len() as u32).to_bytes(ORDER)).collect();
        let list: Vec<u8> = names.iter().flat_map(|name| [name, &b"\0"[..]].concat()).collect();
        let values = values.concat();
        let room = asked.eadatasize as usize;
        if list.len().max(values.len()).max(lens.len()) > room {
            return Err(Errno::ERANGE);
        }
        let body = MdtBody {
            valid: Valid::XATTR,
            eadatasize: list.len() as u32,
            aclsize: values.len() as u32,
            max_mdsize: names.len() as u32,
            ..MdtBody::default()
        };
        Ok(Buffers::new().layout(&body).bytes(b"").bytes(b"").bytes(list).bytes(values).bytes(lens))
    }

    /// Sets or removes an attribute (C-136, C-237).
    pub(super) fn set_xattr(
        &self,
        record: &SetxattrRecord,
        name: &[u8],
        value: &[u8],
    ) -> Result<impl FnOnce(&mut Edit<'_>) + use<>, Errno> {
        let (id, inode) = self.file(record.fid)?;
        let who = Who::from(record);
        let removes = record.valid.contains(Valid::XATTRRM);
        if !removes && !record.valid.contains(Valid::XATTR) {
            return Err(Errno::EINVAL);
        }
        check(&who, inode, name, WRITE)?;
        if OWN.contains(&name) {
            return Err(Errno::EPERM);
        }
        if value.len() > VALUE_MAX as usize {
            return Err(Errno::ERANGE);
        }
        let layout = LAYOUT_NAMES.contains(&name);
        let access = name == acl::ACCESS;
        let list = match name == acl::DEFAULT || access {
            true if !access && !inode.is_dir() => return Err(Errno::EACCES),
            true if !removes => Acl::parse(value)?,
            _ => None,
        };
        // A list without entries takes one away, which need not be there.
        let empties = !removes && list.is_none() && (access || name == acl::DEFAULT);
        let removes = removes || empties;
        let default = match (layout, removes) {
            (true, _) if !inode.is_dir() => {
                // Objects are given by an open, not by the name of an attribute.
                return Err(if inode.layout.is_empty() {
                    Errno::EOPNOTSUPP
                } else {
                    Errno::EEXIST
                });
            }
            (true, false) => layouts::default_of(value)?.unwrap_or_default(),
            _ => Vec::new(),
        };
        let there = self.value(id, inode, name).is_some();
        match there {
            true if !removes && record.flags & CREATE != 0 => return Err(Errno::EEXIST),
            false if removes && !empties || !removes && record.flags & REPLACE != 0 => {
                return Err(Errno::ENODATA);
            }
            false if !layout && !access && self.tree.xattrs(id).count() >= COUNT_MAX => {
                return Err(Errno::ENOSPC);
            }
            _ => {}
        }
        // Who is in another group makes no program run as this one.
        let setgid = if who.keeps_setgid(inode.gid) { 0 } else { SETGID };
        let (name, value, time) = (name.to_vec(), value.to_vec(), record.time);
        Ok(move |edit: &mut Edit<'_>| {
            match (layout || access, removes) {
                (true, _) => {}
                (false, true) => edit.remove_xattr(id, &name),
                (false, false) => edit.set_xattr(id, &name, &value),
            }
            edit.change(id, |inode| {
                inode.ctime = inode.ctime.max(time);
                if layout {
                    inode.layout = default;
                }
                if access {
                    if let Some(list) = &list {
                        inode.mode = inode.mode & !(0o777 | setgid) | list.mode();
                    }
                    inode.acl = list.filter(|list| !list.is_mode()).map(Box::new);
                }
            });
        })
    }
}
