//! `ulnet lustre cp`: copies files and trees into a file system, and out of one. `put.rs` is the way in,
//! `get.rs` the way out, `local.rs` what is done on this machine, `preserve.rs` owners and attributes,
//! `room.rs` how much is under way at a time, `commits.rs` what is waited for beside it, `tally.rs` the account.

mod commits;
mod get;
mod local;
mod preserve;
mod put;
mod room;
mod tally;
mod waiting;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, FileLayout, OpenFile, Place, Wish, join};

use super::bytes::Bytes;
use super::components::within;
use super::goal::Taken;
use super::label::Label;
use super::sentences::said;
use super::side::{self, Side};
use super::{Status, Stop, Visit, last_name};
use commits::Commits;
use room::Room;
use tally::Tally;

pub(super) use preserve::is_kept;

/// Bytes of a data request.
const CHUNK: u64 = 2 << 20;
/// Requests for the data of one file that are under way at a time, for each object that it is spread over: no
/// more than a processor's cache holds at both ends.
const PER_OBJECT: usize = 6;
/// The same in all.
const IN_FLIGHT: usize = 16;
/// A file of at most so many bytes is copied beside others.
const SMALL: u64 = 4 << 20;
/// Files that are copied beside each other, if there is room for their data.
const AT_A_TIME: usize = 32;

/// What, and whereto.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "One side is in a file system: MGSNID:/FSNAME/PATH, or /PATH with ULNET_LUSTRE. The other is \
                  on this machine; 'file:/PATH' says so of a path that begins with a slash. Times, permissions, \
                  symbolic links, hard links within a tree, and holes are kept. A source that ends with '/.' \
                  is the content of its directory. What a server calls its files \
                  never leads out of the destination.\n\nExamples:\n  \
                  ulnet lustre cp ./f1 10.0.0.1@tcp:/lfs/data/\n  \
                  ulnet lustre cp -r ./results /data/ --stripe-count 4 --stripe-size 4M\n  \
                  ulnet lustre cp -r /data/in . --verify\n  \
                  ulnet lustre cp -rT --resume /data/in ./in"
)]
pub(super) struct Options {
    /// Files and directories, and the destination: a directory, or the name of the copy
    #[arg(
        required = true,
        num_args = 2..,
        value_name = "SOURCE… DESTINATION",
        value_parser = side::sides()
    )]
    sides: Vec<Side>,
    /// Copy directories with all that is in them
    #[arg(short, visible_short_alias = 'R', long)]
    recursive: bool,
    /// As -r -p
    #[arg(short, long)]
    archive: bool,
    /// Keep owner, group, extended attributes and ACLs too, as far as the destination lets them be set
    #[arg(short, long)]
    preserve: bool,
    /// Leave files that have the same size and time; compare those that have the same size alone
    #[arg(long)]
    resume: bool,
    /// Read each copy again, and compare it with its source
    #[arg(long)]
    verify: bool,
    /// Spread each new file over so many targets; -1 for all
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    stripe_count: Option<i32>,
    /// Bytes of a stripe of each new file
    #[arg(long, value_name = "BYTES")]
    stripe_size: Option<Bytes>,
    /// Pool of targets for each new file
    #[arg(long, value_name = "[FSNAME.]POOL")]
    pool: Option<String>,
    /// Bytes at the front of each new file that are on the metadata target
    #[arg(long, value_name = "BYTES")]
    mdt_size: Option<Bytes>,
    #[command(flatten)]
    taken: Taken,
    #[command(flatten)]
    visit: Visit,
}

/// A copy under way.
pub(super) struct Copy<'a> {
    mount: &'a Mount,
    stop: &'a Stop,
    recursive: bool,
    preserve: bool,
    resume: bool,
    verify: bool,
    /// How a destination is taken that a directory has.
    taken: Taken,
    /// Layout of new files.
    layout: Vec<u8>,
    tally: &'a Tally,
    room: Room,
    commits: Commits,
}

