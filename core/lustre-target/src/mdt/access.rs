//! Who asks, and what that user may do: mode bits, access control lists, ownership, capabilities (C-244 …
//! C-250).

use lnet_types::Errno;
use lustre_wire::mds::{
    CreateRecord, MdtBody, NameRecord, RecordHead, SetattrRecord, SetxattrRecord,
};

use super::inode::Inode;

pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXECUTE: u32 = 1;
/// Capabilities, as bits of the mask (C-245).
const CHOWN: u32 = 1 << 0;
const DAC_OVERRIDE: u32 = 1 << 1;
const DAC_READ_SEARCH: u32 = 1 << 2;
const FOWNER: u32 = 1 << 3;
const FSETID: u32 = 1 << 4;
/// A directory of which names are removed by owners alone.
const STICKY: u32 = 0o1000;

/// The user in whose name something is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) uid: u32,
    pub(super) gid: u32,
    groups: [u32; 2],
    cap: u32,
}

impl From<&MdtBody> for Who {
    fn from(body: &MdtBody) -> Self {
        let groups = [body.suppgid, u32::MAX];
        Self { uid: body.fsuid, gid: body.fsgid, groups, cap: body.capability }
    }
}

impl From<&RecordHead> for Who {
    fn from(head: &RecordHead) -> Self {
        let groups = [head.suppgid1, head.suppgid2];
        Self { uid: head.fsuid, gid: head.fsgid, groups, cap: head.cap }
    }
}

impl From<&CreateRecord> for Who {
    fn from(record: &CreateRecord) -> Self {
        Self::from(&record.head)
    }
}

impl From<&NameRecord> for Who {
    fn from(record: &NameRecord) -> Self {
        Self::from(&record.head)
    }
}

impl From<&SetattrRecord> for Who {
    fn from(record: &SetattrRecord) -> Self {
        let groups = [record.suppgid, u32::MAX];
        Self { uid: record.fsuid, gid: record.fsgid, groups, cap: record.cap }
    }
}

impl From<&SetxattrRecord> for Who {
    fn from(record: &SetxattrRecord) -> Self {
        let groups = [record.suppgid1, record.suppgid2];
        Self { uid: record.fsuid, gid: record.fsgid, groups, cap: record.cap }
    }
}

impl Who {
    /// As it stands in a message between metadata targets.
    pub(super) const fn words(&self) -> [u32; 5] {
        let [first, second] = self.groups;
        [self.uid, self.gid, first, second, self.cap]
    }

    /// The user of [`Who::words`].
    pub(super) const fn of_words([uid, gid, first, second, cap]: [u32; 5]) -> Self {
        Self { uid, gid, groups: [first, second], cap }
    }

    #[cfg(test)]
    pub(super) const fn for_test(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: [u32::MAX; 2], cap: 0 }
    }

    const fn can(&self, capability: u32) -> bool {
        self.cap & capability != 0
    }

    /// Whether the user is in a group.
    pub(super) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || gid != u32::MAX && self.groups.contains(&gid)
    }

    /// Whether the user may use a file so.
    ///
    /// # Errors
    /// `EACCES`.
    pub(super) fn may(&self, inode: &Inode, want: u32) -> Result<(), Errno> {
        let class = |shift: u32| want & !(inode.mode >> shift & 7) == 0;
        let granted = match &inode.acl {
            _ if self.uid == inode.uid => class(6),
            Some(acl) => acl.allows(self, inode.gid, want),
            None if self.is_in(inode.gid) => class(3),
            None => class(0),
        };
        // A file that no user may execute is executed by none.
        let runs = want & EXECUTE == 0 || inode.is_dir() || inode.mode & 0o111 != 0;
        let reads = want & WRITE == 0 && (want & EXECUTE == 0 || inode.is_dir());
        let allowed =
            granted || runs && self.can(DAC_OVERRIDE) || reads && self.can(DAC_READ_SEARCH);
        if allowed { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether a file is the user's, or as good as that.
    ///
    /// # Errors
    /// `EPERM`.
    pub(super) fn owns(&self, inode: &Inode) -> Result<(), Errno> {
        if self.uid == inode.uid || self.can(FOWNER) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether the user may give a file away.
    pub(super) const fn may_chown(&self) -> bool {
        self.can(CHOWN)
    }

    /// Whether the set-group-id bit of a file stays when the user sets its mode.
    pub(super) fn keeps_setgid(&self, gid: u32) -> bool {
        self.can(FSETID) || self.is_in(gid)
    }

    /// Whether a name may be removed from a directory.
    ///
    /// # Errors
    /// `EACCES` without write and search, `EPERM` for another user's file in a sticky directory.
    pub(super) fn may_remove(&self, dir: &Inode, victim: &Inode) -> Result<(), Errno> {
        self.may(dir, WRITE | EXECUTE)?;
        if dir.mode & STICKY != 0 && self.uid != dir.uid {
            self.owns(victim)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(uid: u32, gid: u32, cap: u32) -> Who {
        Who { uid, gid, groups: [7, u32::MAX], cap }
    }

    fn file(mode: u32) -> Inode {
        Inode { mode: 0o100_000 | mode, uid: 1, gid: 2, ..Inode::default() }
    }

    #[test]
    fn the_first_class_that_a_user_is_of_decides() {
        for (user, mode, want, allowed) in [
            (who(1, 9, 0), 0o077, READ, false),
            (who(1, 9, 0), 0o400, READ, true),
            (who(3, 2, 0), 0o707, READ, false),
            (who(3, 9, 0), 0o774, READ, true),
            (who(3, 9, 0), 0o774, WRITE, false),
            (who(0, 0, u32::MAX), 0, READ | WRITE, true),
            (who(0, 0, u32::MAX), 0o600, EXECUTE, false),
            (who(0, 0, u32::MAX), 0o610, EXECUTE, true),
            (who(5, 5, DAC_READ_SEARCH), 0, READ, true),
            (who(5, 5, DAC_READ_SEARCH), 0, WRITE, false),
        ] {
            assert_eq!(user.may(&file(mode), want).is_ok(), allowed, "{user:?} {mode:o} {want}");
        }
        let grouped = Inode { gid: 7, ..file(0o070) };
        assert_eq!(who(3, 9, 0).may(&grouped, READ | WRITE), Ok(()));
        // No group is no group of a file either.
        let none = Inode { gid: u32::MAX, ..file(0o070) };
        assert_eq!(who(3, 9, 0).may(&none, READ), Err(Errno::EACCES));
    }

    #[test]
    fn in_a_sticky_directory_only_owners_remove_names() {
        let dir = Inode { mode: 0o041_777, uid: 8, gid: 8, ..Inode::default() };
        let victim = file(0o644);
        assert_eq!(who(1, 9, 0).may_remove(&dir, &victim), Ok(()));
        assert_eq!(who(8, 9, 0).may_remove(&dir, &victim), Ok(()));
        assert_eq!(who(3, 9, 0).may_remove(&dir, &victim), Err(Errno::EPERM));
        assert_eq!(who(3, 9, FOWNER).may_remove(&dir, &victim), Ok(()));
        let plain = Inode { mode: 0o040_777, ..dir };
        assert_eq!(who(3, 9, 0).may_remove(&plain, &victim), Ok(()));
    }
}
