//! `portal_rotor`: how messages for wildcard portals are spread over CPU partitions. A node has one
//! thread, which works for all of them, and nothing to spread over: the word is kept for those who set
//! it and read it back.

/// The words in the order of their numbers, and what each means.
const WAYS: [(&str, &str); 4] = [
    ("OFF", "stay on the partition that a message arrives on"),
    ("ON", "take turns for every message"),
    ("RR_RT", "take turns for messages that came through routers"),
    ("HASH_RT", "choose by the sender's NID for messages that came through routers"),
];
/// `HASH_RT`.
pub(crate) const DEFAULT: u8 = 3;

/// The number of a way, from its word.
pub(super) fn parse(word: &str) -> Option<u8> {
    let at = WAYS.iter().position(|(name, _)| name.eq_ignore_ascii_case(word))?;
    u8::try_from(at).ok()
}

/// All words.
pub(super) fn words() -> String {
    WAYS.map(|(name, _)| name).join(", ")
}

/// What the file says.
pub(super) fn show(at: u8) -> String {
    let (name, means) = WAYS.get(usize::from(at)).copied().unwrap_or_default();
    format!(
        "{{\n\tportals: all\n\trotor: {name}\n\tdescription: {means} (one thread: without effect)\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_in_any_case_and_numbers_are_none() {
        assert_eq!(parse("hash_rt"), Some(DEFAULT));
        assert_eq!((parse("OFF"), parse("3"), parse("")), (Some(0), None, None));
        assert!(show(2).contains("rotor: RR_RT"));
    }
}
