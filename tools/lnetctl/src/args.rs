//! Options and operands of one command, GNU style: long options by any unique prefix, `--opt val`
//! and `--opt=val`, bundled short options, operands anywhere, `--` ends options (G-12).

use core::fmt;

use lnet_config::parse_number;

/// What follows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Nothing.
    None,
    /// A value, shown in help under this name.
    Value(&'static str),
    /// A number as the next word, if it is one (C-netshow-1).
    Level,
}

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Its long name, without dashes.
    pub long: &'static str,
    /// Its letter.
    pub short: Option<char>,
    /// What follows it.
    pub arg: Arg,
    /// One line of help.
    pub help: &'static str,
}

/// What was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    given: Vec<(&'static str, Option<String>)>,
    /// What is no option, in order.
    pub operands: Vec<String>,
}

/// Words that do not fit the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// No such option.
    Unknown(String),
    /// A prefix of several.
    Ambiguous(String, Vec<&'static str>),
    /// It needs a value.
    NoValue(String),
    /// It takes none.
    UnwantedValue(String),
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => write!(f, "unrecognized option '{word}'"),
            Self::Ambiguous(word, all) => {
                write!(f, "option '{word}' is ambiguous: --{}", all.join(", --"))
            }
            Self::NoValue(word) => write!(f, "option '{word}' requires an argument"),
            Self::UnwantedValue(word) => write!(f, "option '{word}' takes no argument"),
        }
    }
}

impl Args {
    /// Reads `words` by the command's options.
    ///
    /// # Errors
    /// The word that does not fit.
    pub fn parse(options: &'static [Opt], words: &[String]) -> Result<Self, Misuse> {
        let mut args = Self::default();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            if word == "--" {
                args.operands.extend(words.cloned());
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, joined) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                let opt = find_long(options, name)?;
                let value = match (opt.arg, joined) {
                    (Arg::None, Some(_)) => {
                        return Err(Misuse::UnwantedValue(format!("--{}", opt.long)));
                    }
                    (Arg::None, None) => None,
                    (_, Some(value)) => Some(value),
                    (Arg::Value(_), None) => {
                        Some(words.next().cloned().ok_or_else(|| Misuse::NoValue(word.clone()))?)
                    }
                    (Arg::Level, None) => {
                        words.next_if(|next| parse_number(next).is_some()).cloned()
                    }
                };
                args.given.push((opt.long, value));
            } else if is_short(word) {
                let mut letters = word[1..].chars();
                while let Some(letter) = letters.next() {
                    let unknown = || Misuse::Unknown(format!("-{letter}"));
                    let opt =
                        options.iter().find(|opt| opt.short == Some(letter)).ok_or_else(unknown)?;
                    let rest = letters.as_str();
                    let value = match opt.arg {
                        Arg::None => None,
                        Arg::Value(_) | Arg::Level if !rest.is_empty() => {
                            letters = "".chars();
                            Some(rest.to_owned())
                        }
                        Arg::Value(_) => {
                            let missing = || Misuse::NoValue(format!("-{letter}"));
                            Some(words.next().cloned().ok_or_else(missing)?)
                        }
                        Arg::Level => words.next_if(|next| parse_number(next).is_some()).cloned(),
                    };
                    args.given.push((opt.long, value));
                }
            } else {
                args.operands.push(word.clone());
            }
        }
        Ok(args)
    }

    /// Whether the option was given.
    pub fn has(&self, long: &str) -> bool {
        self.given.iter().any(|(name, _)| *name == long)
    }

    /// The value of the option; the last one counts.
    pub fn value(&self, long: &str) -> Option<&str> {
        self.given.iter().rev().find(|(name, _)| *name == long)?.1.as_deref()
    }

    /// All values of an option that may be repeated.
    pub fn values(&self, long: &str) -> impl Iterator<Item = &str> {
        self.given.iter().filter(move |(name, _)| *name == long).filter_map(|(_, v)| v.as_deref())
    }

    /// The value of a `--verbose`: 0 when it was not given, 1 when it has no number (C-netshow-1).
    pub fn level(&self, long: &str) -> i64 {
        if !self.has(long) {
            return 0;
        }
        self.value(long).and_then(parse_number).unwrap_or(1)
    }

    /// Whether nothing at all was given.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty() && self.operands.is_empty()
    }
}

