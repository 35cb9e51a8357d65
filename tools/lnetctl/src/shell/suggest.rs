//! What a mistyped word may have meant.

/// The nearest of `words`, if it is near enough to be what was meant.
pub(crate) fn nearest<'a>(
    typed: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let distance = |word: &str| strsim::damerau_levenshtein(&typed, &word.to_lowercase());
    // A third of the letters may be wrong.
    let near = |word: &str| distance(word) <= (word.len().max(typed.len()) / 3).max(1);
    words.into_iter().filter(|word| near(word)).min_by_key(|word| distance(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_understood_and_other_words_are_not() {
        let words = ["show", "set", "add", "del", "discover", "transaction_timeout"];
        let nearest = |typed| nearest(typed, words);
        assert_eq!(nearest("shwo"), Some("show"));
        assert_eq!(nearest("Dicsover"), Some("discover"));
        assert_eq!(nearest("transaction-timeout"), Some("transaction_timeout"));
        assert_eq!(nearest("ad"), Some("add"));
        assert_eq!(nearest("frobnicate"), None);
        assert_eq!(nearest(""), None);
    }
}
