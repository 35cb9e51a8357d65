//! Patterns of names, as shells and `find` have them: bytes against bytes.

/// Whether a name fits a pattern. Takes no more time than their lengths multiplied.
pub fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where the last star was, and how much of the name it stands for.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        let one = pattern.get(p..).and_then(|pattern| first(pattern, name.get(n).copied()?));
        match (pattern.get(p), one) {
            (Some(b'*'), _) => {
                star = Some((p + 1, n));
                p += 1;
            }
            (Some(_), Some(len)) => {
                p += len;
                n += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (p, n) = (after, from + 1);
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// The length of what stands for one byte at the front of a pattern, if it stands for this one.
fn first(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => {
            let (not, rest) = match rest {
                [b'!' | b'^', rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            // A bracket at the front is one of the set.
            let close = rest.iter().skip(1).position(|byte| *byte == b']').map(|at| at + 1);
            let Some(close) = close else { return (byte == b'[').then_some(1) };
            let mut set = rest.get(..close).unwrap_or_default();
            let mut has = false;
            while let Some((low, behind)) = set.split_first() {
                if let [b'-', high, behind @ ..] = behind {
                    has |= (*low..=*high).contains(&byte);
                    set = behind;
                } else {
                    has |= *low == byte;
                    set = behind;
                }
            }
            (has != not).then_some(close + 2 + usize::from(not))
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_as_find_has_them() {
        for (pattern, name, expected) in [
            ("*.h5", "a.h5", true),
            ("*.h5", "a.h5x", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?", "", false),
            ("?", "x", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
        let (pattern, name) = ("*a".repeat(40), "a".repeat(200));
        assert!(fits(pattern.as_bytes(), name.as_bytes()));
    }
}