/// Whether a word holds short options; a negative number does not.
fn is_short(word: &str) -> bool {
    matches!(word.as_bytes(), [b'-', second, ..] if !second.is_ascii_digit())
}

fn find_long(options: &'static [Opt], name: &str) -> Result<&'static Opt, Misuse> {
    if let Some(exact) = options.iter().find(|opt| opt.long == name) {
        return Ok(exact);
    }
    let fits: Vec<&Opt> = options.iter().filter(|opt| opt.long.starts_with(name)).collect();
    match fits.as_slice() {
        [one] if !name.is_empty() => Ok(one),
        _ if name.is_empty() => Err(Misuse::Unknown("--".to_owned())),
        [] | [_] => Err(Misuse::Unknown(format!("--{name}"))),
        all => {
            let names = all.iter().map(|opt| opt.long).collect();
            Err(Misuse::Ambiguous(format!("--{name}"), names))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn opt(long: &'static str, short: char, arg: Arg) -> Opt {
        Opt { long, short: Some(short), arg, help: "" }
    }

    const OPTIONS: &[Opt] = &[
        opt("net", 'n', Arg::Value("NET")),
        opt("peer-timeout", 't', Arg::Value("S")),
        opt("peer-credits", 'c', Arg::Value("N")),
        opt("all", 'a', Arg::None),
        opt("verbose", 'v', Arg::Level),
    ];

    fn parse(line: &str) -> Result<Args, Misuse> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Args::parse(OPTIONS, &words)
    }

    #[test]
    fn options_have_every_gnu_spelling() {
        for line in ["--net tcp -a x", "--net=tcp x --all", "-n tcp x -a", "x -antcp", "-an tcp x"]
        {
            let args = parse(line).unwrap();
            assert_eq!(args.value("net"), Some("tcp"), "{line}");
            assert!(args.has("all"), "{line}");
            assert_eq!(args.operands, ["x"], "{line}");
        }
        assert_eq!(parse("--peer-t 5").unwrap().value("peer-timeout"), Some("5"));
        assert_eq!(parse("--net a --net b").unwrap().value("net"), Some("b"));
        assert_eq!(parse("-- --net -x -").unwrap().operands, ["--net", "-x", "-"]);
        assert_eq!(parse("- -1").unwrap().operands, ["-", "-1"]);
    }

    #[test]
    fn levels_are_the_next_word_when_it_is_a_number() {
        let level = |line: &str| parse(line).unwrap().level("verbose");
        assert_eq!(level(""), 0);
        assert_eq!(level("-v"), 1);
        assert_eq!(level("-v 3"), 3);
        assert_eq!(level("--verbose 2 x"), 2);
        assert_eq!(level("--verbose=4"), 4);
        assert_eq!(level("-v -n tcp"), 1);
        assert_eq!(parse("-v tcp").unwrap().operands, ["tcp"]);
    }

    #[test]
    fn misuse_names_the_word() {
        let text = |line: &str| parse(line).unwrap_err().to_string();
        assert_eq!(text("--bogus 1"), "unrecognized option '--bogus'");
        assert_eq!(text("-nx -z"), "unrecognized option '-z'");
        assert_eq!(
            text("--peer 1"),
            "option '--peer' is ambiguous: --peer-timeout, --peer-credits"
        );
        assert_eq!(text("--net"), "option '--net' requires an argument");
        assert_eq!(text("-n"), "option '-n' requires an argument");
        assert_eq!(text("--all=1"), "option '--all' takes no argument");
        assert_eq!(text("--=1"), "unrecognized option '--'");
    }
}
