//! `ulnet lustre ls`: lists directories, by name, time or size, or as they are read. Which names are shown and
//! in which order is in `order.rs`.

use std::cell::Cell;

use anyhow::Result;
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{
    Access, Attributes, FileKind, IN_FLIGHT, Name, Node, Place, VisitError, join,
};
use serde_json::{Value, json};

use super::label::Label;
use super::operands::{self, At, Done, Shape};
use super::order::{Hidden, Key, Order};
use super::sentences::why;
use super::{Stop, Visit, lines, progress, reading, show};

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Names are sorted by their bytes, once all of them are read. With -U they come in the \
                  order of the server, the first ones at once. Several are listed as they are named, each \
                  directory below a line with its name. A symbolic link that is named is listed itself with -l or \
                  -d, or if it leads nowhere. Names are printed as they are; for a terminal they are quoted as by \
                  ls. In JSON a name that is no UTF-8 has \\xNN for such bytes, and all of them in name_hex.\n\n\
                  Examples:\n  \
    ulnet lustre ls 10.0.0.1@tcp:/lfs/data\n  \
    ulnet lustre ls -l /data /other\n  \
    ulnet lustre ls -lhtr /data\n  \
    ulnet lustre ls -U /data | wc -l"
)]
pub(super) struct Options {
    /// Directories and files
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    /// Show type, permissions, links, owner, group, size and time (UTC) too
    #[arg(short, long)]
    long: bool,
    /// Show names that begin with a dot too, also . and ..
    #[arg(short, long)]
    all: bool,
    /// Show names that begin with a dot too, but not . and ..
    #[arg(short = 'A', long)]
    almost_all: bool,
    /// List directories themselves, not what is in them
    #[arg(short, long, conflicts_with = "recursive")]
    directory: bool,
    /// List what is in directories of directories too, each below a line with its path
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show sizes with units: 1.5K, 23M
    #[arg(short, long)]
    human_readable: bool,
    /// Sort by the time of the last change, the latest first
    #[arg(short, overrides_with_all = ["size", "unsorted"])]
    time: bool,
    /// Sort by size, the largest first
    #[arg(short = 'S', overrides_with_all = ["time", "unsorted"])]
    size: bool,
    /// Sort the other way round
    #[arg(short, long)]
    reverse: bool,
    /// Show names as the server lists them, not sorted: for very large directories
    #[arg(short = 'U', long, overrides_with_all = ["time", "size"])]
    unsorted: bool,
    /// Show one name on a line, as without it
    #[arg(short = '1')]
    one: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    visit: Visit,
}

impl Options {
    fn order(&self) -> Order {
        let key = match (self.unsorted, self.time, self.size) {
            (true, ..) => Key::None,
            (_, true, _) => Key::Time,
            (_, _, true) => Key::Size,
            _ => Key::Name,
        };
        Order { key, reverse: self.reverse }
    }

    const fn hidden(&self) -> Hidden {
        match (self.all, self.almost_all) {
            (true, _) => Hidden::All,
            (_, true) => Hidden::AlmostAll,
            _ => Hidden::None,
        }
    }
}

/// A file that is shown: what it has, and the text of a link.
type Found = (Attributes, Option<Vec<u8>>);

/// The same of a name in a directory; why that is not known.
type Looked = Result<Found, String>;

/// A directory that is listed.
struct Listed {
    node: Node,
    /// What it is called where it is shown.
    shown: Label,
    /// Its path in its file system.
    path: Vec<u8>,
}

/// A listing under way.
struct Lister<'a> {
    options: &'a Options,
    mount: &'a Mount,
    stop: &'a Stop,
    /// Whether a directory was listed last, if anything was.
    last: &'a Cell<Option<bool>>,
    whole: Cell<bool>,
}

/// The text of a link.
async fn text(mount: &Mount, node: &Node) -> Result<Option<Vec<u8>>, VisitError> {
    match node.kind() {
        FileKind::Link => Ok(Some(mount.link_text(node).await?)),
        _ => Ok(None),
    }
}

/// Names whose attributes are asked for together.
const BATCH: usize = 256;

