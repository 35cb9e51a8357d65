//! When something was seen: seconds since 1970, or a date and a time of day (K-6).

use std::time::{SystemTime, UNIX_EPOCH};

/// What a word for a moment may be.
pub(super) const EXPECTED: &str = "YYYY-MM-DD-HH:MM:SS in UTC, or seconds since 1970";

/// Seconds since 1970.
pub(super) fn parse(word: &str) -> Option<u64> {
    if word.bytes().all(|b| b.is_ascii_digit()) {
        return word.parse().ok();
    }
    let mut parts = word.splitn(4, '-');
    let mut number = || {
        let part = parts.next().filter(|p| p.bytes().all(|b| b.is_ascii_digit()))?;
        part.parse::<u64>().ok().filter(|n| *n <= 9999)
    };
    let (year, month, day) = (number()?, number()?, number()?);
    let clock: Vec<u64> = parts.next()?.split(':').map(two_digits).collect::<Option<_>>()?;
    let [hour, minute, second] = clock[..] else { return None };
    let fits = year >= 1970
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let days: u64 = (1970..year).map(|y| (1..=12).map(|m| days_in(y, m)).sum::<u64>()).sum::<u64>()
        + (1..month).map(|m| days_in(year, m)).sum::<u64>()
        + day.checked_sub(1)?;
    fits.then_some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

fn two_digits(text: &str) -> Option<u64> {
    let fits = matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

const fn days_in(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// How long ago a moment was, seconds; `None` if it is still to come.
pub(super) fn ago(moment: u64) -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    now.checked_sub(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds_and_what_is_no_date_is_nothing() {
        for (word, seconds) in [
            ("0", 0),
            ("1700000000", 1_700_000_000),
            ("1970-01-01-00:00:00", 0),
            ("2000-02-29-12:00:01", 951_825_601),
            ("2000-03-01-00:00:00", 951_868_800),
            ("2023-11-14-22:13:20", 1_700_000_000),
            ("2100-03-01-00:00:00", 4_107_542_400),
        ] {
            assert_eq!(parse(word), Some(seconds), "{word}");
        }
        for word in [
            "",
            "-1",
            "now",
            "2023-11-14",
            "2023-11-14-22:13",
            "2023-02-29-00:00:00",
            "2023-13-01-00:00:00",
            "2023-00-01-00:00:00",
            "2023-01-00-00:00:00",
            "2023-01-01-24:00:00",
            "2023-01-01-00:60:00",
            "2023-01-01-00:00:60",
            "2023-01-01-00:00:00:00",
            "2023-01-01-+1:00:00",
            "1969-12-31-23:59:59",
            "99999999999999999999",
            "123456789-01-01-00:00:00",
        ] {
            assert_eq!(parse(word), None, "{word}");
        }
    }

    #[test]
    fn a_time_in_the_future_is_no_sighting() {
        assert_eq!(ago(u64::MAX), None);
        assert!(ago(0).is_some_and(|s| s > 1_700_000_000));
    }
}
