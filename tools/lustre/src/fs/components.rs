//! The layout of a command line, as `lfs setstripe` has it: options of one component, or of several, each of
//! which begins with `-E`. What stands where decides, so the options are read by their places.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use lustre_rt::visitor::{END, Wish};

use super::bytes::Bytes;

/// Layouts of components, each with its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wished {
    /// All of the file is alike.
    Plain(Wish),
    /// Each component up to its end.
    Components(Vec<(u64, Wish)>),
}

/// One option.
#[derive(Clone, Debug)]
enum Word {
    End(u64),
    Count(i32),
    Size(u64),
    Pool(String),
    First(u16),
    OnMdt(OnMdt),
}

/// What is on the metadata target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnMdt {
    /// So many bytes at the front.
    Bytes(u64),
    /// The component.
    Component,
}

/// The end of a component: bytes, or the end of any file.
fn end(text: &str) -> Result<u64> {
    if matches!(text, "-1" | "eof" | "EOF") {
        return Ok(END);
    }
    match text.parse::<Bytes>() {
        Ok(Bytes(bytes)) => Ok(bytes),
        Err(e) => bail!("{e}; expected bytes such as 256M, or -1 for the end of the file"),
    }
}

fn on_mdt(text: &str) -> Result<OnMdt> {
    if text == "mdt" {
        return Ok(OnMdt::Component);
    }
    match text.parse::<Bytes>() {
        Ok(Bytes(bytes)) => Ok(OnMdt::Bytes(bytes)),
        Err(e) => bail!("{e}; expected bytes such as 64K, or mdt behind -E"),
    }
}

/// An option that may be repeated, once for each component.
fn option(
    (id, long): (&'static str, &'static str),
    short: char,
    value: &'static str,
    help: &'static str,
) -> Arg {
    Arg::new(id)
        .short(short)
        .long(long)
        .value_name(value)
        .help(help)
        .action(ArgAction::Append)
        .num_args(1)
}

