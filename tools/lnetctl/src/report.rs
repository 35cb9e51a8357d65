//! Errors as documents: the classic form and the library form (Y-6 to Y-9), and what is printed
//! when there is no daemon (G-17).

use lnet_admin::{AdminError, ClientError};
use lnet_config::yaml::Pos;
use lnet_config::{Style, Tree, not_a_nid};
use lnet_types::Errno;

use crate::Session;

/// Return code of wrong parameters.
pub(crate) const INVALID: i32 = Errno::EINVAL.negative();

/// Which form a command's errors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Commands that used to be ioctls.
    Classic,
    /// Commands that go over netlink.
    Library,
}

/// Where an error belongs: the operation and the object of its document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) form: Form,
    pub(crate) operation: &'static str,
    pub(crate) object: &'static str,
}

impl Place {
    pub(crate) const fn classic(operation: &'static str, object: &'static str) -> Self {
        Self { form: Form::Classic, operation, object }
    }

    pub(crate) const fn library(operation: &'static str, object: &'static str) -> Self {
        Self { form: Form::Library, operation, object }
    }
}

impl Session<'_> {
    /// Prints an error document on standard error. `number` is printed as it is (negative errnos),
    /// `text` in the form's way; the reason, if any, follows as a comment when a person reads.
    pub(crate) fn error(&mut self, place: Place, number: i32, text: &str, reason: Option<&str>) {
        let entry =
            |descr| [("errno".to_owned(), Tree::plain(number)), ("descr".to_owned(), descr)];
        let document = match place.form {
            Form::Classic => {
                let number = self.seq_no.map(|n| ("seq_no".to_owned(), Tree::plain(n)));
                let entries = number.into_iter().chain(entry(Tree::plain(text)));
                let item = Tree::map([(place.object, Tree::map(entries))]);
                Tree::map([(place.operation, Tree::List(vec![item]))]).render(Style::Classic)
            }
            Form::Library => {
                let mut item = vec![(place.object.to_owned(), Tree::List(Vec::new()))];
                item.extend(entry(Tree::Tagged(text.to_owned())));
                let tree = Tree::map([(place.operation, Tree::List(vec![Tree::map(item)]))]);
                format!("---\n{}...\n", tree.render(Style::Library))
            }
        };
        self.err.push_str(&document);
        if let (true, Some(reason)) = (self.explain, reason) {
            for line in reason.lines() {
                self.err_line(format_args!("# {line}"));
            }
        }
    }

    /// The same about a place of the file that is being imported, with what was expected there.
    pub(crate) fn error_at(
        &mut self,
        place: Place,
        number: i32,
        text: &str,
        pos: Pos,
        hint: Option<&str>,
    ) {
        let mut reason = self.at(&pos.to_string());
        if let Some(hint) = hint {
            reason = format!("{reason}\n{hint}");
        }
        self.error(place, number, text, Some(&reason));
    }

    /// Says which block of the file that is being imported was refused, and what it asked for.
    pub(crate) fn block(&mut self, pos: Pos, step: &str) {
        if self.explain {
            let reason = match pos == Pos::default() {
                // It follows from the whole file.
                true => self.at(&format!("the step '{step}'")),
                false => self.at(&format!("the block at {pos} ({step})")),
            };
            self.err_line(format_args!("# {reason}"));
        }
    }

    /// With the file that is being imported.
    fn at(&self, place: &str) -> String {
        self.file.as_ref().map_or_else(|| place.to_owned(), |file| format!("{file}: {place}"))
    }

    /// Reports that a request failed and gives the return code. `text` makes the `descr` of a
    /// refusal from the node's error. `code`: what to return for a refusal, `None` for its errno.
    pub(crate) fn failed(
        &mut self,
        place: Place,
        error: &ClientError,
        text: impl FnOnce(&AdminError) -> String,
        code: Option<i32>,
    ) -> i32 {
        match error {
            ClientError::Refused(refusal) => {
                let number = refusal.errno.negative();
                // The link has printed missing rights already.
                let reason = refusal.detail.as_deref().filter(|_| !refusal.is_not_permitted());
                self.error(place, number, &text(refusal), reason);
                code.unwrap_or(number)
            }
            unreachable => {
                self.err_line(format_args!("lnetctl: {unreachable}"));
                let errno = unreachable.errno();
                let text = match place.form {
                    Form::Classic => format!("\"{errno}\""),
                    Form::Library => errno.to_string(),
                };
                self.error(place, errno.negative(), &text, None);
                errno.negative()
            }
        }
    }

    /// A value of an option that the original would have ignored (DEC-33).
    pub(crate) fn bad_value(&mut self, place: Place, what: &str) -> i32 {
        self.report_value(place, what, None)
    }

    /// The same with what was expected, or may have been meant.
    pub(crate) fn bad_value_because(&mut self, place: Place, what: &str, reason: &str) -> i32 {
        self.report_value(place, what, Some(reason))
    }

    /// A value that must be one NID.
    pub(crate) fn bad_nid(&mut self, place: Place, value: &str) -> i32 {
        let reason = not_a_nid(value);
        self.report_value(place, &format!("cannot parse NID '{value}'"), Some(&reason))
    }

    fn report_value(&mut self, place: Place, what: &str, reason: Option<&str>) -> i32 {
        let text = match place.form {
            Form::Classic => format!("\"{what}\""),
            Form::Library => what.to_owned(),
        };
        self.error(place, INVALID, &text, reason);
        INVALID
    }

    /// An argument is missing: says so, and gives the return code. The usage follows when the command
    /// has ended.
    pub(crate) fn lacks(&mut self, line: impl core::fmt::Display) -> i32 {
        self.out_line(line);
        self.lacking = true;
        INVALID
    }
}
