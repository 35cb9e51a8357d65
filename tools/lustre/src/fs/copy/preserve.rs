//! What `cp --preserve` keeps besides permissions and times: owner, group, extended attributes and ACLs.
//! What one side does not let be set is named once for each reason, and no failure.

use std::fs::Metadata;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use anyhow::Result;
use lustre_rt::visitor::{Changes, Node, SetXattr, VisitError, XATTR_MAX};
use rustix::fs::{self, Gid, Uid, XattrFlags};
use rustix::io::Errno;

use super::Copy;
use super::local::Dir;
use crate::fs::label::Label;
use crate::fs::show;

const OWNER: &[u8] = b"owner";
const GROUP: &[u8] = b"group";
/// ACLs, whose bytes are the same on both sides (C-240).
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Name and value of an attribute.
type Attribute = (Vec<u8>, Vec<u8>);

/// Whether an attribute goes with a copy. Trusted ones are the servers' own (C-239); labels and capabilities
/// are given by each side's administrator.
pub(in crate::fs) fn is_kept(name: &[u8]) -> bool {
    name.starts_with(b"user.") || ACLS.contains(&name)
}

/// The attributes of a file of this machine that go with its copy.
fn read(file: impl AsFd) -> Result<Vec<Attribute>, Errno> {
    let mut room = [MaybeUninit::uninit(); XATTR_MAX as usize];
    let names = match fs::flistxattr(&file, &mut room) {
        Ok((names, _)) => names.to_vec(),
        // A storage that has none.
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut all = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| is_kept(name)) {
        match fs::fgetxattr(&file, name, &mut room) {
            Ok((value, _)) => all.push((name.to_vec(), value.to_vec())),
            // It was removed after it had been listed.
            Err(Errno::NODATA) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// A refusal concerns one attribute; anything else is a failure of the copy.
fn refusal(result: Result<(), VisitError>) -> Result<Option<lnet_types::Errno>, VisitError> {
    match result {
        Ok(()) => Ok(None),
        Err(e @ (VisitError::Refused { .. } | VisitError::Path { .. })) => Ok(Some(e.errno())),
        Err(e) => Err(e),
    }
}

impl Copy<'_> {
    fn not_kept(&self, path: &Label, what: &[u8], why: i32) {
        self.tally.not_kept(path, &show::name(what), &std::io::Error::from_raw_os_error(why));
    }

    /// The way in, before permissions and times are set: attributes are those of `file`. As [`Copy::own_in`].
    pub(super) async fn preserve_in(
        &self,
        path: &Label,
        (file, meta): (impl AsFd, &Metadata),
        node: &Node,
    ) -> Result<bool> {
        let owned = self.own_in(path, meta, node).await?;
        for (name, value) in read(file)? {
            let set = self.mount.set_xattr(node, &name, &value, SetXattr::Any).await;
            if let Some(why) = refusal(set)? {
                self.not_kept(path, &name, why.0);
            }
        }
        Ok(owned)
    }

    /// Owner and group on the way in; `true`: both are those of the source. A user who may not give files away may
    /// have chosen the group.
    pub(super) async fn own_in(&self, path: &Label, meta: &Metadata, node: &Node) -> Result<bool> {
        if !self.preserve {
            return Ok(false);
        }
        let gid = Changes { gid: Some(meta.gid()), ..Changes::default() };
        let both = Changes { uid: Some(meta.uid()), ..gid };
        let body = node.body();
        if (body.uid, body.gid) == (meta.uid(), meta.gid()) {
            return Ok(true);
        }
        let Some(why) = refusal(self.mount.change(node, &both).await)? else { return Ok(true) };
        let mut owned = true;
        if body.uid != meta.uid() {
            self.not_kept(path, OWNER, why.0);
            owned = false;
        }
        if body.gid != meta.gid()
            && let Some(why) = refusal(self.mount.change(node, &gid).await)?
        {
            self.not_kept(path, GROUP, why.0);
            owned = false;
        }
        Ok(owned)
    }

    /// The way out, before permissions and times are set.
    pub(super) async fn preserve_out(
        &self,
        path: &Label,
        node: &Node,
        file: impl AsFd,
    ) -> Result<()> {
        if !self.preserve {
            return Ok(());
        }
        self.own_out(path, node, |uid, gid| fs::fchown(&file, uid, gid));
        for name in self.mount.list_xattrs(node).await? {
            if !is_kept(&name) {
                continue;
            }
            let value = match self.mount.get_xattr(node, &name).await {
                Ok(value) => value,
                // It was removed after it had been listed.
                Err(e) if e.errno() == lnet_types::Errno::ENODATA => continue,
                Err(e) => return Err(e.into()),
            };
            if let Err(e) = fs::fsetxattr(&file, name.as_slice(), &value, XattrFlags::empty()) {
                self.not_kept(path, &name, e.raw_os_error());
            }
        }
        Ok(())
    }

    /// Owner and group of a symbolic link on the way out.
    pub(super) fn link_out(&self, path: &Label, node: &Node, dir: &Dir, name: &[u8]) {
        if self.preserve {
            self.own_out(path, node, |uid, gid| dir.own(name, uid, gid));
        }
    }

    fn own_out(
        &self,
        path: &Label,
        node: &Node,
        own: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) {
        let body = node.body();
        let (uid, gid) = (Uid::from_raw(body.uid), Gid::from_raw(body.gid));
        if own(Some(uid), Some(gid)).is_ok() {
            return;
        }
        if let Err(e) = own(Some(uid), None) {
            self.not_kept(path, OWNER, e.raw_os_error());
        }
        if let Err(e) = own(None, Some(gid)) {
            self.not_kept(path, GROUP, e.raw_os_error());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_servers_and_labels_stay_where_they_are() {
        for (name, kept) in [
            (&b"user.a"[..], true),
            (b"system.posix_acl_access", true),
            (b"system.posix_acl_default", true),
            (b"system.other", false),
            (b"trusted.lov", false),
            (b"lustre.lov", false),
            (b"security.capability", false),
        ] {
            assert_eq!(is_kept(name), kept, "{}", name.escape_ascii());
        }
    }
}
