//! Lists in short texts: CPTs (`[0,2-4]`, N-8) and interfaces (`eth0,eth1[0]`, C-netadd-2).

use lnet_types::{NumberSet, ParseNumbersError};
use thiserror::Error;

use crate::Interface;

/// Most CPTs that a list may name; the kernel shows no more than 128.
pub const CPTS_MAX: usize = 128;
/// Most interfaces in one list.
pub const INTERFACES_MAX: usize = 128;
/// Most bytes of an interface name or alias label (IFNAMSIZ less its zero byte).
const NAME_BYTES_MAX: usize = 15;

/// Why a text is not a list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListError {
    /// CPTs.
    #[error("CPT list '{text}': {source}")]
    Cpts {
        /// The text.
        text: String,
        /// What is wrong.
        source: CptsError,
    },
    /// Interfaces.
    #[error("interface list '{text}': {what}")]
    Interfaces {
        /// The text.
        text: String,
        /// What is wrong.
        what: &'static str,
    },
}

/// What is wrong with a list of CPTs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CptsError {
    /// Not numbers.
    #[error(transparent)]
    Numbers(#[from] ParseNumbersError),
    /// More than [`CPTS_MAX`].
    #[error("more than {CPTS_MAX} CPTs")]
    TooMany,
}

/// CPTs from `[EXPR,EXPR,…]`, the brackets being optional: `N`, `LO-HI`, `LO-HI/STRIDE`. A `*`
/// means all CPTs and gives `None`. The result ascends and has no CPT twice.
///
/// # Errors
/// [`ListError::Cpts`].
pub fn parse_cpts(text: &str) -> Result<Option<Vec<u32>>, ListError> {
    let bad = |source| ListError::Cpts { text: text.to_owned(), source };
    let trimmed = text.trim();
    let set = match trimmed.starts_with('[') {
        true => NumberSet::parse(trimmed, u32::MAX),
        false => NumberSet::parse(&format!("[{trimmed}]"), u32::MAX),
    };
    let set = set.map_err(|e| bad(CptsError::Numbers(e)))?;
    // Only a `*` contains everything.
    if set.contains(0) && set.contains(1) && set.contains(u32::MAX) {
        return Ok(None);
    }
    let mut cpts: Vec<u32> = set.values().take(CPTS_MAX + 1).collect();
    if cpts.len() > CPTS_MAX {
        return Err(bad(CptsError::TooMany));
    }
    cpts.sort_unstable();
    Ok(Some(cpts))
}

/// Interfaces from a comma list; each may carry its CPTs in brackets. Blanks around names are
/// ignored.
///
/// # Errors
/// [`ListError`].
pub fn parse_interfaces(text: &str) -> Result<Vec<Interface>, ListError> {
    let bad = |what| ListError::Interfaces { text: text.to_owned(), what };
    let mut interfaces = Vec::new();
    for part in split_outside_brackets(text) {
        if interfaces.len() == INTERFACES_MAX {
            return Err(bad("more than 128 interfaces"));
        }
        let part = part.trim();
        let (name, cpts) = match part.find('[') {
            None => (part, None),
            Some(at) => (part[..at].trim_end(), parse_cpts(&part[at..])?),
        };
        let fine = |c: char| !c.is_whitespace() && !c.is_control() && !"[]/,".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fine) {
            return Err(bad("expected names of at most 15 bytes such as eth0, eth0:1, eth0[0]"));
        }
        interfaces.push(Interface { name: name.to_owned(), cpts });
    }
    Ok(interfaces)
}

/// Splits at commas that are not inside brackets.
pub(crate) fn split_outside_brackets(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0u32;
    text.split(move |c| {
        match c {
            '[' => depth = depth.saturating_add(1),
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpt_lists_hold_numbers_ranges_and_strides() {
        assert_eq!(parse_cpts("[0,1]"), Ok(Some(vec![0, 1])));
        assert_eq!(parse_cpts("3"), Ok(Some(vec![3])));
        assert_eq!(parse_cpts(" [ 4, 0-2, 1 ] "), Ok(Some(vec![0, 1, 2, 4])));
        assert_eq!(parse_cpts("[0-7/3]"), Ok(Some(vec![0, 3, 6])));
        assert_eq!(parse_cpts("[*]"), Ok(None));
        for bad in ["", "[", "]", "[]", "[0", "0]", "[a]", "[2-1]", "[0-4/0]", "[-1]", "[+1]", "0-"]
        {
            assert!(parse_cpts(bad).is_err(), "{bad}");
        }
        assert!(parse_cpts("[0-999]").is_err());
    }

    #[test]
    fn interface_lists_keep_brackets_with_their_interface() {
        let plain = |name: &str| Interface { name: name.to_owned(), cpts: None };
        let with = |name: &str, cpts: &[u32]| Interface {
            name: name.to_owned(),
            cpts: Some(cpts.to_vec()),
        };
        assert_eq!(parse_interfaces("eth0,eth1"), Ok(vec![plain("eth0"), plain("eth1")]));
        assert_eq!(
            parse_interfaces("eth0[0],eth1[1,2]"),
            Ok(vec![with("eth0", &[0]), with("eth1", &[1, 2])])
        );
        assert_eq!(parse_interfaces(" eth0:1 , ib0 [0] "), {
            Ok(vec![plain("eth0:1"), with("ib0", &[0])])
        });
        let long = "x".repeat(16);
        for bad in ["", ",", "eth0,", "eth0]", "[0]", "eth0[0", "a b", "a/b", long.as_str()] {
            assert!(parse_interfaces(bad).is_err(), "{bad}");
        }
        assert!(parse_interfaces(&"a,".repeat(200)).is_err());
    }
}
