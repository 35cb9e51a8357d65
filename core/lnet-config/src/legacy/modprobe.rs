//! Lines of modprobe files: `options MODULE NAME=VALUE …`, with comments, quotes and lines that go
//! on behind a backslash. Other commands (`alias`, `install`, …) are for modprobe and passed over.

/// Most options of one file.
const OPTIONS_MAX: usize = 4096;
/// The other commands of such files.
const OTHER_COMMANDS: [&str; 6] = ["alias", "blacklist", "install", "remove", "softdep", "weakdep"];

/// One parameter of one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleOption {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The module.
    pub module: String,
    /// The parameter.
    pub name: String,
    /// Its value, without quotes.
    pub value: String,
}

/// A line, or a part of one, without meaning as a module option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionProblem {
    /// Its line in the file, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// The options of a file in their order, and what is not understood in it. A parameter that is
/// given again counts again: readers take the last one, as modules do.
pub fn parse_modprobe(text: &str) -> (Vec<ModuleOption>, Vec<OptionProblem>) {
    let (mut options, mut problems) = (Vec::new(), Vec::new());
    for (line, code) in logical_lines(text) {
        let words = match words(&code) {
            Ok(words) => words,
            Err(what) => {
                problems.push(OptionProblem { line, what });
                continue;
            }
        };
        let mut words = words.into_iter();
        match words.next().as_deref() {
            None => continue,
            Some("options") => {}
            Some(other) if OTHER_COMMANDS.contains(&other) => continue,
            Some(other) => {
                let what = format!("'{other}' is not a command of modprobe files");
                problems.push(OptionProblem { line, what });
                continue;
            }
        }
        let Some(module) = words.next() else {
            let what = "'options' without a module".to_owned();
            problems.push(OptionProblem { line, what });
            continue;
        };
        for word in words {
            if options.len() == OPTIONS_MAX {
                let what = format!("more than {OPTIONS_MAX} options: the rest is not read");
                problems.push(OptionProblem { line, what });
                return (options, problems);
            }
            match word.split_once('=') {
                Some((name, value)) if !name.is_empty() => options.push(ModuleOption {
                    line,
                    // Both spellings name the same module.
                    module: module.replace('-', "_"),
                    name: name.to_owned(),
                    // `'networks="tcp"'`: quotes inside quotes.
                    value: unquoted(value).to_owned(),
                }),
                _ => {
                    let what = format!("'{word}': expected NAME=VALUE");
                    problems.push(OptionProblem { line, what });
                }
            }
        }
    }
    (options, problems)
}

/// Lines without comments, those joined that end in a backslash, with the number of the first.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        let (code, continues) = match line.strip_suffix('\\') {
            Some(code) => (code, true),
            None => (line, false),
        };
        match all.last_mut().filter(|_| open) {
            Some((_, joined)) => {
                joined.push(' ');
                joined.push_str(code);
            }
            None => all.push((number, code.to_owned())),
        }
        open = continues;
    }
    all
}

/// A value without the quotes around the whole of it.
pub(super) fn unquoted(value: &str) -> &str {
    let inside = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}

/// Words between blanks that are not in quotes of either kind, in which the other kind is a character
/// like any other; a word that begins with `#` begins a comment.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut begun) = (None, false);
    for c in line.chars() {
        match c {
            '"' | '\'' if quoted.is_none_or(|open| open == c) => {
                quoted = if quoted.is_some() { None } else { Some(c) };
                begun = true;
            }
            '#' if quoted.is_none() && !begun => break,
            c if c.is_whitespace() && quoted.is_none() => {
                if core::mem::take(&mut begun) {
                    words.push(core::mem::take(&mut word));
                }
            }
            c => {
                word.push(c);
                begun = true;
            }
        }
    }
    if quoted.is_some() {
        return Err("a quote without its other half".to_owned());
    }
    if begun {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_lines_have_quotes_comments_and_continuations() {
        let text = "# of this node\noptions lnet networks=\"tcp0(eth0), o2ib(ib0)\" \\\n  forwarding=enabled # yes\n\
            \toptions ko2iblnd timeout=10 peer_timeout=40\nalias lnet foo\noptions lnet-selftest x=\n";
        let (options, problems) = parse_modprobe(text);
        let shown: Vec<String> = options
            .iter()
            .map(|o| format!("{} {} {}={}", o.line, o.module, o.name, o.value))
            .collect();
        assert_eq!(
            shown,
            [
                "2 lnet networks=tcp0(eth0), o2ib(ib0)",
                "2 lnet forwarding=enabled",
                "4 ko2iblnd timeout=10",
                "4 ko2iblnd peer_timeout=40",
                "6 lnet_selftest x="
            ]
        );
        assert_eq!(problems, []);
    }

    #[test]
    fn bad_modprobe_lines_are_named_and_the_rest_is_read() {
        let text = "option lnet a=1\noptions\noptions lnet \"a=1\noptions lnet a =1 b=2\n";
        let (options, problems) = parse_modprobe(text);
        let lines: Vec<usize> = problems.iter().map(|p| p.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 4], "{problems:?}");
        assert_eq!((options.len(), options[0].name.as_str()), (1, "b"));
        let many = format!("options lnet {}", "a=1 ".repeat(OPTIONS_MAX + 1));
        let (options, problems) = parse_modprobe(&many);
        assert_eq!((options.len(), problems.len()), (OPTIONS_MAX, 1));
    }
}
