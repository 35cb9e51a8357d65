//! What a mistyped word, network or NID may have meant. The one place for it: the daemon reads
//! configurations, the tools read command lines.

use lnet_types::{Net, NetType};

use crate::{NID_LIST_MAX, NidListError, parse_nid_list};

/// The nearest of `words`, if it is near enough to be what was meant.
pub fn nearest<'a>(typed: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let distance = |word: &str| strsim::damerau_levenshtein(&typed, &word.to_lowercase());
    // A third of the letters may be wrong.
    let near = |word: &str| distance(word) <= (word.len().max(typed.len()) / 3).max(1);
    words.into_iter().filter(|word| near(word)).min_by_key(|word| distance(word))
}

/// The network that a text which is none may have meant.
pub fn near_net(text: &str) -> Option<String> {
    let name = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = text.get(name.len()..)?;
    // The number may be wrong, and not the name.
    let near = nearest(name, NetType::names()).filter(|_| !name.is_empty())?;
    let whole = format!("{near}{digits}");
    (whole != text && whole.parse::<Net>().is_ok()).then_some(whole)
}

/// The NIDs that a text which is no list of NIDs may have meant.
pub fn near_nids(text: &str) -> Option<String> {
    let meant = match text.rsplit_once('@') {
        None => format!("{text}@tcp"),
        Some((addresses, net)) => format!("{addresses}@{}", near_net(net)?),
    };
    parse_nid_list(&meant).is_ok().then_some(meant)
}

/// What is wrong with a text that must be a network.
pub fn not_a_net(text: &str) -> String {
    let why = match text.parse::<Net>() {
        Ok(_) => format!("'{text}' is not a network for this"),
        Err(e) => e.to_string(),
    };
    match near_net(text) {
        Some(meant) => format!("{why}: did you mean '{meant}'?"),
        None => why,
    }
}

/// What is wrong with a text that must be NIDs.
pub fn not_a_nid(text: &str) -> String {
    let why = format!("'{text}' is not a NID such as 10.0.0.1@tcp");
    match near_nids(text) {
        Some(meant) => format!("{why}: did you mean '{meant}'?"),
        None => why,
    }
}

/// What is wrong with a text that must be a list of NIDs, beside the words of kernel tools.
pub fn not_nids(text: &str, error: NidListError) -> String {
    match error {
        NidListError::TooMany => format!("'{text}': must name at most {NID_LIST_MAX} NIDs"),
        NidListError::WrongOrder => format!("'{text}': a range must ascend, such as [2-4]"),
        NidListError::Bracket => format!("'{text}': a '[' must have its ']'"),
        NidListError::Asterisk | NidListError::AnyNid => {
            format!("'{text}': expected NIDs or ranges such as 10.0.0.[2-4]@tcp, not a pattern")
        }
        NidListError::Empty => format!("'{text}': must name a NID"),
        NidListError::NoNid | NidListError::InvalidNid => not_a_nid(text),
    }
}

/// A mistyped key among those that may stand there: the nearest, or all if they are few.
pub(crate) fn key_hint(typed: &str, keys: &[&str]) -> Option<String> {
    /// The most keys that are listed.
    const LISTED_MAX: usize = 12;
    if let Some(word) = nearest(typed, keys.iter().copied()) {
        return Some(format!("did you mean '{word}'?"));
    }
    let (last, others) = keys.split_last().filter(|_| keys.len() <= LISTED_MAX)?;
    match others {
        [] => Some(format!("expected '{last}'")),
        others => Some(format!("expected '{}' or '{last}'", others.join("', '"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keys_gets_the_nearest_word_and_nonsense_gets_none() {
        let words = ["show", "set", "add", "del", "discover", "transaction_timeout"];
        let nearest = |typed| nearest(typed, words);
        assert_eq!(nearest("shwo"), Some("show"));
        assert_eq!(nearest("Dicsover"), Some("discover"));
        assert_eq!(nearest("transaction-timeout"), Some("transaction_timeout"));
        assert_eq!(nearest("ad"), Some("add"));
        assert_eq!(nearest("frobnicate"), None);
        assert_eq!(nearest(""), None);
    }

    #[test]
    fn networks_and_nids_are_completed_and_their_types_corrected() {
        for (typed, meant) in
            [("tpc", "tcp"), ("tpc1", "tcp1"), ("tcpp", "tcp"), ("o2bi3", "o2ib3")]
        {
            assert_eq!(near_net(typed).as_deref(), Some(meant), "{typed}");
        }
        for typed in ["foo", "tcp", "tcp99999", "", "1"] {
            assert_eq!(near_net(typed), None, "{typed}");
        }
        for (typed, meant) in [
            ("10.1.0.2", "10.1.0.2@tcp"),
            ("10.1.0.[2-4]", "10.1.0.[2-4]@tcp"),
            ("10.1.0.2@tpc1", "10.1.0.2@tcp1"),
        ] {
            assert_eq!(near_nids(typed).as_deref(), Some(meant), "{typed}");
        }
        for typed in ["foo", "10.1.0.2@foo", "10.1.0.300", "10.1.0.300@tpc", ""] {
            assert_eq!(near_nids(typed), None, "{typed}");
        }
    }

    #[test]
    fn a_key_gets_the_nearest_of_its_block_or_the_list_of_a_small_block() {
        let hint = |typed| key_hint(typed, &["src", "dst", "action"]);
        assert_eq!(hint("scr").as_deref(), Some("did you mean 'src'?"));
        assert_eq!(hint("priority").as_deref(), Some("expected 'src', 'dst' or 'action'"));
        assert_eq!(key_hint("x", &[]), None);
        assert_eq!(key_hint("x", &["range"]).as_deref(), Some("expected 'range'"));
    }

    #[test]
    fn a_list_that_cannot_be_expanded_is_answered_with_its_own_fault() {
        let why = |text: &str| not_nids(text, parse_nid_list(text).unwrap_err());
        assert_eq!(why("10.0.0.[1-200]@tcp"), "'10.0.0.[1-200]@tcp': must name at most 128 NIDs");
        assert!(why("10.0.0.[5-2]@tcp").contains("must ascend"));
        assert!(why("10.0.0.[5@tcp").contains("must have its ']'"));
        assert!(why("10.0.0.*@tcp").contains("not a pattern"));
        assert!(why("10.1.0.2").ends_with("did you mean '10.1.0.2@tcp'?"));
    }
}
