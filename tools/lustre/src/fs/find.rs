//! `ulnet lustre find`: files of a tree by what they have, as they are found. What is asked of a file is in
//! `wanted.rs`.

use anyhow::Result;
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, FileKind, Place, VisitError, join};
use serde_json::Value;

use super::label::Label;
use super::operands::{self, At, Done, Shape};
use super::walker::{Found, IN_FLIGHT, Walker};
use super::wanted::{Tests, Wanted};
use super::{Visit, lines, show};

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Options of find may be written with one dash, as there. A symbolic link that is named is looked at \
                  itself; with a slash behind it, what it leads to. Paths are printed as they are; for a \
                  terminal bytes that are no text are escaped. In JSON a name that is no UTF-8 has \\xNN for \
                  such bytes, and all of them in name_hex.\n\nExamples:\n  \
    ulnet lustre find 10.0.0.1@tcp:/lfs/data --name '*.h5' --size +1G\n  \
    ulnet lustre find /data/in /data/out -type d -empty\n  \
    ulnet lustre find /data -mtime +30 -print0 | xargs -0 ulnet lustre rm"
)]
pub(super) struct Options {
    /// Directories and files, with all that is in them
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    #[command(flatten)]
    tests: Tests,
    /// Go at most so many levels below each place; 0 for the place alone
    #[arg(long, value_name = "LEVELS")]
    maxdepth: Option<u32>,
    /// Show nothing above so many levels below each place
    #[arg(long, value_name = "LEVELS", default_value_t = 0)]
    mindepth: u32,
    /// End each path with a zero byte, not with a new line
    #[arg(long, conflicts_with = "json")]
    print0: bool,
    #[command(flatten)]
    visit: Visit,
}

/// Options that may have one dash.
const SPELLED: [&str; 10] = [
    "-name",
    "-type",
    "-size",
    "-maxdepth",
    "-mindepth",
    "-mtime",
    "-mmin",
    "-newer",
    "-print0",
    "-empty",
];

/// Arguments as `find` has them, as those of this command: long options may have one dash.
pub(crate) fn spelled(args: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    if args.get(1).is_none_or(|verb| verb != "find") {
        return args;
    }
    let spelled = |arg: std::ffi::OsString| match arg.to_str() {
        Some(long) if SPELLED.contains(&long) => format!("-{long}").into(),
        _ => arg,
    };
    args.into_iter().map(spelled).collect()
}

/// Whether nothing is in a directory.
async fn is_empty(mount: &Mount, found: &Found) -> Result<bool, VisitError> {
    let mut opened = mount.open_dir(&found.node).await?;
    Ok(mount.read_dir(&mut opened).await?.is_empty())
}

/// A walk of a search.
struct Search<'a> {
    at: &'a At<'a>,
    options: &'a Options,
    wanted: Wanted<'a>,
}

impl Search<'_> {
    /// What a file has, if it is wanted; more is asked of the servers only where it matters.
    async fn look(&self, found: &Found) -> Result<Option<Value>> {
        let (mount, json) = (self.at.mount, self.options.visit.way.json);
        if !self.wanted.by_name(found) {
            return Ok(None);
        }
        let is_dir = found.node.kind() == FileKind::Dir;
        let mut value = Value::Null;
        if json || self.wanted.needs_attributes(is_dir) {
            let attributes = mount.attributes(&found.node).await?;
            if !self.wanted.by_attributes(&attributes) {
                return Ok(None);
            }
            value = show::json(&found.path, &attributes);
        }
        if self.wanted.is_empty() && is_dir && !is_empty(mount, found).await? {
            return Ok(None);
        }
        Ok(Some(value))
    }

    fn print(&self, path: &Label) {
        match self.options.print0 {
            true => lines::bytes(&[path.bytes(), b"\0"].concat()),
            false => lines::named(format_args!(""), path.bytes()),
        }
    }

    async fn run(&self) -> Result<Done> {
        let At { mount, stop, place, name } = *self.at;
        let Options { maxdepth, mindepth, visit, .. } = self.options;
        let node = mount.find(&place.path, false).await?;
        // What is named is looked at first, as by find.
        let last = super::names(&place.path).last().copied().unwrap_or(b"/");
        let path = name.plain();
        let top = Found { node: node.clone(), path, name: last.to_vec(), depth: 0 };
        let is_dir = node.kind() == FileKind::Dir;
        let mut walker = Walker::new(mount, stop, node, name).down_to(*maxdepth);
        let mut rows = Vec::new();
        let mut first = Some(top);
        loop {
            let batch = match first.take() {
                Some(top) => vec![top],
                None if is_dir => walker.next().await?,
                None => Vec::new(),
            };
            if batch.is_empty() {
                return Ok(Done { value: Value::Array(rows), whole: !walker.has_failed() });
            }
            let one = |found: Found| async move {
                let looked = self.look(&found).await;
                (found, looked)
            };
            let some = batch.into_iter().filter(|found| found.depth >= *mindepth).map(one);
            for (found, looked) in join(some, IN_FLIGHT).await {
                match looked {
                    Ok(Some(row)) if visit.way.json => rows.push(row),
                    Ok(Some(_)) => self.print(&found.path),
                    Ok(None) => {}
                    Err(e) => walker.fail(&found.path, &e),
                }
            }
        }
    }
}

/// Runs the command. `false`: a part could not be read, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, visit, tests, .. } = options;
    operands::each(places, visit, Access::Read, Shape::Rows, async |at| {
        let wanted = Wanted::of(tests, at).await?;
        Search { at, options, wanted }.run().await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_options_of_find_may_have_one_dash() {
        let args = |texts: &[&str]| texts.iter().map(Into::into).collect::<Vec<_>>();
        let given = args(&["lustre", "find", "/d", "-name", "x", "-size", "+1", "-print0"]);
        let expected = args(&["lustre", "find", "/d", "--name", "x", "--size", "+1", "--print0"]);
        assert_eq!(spelled(given), expected);
        let other = args(&["lustre", "ls", "-name"]);
        assert_eq!(spelled(other.clone()), other);
    }
}
