//! What a command works with: the daemon, two texts that become the output, and the way of dealing
//! with mistakes.

use core::fmt::Write as _;
use std::io;

use lnet_admin::{Ask, ClientError, Reply, Request};
use lnet_config::{Style, Tree, nearest};
use lnet_types::{Errno, Net};

use crate::frame::{LCTL, LNETCTL, Program};
use crate::json::Object;
use crate::show::format::Format;

/// One run of the program.
pub struct Session<'a> {
    /// The node.
    pub daemon: &'a mut dyn Ask,
    /// What goes to standard output.
    pub out: String,
    /// What goes to standard error.
    pub err: String,
    /// Whether to be as silent about mistakes as the original.
    pub strict: bool,
    /// Which program this is.
    pub(crate) program: &'static Program,
    /// The network that commands of `lctl` are about.
    pub(crate) net: Option<Net>,
    /// Whether errors say why, in comments behind what scripts know.
    pub explain: bool,
    /// Whether a person reads standard error: a missing argument is then answered with the usage.
    pub is_terminal: bool,
    /// How what is shown is laid out.
    pub format: Format,
    /// Whether it is shown as JSON, one line for each command.
    pub json: bool,
    /// Where what is printed may leave for before the command has ended; nowhere if absent.
    pub(crate) live: Option<Box<dyn io::Write>>,
    /// Why a part of what was printed could not be written, although a reader is there.
    pub(crate) unwritten: Option<Errno>,
    /// The number of the block that is being imported; classic error documents name it (Y-6).
    pub(crate) seq_no: Option<i64>,
    /// Whether the command that ran has not got all arguments that it needs.
    pub(crate) lacking: bool,
    /// The file that is being imported.
    pub(crate) file: Option<String>,
    /// What is to be shown as JSON when the command has ended: its top-level keys.
    shown: Vec<(String, Tree)>,
    /// The JSON of which a part has left already.
    leaving: Option<Object>,
}

impl<'a> Session<'a> {
    /// A run against `daemon`, with nothing printed yet.
    pub fn new(daemon: &'a mut dyn Ask) -> Self {
        Self {
            daemon,
            out: String::new(),
            err: String::new(),
            strict: false,
            program: &LNETCTL,
            net: None,
            explain: false,
            is_terminal: false,
            format: Format::Today,
            json: false,
            live: None,
            unwritten: None,
            seq_no: None,
            lacking: false,
            file: None,
            shown: Vec::new(),
            leaving: None,
        }
    }

