//! Numbers as the original reads them: sign, decimal, `0x` hexadecimal, leading-zero octal, and
//! the whole word (G-13).

/// The number that `word` is, or `None`.
pub fn parse_number(word: &str) -> Option<i64> {
    let (negative, digits) = match word.as_bytes().first()? {
        b'-' => (true, &word[1..]),
        b'+' => (false, &word[1..]),
        _ => (false, word),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

#[cfg(test)]
mod tests {
    use super::parse_number;

    #[test]
    fn numbers_have_a_sign_and_a_base_and_nothing_else() {
        for (word, value) in [
            ("0", 0),
            ("-1", -1),
            ("+7", 7),
            ("0x1F", 31),
            ("-0x10", -16),
            ("010", 8),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(parse_number(word), Some(value), "{word}");
        }
        for word in ["", "-", "+", "0x", "0x+1", "08", "1s", " 1", "1 ", "foo", "+-1", "é", "--1"]
        {
            assert_eq!(parse_number(word), None, "{word}");
        }
        assert_eq!(parse_number("9223372036854775808"), None);
        assert_eq!(parse_number("99999999999999999999999"), None);
    }
}