/// The direction of a copy.
enum Way {
    In(Vec<PathBuf>, Place),
    Out(Vec<Place>, PathBuf),
}

fn way(sides: &[Side]) -> Result<Way> {
    let Some((to, from)) = sides.split_last() else { bail!("expected a source and a destination") };
    match to {
        Side::There(to) => {
            let here = from.iter().map(|side| match side {
                Side::Here(path) => Ok(path.clone()),
                Side::There(place) => Err(anyhow!(
                    "source '{place}': the destination is in a file system too; expected a path of this \
                     machine, such as ./f1 or file:/tmp/f1"
                )),
            });
            Ok(Way::In(here.collect::<Result<_>>()?, to.clone()))
        }
        Side::Here(to) => {
            let there = from.iter().map(|side| match side {
                Side::There(place) => Ok(place.clone()),
                Side::Here(path) => Err(anyhow!(
                    "source '{}': the destination is on this machine too; expected \
                     MGSNID:/FSNAME/PATH, such as 10.0.0.1@tcp:/lfs/data",
                    path.display()
                )),
            });
            let there: Vec<Place> = there.collect::<Result<_>>()?;
            if let Some(first) = there.first()
                && let Some(other) = there.iter().find(|p| p.with_path("") != first.with_path(""))
            {
                bail!("source '{other}': expected one in the file system of '{first}'");
            }
            Ok(Way::Out(there, to.clone()))
        }
    }
}

/// Runs the command.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<Status> {
    let Options { sides, archive, resume, verify, taken, visit, .. } = options;
    let wish = Wish {
        count: options.stripe_count,
        size: options.stripe_size.map(|bytes| bytes.0),
        pool: options.pool.clone(),
        first: None,
        on_mdt: options.mdt_size.map(|bytes| bytes.0),
    };
    taken.check(sides.len().saturating_sub(1))?;
    let way = way(sides)?;
    let (place, access) = match &way {
        Way::In(_, to) => (to.clone(), Access::Change),
        Way::Out(from, _) => {
            let first = from.first().ok_or_else(|| anyhow!("expected a source"))?;
            (first.clone(), Access::Read)
        }
    };
    let layout = within(&wish, &place.fsname)?.bytes()?;
    if matches!(way, Way::Out(..)) && !layout.is_empty() {
        bail!("stripes are of files in a file system: the destination is on this machine");
    }
    let json = visit.way.json;
    let (stop, tally) = (Stop::listen()?, Tally::default());
    let visited = super::visit(&place, visit, &stop, access, async |mount| {
        let copy = Copy {
            mount,
            stop: &stop,
            recursive: options.recursive || *archive,
            preserve: options.preserve || *archive,
            resume: *resume,
            verify: *verify,
            taken: *taken,
            layout: layout.clone(),
            tally: &tally,
            room: Room::new(IN_FLIGHT as u64 * CHUNK),
            commits: Commits::default(),
        };
        match &way {
            Way::In(from, to) => copy.put_all(from, to).await,
            Way::Out(from, to) => copy.get(from, to).await,
        }
    });
    let ended = visited.map_err(|e| {
        // What is not known to be committed may be lost, whatever the end of the visit has met.
        let lost = super::is_loss(&e);
        let why = match stop.check() {
            Err(wanted) if !lost => wanted.to_string(),
            _ => said(&e),
        };
        tally.end(&why, lost);
        why
    });
    if json {
        let mut account = tally.json();
        if let Err(why) = &ended {
            Label::new(place.to_string()).name_in(&mut account);
            account["error"] = why.as_str().into();
        }
        println!("{account:#}");
    }
    Ok(tally.status())
}

/// Whether a directory that is named so stands for what is in it: it has no name that a copy could get.
fn is_nameless(path: &[u8]) -> bool {
    matches!(last_name(path), b"." | b"..")
}

/// Whether a place has a name in another directory; the root has none.
fn has_name(path: &[u8]) -> bool {
    !last_name(path).is_empty() && !is_nameless(path)
}

