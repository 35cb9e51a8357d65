//! NID lists as commands take them: commas between NIDs, bracket sets in any part of an address,
//! expanded in ascending order from left to right (N-5, N-6). The errors carry the texts that
//! kernel tools print (C-peer-5).

use lnet_types::{Errno, Nid, NumberSet, ParseNumbersError};
use thiserror::Error;

use crate::lists::split_outside_brackets;

/// Most NIDs that one list may expand to (C-peer-1).
pub const NID_LIST_MAX: usize = 128;

/// Why a text is not a list of NIDs. Displays as the kernel's tools say it, inner quotes included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NidListError {
    /// No `@` in a part of the list.
    #[error("\"Unable to parse nidlist: no valid NIDs in string\"")]
    NoNid,
    /// An address or a net that is none.
    #[error("\"Unable to parse nidlist: invalid NID in nidstr\"")]
    InvalidNid,
    /// The wildcard.
    #[error("\"Unable to parse nidlist: LNET_ANY_NID is unsupported\"")]
    AnyNid,
    /// Nothing came out.
    #[error("\"Unable to parse nidlist: did not expand to any nids\"")]
    Empty,
    /// More than [`NID_LIST_MAX`].
    #[error("\"Unable to parse nidlist: specifies more NIDs than allowed\"")]
    TooMany,
    /// Low above high.
    #[error("\"Unable to parse nidlist: range is wrong order\"")]
    WrongOrder,
    /// A bracket without its other half.
    #[error("\"Unable to parse nidlist: incomplete bracket set\"")]
    Bracket,
    /// A `*`.
    #[error("asterisk not allowed in nidstring")]
    Asterisk,
}

impl NidListError {
    /// The error number that belongs to it.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Empty => Errno::ENOENT,
            Self::TooMany => Errno::E2BIG,
            Self::WrongOrder => Errno::ERANGE,
            Self::NoNid | Self::InvalidNid | Self::AnyNid | Self::Bracket | Self::Asterisk => {
                Errno::EINVAL
            }
        }
    }
}

/// Longest text of one NID with its sets, bytes; bounds the depth of [`expand`].
const NID_BYTES_MAX: usize = 256;

/// The NIDs that `text` names, in order, each as often as it is named.
///
/// # Errors
/// [`NidListError`].
pub fn parse_nid_list(text: &str) -> Result<Vec<Nid>, NidListError> {
    let mut nids = Vec::new();
    for part in split_outside_brackets(text) {
        let part = part.trim();
        if part == "<?>" {
            return Err(NidListError::AnyNid);
        }
        if part.contains('*') {
            return Err(NidListError::Asterisk);
        }
        let (address, net) = part.rsplit_once('@').ok_or(NidListError::NoNid)?;
        if part.len() > NID_BYTES_MAX {
            return Err(NidListError::InvalidNid);
        }
        expand(address, net, &mut nids)?;
    }
    if nids.is_empty() {
        return Err(NidListError::Empty);
    }
    Ok(nids)
}

/// Replaces the first bracket set of `address` by each of its numbers and goes on with the rest.
fn expand(address: &str, net: &str, nids: &mut Vec<Nid>) -> Result<(), NidListError> {
    let Some(open) = address.find('[') else {
        if address.contains(']') {
            return Err(NidListError::Bracket);
        }
        if nids.len() == NID_LIST_MAX {
            return Err(NidListError::TooMany);
        }
        let nid: Nid = format!("{address}@{net}").parse().map_err(|_| NidListError::InvalidNid)?;
        if nid.is_any() {
            return Err(NidListError::AnyNid);
        }
        nids.push(nid);
        return Ok(());
    };
    let (head, rest) = (&address[..open], &address[open + 1..]);
    let (set, tail) = rest.split_once(']').ok_or(NidListError::Bracket)?;
    // The groups of an IPv6 address count in hexadecimal.
    if head.contains(':') {
        for value in hex_values(set)? {
            expand(&format!("{head}{value:x}{tail}"), net, nids)?;
        }
        return Ok(());
    }
    let set = NumberSet::parse(&format!("[{set}]"), u32::MAX).map_err(|e| match e {
        ParseNumbersError::Order { .. } => NidListError::WrongOrder,
        ParseNumbersError::Bracket => NidListError::Bracket,
        _ => NidListError::InvalidNid,
    })?;
    for value in set.values() {
        expand(&format!("{head}{value}{tail}"), net, nids)?;
    }
    Ok(())
}

