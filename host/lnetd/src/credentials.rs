//! Who is at the other end of the control socket, as the kernel vouches for it, and what it may do.
//!
//! Root and the daemon's own user may do everything; so may the administrators' group. The readers'
//! group may look. The permissions of the file say the same as far as one group can be named there,
//! so users without any right seldom come this far.

use core::fmt;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;

use anyhow::Context as _;
use lnet_admin::{Access, AdminError, Request};
/// A client, as it was when it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) pid: i32,
    /// Its group, then those that it also belongs to.
    pub(crate) groups: Vec<u32>,
}

impl Caller {
    /// # Errors
    /// What the system says.
    pub(crate) fn of(stream: &UnixStream) -> io::Result<Self> {
        let who = rustix::net::sockopt::socket_peercred(stream)?;
        let mut groups = vec![who.gid.as_raw()];
        groups.extend(sys::peer_groups(stream)?);
        Ok(Self { uid: who.uid.as_raw(), pid: who.pid.as_raw_nonzero().get(), groups })
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, pid, .. } = self;
        match name_of("/etc/passwd", *uid) {
            Some(name) => write!(f, "{name} (uid {uid}, process {pid})"),
            None => write!(f, "uid {uid} (process {pid})"),
        }
    }
}

/// A group by number, and how it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) gid: u32,
    name: String,
}

impl Group {
    /// By its number, or by its name in the group file.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) fn named(name: &str) -> anyhow::Result<Self> {
        if let Ok(gid) = name.parse() {
            return Ok(Self { gid, name: name.to_owned() });
        }
        let table = fs::read_to_string("/etc/group").context("group file")?;
        let found = table.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
        });
        let gid = found.with_context(|| format!("group '{name}': no such group"))?;
        Ok(Self { gid, name: name.to_owned() })
    }
}

/// Who may do what.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// The daemon's user.
    pub(crate) own: u32,
    pub(crate) admin: Option<Group>,
    pub(crate) read: Option<Group>,
}

impl Guard {
    /// The rights of `who`, if it has any.
    pub(crate) fn rights(&self, who: &Caller) -> Option<Access> {
        let belongs = |group: &Option<Group>| {
            group.as_ref().is_some_and(|group| who.groups.contains(&group.gid))
        };
        if who.uid == 0 || who.uid == self.own || belongs(&self.admin) {
            Some(Access::Write)
        } else {
            belongs(&self.read).then_some(Access::Read)
        }
    }

    /// # Errors
    /// The refusal: who asked for what, and what it takes.
    pub(crate) fn check(&self, who: &Caller, request: &Request) -> Result<(), AdminError> {
        let needs = request.needs();
        if self.rights(who) >= Some(needs) {
            return Ok(());
        }
        Err(self.refusal(who, request.name(), needs))
    }

    /// That `who` may not do `what`.
    pub(crate) fn refusal(&self, who: &Caller, what: &str, needs: Access) -> AdminError {
        let mut able = vec!["root".to_owned()];
        if self.own != 0 {
            able.push(match name_of("/etc/passwd", self.own) {
                Some(name) => format!("user {name}"),
                None => format!("uid {}", self.own),
            });
        }
        let readers = self.read.as_ref().filter(|_| needs == Access::Read);
        able.extend(self.admin.iter().chain(readers).map(|g| format!("group {}", g.name)));
        let able = match able.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => able.concat(),
        };
        AdminError::not_permitted(format_args!("{who} may not do '{what}': that takes {able}"))
    }
}

/// The name in the first field of the line whose third field is `number`.
fn name_of(table: &str, number: u32) -> Option<String> {
    let table = fs::read_to_string(table).ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    })
}

/// The one thing that there is no safe form of.
mod sys {
    #![allow(unsafe_code)]

    use std::io;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    /// The supplementary groups of the process that connected.
    pub(super) fn peer_groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
        let mut groups: Vec<libc::gid_t> = vec![0; 32];
        loop {
            let mut len = (groups.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
            // SAFETY: the option writes at most `len` bytes of group numbers through the pointer,
            // which is to as many; it changes `len` to what it wrote, or would have written.
            let result = unsafe {
                libc::getsockopt(
                    stream.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_PEERGROUPS,
                    groups.as_mut_ptr().cast(),
                    &raw mut len,
                )
            };
            let count = len as usize / size_of::<libc::gid_t>();
            if result == 0 {
                groups.truncate(count);
                return Ok(groups);
            }
            match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => {
                    groups.resize(count, 0);
                }
                e => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::Errno;

    use super::*;

    fn caller(uid: u32, groups: &[u32]) -> Caller {
        Caller { uid, pid: 7, groups: groups.to_vec() }
    }

    fn guard(admin: Option<&str>, read: Option<&str>) -> Guard {
        let group = |name: Option<&str>| name.map(|n| Group::named(n).unwrap());
        Guard { own: 500, admin: group(admin), read: group(read) }
    }

    #[test]
    fn rights_follow_user_and_groups_and_strangers_have_none() {
        let both = guard(Some("4001"), Some("4002"));
        let table = [
            (caller(0, &[0]), Some(Access::Write)),
            (caller(500, &[500]), Some(Access::Write)),
            (caller(501, &[501, 4001]), Some(Access::Write)),
            (caller(501, &[4001]), Some(Access::Write)),
            (caller(501, &[501, 4002]), Some(Access::Read)),
            (caller(501, &[501, 4002, 4001]), Some(Access::Write)),
            (caller(501, &[501]), None),
        ];
        for (who, rights) in table {
            assert_eq!(both.rights(&who), rights, "{who:?}");
        }
        assert_eq!(guard(None, None).rights(&caller(501, &[4001, 4002, 0])), None);
    }

    #[test]
    fn a_refusal_names_who_asked_for_what_and_what_it_takes() {
        let who = caller(54321, &[4002]);
        let guard = guard(Some("4001"), Some("4002"));
        guard.check(&who, &Request::GlobalShow).unwrap();
        let e = guard.check(&who, &Request::LnetUnconfigure).unwrap_err();
        assert_eq!(e.errno, Errno::EPERM);
        assert_eq!(
            e.detail.unwrap(),
            "uid 54321 (process 7) may not do 'lnet unconfigure': that takes root, uid 500 or \
             group 4001"
        );
        let e = guard.check(&caller(54321, &[]), &Request::GlobalShow).unwrap_err();
        let why = e.detail.unwrap();
        assert!(why.ends_with("that takes root, uid 500, group 4001 or group 4002"), "{why}");
    }

    #[test]
    fn groups_are_found_by_number_and_name() {
        assert_eq!(Group::named("root").unwrap().gid, 0);
        assert_eq!(Group::named("77").unwrap().gid, 77);
        let e = Group::named("nosuchgroup").unwrap_err().to_string();
        assert!(e.contains("nosuchgroup"), "{e}");
    }

    #[test]
    fn the_kernel_tells_who_connected() {
        let (one, _other) = UnixStream::pair().unwrap();
        let who = Caller::of(&one).unwrap();
        assert_eq!(who.uid, rustix::process::geteuid().as_raw());
        assert_eq!(who.pid, std::process::id() as i32);
        assert_eq!(who.groups.first(), Some(&rustix::process::getegid().as_raw()));
        let own = rustix::process::getgroups().unwrap();
        assert_eq!(who.groups.len(), 1 + own.len());
    }
}
