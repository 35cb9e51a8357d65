//! How the CPUs are to be parted: the grammar of `cpu_pattern` (lnetctl.md N-16), with
//! `cpu_npartitions` beside it.

use core::fmt;

use thiserror::Error;

use super::CptTable;
use crate::nidlist::{NumberRange, NumberSet, ParseNumbersError, parse_number};

/// The largest number of a CPU or NUMA node that a pattern may name.
const NUMBER_MAX: u32 = 8191;
/// The longest pattern, bytes.
const BYTES_MAX: usize = 4096;

/// Partitions that are wished for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuPattern {
    /// By the machine's NUMA nodes.
    Automatic(Automatic),
    /// `0[0-3] 1[4,5]`: the CPUs of each partition, from partition 0.
    Cpus(Vec<NumberSet>),
    /// `N 0[0,1] 1[2]`: the NUMA nodes of each.
    Nodes(Vec<NumberSet>),
}

/// A layout that follows from the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Automatic {
    /// How many partitions; 0: one for each NUMA node.
    pub count: u32,
    /// `C[…]`: without these CPUs of each NUMA node, counted from 0.
    pub without_cores: Option<NumberSet>,
    /// `X[…]`: without these CPUs.
    pub without_cpus: Option<NumberSet>,
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cpu_pattern '{pattern}': {what}")]
pub struct ParseCpuPatternError {
    /// The text.
    pub pattern: String,
    /// What is wrong, and what was expected.
    pub what: String,
}

impl Default for CpuPattern {
    /// One partition for each NUMA node.
    fn default() -> Self {
        Self::Automatic(Automatic::default())
    }
}

impl CpuPattern {
    /// From `cpu_pattern` and `cpu_npartitions`. The latter counts where the pattern leaves it open:
    /// where it is empty, or says only which CPUs to leave out.
    ///
    /// # Errors
    /// [`ParseCpuPatternError`].
    pub fn parse(text: &str, npartitions: u32) -> Result<Self, ParseCpuPatternError> {
        let fail = |what: String| ParseCpuPatternError { pattern: text.to_owned(), what };
        if text.len() > BYTES_MAX {
            let pattern = text.chars().take(32).chain("…".chars()).collect();
            let what = format!("expected at most {BYTES_MAX} bytes");
            return Err(ParseCpuPatternError { pattern, what });
        }
        let count = |wish| match npartitions {
            n if n as usize > CptTable::MAX => {
                Err(fail(format!("cpu_npartitions {n}: expected at most {}", CptTable::MAX)))
            }
            count => Ok(Self::Automatic(Automatic { count, ..wish })),
        };
        let (by_node, lists) = match text.trim_start().strip_prefix('N') {
            Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => (true, rest),
            _ => (false, text),
        };
        let items = items(lists).map_err(fail)?;
        match items.as_slice() {
            [] if by_node => Ok(Self::default()),
            [] => count(Automatic::default()),
            [(Name::Cores | Name::Cpus, _), ..] if !by_node => {
                let mut wish = Automatic::default();
                for (name, list) in items {
                    let slot = match name {
                        Name::Cores => &mut wish.without_cores,
                        Name::Cpus => &mut wish.without_cpus,
                        Name::Partition(n) => {
                            return Err(fail(format!("partition {n} beside C[…] or X[…]")));
                        }
                    };
                    if slot.replace(list).is_some() {
                        return Err(fail("expected C[…] and X[…] once each".to_owned()));
                    }
                }
                count(wish)
            }
            _ => {
                let lists = in_order(items).map_err(fail)?;
                Ok(if by_node { Self::Nodes(lists) } else { Self::Cpus(lists) })
            }
        }
    }

    /// What `cpu_npartitions` says of it: 0 where the pattern or the machine decides.
    pub const fn npartitions(&self) -> u32 {
        match self {
            Self::Automatic(wish) => wish.count,
            Self::Cpus(_) | Self::Nodes(_) => 0,
        }
    }
}

/// What a list is of.
#[derive(Clone, Copy)]
enum Name {
    Partition(u32),
    Cores,
    Cpus,
}

/// `NAME[EXPR,…]`, with blanks between them and where they don't matter.
fn items(text: &str) -> Result<Vec<(Name, NumberSet)>, String> {
    let mut items = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let expected =
            || format!("'{rest}': expected a number or C or X, and a list: 0[0-3] 1[4,5]");
        let (head, tail) = rest.split_once('[').ok_or_else(expected)?;
        let (list, after) = tail.split_once(']').ok_or_else(expected)?;
        let name = match head.trim_end() {
            "C" => Name::Cores,
            "X" => Name::Cpus,
            number => Name::Partition(parse_number(number).ok_or_else(expected)?),
        };
        let numbers = NumberSet::parse(&format!("[{list}]"), NUMBER_MAX);
        items.push((name, numbers.map_err(|e: ParseNumbersError| e.to_string())?));
        rest = after.trim_start();
    }
    Ok(items)
}

/// Lists by their partitions, which have to be 0, 1, … without a gap.
fn in_order(mut items: Vec<(Name, NumberSet)>) -> Result<Vec<NumberSet>, String> {
    if items.len() > CptTable::MAX {
        return Err(format!("expected at most {} partitions", CptTable::MAX));
    }
    items.sort_by_key(|(name, _)| match name {
        Name::Partition(n) => *n,
        Name::Cores | Name::Cpus => u32::MAX,
    });
    let place = |(at, (name, list)): (u32, (Name, NumberSet))| match name {
        Name::Partition(n) if n == at => Ok(list),
        Name::Partition(n) if n < at => Err(format!("partition {n} stands there twice")),
        Name::Partition(n) => Err(format!("partition {n}: expected {at} first, without gaps")),
        Name::Cores | Name::Cpus => {
            Err("C[…] and X[…]: expected without partitions and without N".to_owned())
        }
    };
    (0..).zip(items).map(place).collect()
}

/// Whether a range is `*`.
pub(super) fn is_everything(range: NumberRange) -> bool {
    range.contains(0) && range.contains(1) && range.contains(NUMBER_MAX)
}

impl fmt::Display for CpuPattern {
    /// As `cpu_pattern` says it. Nothing: `cpu_npartitions` decides.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = |set: &NumberSet| {
            let text = set.to_string();
            if text.starts_with('[') { text } else { format!("[{text}]") }
        };
        let mut between = "";
        let mut item = |name: &dyn fmt::Display, list: &NumberSet| {
            let written = write!(f, "{between}{name}{}", brackets(list));
            between = " ";
            written
        };
        match self {
            Self::Automatic(Automatic { count, without_cores: None, without_cpus: None }) => {
                f.write_str(if *count == 0 { "N" } else { "" })
            }
            Self::Automatic(Automatic { without_cores, without_cpus, .. }) => {
                without_cores.iter().try_for_each(|list| item(&"C", list))?;
                without_cpus.iter().try_for_each(|list| item(&"X", list))
            }
            Self::Cpus(lists) => lists.iter().enumerate().try_for_each(|(n, list)| item(&n, list)),
            Self::Nodes(lists) => {
                let name = |n: usize| if n == 0 { "N 0".to_owned() } else { n.to_string() };
                lists.iter().enumerate().try_for_each(|(n, list)| item(&name(n), list))
            }
        }
    }
}