impl Args for Wished {
    fn augment_args(command: Command) -> Command {
        command
            .arg(
                option(("component_end", "component-end"), 'E', "END", "End of a component in bytes; -1: the end of the file")
                    .allow_hyphen_values(true)
                    .value_parser(end),
            )
            .arg(
                option(("stripe_count", "stripe-count"), 'c', "COUNT", "Number of targets; -1 for all")
                    .allow_negative_numbers(true)
                    .value_parser(value_parser!(i32)),
            )
            .arg(
                option(("stripe_size", "stripe-size"), 'S', "BYTES", "Bytes of a stripe")
                    .value_parser(value_parser!(Bytes)),
            )
            .arg(option(("pool", "pool"), 'p', "[FSNAME.]POOL", "Pool of targets"))
            .arg(
                option(("stripe_index", "stripe-index"), 'i', "INDEX", "Index of the first target")
                    .value_parser(value_parser!(u16)),
            )
            .arg(
                option(("mdt_size", "mdt-size"),
                    'L',
                    "BYTES",
                    "Bytes at the front of a file that are on the metadata target; 'mdt' behind -E: all of \
                     the component",
                )
                .value_parser(on_mdt),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The values of an option, by their places.
fn words<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    id: &str,
    word: impl Fn(T) -> Word,
) -> BTreeMap<usize, Word> {
    let places = matches.indices_of(id).into_iter().flatten();
    let values = matches.get_many::<T>(id).into_iter().flatten().cloned();
    places.zip(values.map(word)).collect()
}

impl FromArgMatches for Wished {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut all = words(matches, "component_end", Word::End);
        all.extend(words(matches, "stripe_count", Word::Count));
        all.extend(words(matches, "stripe_size", |Bytes(bytes)| Word::Size(bytes)));
        all.extend(words(matches, "pool", Word::Pool));
        all.extend(words(matches, "stripe_index", Word::First));
        all.extend(words(matches, "mdt_size", Word::OnMdt));
        let refuse =
            |why: String| clap::Error::raw(clap::error::ErrorKind::ValueValidation, why + "\n");
        read(all.into_values()).map_err(refuse)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A component whose end is not known yet.
#[derive(Clone, Debug, Default)]
struct Part {
    wish: Wish,
    /// Options that were given, by their letters.
    given: String,
}

impl Part {
    fn set(&mut self, letter: char) -> Result<(), String> {
        if self.given.contains(letter) {
            return Err(format!("-{letter}: expected once, or -E before a further component"));
        }
        self.given.push(letter);
        Ok(())
    }
}

/// Components from options in their order.
fn read(all: impl Iterator<Item = Word>) -> Result<Wished, String> {
    let mut parts: Vec<(u64, Part)> = Vec::new();
    let mut plain = Part::default();
    for word in all {
        if let Word::End(end) = word {
            if !plain.given.is_empty() {
                return Err("-E: expected before the options of the first component".to_owned());
            }
            // What is on the metadata target is so of one component alone.
            let before = parts.last().map(|(_, part)| part.wish.clone()).unwrap_or_default();
            let wish = Wish { on_mdt: None, first: None, ..before };
            parts.push((end, Part { wish, given: String::new() }));
            continue;
        }
        let ends = parts.last().map(|(end, _)| *end);
        let part = parts.last_mut().map_or(&mut plain, |(_, part)| part);
        match word {
            Word::End(_) => {}
            Word::Count(count) => {
                part.set('c')?;
                part.wish.count = Some(count);
            }
            Word::Size(size) => {
                part.set('S')?;
                part.wish.size = Some(size);
            }
            Word::Pool(pool) => {
                part.set('p')?;
                part.wish.pool = Some(pool);
            }
            Word::First(first) => {
                part.set('i')?;
                part.wish.first = Some(first);
            }
            Word::OnMdt(what) => {
                part.set('L')?;
                part.wish.on_mdt = Some(match (what, ends) {
                    (OnMdt::Component, Some(end)) => end,
                    (OnMdt::Bytes(bytes), None) => bytes,
                    (OnMdt::Component, None) => {
                        return Err("-L mdt: expected -E before it".to_owned());
                    }
                    (OnMdt::Bytes(_), Some(_)) => {
                        return Err(
                            "-L: expected mdt behind -E, whose end says how much".to_owned()
                        );
                    }
                });
            }
        }
    }
    if parts.is_empty() {
        return Ok(Wished::Plain(plain.wish));
    }
    Ok(Wished::Components(parts.into_iter().map(|(end, part)| (end, part.wish)).collect()))
}

impl Wished {
    /// The bytes of the layout in a file system; none if nothing is wanted.
    ///
    /// # Errors
    /// A layout that no server takes, a pool of another file system.
    pub(super) fn bytes(&self, fsname: &str) -> Result<Vec<u8>> {
        Ok(match self {
            Self::Plain(wish) => within(wish, fsname)?.bytes()?,
            Self::Components(parts) => {
                let parts = parts.iter().map(|(end, wish)| Ok((*end, within(wish, fsname)?)));
                Wish::components(&parts.collect::<Result<Vec<_>>>()?)?
            }
        })
    }
}

/// A wish in a file system: its pools may be named with its name before them, as by `lfs`.
///
/// # Errors
/// It is the name of another one.
pub(super) fn within(wish: &Wish, fsname: &str) -> Result<Wish> {
    let pool = match wish.pool.as_deref().map(|pool| (pool, pool.split_once('.'))) {
        Some((_, Some((of, pool)))) if of == fsname => Some(pool.to_owned()),
        Some((pool, Some(_))) => bail!("pool '{pool}': expected one of file system '{fsname}'"),
        pool => pool.map(|(pool, _)| pool.to_owned()),
    };
    Ok(Wish { pool, ..wish.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Wished, String> {
        let command = Wished::augment_args(Command::new("setstripe").no_binary_name(true));
        let matches = command.try_get_matches_from(words).map_err(|e| e.to_string())?;
        Wished::from_arg_matches(&matches).map_err(|e| e.to_string())
    }

    #[test]
    fn options_belong_to_the_component_that_they_stand_behind() {
        let wish = |count, size| Wish { count: Some(count), size, ..Wish::default() };
        let parts = |words: &[&str]| match parsed(words) {
            Ok(Wished::Components(parts)) => parts,
            other => panic!("{words:?}: {other:?}"),
        };
        assert_eq!(
            parts(&["-E", "1M", "-c", "1", "-E", "-1", "-c", "4"]),
            [(1 << 20, wish(1, None)), (END, wish(4, None))]
        );
        // What is not said is as before.
        assert_eq!(
            parts(&["-E", "4M", "-c", "1", "-S", "1M", "-E", "1G", "-E", "eof", "-c", "-1"]),
            [
                (4 << 20, wish(1, Some(1 << 20))),
                (1 << 30, wish(1, Some(1 << 20))),
                (END, wish(-1, Some(1 << 20)))
            ]
        );
        let dom = parts(&["-E", "64K", "-L", "mdt", "-E", "-1", "-c", "2"]);
        assert_eq!(dom[0].1.on_mdt, Some(65_536));
        assert_eq!(dom[1], (END, wish(2, None)));
        assert_eq!(parsed(&["-c", "4"]), Ok(Wished::Plain(wish(4, None))));
        assert_eq!(parsed(&[]), Ok(Wished::Plain(Wish::default())));
    }

    #[test]
    fn pools_may_have_the_name_of_their_file_system_before_them() {
        let plain = parsed(&["-p", "fast"]).unwrap().bytes("lfs").unwrap();
        assert_eq!(parsed(&["-p", "lfs.fast"]).unwrap().bytes("lfs").unwrap(), plain);
        let parts = |pool| parsed(&["-E", "1M", "-p", pool, "-E", "-1"]).unwrap().bytes("lfs");
        assert_eq!(parts("lfs.fast").unwrap(), parts("fast").unwrap());
        // The longest names of both.
        let longest = format!("abcdefgh.{}", "p".repeat(15));
        assert!(parsed(&["-p", &longest]).unwrap().bytes("abcdefgh").is_ok());
        let e = parsed(&["-p", "other.fast"]).unwrap().bytes("lfs").unwrap_err().to_string();
        assert_eq!(e, "pool 'other.fast': expected one of file system 'lfs'");
    }

    #[test]
    fn options_in_the_wrong_place_are_named() {
        for (words, why) in [
            (&["-c", "1", "-E", "-1"][..], "-E: expected before"),
            (&["-c", "1", "-c", "2"], "-c: expected once"),
            (&["-L", "mdt"], "-L mdt: expected -E"),
            (&["-E", "64K", "-L", "64K"], "-L: expected mdt"),
            (&["-E", "x"], "256M"),
        ] {
            let e = parsed(words).unwrap_err();
            assert!(e.contains(why), "{words:?}: {e}");
        }
    }
}
