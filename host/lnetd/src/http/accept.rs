//! Content negotiation for `/metrics`: the media ranges of an `Accept` header to one of two formats
//! (RFC 9110, 12.5.1). Total: a range that cannot be read does not count.

/// A text format of Prometheus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// The classic text format.
    #[default]
    Classic,
    /// OpenMetrics.
    OpenMetrics,
}

impl Format {
    /// The `Content-Type` of an answer.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Type, subtype and version.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Classic => ("text", "plain", "0.0.4"),
            Self::OpenMetrics => ("application", "openmetrics-text", "1.0.0"),
        }
    }
}

/// How closely a range names a format: not by its type, by its type, by its subtype, by its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    Any,
    Type,
    Subtype,
    Version,
}

/// The format that a client prefers, from the values of its `Accept` headers. Of two with the same
/// weight it is the one that the client names more closely, and else the classic format. A client that
/// accepts neither gets the classic format as well: a text is of more use than an error.
pub(super) fn choose<'a>(accept: impl Iterator<Item = &'a str>) -> Format {
    let mut classic = None;
    let mut open_metrics = None;
    for range in accept.flat_map(|value| unquoted(value, ',')) {
        for (format, best) in
            [(Format::Classic, &mut classic), (Format::OpenMetrics, &mut open_metrics)]
        {
            // The closest range decides about a format, whatever a wider one says.
            *best = (*best).max(matched(range, format));
        }
    }
    // Weight first.
    let rank = |best: Option<(Closeness, u16)>| {
        best.filter(|(_, weight)| *weight > 0).map(|(closeness, weight)| (weight, closeness))
    };
    if rank(open_metrics) > rank(classic) { Format::OpenMetrics } else { Format::Classic }
}

/// How closely a range names a format, and its weight; `None` if it is about something else.
fn matched(range: &str, format: Format) -> Option<(Closeness, u16)> {
    let (kind, subtype, version) = format.names();
    let mut parts = unquoted(range, ';').map(str::trim);
    let (a, b) = parts.next()?.split_once('/')?;
    let mut closeness = match (a, b) {
        ("*", "*") => Closeness::Any,
        (a, "*") if a.eq_ignore_ascii_case(kind) => Closeness::Type,
        (a, b) if a.eq_ignore_ascii_case(kind) && b.eq_ignore_ascii_case(subtype) => {
            Closeness::Subtype
        }
        _ => return None,
    };
    let mut weight = 1000;
    for part in parts.filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=')?;
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if name.eq_ignore_ascii_case("q") {
            weight = thousandths(value)?;
        } else if name.eq_ignore_ascii_case("version") {
            if value != version {
                return None;
            }
            closeness = Closeness::Version;
        } else if name.eq_ignore_ascii_case("charset") && !value.eq_ignore_ascii_case("utf-8") {
            return None;
        }
    }
    Some((closeness, weight))
}

/// A weight: 0 to 1 with at most three digits behind the point.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, digits) = text.split_once('.').unwrap_or((text, ""));
    if digits.len() > 3 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits: u16 = format!("{digits:0<3}").parse().ok()?;
    match whole {
        "0" => Some(digits),
        "1" if digits == 0 => Some(1000),
        _ => None,
    }
}

/// The parts of a text between separators that are not quoted.
fn unquoted(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |c| {
        let was_escaped = core::mem::take(&mut escaped);
        match c {
            '"' if !was_escaped => quoted = !quoted,
            '\\' if quoted && !was_escaped => escaped = true,
            _ => {}
        }
        c == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(accept: &str) -> Format {
        choose([accept].into_iter())
    }

    #[test]
    fn without_a_preference_the_format_is_the_classic_one() {
        assert_eq!(choose([].into_iter()), Format::Classic);
        for accept in [
            "",
            "*/*",
            "text/*",
            "text/plain",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/plain, application/openmetrics-text",
            "application/json",
            "text/plain;q=0, application/openmetrics-text;q=0",
        ] {
            assert_eq!(of(accept), Format::Classic, "{accept}");
        }
    }

    #[test]
    fn an_accept_header_of_prometheus_gets_openmetrics_of_a_known_version() {
        for accept in [
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*",
            "application/openmetrics-text;version=1.0.0;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
        ] {
            assert_eq!(of(accept), Format::OpenMetrics, "{accept}");
        }
        let old =
            "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(of(old), Format::Classic);
        let classic_first = "application/openmetrics-text;version=1.0.0;q=0.3,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.2";
        assert_eq!(of(classic_first), Format::Classic);
    }

    #[test]
    fn the_closest_range_decides_and_weights_are_compared() {
        for (accept, format) in [
            ("APPLICATION/OpenMetrics-Text", Format::OpenMetrics),
            ("application/*", Format::OpenMetrics),
            ("application/openmetrics-text;version=\"1.0.0\"", Format::OpenMetrics),
            ("application/openmetrics-text ; Q=0.001, text/plain;q=0", Format::OpenMetrics),
            ("application/openmetrics-text;q=0, */*", Format::Classic),
            ("*/*, application/openmetrics-text", Format::OpenMetrics),
            ("*/*;q=0.5, application/openmetrics-text;q=0.4", Format::Classic),
            ("text/plain;q=0.499, application/openmetrics-text;q=0.5", Format::OpenMetrics),
            (
                "text/plain;version=0.0.4;q=0.1, application/openmetrics-text;q=0.2",
                Format::OpenMetrics,
            ),
            ("application/openmetrics-text;version=2.0.0", Format::Classic),
            ("application/openmetrics-text;charset=latin1", Format::Classic),
            ("x/y;a=\"application/openmetrics-text, b\"", Format::Classic),
            // A weight that is none: the range does not count.
            ("application/openmetrics-text;q=2", Format::Classic),
            ("application/openmetrics-text;q=1.001", Format::Classic),
            ("application/openmetrics-text;q=nan", Format::Classic),
            ("application/openmetrics-text;q=0.5555", Format::Classic),
        ] {
            assert_eq!(of(accept), format, "{accept}");
        }
        let two = ["text/plain;q=0.5", "application/openmetrics-text;q=0.6"];
        assert_eq!(choose(two.into_iter()), Format::OpenMetrics, "two headers are one list");
    }

    proptest! {
        #[test]
        fn any_text_has_a_format(text in ".*", words in "[a-z*/;,=q0-9. \"\\\\]{0,60}") {
            let _ = choose([text.as_str(), words.as_str()].into_iter());
        }
    }
}