impl Lister<'_> {
    const fn json(&self) -> bool {
        self.options.visit.way.json
    }

    fn failed(&self, label: &Label, e: &anyhow::Error) -> Result<()> {
        self.not_found(label, e).map(|_| ())
    }

    /// Names what could not be looked at; why, in words.
    fn not_found(&self, label: &Label, e: &anyhow::Error) -> Result<String> {
        self.stop.check()?;
        let why = why(e, label.bytes());
        eprintln!("ulnet lustre: {label}: {why}");
        self.whole.set(false);
        Ok(why)
    }

    /// Prints a line of a name of which no more is known than its listing has shown, as by ls.
    fn unknown(name: &Name) {
        let mode = show::unknown(name.kind.map(|mode| FileKind::of(mode.into())));
        let front = format!("{mode} {0:>3} {0:>8} {0:>8} {0:>14} {0:>19} ", '?');
        lines::bytes(&[front.as_bytes(), &lines::out(&name.name, show::quoted), b"\n"].concat());
    }

    /// Prints a line of a file.
    fn line(&self, name: &[u8], (attributes, link): &Found) {
        let Attributes { nlink, uid, gid, mtime, .. } = attributes;
        let size = match attributes.kind {
            FileKind::Block | FileKind::Char => {
                let (major, minor) = show::device(attributes.rdev);
                format!("{major}, {minor}")
            }
            _ if self.options.human_readable => show::human(attributes.size),
            _ => attributes.size.to_string(),
        };
        let (mode, time) = (show::mode(attributes), show::time(*mtime));
        let front = format!("{mode} {nlink:>3} {uid:>8} {gid:>8} {size:>14} {time} ");
        let mut line = [front.as_bytes(), &lines::out(name, show::quoted)].concat();
        if let Some(to) = link {
            line.extend([b" -> ", &lines::out(to, show::quoted)[..]].concat());
        }
        line.push(b'\n');
        lines::bytes(&line);
    }

    fn row(name: &[u8], (attributes, link): &Found) -> Value {
        let mut row = show::json(&Label::new(name), attributes);
        if let Some(link) = link {
            Label::new(link.as_slice()).field_in(&mut row, "link");
        }
        row
    }

    /// What a listing says of a name.
    fn listed(name: &Name) -> Value {
        let mut row = json!({ "fid": name.fid.to_string() });
        Label::new(name.name.clone()).name_in(&mut row);
        row
    }

    /// Shows a name alone.
    fn name(&self, name: &Name, rows: &mut Vec<Value>) {
        if self.json() {
            return rows.push(Self::listed(name));
        }
        lines::bytes(&[&lines::out(&name.name, show::quoted)[..], b"\n"].concat());
    }

    /// What a name has; nothing of one that was removed after it had been listed.
    async fn found(
        &self,
        dir: &Node,
        name: &Name,
        attributes: Result<Option<Attributes>, VisitError>,
    ) -> Result<Option<Looked>> {
        let found = async {
            let Some(attributes) = attributes? else { return Ok(None) };
            if attributes.kind != FileKind::Link || !self.options.long {
                return Ok(Some((attributes, None)));
            }
            let node = self.mount.node(name.fid, dir, &name.name).await?;
            Ok::<_, VisitError>(Some((attributes, text(self.mount, &node).await?)))
        };
        match found.await {
            Ok(found) => Ok(found.map(Ok)),
            Err(e) => {
                let why = self.not_found(&Label::new(name.name.clone()), &e.into())?;
                Ok(Some(Err(why)))
            }
        }
    }

    /// What some names have.
    async fn look(&self, dir: &Node, names: Vec<Name>) -> Result<Vec<(Name, Looked)>> {
        self.stop.check()?;
        let found = self.mount.list(dir, &names).await;
        progress::files(names.len() as u64);
        let one = |(name, found): (Name, Result<Option<Attributes>, VisitError>)| async move {
            let found = self.found(dir, &name, found).await;
            found.map(|found| found.map(|found| (name, found)))
        };
        let all = join(names.into_iter().zip(found).map(one), IN_FLIGHT).await;
        all.into_iter().filter_map(Result::transpose).collect()
    }

    /// Shows names in the order in which they come.
    async fn show(&self, dir: &Node, names: Vec<Name>, rows: &mut Vec<Value>) -> Result<()> {
        if !self.options.long {
            names.iter().for_each(|name| self.name(name, rows));
            return Ok(());
        }
        let mut names = names.into_iter();
        loop {
            let batch: Vec<Name> = names.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(());
            }
            let found = self.look(dir, batch).await?;
            found.iter().for_each(|(name, found)| self.whole_row(name, found, rows));
        }
    }

    fn whole_row(&self, name: &Name, found: &Looked, rows: &mut Vec<Value>) {
        match (self.json(), found) {
            (true, Ok(found)) => rows.push(Self::row(&name.name, found)),
            (true, Err(why)) => {
                let mut row = Self::listed(name);
                row["error"] = why.as_str().into();
                rows.push(row);
            }
            (false, Ok(found)) => self.line(&name.name, found),
            (false, Err(_)) => Self::unknown(name),
        }
    }

    /// Shows names by what they have.
    async fn show_by(
        &self,
        dir: &Node,
        names: Vec<Name>,
        order: Order,
        rows: &mut Vec<Value>,
    ) -> Result<()> {
        let (mut all, mut names) = (Vec::new(), names.into_iter());
        loop {
            let batch: Vec<Name> = names.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                break;
            }
            all.extend(self.look(dir, batch).await?);
        }
        let of = |found: &Looked| found.as_ref().ok().map(|(attributes, _)| *attributes);
        all.sort_by(|(a, of_a), (b, of_b)| {
            order.compare((a.name.as_slice(), of(of_a)), (b.name.as_slice(), of(of_b)))
        });
        for (name, found) in &all {
            match self.options.long {
                true => self.whole_row(name, found, rows),
                false => self.name(name, rows),
            }
        }
        Ok(())
    }

    /// `.` and `..` of a directory, if they are wanted.
    async fn dots(&self, dir: &Node, path: &[u8]) -> Result<Vec<Name>> {
        if self.options.hidden() != Hidden::All {
            return Ok(Vec::new());
        }
        let above = self.mount.find(&[path, b"/.."].concat(), true).await?;
        let name = |name: &[u8], node: &Node| Name { name: name.into(), fid: node.fid, kind: None };
        Ok(vec![name(b".", dir), name(b"..", &above)])
    }

    /// Shows what is in a directory; the rows, and the names of directories in it that may follow.
    async fn dir(&self, dir: &Listed) -> Result<(Vec<Value>, Vec<Name>)> {
        let Listed { node: dir, shown, path } = dir;
        let (order, hidden) = (self.options.order(), self.options.hidden());
        let (mut rows, mut names) = (Vec::new(), self.dots(dir, path).await?);
        let mut dirs = Vec::new();
        let mut opened = self.mount.open_dir(dir).await?;
        loop {
            self.stop.check()?;
            let failed = |e: VisitError| self.failed(shown, &e.into());
            let mut read = reading::names(self.mount, &mut opened, failed).await?;
            if read.is_empty() {
                break;
            }
            read.retain(|name| hidden.shows(&name.name));
            if self.options.recursive {
                dirs.extend(read.iter().filter(|name| may_be_dir(name)).cloned());
            }
            names.append(&mut read);
            if order.key == Key::None {
                self.show(dir, core::mem::take(&mut names), &mut rows).await?;
            }
        }
        match order.key {
            Key::Time | Key::Size => self.show_by(dir, names, order, &mut rows).await?,
            Key::Name | Key::None => {
                if order.key == Key::Name {
                    names.sort_unstable_by(|a, b| order.by_name(&a.name, &b.name));
                }
                self.show(dir, names, &mut rows).await?;
            }
        }
        if order.key != Key::None {
            dirs.sort_unstable_by(|a, b| order.by_name(&a.name, &b.name));
        }
        Ok((rows, dirs))
    }

    /// Puts a listing apart from what stands before it.
    fn apart(&self, is_dir: bool) {
        let before = self.last.replace(Some(is_dir));
        if !self.json() && before.is_some_and(|before| before || is_dir) {
            println!();
        }
    }

    /// Lists a directory, and those below it if they are wanted.
    async fn tree(&self, top: Listed, headed: bool) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        let mut waiting = vec![top];
        while let Some(listed) = waiting.pop() {
            self.apart(true);
            if headed && !self.json() {
                let shown = lines::out(listed.shown.bytes(), show::quoted);
                lines::bytes(&[&shown[..], b":\n"].concat());
            }
            let (rows, dirs) = match self.dir(&listed).await {
                Ok(found) => found,
                // What the user has named fails as a whole.
                Err(e) if values.is_empty() => return Err(e),
                Err(e) => {
                    self.failed(&listed.shown, &e)?;
                    continue;
                }
            };
            let mut value = json!({ "contents": rows });
            listed.shown.name_in(&mut value);
            values.push(value);
            let Listed { node: dir, shown, path } = &listed;
            let one = |name: Name| async move {
                (self.mount.node(name.fid, dir, &name.name).await, name.name)
            };
            let found = join(dirs.into_iter().map(one), IN_FLIGHT).await;
            let mut below = Vec::new();
            for (node, name) in found {
                let shown = shown.join(&name);
                match node {
                    Ok(node) if node.kind() == FileKind::Dir => {
                        let path = [path, b"/".as_slice(), &name].concat();
                        below.push(Listed { node, shown, path });
                    }
                    // No directory, or removed after it had been listed.
                    Ok(_) => {}
                    Err(e) if e.errno() == lnet_types::Errno::ENOENT => {}
                    Err(e) => self.failed(&shown, &e.into())?,
                }
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok(values)
    }

    /// What an operand is. A link is followed if it is listed by name and leads somewhere, or is named as a
    /// directory.
    async fn named(&self, path: &[u8]) -> Result<Node, VisitError> {
        let is_dir = path.ends_with(b"/");
        if (self.options.long || self.options.directory) && !is_dir {
            return self.mount.find(path, false).await;
        }
        match self.mount.find(path, true).await {
            Err(e) if !is_dir => match self.mount.find(path, false).await {
                Ok(node) if node.kind() == FileKind::Link => Ok(node),
                _ => Err(e),
            },
            followed => followed,
        }
    }

    async fn operand(&self, at: &At<'_>) -> Result<Value> {
        let (several, recursive) = (self.options.places.len() > 1, self.options.recursive);
        let node = self.named(&at.place.path).await?;
        if node.kind() != FileKind::Dir || self.options.directory {
            let link = text(self.mount, &node).await?;
            let found = (self.mount.attributes(&node).await?, link);
            self.apart(false);
            let name = at.name.bytes();
            match (self.json(), self.options.long) {
                (true, _) => {}
                (false, true) => self.line(name, &found),
                (false, false) => {
                    lines::bytes(&[&lines::out(name, show::quoted)[..], b"\n"].concat());
                }
            }
            return Ok(vec![Self::row(name, &found)].into());
        }
        let top = Listed { node, shown: at.name.clone(), path: at.place.path.clone() };
        let mut values = self.tree(top, several || recursive).await?;
        Ok(match (several || recursive, values.len()) {
            (false, _) => {
                values.pop().map(|mut value| value["contents"].take()).unwrap_or_default()
            }
            (true, 1) if !recursive => values.pop().unwrap_or_default(),
            (true, _) => values.into(),
        })
    }
}

/// Whether a name is that of a directory, as far as the server has said what it is.
const fn may_be_dir(name: &Name) -> bool {
    match name.kind {
        Some(mode) => matches!(FileKind::of(mode as u32), FileKind::Dir),
        None => true,
    }
}

/// Runs the command. `false`: what some of the names have could not be shown.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, visit, .. } = options;
    let last = Cell::new(None);
    operands::each(places, visit, Access::Read, Shape::Rows, async |at| {
        let (mount, stop) = (at.mount, at.stop);
        let lister = Lister { options, mount, stop, last: &last, whole: Cell::new(true) };
        let value = lister.operand(at).await?;
        Ok(Done { value, whole: lister.whole.get() })
    })
}
