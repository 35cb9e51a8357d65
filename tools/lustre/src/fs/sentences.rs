//! What error numbers mean to the user of a file system, and what can be done.

use lnet_types::Errno;
use lustre_rt::visitor::VisitError;

use super::label::{Label, without_slashes};
use super::show;

/// What can be done about an error number, where that is known.
const fn advice(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::EPERM => {
            "only the owner or root may do this; root of this machine may not be root there"
        }
        Errno::EACCES => "this user may not; see --uid and --gid, and the nodemap of the server",
        Errno::EROFS => "the file system, or this client's part of it, is not to be changed",
        Errno::ENOSPC => "no target has space for it: see ulnet lustre df",
        Errno::EDQUOT => "the quota of its owner, group or project is used up",
        Errno::ENODATA => "there is no such attribute, or its data is in the archive alone",
        Errno::ESTALE => "it was removed meanwhile",
        Errno::ENOTEMPTY => "something is in it: see rm -r",
        Errno::EMLINK => "it has as many names as a file may have",
        Errno::ETXTBSY => "it runs as a program on another node",
        Errno::EFBIG => "no file may be so large",
        Errno::EXDEV => "the two names are in different projects, file systems or metadata targets",
        Errno::EBUSY => "another client changes its layout: try again",
        Errno::ENODEV => "the target is not in service: see ulnet lustre check",
        Errno::EEXIST => "this name is taken",
        Errno::EISDIR => "it is a directory",
        Errno::ENOTDIR => "a part of the path is no directory",
        Errno::ELOOP => "too many symbolic links follow each other",
        Errno::EINVAL => "no such value is accepted; nothing can be moved into itself",
        Errno::EOPNOTSUPP => "this can't be done with such a file or on this server",
        Errno::EIO => "it could not be read or written",
        Errno::ENAMETOOLONG => "a name has at most 255 bytes, a link 4095",
        _ => return None,
    })
}

/// An error number in a sentence.
fn sentence(errno: Errno) -> String {
    match advice(errno) {
        Some(advice) => format!("{errno} ({advice})"),
        None => errno.to_string(),
    }
}

/// A failure of this machine, as other tools say it: without the number behind.
pub(super) fn local(e: &std::io::Error) -> String {
    let text = e.to_string();
    match text.split_once(" (os error ") {
        Some((front, _)) => front.to_owned(),
        None => text,
    }
}

/// A failure in words.
pub(super) fn said(e: &anyhow::Error) -> String {
    match e.downcast_ref::<VisitError>() {
        Some(VisitError::Path { path, errno }) => {
            format!("{}: {}", path.escape_ascii(), sentence(*errno))
        }
        Some(VisitError::Refused { target, errno }) => format!("{target}: {}", sentence(*errno)),
        Some(e) => e.to_string(),
        None => match e.downcast_ref::<std::io::Error>() {
            Some(io) if e.chain().len() == 1 => local(io),
            _ => format!("{e:#}"),
        },
    }
}

/// What the file system has refused of something that was to get another name there: both are named.
pub(super) fn towards(e: anyhow::Error, what: &str, to: &Label) -> anyhow::Error {
    match e.downcast_ref::<VisitError>() {
        Some(_) => anyhow::anyhow!("{what} {to}: {}", why(&e, to.bytes())),
        None => e,
    }
}

/// The same of what this machine has refused.
pub(super) fn towards_here(e: anyhow::Error, what: &str, to: &Label) -> anyhow::Error {
    let here = e.is::<std::io::Error>() || e.is::<rustix::io::Errno>();
    if here { anyhow::anyhow!("{what} {to}: {}", said(&e)) } else { e }
}

/// Why something of this path has failed, without the path.
pub(super) fn why(e: &anyhow::Error, path: &[u8]) -> String {
    let path = without_slashes(path);
    if let Some(VisitError::Path { path: of, errno }) = e.downcast_ref()
        && (*of == path || *of == super::last_name(path))
    {
        return sentence(*errno);
    }
    let text = said(e);
    match text.strip_prefix(&show::name(path)).and_then(|rest| rest.strip_prefix(": ")) {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_users_have_a_sentence_and_those_of_targets_their_name() {
        let path = VisitError::Path { path: b"/a".to_vec(), errno: Errno::EDQUOT };
        assert!(said(&path.into()).starts_with("/a: Disk quota exceeded (the quota"));
        let refused =
            VisitError::Refused { target: "lfs-OST0001_UUID".into(), errno: Errno::ENXIO };
        assert_eq!(said(&refused.into()), "lfs-OST0001_UUID: No such device or address");
        let into_itself = VisitError::Path { path: b"/d/e".to_vec(), errno: Errno::EINVAL };
        assert!(said(&into_itself.into()).contains("into itself"));
        assert_eq!(said(&anyhow::anyhow!("a").context("b")), "b: a");
    }

    #[test]
    fn what_an_operand_has_met_does_not_name_it_twice() {
        let of = |path: &str| VisitError::Path { path: path.into(), errno: Errno::ENXIO };
        for of in [of("/a/\u{e9}"), of("\u{e9}")] {
            assert_eq!(why(&of.into(), "/a/\u{e9}/".as_bytes()), "No such device or address");
        }
        assert_eq!(why(&of("/a").into(), b"/a/b"), "/a: No such device or address");
        assert_eq!(why(&anyhow::anyhow!("/a: no file"), b"/a"), "no file");
        assert_eq!(why(&anyhow::anyhow!("/ab: no file"), b"/a"), "/ab: no file");
    }
}
