//! How files are shown.

use lustre_rt::visitor::{Attributes, FileKind};
use serde_json::{Value, json};

use super::label::Label;

/// The letter of a type, as `ls` shows it.
const fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::File => '-',
        FileKind::Dir => 'd',
        FileKind::Link => 'l',
        FileKind::Block => 'b',
        FileKind::Char => 'c',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::Unknown => '?',
    }
}

/// The same of a name whose permissions are not known, and perhaps its type.
pub(super) fn unknown(kind: Option<FileKind>) -> String {
    format!("{}?????????", letter(kind.unwrap_or(FileKind::Unknown)))
}

/// Type and permissions as `ls` shows them.
pub(super) fn mode(attributes: &Attributes) -> String {
    let mode = attributes.mode;
    let mut text = String::from(letter(attributes.kind));
    // For each class: its shift, the bit that replaces its x, and the letters for that bit.
    for (shift, special, set, unset) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bit = |bit: u32| mode >> shift & bit != 0;
        text.push(if bit(4) { 'r' } else { '-' });
        text.push(if bit(2) { 'w' } else { '-' });
        text.push(match (mode & special != 0, bit(1)) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// What a file is, in words.
pub(super) const fn kind(attributes: &Attributes) -> &'static str {
    kind_of(attributes.kind)
}

/// The same of a kind.
pub(super) const fn kind_of(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "regular file",
        FileKind::Dir => "directory",
        FileKind::Link => "symbolic link",
        FileKind::Block => "block special file",
        FileKind::Char => "character special file",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::Unknown => "unknown",
    }
}

/// Seconds since 1970 as date and time of day, UTC.
pub(super) fn time(seconds: i64) -> String {
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days of eras of 400 years, which begin on the first of March.
    let days = days.saturating_add(719_468);
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Bytes of a name for a terminal: what is no text is escaped.
pub(super) fn name(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// A name as `ls` shows it on a terminal: what a shell would take apart, or a terminal for an order, is quoted.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let is_plain = |c: char| {
        c.is_alphanumeric()
            || matches!(c, '%' | '+' | ',' | '-' | '.' | '/' | ':' | '@' | '_')
            || matches!(c, ']' | '{' | '}' | '#' | '~')
    };
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with(['#', '~']) {
        return text.to_owned();
    }
    let in_double = |c: char| !c.is_control() && !matches!(c, '"' | '$' | '`' | '\\' | '!');
    if text.contains('\'') && text.chars().all(in_double) {
        return format!("\"{text}\"");
    }
    let mut quoted = String::from("'");
    let mut inside = true;
    let mut go = |quoted: &mut String, to: bool| {
        if inside != to {
            quoted.push_str(if to { "''" } else { "'$'" });
            inside = to;
        }
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                go(&mut quoted, false);
                quoted.push_str(&escaped(c));
            } else {
                go(&mut quoted, true);
                quoted.push_str(if c == '\'' { "'\\''" } else { "" });
                if c != '\'' {
                    quoted.push(c);
                }
            }
        }
        for byte in chunk.invalid() {
            go(&mut quoted, false);
            quoted.push_str(&format!("\\{byte:03o}"));
        }
    }
    quoted.push('\'');
    quoted
}

/// A control character in a quotation of the shell.
fn escaped(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        '\r' => "\\r".to_owned(),
        c => {
            let mut room = [0; 4];
            c.encode_utf8(&mut room).bytes().map(|byte| format!("\\{byte:03o}")).collect()
        }
    }
}

/// Bytes as `-h` shows them: a number below 1024 with its unit, rounded up; one digit behind the point below
/// ten.
pub(super) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 1u128;
    let mut units = "KMGTPE".chars();
    let mut letter = 'K';
    for next in units.by_ref() {
        letter = next;
        unit *= 1024;
        let tenths = (u128::from(bytes) * 10).div_ceil(unit);
        // Ten tenths are rounded up to the next unit only where they make 1024 of them.
        if tenths <= 99 {
            return format!("{}.{}{letter}", tenths / 10, tenths % 10);
        }
        let whole = u128::from(bytes).div_ceil(unit);
        if whole < 1024 {
            return format!("{whole}{letter}");
        }
    }
    format!("{}{letter}", u128::from(bytes).div_ceil(unit))
}

/// The numbers of a device: major and minor (C-50).
pub(super) const fn device(rdev: u32) -> (u32, u32) {
    (rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xfff00)
}

/// A file as JSON.
pub(super) fn json(name: &Label, attributes: &Attributes) -> Value {
    let Attributes { fid, uid, gid, nlink, size, blocks, atime, mtime, ctime, btime, .. } =
        attributes;
    let mut row = json!({
        "fid": fid.to_string(),
        "inode": attributes.inode(),
        "type": kind(attributes),
        "mode": format!("{:04o}", attributes.mode & 0o7777),
        "uid": uid,
        "gid": gid,
        "nlink": nlink,
        "size": size,
        "blocks": blocks,
        "atime": atime,
        "mtime": mtime,
        "ctime": ctime,
        "btime": btime,
    });
    name.name_in(&mut row);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_shown_as_date_and_time() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (981_173_106, "2001-02-03 04:05:06"),
            (1_795_384_826, "2026-11-22 22:00:26"),
        ] {
            assert_eq!(time(seconds), shown);
        }
        // No time that a server sends makes it fail.
        for seconds in [i64::MIN, i64::MAX] {
            assert!(!time(seconds).is_empty());
        }
    }

    #[test]
    fn names_are_quoted_for_terminals_as_ls_does() {
        for (name, shown) in [
            (&b"plain-1.txt"[..], "plain-1.txt"),
            (b"a b", "'a b'"),
            (b"it's", "\"it's\""),
            (b"#a", "'#a'"),
            (b"a#", "a#"),
            (b"q'\n", "'q'\\'''$'\\n'"),
            (b"a\xffb", "'a'$'\\377''b'"),
            (b"a\nb", "'a'$'\\n''b'"),
            ("\u{e9}".as_bytes(), "\u{e9}"),
            (b"\x1b[2J", "''$'\\033''[2J'"),
        ] {
            assert_eq!(quoted(name), shown);
        }
    }

    #[test]
    fn human_sizes_are_rounded_up_as_by_ls() {
        for (bytes, shown) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            ((10 << 10) - 1, "10K"),
            ((1 << 20) - 1, "1.0M"),
            (1 << 20, "1.0M"),
            (1_500_000_000, "1.4G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), shown, "{bytes}");
        }
    }

    #[test]
    fn device_numbers_and_names_are_shown_as_kernel_tools_show_them() {
        assert_eq!(device(0x7c8), (7, 200));
        assert_eq!(device(0x87a0), (0x87, 0xa0));
        assert_eq!(name("é".as_bytes()), "é");
        assert_eq!(name(b"a\x1b[2J"), "a\\x1b[2J");
        assert_eq!(name(b"\xff"), "\\xff");
    }
}
