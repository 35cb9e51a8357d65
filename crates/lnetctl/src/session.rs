//! What a command works with: the daemon, two texts that become the output, and the way of dealing
//! with mistakes.

use core::fmt::Write as _;
use std::io::{self, Write as _};

use lnet_admin::{Ask, ClientError, Reply, Request};
use lnet_config::{Style, Tree};
use lnet_types::Net;

use crate::frame::{LCTL, LNETCTL, Program};

use crate::shell::suggest::nearest;

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
    /// Whether a person reads standard error: error documents then say why in a comment.
    pub explain: bool,
    /// How what is shown is laid out.
    pub format: Format,
    /// Whether it is shown as JSON, one line for each command.
    pub json: bool,
    /// Whether what is printed may leave for standard output before the command has ended.
    pub(crate) live: bool,
    /// What is to be shown as JSON when the command has ended: its top-level keys.
    shown: Vec<(String, Tree)>,
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
            format: Format::Today,
            json: false,
            live: false,
            shown: Vec::new(),
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
            return self.print(tree, style);
        }
        let text = self.laid_out(tree, style);
        let items = text.split_once('\n').map_or("", |(_, items)| items);
        self.out.push_str(items);
    }

    /// Sends what is printed on its way, where that may be, so that a long list is never held whole.
    /// Tells whether somebody still reads.
    pub(crate) fn spill(&mut self) -> bool {
        if !self.live {
            return true;
        }
        let out = core::mem::take(&mut self.out);
        let mut stdout = io::stdout().lock();
        stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush()).is_ok()
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
            let shown = core::mem::take(&mut self.shown);
            self.out_line(Tree::Map(shown).to_json());
        }
    }

    pub(crate) fn out_line(&mut self, line: impl core::fmt::Display) {
        // Infallible: writing to a String.
        let _ = writeln!(self.out, "{line}");
    }

    /// Tells a person what a mistyped word may have meant. Scripts read the same as ever (DEC-33).
    pub(crate) fn suggest<'w>(&mut self, typed: &str, words: impl IntoIterator<Item = &'w str>) {
        if let (true, Some(word)) = (self.explain, nearest(typed, words)) {
            self.err_line(format_args!("Did you mean '{word}'?"));
        }
    }

    pub(crate) fn err_line(&mut self, line: impl core::fmt::Display) {
        // Infallible: writing to a String.
        let _ = writeln!(self.err, "{line}");
    }
}
