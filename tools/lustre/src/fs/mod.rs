//! `ulnet lustre`: the files of a Lustre file system, without a kernel module. One file per verb. All is done
//! as a visitor: no lock is kept; what was opened is closed and the connections are ended, also after
//! Ctrl-C. Commands that only read ask servers not to be let change anything.

/// As that of the standard library, but for a reader that has gone.
macro_rules! println {
    () => {
        $crate::fs::lines::line(format_args!(""))
    };
    ($($text:tt)*) => {
        $crate::fs::lines::line(format_args!($($text)*))
    };
}

/// The same on standard error.
macro_rules! eprintln {
    ($($text:tt)*) => {
        $crate::fs::lines::error(format_args!($($text)*))
    };
}

mod bytes;
mod cat;
mod change;
mod check;
mod components;
mod copy;
mod df;
mod dirstripe;
mod du;
pub(crate) mod find;
mod goal;
mod label;
mod lines;
mod ln;
mod ls;
mod mkdir;
mod moved;
mod mv;
mod operands;
mod order;
mod progress;
mod reading;
mod readlink;
mod rm;
mod rmdir;
mod sentences;
mod show;
mod side;
mod stat;
mod stop;
mod stripe;
mod sum;
mod touch;
mod tree;
mod truncate;
mod walker;
mod wanted;

use std::ffi::OsString;
use std::fmt;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use lnet_rt::Net;
use lnet_types::Errno;
use lustre_rt::visitor::{Access, FileKind, Identity, Node, Place, VisitError};
use lustre_rt::{Mount, MountConfig, Pace, wait};
use serde_json::json;

use crate::client::{self, Target, Way};
use crate::ping::client_uuid;
use progress::{Progress, Words};
use stop::Stop;

/// The variable that holds a file system, so that a path is enough.
const VARIABLE: &str = "ULNET_LUSTRE";

#[derive(Debug, Parser)]
#[command(
    name = "ulnet lustre",
    about = "The files of a Lustre file system, without a kernel module",
    disable_help_subcommand = true,
    after_help = "A place is MGSNID[,NID…][:MGSNID…]:/FSNAME[/PATH], as for mount. With a file system in \
                  ULNET_LUSTRE, such as 10.0.0.1@tcp:/lfs, a path such as /data is enough. Of several \
                  places one that fails is named, and the others are done; the exit status is 1. With \
                  --json they give an array with a value for each of them; one that has failed is \
                  {\"name\": …, \"error\": …}."
)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the space of each target
    Df(df::Options),
    /// List directories
    Ls(ls::Options),
    /// Show what files have
    Stat(stat::Options),
    /// Write files to standard output
    Cat(cat::Options),
    /// Copy files and trees into a file system, and out of one
    Cp(copy::Options),
    /// Make directories
    Mkdir(mkdir::Options),
    /// Remove files and trees
    Rm(rm::Options),
    /// Remove empty directories
    Rmdir(rmdir::Options),
    /// Rename files and directories, or move them into a directory
    Mv(mv::Options),
    /// Give files one more name, or make symbolic links
    Ln(ln::Options),
    /// Show the texts of symbolic links
    Readlink(readlink::Options),
    /// Set the times of files, and make those that do not exist
    Touch(touch::Options),
    /// Cut files off, or make them longer
    Truncate(truncate::Options),
    /// Change permissions
    Chmod(change::Chmod),
    /// Change owner and group
    Chown(change::Chown),
    /// Show the space that files take
    Du(du::Options),
    /// Find files by name, type and size
    Find(find::Options),
    /// Show trees of directories
    Tree(tree::Options),
    /// Show the checksums of files
    Sum(sum::Options),
    /// Show where the data of files is
    Getstripe(stripe::Get),
    /// Say where the data of new files is to be
    Setstripe(stripe::Set),
    /// Show which targets answer, and what this client may do
    Check(check::Options),
}