    /// The same for `lctl`.
    pub fn lctl(daemon: &'a mut dyn Ask) -> Self {
        Self { program: &LCTL, ..Self::new(daemon) }
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, ClientError> {
        self.daemon.ask(request)
    }

    /// Asks for something that has no answer but that it is done.
    pub(crate) fn order(&mut self, request: &Request) -> Result<(), ClientError> {
        match self.daemon.ask(request)? {
            Reply::Done => Ok(()),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Prints a further part of the list that was printed last: the items of `tree`, which has one
    /// key, without that key.
    pub(crate) fn print_more(&mut self, tree: &Tree, style: Style) {
        if self.json {
            return self.grow(tree, style);
        }
        let text = self.laid_out(tree, style);
        let items = text.split_once('\n').map_or("", |(_, items)| items);
        self.out.push_str(items);
    }

    /// The same as JSON: what has been collected leaves with the first items of its last list, and
    /// further items follow as they come.
    fn grow(&mut self, tree: &Tree, style: Style) {
        let Tree::Map(entries) = self.format.adapt(tree) else { return };
        let Some((key, Tree::List(items))) = entries.into_iter().next() else { return };
        if self.live.is_none() {
            return self.print(tree, style);
        }
        let object = self.leaving.get_or_insert_default();
        if !object.is_open(&key) {
            let (last, others): (Vec<_>, Vec<_>) =
                core::mem::take(&mut self.shown).into_iter().partition(|(there, _)| *there == key);
            others.iter().for_each(|(key, value)| object.entry(key, value));
            object.open(&key);
            for (_, value) in last {
                if let Tree::List(first) = value {
                    first.iter().for_each(|item| object.item(item));
                }
            }
        }
        items.iter().for_each(|item| object.item(item));
        self.out.push_str(&object.take());
    }

    /// Sends what is printed on its way, where that may be, so that a long list is never held whole.
    ///
    /// # Errors
    /// No reader is left, or there is no room.
    pub(crate) fn spill(&mut self) -> io::Result<()> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let out = core::mem::take(&mut self.out);
        let written = live.write_all(out.as_bytes()).and_then(|()| live.flush());
        written.inspect_err(|e| self.not_written(e))
    }

    /// Notes that output was lost. A reader that has gone wants no more; a full disk is a failure.
    pub(crate) fn not_written(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::BrokenPipe {
            self.unwritten = Some(error.raw_os_error().map_or(Errno::EIO, Errno));
        }
    }

    pub(crate) fn print(&mut self, tree: &Tree, style: Style) {
        if self.json
            && let Tree::Map(entries) = self.format.adapt(tree)
        {
            return entries.into_iter().for_each(|e| self.collect(e));
        }
        let text = self.laid_out(tree, style);
        self.out.push_str(&text);
    }

    /// Prints texts of the daemon; as JSON their lines under `key`.
    pub(crate) fn texts(&mut self, key: &str, texts: &[String]) {
        if self.json {
            let lines = texts.iter().flat_map(|text| text.trim_end().lines());
            let lines = lines.map(|line| Tree::Quoted(line.to_owned())).collect();
            return self.print(&Tree::map([(key, Tree::List(lines))]), Style::Classic);
        }
        texts.iter().for_each(|text| self.out_line(text.trim_end()));
    }

    /// Whether something was collected that is to be shown as JSON.
    pub(crate) fn has_json(&self) -> bool {
        self.leaving.is_some() || !self.shown.is_empty()
    }

    /// The text of a document; today's layout, the usual one, is not copied first.
    fn laid_out(&self, tree: &Tree, style: Style) -> String {
        match self.format {
            Format::Today => tree.render(style),
            format => format.adapt(tree).render(format.style(style)),
        }
    }

    /// A key of JSON may stand once: lists under one key become one.
    fn collect(&mut self, (key, value): (String, Tree)) {
        match (self.shown.iter_mut().find(|(there, _)| *there == key), value) {
            (Some((_, Tree::List(items))), Tree::List(more)) => items.extend(more),
            (Some((_, there)), value) => *there = value,
            (None, value) => self.shown.push((key, value)),
        }
    }

    /// A command that shows things as JSON has ended: writes them as one line.
    pub(crate) fn close_json(&mut self) {
        if self.json {
            let mut object = self.leaving.take().unwrap_or_default();
            let shown = core::mem::take(&mut self.shown);
            shown.iter().for_each(|(key, value)| object.entry(key, value));
            self.out_line(object.end());
        }
    }

    pub(crate) fn out_line(&mut self, line: impl core::fmt::Display) {
        // Infallible: writing to a String.
        let _ = writeln!(self.out, "{line}");
    }

    /// Says what a mistyped word may have meant, as a comment: what scripts read stays the same.
    pub(crate) fn suggest<'w>(&mut self, typed: &str, words: impl IntoIterator<Item = &'w str>) {
        if let (true, Some(word)) = (self.explain, nearest(typed, words)) {
            self.err_line(format_args!("# did you mean '{word}'?"));
        }
    }

    /// Says why something failed, as a comment behind the line that scripts know.
    pub(crate) fn reason(&mut self, why: &str) {
        if self.explain {
            self.err_line(format_args!("# {why}"));
        }
    }

    pub(crate) fn err_line(&mut self, line: impl core::fmt::Display) {
        // Infallible: writing to a String.
        let _ = writeln!(self.err, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use lnet_admin::ClientError;

    use super::*;

    struct NoDaemon;

    impl Ask for NoDaemon {
        fn ask_within(
            &mut self,
            _: &Request,
            _: core::time::Duration,
        ) -> Result<Reply, ClientError> {
            Err(ClientError::Unexpected)
        }
    }

    #[test]
    fn a_long_list_leaves_page_by_page_as_the_same_json() {
        let list = |key: &str, items: &[i32]| {
            Tree::map([(key, Tree::List(items.iter().map(Tree::plain).collect()))])
        };
        let shown = |live: bool, after: bool| {
            let mut absent = NoDaemon;
            let mut session = Session::new(&mut absent);
            session.json = true;
            session.live = live.then(|| Box::new(io::sink()) as Box<dyn io::Write>);
            session.print(&list("net", &[9]), Style::Library);
            session.print(&list("peer", &[1, 2]), Style::Library);
            session.print_more(&list("peer", &[3]), Style::Library);
            assert_eq!(session.out.contains('3'), live, "the first pages have left");
            session.print_more(&list("peer", &[4]), Style::Library);
            if after {
                session.print(&list("udsp", &[5]), Style::Classic);
                session.print(&list("fault", &[6]), Style::Classic);
                session.print_more(&list("fault", &[7]), Style::Classic);
                session.print(&list("rail", &[8]), Style::Classic);
            }
            session.close_json();
            session.out
        };
        for after in [false, true] {
            assert_eq!(shown(true, after), shown(false, after));
        }
        assert_eq!(shown(true, false), "{\"net\": [9], \"peer\": [1, 2, 3, 4]}\n");
    }
}