/// How many requests for the data of a file are under way at a time.
fn at_a_time(file: &OpenFile) -> usize {
    let width = file.layout().map_or(0, FileLayout::width);
    (width.max(1) * PER_OBJECT).min(IN_FLIGHT)
}

/// Runs `one` for each part, at most `limit` at a time, as long as each says so with `true`. After the first that
/// does not, or fails, no further one is begun: those under way are waited for.
async fn each_while<T>(
    parts: impl Iterator<Item = T>,
    limit: usize,
    one: impl AsyncFn(T) -> Result<bool>,
) -> Result<bool> {
    let (parts, over) = (RefCell::new(parts.fuse()), Cell::new(false));
    let some = |_| async {
        while !over.get() {
            let Some(part) = parts.borrow_mut().next() else { break };
            let end = one(part).await;
            if !matches!(end, Ok(true)) {
                over.set(true);
                return end;
            }
        }
        Ok(true)
    };
    let ends = join((0..limit.max(1)).map(some), limit).await;
    ends.into_iter().try_fold(true, |all, end| Ok(all & end?))
}

/// Whether a file has nowhere data: it is a hole, however many bytes its server says that it has.
fn is_hole(file: &OpenFile) -> bool {
    file.layout().is_ok_and(|layout| layout.on_mdt().is_none() && layout.objects().next().is_none())
}

/// A file in parts of a request each.
fn chunks(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let to = (at / CHUNK + 1).saturating_mul(CHUNK).min(end);
        let part = (at, to - at);
        at = to;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_side_of_a_copy_is_in_a_file_system() {
        let sides = |texts: &[&str]| -> Vec<Side> {
            texts.iter().map(|t| Side::parse(t.as_bytes()).unwrap()).collect()
        };
        let there = "10.0.0.1@tcp:/lfs/a";
        assert!(
            matches!(way(&sides(&["./a", "./b", there])), Ok(Way::In(from, _)) if from.len() == 2)
        );
        assert!(matches!(way(&sides(&[there, "."])), Ok(Way::Out(from, _)) if from.len() == 1));
        for (texts, part) in [
            (&[there, there][..], "destination is in a file system too"),
            (&["a", "b"], "destination is on this machine too"),
            (&[there, "10.0.0.2@tcp:/lfs/a", "b"], "expected one in the file system of"),
        ] {
            let e = way(&sides(texts)).err().unwrap().to_string();
            assert!(e.contains(part), "{e}");
        }
    }

    #[test]
    fn no_further_part_is_begun_after_the_first_that_fails() {
        use waiting::pause;
        let (begun, ended) = (&Cell::new(0), &Cell::new(0));
        let one = async |part: u64| {
            begun.set(begun.get() + 1);
            // Those before it are still under way when it fails.
            pause(if part == 5 { 1 } else { 3 }).await;
            ended.set(ended.get() + 1);
            if part == 5 { bail!("full") } else { Ok(part != 9) }
        };
        // As many as of a file that is as large as its server likes: none is kept.
        let all = chunks(0, u64::MAX).map(|(at, _)| at / CHUNK);
        let e = lnet_rt::block_on(each_while(all, 4, one)).unwrap_err();
        assert_eq!(e.to_string(), "full");
        assert!(begun.get() <= 9 && ended.get() == begun.get(), "{begun:?} {ended:?}");
        assert!(lnet_rt::block_on(each_while(0..5, 4, one)).unwrap());
        begun.set(0);
        assert!(!lnet_rt::block_on(each_while((6..).chain(0..), 1, one)).unwrap());
        assert_eq!(begun.get(), 4);
        assert!(lnet_rt::block_on(each_while(0..0, 4, one)).unwrap());
    }

    #[test]
    fn parts_end_on_borders_of_requests() {
        let all: Vec<_> = chunks(5, 2 * CHUNK + 7).collect();
        assert_eq!(all, [(5, CHUNK - 5), (CHUNK, CHUNK), (2 * CHUNK, 7)]);
        assert_eq!(chunks(3, 3).count(), 0);
    }
}