impl Verb {
    /// What is said of files while it takes long. Nothing, where files go to the terminal.
    fn words(&self) -> Option<Words> {
        Some(match self {
            Self::Cat(_) if std::io::stdout().is_terminal() => return None,
            Self::Cp(_) => Words::Copied,
            Self::Rm(_) | Self::Rmdir(_) => Words::Done("removed"),
            Self::Mv(_) => Words::Done("moved"),
            Self::Chmod(_) | Self::Chown(_) => Words::Done("changed"),
            Self::Ls(_) | Self::Du(_) | Self::Find(_) | Self::Tree(_) => Words::Done("looked at"),
            _ => Words::Done("done"),
        })
    }
}

/// How a command visits.
#[derive(Clone, Debug, Args)]
struct Visit {
    #[command(flatten)]
    way: Way,
    /// Network of this client, if it is not that of the management server: see --route
    #[arg(long, value_name = "NET", value_parser = client::network)]
    net: Option<Net>,
    /// Leave the servers to others: one request at a time for each target, and then a pause as long as its
    /// answer took, at most a second
    #[arg(long)]
    gentle: bool,
    /// Visit as this user; the one who runs the command if not given
    #[arg(long)]
    uid: Option<u32>,
    /// Visit as this group; that of the user who runs the command if not given
    #[arg(long)]
    gid: Option<u32>,
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// All was done.
    Whole,
    /// A part has failed, and was named on standard error.
    Part,
    /// The same, and a server has evicted this client in the middle of writing.
    Evicted,
}

impl Status {
    /// The exit status.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Whole => 0,
            Self::Part => 1,
            Self::Evicted => 5,
        }
    }

    const fn of(whole: bool) -> Self {
        if whole { Self::Whole } else { Self::Part }
    }
}

/// A server has evicted this client, and what that may have cost was said.
#[derive(Debug)]
struct Evicted;

impl fmt::Display for Evicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("evicted by the server")
    }
}

impl std::error::Error for Evicted {}

/// Whether changes may be lost that a server has answered.
fn is_loss(e: &anyhow::Error) -> bool {
    matches!(e.downcast_ref(), Some(VisitError::ChangesLost { .. }))
}

/// Runs a command.
///
/// # Errors
/// No file system, no such path, a refusal.
pub(crate) fn run(options: &Options) -> Result<Status> {
    let _progress = options.verb.words().and_then(Progress::begin);
    let whole = match &options.verb {
        Verb::Df(options) => df::run(options),
        Verb::Ls(options) => ls::run(options),
        Verb::Stat(options) => stat::run(options),
        Verb::Cat(options) => cat::run(options),
        Verb::Cp(options) => return copy::run(options),
        Verb::Mkdir(options) => mkdir::run(options),
        Verb::Rm(options) => rm::run(options),
        Verb::Rmdir(options) => rmdir::run(options),
        Verb::Mv(options) => mv::run(options),
        Verb::Ln(options) => ln::run(options),
        Verb::Readlink(options) => readlink::run(options),
        Verb::Touch(options) => touch::run(options),
        Verb::Truncate(options) => truncate::run(options),
        Verb::Chmod(options) => change::chmod(options),
        Verb::Chown(options) => change::chown(options),
        Verb::Du(options) => du::run(options),
        Verb::Find(options) => find::run(options),
        Verb::Tree(options) => tree::run(options),
        Verb::Sum(options) => sum::run(options),
        Verb::Getstripe(options) => stripe::get(options),
        Verb::Setstripe(options) => stripe::set(options),
        Verb::Check(options) => check::run(options),
    };
    // A reader that has read enough wants no more: that is no failure of the command.
    if !lines::are_unread() {
        return match whole {
            Err(e) if e.is::<Evicted>() => Ok(Status::Evicted),
            whole => whole.map(Status::of),
        };
    }
    lines::finish()?;
    Ok(whole.map_or(Status::Whole, Status::of))
}