/// The numbers of a set `EXPR,EXPR,…` of an IPv6 group, at most one more than a list may hold.
fn hex_values(set: &str) -> Result<Vec<u16>, NidListError> {
    let mut all = Vec::new();
    for expr in set.split(',') {
        let (range, stride) = expr.split_once('/').unwrap_or((expr, "1"));
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let number = |word: &str, radix| {
            let digits = !word.is_empty() && word.chars().all(|c| c.is_digit(radix));
            u16::from_str_radix(word, radix).ok().filter(|_| digits)
        };
        let (Some(low), Some(high), Some(stride @ 1..)) =
            (number(low, 16), number(high, 16), number(stride, 10))
        else {
            return Err(NidListError::InvalidNid);
        };
        if low > high {
            return Err(NidListError::WrongOrder);
        }
        all.extend((low..=high).step_by(usize::from(stride)).take(NID_LIST_MAX + 1));
        if all.len() > NID_LIST_MAX {
            return Err(NidListError::TooMany);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &str) -> Vec<String> {
        parse_nid_list(list).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sets_expand_in_order_from_left_to_right() {
        assert_eq!(texts("10.0.0.1@tcp,10.0.0.2@tcp3"), ["10.0.0.1@tcp", "10.0.0.2@tcp3"]);
        assert_eq!(texts("10.0.[1-2].5@tcp"), ["10.0.1.5@tcp", "10.0.2.5@tcp"]);
        assert_eq!(texts("10.0.0.[1,5-7/2]@tcp"), ["10.0.0.1@tcp", "10.0.0.5@tcp", "10.0.0.7@tcp"]);
        assert_eq!(
            texts("10.[0-1].0.[8-9]@tcp"),
            ["10.0.0.8@tcp", "10.0.0.9@tcp", "10.1.0.8@tcp", "10.1.0.9@tcp"]
        );
        assert_eq!(texts("2001:db8::[9-b]@tcp"), {
            ["2001:db8::9@tcp", "2001:db8::a@tcp", "2001:db8::b@tcp"]
        });
        assert_eq!(texts("[3-4]@kfi, 0@lo"), ["3@kfi", "4@kfi", "0@lo"]);
    }

    #[test]
    fn bad_nid_lists_are_refused_in_the_words_of_the_tools() {
        use NidListError as E;
        for (list, error) in [
            ("foo", E::NoNid),
            ("", E::NoNid),
            ("10.0.0.3", E::NoNid),
            ("10.0.0.1@tcp,", E::NoNid),
            ("10.77.0.999@tcp", E::InvalidNid),
            ("10.0.0.1@foo", E::InvalidNid),
            ("10.0.0.[x]@tcp", E::InvalidNid),
            ("10.0.0.[1-2/0]@tcp", E::InvalidNid),
            ("12345-10.0.0.1@tcp", E::InvalidNid),
            ("<?>", E::AnyNid),
            ("10.0.0.*@tcp", E::Asterisk),
            ("10.0.0.[2-1]@tcp", E::WrongOrder),
            ("10.0.0.[1@tcp", E::Bracket),
            ("10.0.0.1]@tcp", E::Bracket),
            ("10.0.0.[1-129]@tcp", E::TooMany),
            ("10.0.[1-2].[1-65]@tcp", E::TooMany),
            ("10.0.[0-1].[0-255]@tcp", E::TooMany),
            ("fd00::[1-ffff]@tcp", E::TooMany),
            ("fd00::[2-1]@tcp", E::WrongOrder),
            ("fd00::[1-10000]@tcp", E::InvalidNid),
        ] {
            assert_eq!(parse_nid_list(list), Err(error), "{list}");
        }
        let deep = "[1]".repeat(10_000) + "@tcp";
        assert_eq!(parse_nid_list(&deep), Err(E::InvalidNid));
        assert_eq!(parse_nid_list("10.0.0.[1-128]@tcp").unwrap().len(), NID_LIST_MAX);
        assert_eq!(E::NoNid.to_string(), r#""Unable to parse nidlist: no valid NIDs in string""#);
    }
}
