//! Commands line by line: at a terminal with an editor (history, completion by Tab), else as they come.
//! What the words mean is the caller's.

use std::io::{self, BufRead as _, IsTerminal as _};

use rustyline::completion::Completer;
use rustyline::config::Configurer as _;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Context, Editor, Helper};

/// Lines that are remembered.
const HISTORY: usize = 1000;

/// What may stand where the cursor is, from the words before it and the part of a word that is there.
pub type Complete = fn(before: &[&str], part: &str) -> Vec<String>;

/// Where lines come from.
pub struct Lines {
    editor: Option<Editor<Words, MemHistory>>,
    prompt: &'static str,
}

struct Words(Complete);

impl Helper for Words {}

impl Highlighter for Words {}

impl Hinter for Words {
    type Hint = String;
}

impl Validator for Words {}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let line = line.get(..at).unwrap_or(line);
        let begin = line.rfind([' ', '\t']).map_or(0, |i| i + 1);
        let (before, part) = line.split_at(begin);
        let before: Vec<&str> = before.split_whitespace().collect();
        let mut all = (self.0)(&before, part);
        for word in &mut all {
            word.push(' ');
        }
        Ok((begin, all))
    }
}

impl Lines {
    /// From standard input; a person there sees `prompt`.
    pub fn new(prompt: &'static str, complete: Complete) -> Self {
        let with_editor = io::stdin().is_terminal() && io::stdout().is_terminal();
        // A terminal without an editor is still one to read from.
        let history = MemHistory::new();
        let editor = with_editor
            .then(|| Editor::with_history(rustyline::Config::default(), history).ok())
            .flatten()
            .map(|mut editor: Editor<Words, MemHistory>| {
                editor.set_completion_type(CompletionType::List);
                let _ = editor.set_max_history_size(HISTORY);
                editor.set_auto_add_history(true);
                editor.set_helper(Some(Words(complete)));
                editor
            });
        Self { editor, prompt }
    }

    /// Whether a person is asked.
    pub const fn is_interactive(&self) -> bool {
        self.editor.is_some()
    }
}

impl Iterator for Lines {
    type Item = String;

    /// The next line; none at the end. Ctrl-C takes back the line that is being written, and ends
    /// nothing.
    fn next(&mut self) -> Option<String> {
        let Some(editor) = &mut self.editor else {
            let mut line = String::new();
            // What cannot be read ends the lines as their end does.
            return matches!(io::stdin().lock().read_line(&mut line), Ok(1..)).then_some(line);
        };
        loop {
            match editor.readline(self.prompt) {
                Ok(line) => return Some(line),
                Err(ReadlineError::Interrupted) => {}
                Err(_) => return None,
            }
        }
    }
}