/// The place of a command line, with the file system of the variable before a bare path.
fn place(bytes: &[u8]) -> Result<Place> {
    if !bytes.starts_with(b"/") {
        return Place::parse(bytes).map_err(|e| anyhow!("{e}"));
    }
    let Ok(system) = std::env::var(VARIABLE) else {
        bail!(
            "place '{}': expected MGSNID:/FSNAME[/PATH], such as 10.0.0.1@tcp:/lfs/data, or a \
             file system in {VARIABLE}",
            show::name(bytes)
        );
    };
    let system: Place = system.parse().map_err(|e| anyhow!("{VARIABLE}: {e}"))?;
    // A path in it would be passed over, and what is removed would be something else than was meant.
    if system.path != b"/" {
        bail!(
            "{VARIABLE} '{system}': expected a file system without a path, such as '{}'",
            system.with_path("/")
        );
    }
    Ok(system.with_path(bytes))
}

/// Places of a command line, whose paths are any bytes.
fn places() -> impl TypedValueParser<Value = Place> {
    OsStringValueParser::new().try_map(|text: OsString| place(&text.into_vec()))
}

/// The names of a path.
fn names(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect()
}

/// The root, in place of something that can be made or renamed.
fn taken() -> anyhow::Error {
    anyhow!("the root of a file system: expected a path below it")
}

/// The name of something that is to be removed or renamed. What '.' and '..' stand for has another one, and
/// is seldom what was meant.
///
/// # Errors
/// There is none.
fn own_name(path: &[u8]) -> Result<&[u8]> {
    match last_name(path) {
        b"" => Err(taken()),
        b"." | b".." => bail!("expected a path that ends with a name, not with '.' or '..'"),
        name => Ok(name),
    }
}

/// What is to be removed or renamed: a link itself, never what it leads to. A slash behind a name says that it is
/// a directory.
///
/// # Errors
/// There is none, or it is no directory.
async fn find_itself(mount: &Mount, path: &[u8]) -> Result<Node> {
    let bare = label::without_slashes(path);
    let node = mount.find(bare, false).await?;
    if bare.len() < path.len() && node.kind() != FileKind::Dir {
        return Err(VisitError::Path { path: bare.to_vec(), errno: Errno::ENOTDIR }.into());
    }
    Ok(node)
}

/// What stands behind the last slash of a path, but for slashes at its end.
fn last_name(path: &[u8]) -> &[u8] {
    label::without_slashes(path).rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// The directory of a path, and the name in it.
///
/// # Errors
/// A path without name, a directory that does not exist.
async fn parent(mount: &Mount, path: &[u8]) -> Result<(Node, Vec<u8>)> {
    let (name, above) = ends_with_name(path)?;
    let dir = mount.find(&[b"/", above.join(&b'/').as_slice()].concat(), true).await?;
    Ok((dir, name.to_vec()))
}

/// The last name of a path, and those above it. Without one nothing can be made there.
fn ends_with_name(path: &[u8]) -> Result<(&[u8], Vec<&[u8]>)> {
    let shown = || show::name(path);
    if path.ends_with(b"/") {
        bail!("path '{}': expected one that ends with a name: it is no directory", shown());
    }
    let mut names = names(path);
    match names.pop().filter(|name| *name != b"..") {
        Some(name) => Ok((name, names)),
        None => bail!("path '{}': expected one that ends with a name", shown()),
    }
}

/// Permissions of a command line.
fn mode(text: &str) -> Result<u32> {
    let is_octal = text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o7777);
    mode.ok_or_else(|| {
        anyhow!("permissions '{text}': expected octal digits up to 7777, such as 750")
    })
}

fn identity(visit: &Visit) -> Identity {
    let groups = match visit.uid {
        Some(_) => Vec::new(),
        None => rustix::process::getgroups()
            .map(|groups| groups.into_iter().map(rustix::process::Gid::as_raw).collect())
            .unwrap_or_default(),
    };
    Identity {
        umask: umask(),
        uid: visit.uid.unwrap_or_else(|| rustix::process::getuid().as_raw()),
        gid: visit.gid.unwrap_or_else(|| rustix::process::getgid().as_raw()),
        groups,
    }
}

