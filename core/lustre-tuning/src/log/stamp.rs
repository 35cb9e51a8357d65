//! The time at the head of a line: of syslog, ISO 8601, the kernel's ring buffer, or a time of day.

/// Microseconds of a second, and seconds of a day.
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// What a stamp counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// The epoch.
    Date,
    /// The start of a year that is not given.
    Year,
    /// Midnight of a day that is not given.
    Day,
    /// The start of the system.
    Uptime,
}

impl Clock {
    /// After so long its stamps begin anew, microseconds.
    pub(super) const fn period(self) -> Option<i64> {
        match self {
            Self::Date | Self::Uptime => None,
            Self::Year => Some(366 * DAY),
            Self::Day => Some(DAY),
        }
    }
}

/// A stamp: microseconds by a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) clock: Clock,
    pub(super) micros: i64,
}

/// Reads the stamp at the head of a line; what follows it. `None`: there is none.
pub(super) fn stamp(line: &str) -> Option<(Stamp, &str)> {
    let line = line.trim_start();
    uptime(line).or_else(|| date(line)).or_else(|| year(line)).or_else(|| day(line))
}

/// A number of one to `most` digits.
fn digits(text: &str, most: usize) -> Option<(i64, &str)> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    if len == 0 || len > most {
        return None;
    }
    let (head, rest) = text.split_at_checked(len)?;
    Some((head.parse().ok()?, rest))
}

/// A fraction behind a point or comma, microseconds; 0 without one.
fn fraction(text: &str) -> (i64, &str) {
    let Some(rest) = text.strip_prefix(['.', ',']) else { return (0, text) };
    let len = rest.bytes().take_while(u8::is_ascii_digit).count();
    let Some((head, rest)) = rest.split_at_checked(len).filter(|(head, _)| !head.is_empty()) else {
        return (0, text);
    };
    let micros = head.bytes().chain(core::iter::repeat(b'0')).take(6);
    (micros.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')), rest)
}

/// `HH:MM:SS` with a fraction.
fn time(text: &str) -> Option<(i64, &str)> {
    let (hours, text) = digits(text, 2)?;
    let (minutes, text) = digits(text.strip_prefix(':')?, 2)?;
    let (seconds, text) = digits(text.strip_prefix(':')?, 2)?;
    if hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let (micros, text) = fraction(text);
    Some((((hours * 60 + minutes) * 60 + seconds) * SECOND + micros, text))
}

/// `[ 1234.567890]`.
fn uptime(line: &str) -> Option<(Stamp, &str)> {
    let inside = line.strip_prefix('[')?.trim_start();
    let (seconds, rest) = digits(inside, 12)?;
    let (micros, rest) = fraction(rest);
    let rest = rest.strip_prefix(']')?;
    Some((Stamp { clock: Clock::Uptime, micros: seconds * SECOND + micros }, rest))
}

/// `YYYY-MM-DDTHH:MM:SS` with a fraction and a zone; a space may stand for the T.
fn date(line: &str) -> Option<(Stamp, &str)> {
    let (year, rest) = digits(line, 4)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (time, rest) = time(rest.strip_prefix(['T', ' '])?)?;
    let (zone, rest) = zone(rest);
    let micros = days(year, month, day) * DAY + time - zone;
    Some((Stamp { clock: Clock::Date, micros }, rest))
}

/// `Z`, `+02:00` or `-0500`, as microseconds to subtract; 0 without one.
fn zone(text: &str) -> (i64, &str) {
    if let Some(rest) = text.strip_prefix('Z') {
        return (0, rest);
    }
    let read = || {
        let sign = if text.starts_with('-') { -1 } else { 1 };
        let (hours, rest) = text.strip_prefix(['+', '-'])?.split_at_checked(2)?;
        let (minutes, rest) = rest.strip_prefix(':').unwrap_or(rest).split_at_checked(2)?;
        let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
        Some((sign * (hours * 60 + minutes) * 60 * SECOND, rest))
    };
    read().unwrap_or((0, text))
}

/// `Mon DD HH:MM:SS`.
fn year(line: &str) -> Option<(Stamp, &str)> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (name, rest) = line.split_at_checked(3)?;
    let month = MONTHS.iter().position(|month| *month == name)?;
    let (day, rest) = digits(rest.trim_start(), 2)?;
    let (time, rest) = time(rest.strip_prefix(' ')?)?;
    // In a leap year, so that each date has its place.
    let month = i64::try_from(month).ok()? + 1;
    let micros = (days(1972, month, day) - days(1972, 1, 1)) * DAY + time;
    Some((Stamp { clock: Clock::Year, micros }, rest))
}

/// A time of day alone.
fn day(line: &str) -> Option<(Stamp, &str)> {
    let (micros, rest) = time(line)?;
    Some((Stamp { clock: Clock::Day, micros }, rest))
}

/// Days from 1970 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let of_year = (153 * month + 2) / 5 + day - 1;
    let leap = year / 4 - year / 100 + year / 400;
    year * 365 + leap + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_stamp_is_read() {
        let minute = 60 * SECOND;
        for (line, clock, micros, rest) in [
            ("[   12.5] Lustre: x", Clock::Uptime, 12_500_000, " Lustre: x"),
            ("1970-01-02T00:01:00Z h", Clock::Date, DAY + minute, " h"),
            ("1970-01-02T02:01:00.25+02:00 h", Clock::Date, DAY + minute + 250_000, " h"),
            ("1970-01-01 19:01:00,5-0500 h", Clock::Date, DAY + minute + 500_000, " h"),
            ("2000-03-01T00:00:00 h", Clock::Date, 951_868_800 * SECOND, " h"),
            ("Jan  2 00:01:00 h k: x", Clock::Year, DAY + minute, " h k: x"),
            ("Mar 01 00:00:00.000001 h", Clock::Year, 60 * DAY + 1, " h"),
            ("21:26:51.3 h", Clock::Day, (21 * 60 + 26) * minute + 51_300_000, " h"),
        ] {
            let read = stamp(line);
            assert_eq!(read, Some((Stamp { clock, micros }, rest)), "{line}");
        }
    }

    #[test]
    fn what_is_no_stamp_is_not_read() {
        for line in [
            "",
            "Lustre: x",
            "[x] y",
            "[99999999999999999] y",
            "2026-13-01T00:00:00",
            "99999-01-01T00:00:00",
            "24:00:00",
            "Foo 1 00:00:00",
            "Jän 1 00:00:00",
            "1:2",
            "2026-01-01T00:00:00é",
        ] {
            let read = stamp(line);
            let known = line.ends_with('é');
            assert_eq!(read.is_some(), known, "{line}: {read:?}");
        }
    }
}
