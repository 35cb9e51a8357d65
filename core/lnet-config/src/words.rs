//! Tunables that have words beside numbers, or instead of them. The bounds of the numbers, and what
//! they mean, are the node's.

use lnet_types::HealthStatuses;

use crate::parse_number;

/// The tunable that says how often a message is sent again, and its word and number for "as long as
/// there is a path that it has not been tried on" (DEC-11). No number that a user would type.
const RETRY_COUNT: &str = "retry_count";
const PATHS: (&str, i64) = ("paths", lnet_types::RETRY_PATHS);
/// The tunable that holds a set of causes (DEC-6).
const RESEND_ON: &str = "resend_on";
/// The tunable that may be given in percent of full health (DEC-2).
const SENSITIVITY: &str = "health_sensitivity";
/// Health that is one percent.
const PERCENT: i64 = 10;

/// The value that `word` means for the tunable `name`, or `None` if it is neither a number nor one of
/// the tunable's words.
pub fn parse_setting(name: &str, word: &str) -> Option<i64> {
    match name {
        RETRY_COUNT if word == PATHS.0 => Some(PATHS.1),
        RESEND_ON => HealthStatuses::named(word).map(HealthStatuses::bits),
        SENSITIVITY => {
            let percent = word.strip_suffix('%').and_then(parse_number);
            percent.and_then(|n| n.checked_mul(PERCENT))
        }
        _ => None,
    }
    .or_else(|| parse_number(word))
}

/// How the value of the tunable `name` is written.
pub fn setting_text(name: &str, value: i64) -> String {
    match name {
        RETRY_COUNT if value == PATHS.1 => PATHS.0.to_owned(),
        RESEND_ON => HealthStatuses::from_bits(value).to_string(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_read_as_they_are_written() {
        for (name, word) in [
            ("retry_count", "paths"),
            ("retry_count", "3"),
            ("resend_on", "local_timeout+network_timeout"),
            ("resend_on", "none"),
            ("numa_range", "-1"),
        ] {
            let value = parse_setting(name, word).unwrap();
            assert_eq!(setting_text(name, value), word);
        }
        assert_eq!(parse_setting("resend_on", "0x40"), parse_setting("resend_on", "local_timeout"));
        // DEC-2
        assert_eq!(parse_setting("health_sensitivity", "10%"), Some(100));
        assert_eq!(parse_setting("health_sensitivity", "100"), Some(100));
        for (name, word) in [("health_sensitivity", "%"), ("retry_count", "10%")] {
            assert_eq!(parse_setting(name, word), None, "{name} {word}");
        }
        for (name, word) in [("numa_range", "paths"), ("retry_count", "path"), ("resend_on", "all")]
        {
            assert_eq!(parse_setting(name, word), None, "{name} {word}");
        }
    }
}