/// The mask of permissions of this process.
fn umask() -> u32 {
    // There is no other way to read it than to set it; nothing else runs yet.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

/// Runs `f` in a file system.
///
/// # Errors
/// No way to the management server, no such file system, and those of `f`.
fn with<R>(
    place: &Place,
    visit: &Visit,
    access: Access,
    f: impl AsyncFnOnce(&Mount, &Stop) -> Result<R>,
) -> Result<R> {
    let stop = Stop::listen()?;
    let result = self::visit(place, visit, &stop, access, async |mount| f(mount, &stop).await);
    result.map_err(|e| {
        if let (false, Err(wanted)) = (is_loss(&e), stop.check()) {
            return wanted;
        }
        let why = sentences::said(&e);
        if visit.way.json {
            println!("{:#}", json!({ "name": place.to_string(), "error": why }));
        }
        if is_loss(&e) {
            eprintln!("ulnet lustre: {why}");
            return Evicted.into();
        }
        anyhow!("{why}")
    })
}

/// The same for a command that visits several file systems.
fn visit<R>(
    place: &Place,
    visit: &Visit,
    stop: &Stop,
    access: Access,
    f: impl AsyncFnOnce(&Mount) -> Result<R>,
) -> Result<R> {
    let nids = client::reachable_first(place.nids(), &visit.way);
    let target = Target { name: "MGS".to_owned(), nids };
    let (node, rpc) = client::node_on(visit.net, &target, &visit.way)?;
    let config = MountConfig {
        mgs: place.nids(),
        fsname: place.fsname.clone(),
        client: client_uuid(),
        who: identity(visit),
        access,
        limit: Duration::from_secs(visit.way.timeout),
        interrupt: stop.interrupt.clone(),
        pace: if visit.gentle { Pace::Gentle } else { Pace::Usual },
    };
    let result = wait(async {
        let mount = Mount::begin(&rpc, config).await.map_err(said)?;
        let result = f(&mount).await;
        let ended = mount.end().await.map_err(said);
        match (result, ended) {
            // A loss decides how the command ends.
            (Err(e), Err(lost)) => {
                let (first, last) = if is_loss(&lost) { (e, lost) } else { (lost, e) };
                eprintln!("ulnet lustre: {}", sentences::said(&first));
                Err(last)
            }
            (result, ended) => result.and_then(|value| ended.map(|()| value)),
        }
    });
    node.stop(Duration::from_secs(1)).blocking();
    result
}

/// A failed visit, with what can be done where that is known.
fn said(e: VisitError) -> anyhow::Error {
    match &e {
        VisitError::Unreachable { target, .. } if target == "MGS" => {
            anyhow!("{e}: check the NID, its port, and ulnet rpc ping")
        }
        _ => anyhow!(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_octal_digits_alone() {
        for (text, expected) in [("750", 0o750), ("0", 0), ("07777", 0o7777)] {
            assert_eq!(mode(text).unwrap(), expected, "{text}");
        }
        for text in ["", "+750", "-750", "u+x", "8", "17777"] {
            assert!(mode(text).unwrap_err().to_string().contains("such as 750"), "{text}");
        }
    }

    #[test]
    fn place_that_is_misspelt_is_shown_with_an_example() {
        for text in ["lfs", "10.0.0.1@tcp/lfs", "10.0.0.1@tcp:/"] {
            let e = place(text.as_bytes()).unwrap_err().to_string();
            assert!(e.contains(&format!("'{text}'")) && e.contains("such as"), "{e}");
        }
        let place = place(b"10.0.0.1@tcp:/lfs/a").unwrap();
        assert_eq!((place.fsname.as_str(), &place.path[..]), ("lfs", &b"/a"[..]));
    }
}
