//! `set NAME VALUE` (C-set). Limits are the daemon's; what is checked here is what the original
//! checks in the tool, and what it lets through in silence.

use lnet_admin::Request;
use lnet_config::{OWN_KEYS, Setting, parse_setting};
use lnet_types::Errno;

use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::table::Command;

const PARSER: Place = Place::classic("parser", "set");
const PARSER_ERROR: i32 = Errno::EPERM.negative();
/// A parameter file that refuses to be written (C-set-4).
const WRITE_REFUSED: i32 = Errno::ENODATA.negative();

/// How one name is spelled in messages, and what the tool itself checks.
#[derive(Clone, Copy)]
struct Name {
    name: &'static str,
    /// In `cannot parse … value` (C-set-2).
    parse: &'static str,
    /// In `cannot configure …` (C-set-4).
    configure: &'static str,
    /// The object of the documents for [`Self::check`].
    object: &'static str,
    /// The values that the tool refuses, with its words.
    check: fn(i64) -> Option<&'static str>,
    /// Whether the original has that check too (else it lets the value through).
    original: bool,
}

const fn name(name: &'static str, parse: &'static str, configure: &'static str) -> Name {
    Name { name, parse, configure, object: name, check: |_| None, original: true }
}

/// Those of the original; ours are [`OWN_KEYS`] and have no other spelling.
const NAMES: &[Name] = &[
    name("numa_range", "numa_range", "numa_range"),
    Name {
        check: |v| (v < 16).then_some("must be at least 16"),
        original: false,
        ..name("max_interfaces", "max_interfaces", "max interfaces")
    },
    Name { check: boolean, original: false, ..name("discovery", "discovery", "discovery") },
    Name {
        check: boolean,
        original: false,
        ..name("drop_asym_route", "drop_asym_route", "drop asym route")
    },
    name("retry_count", "retry_count", "retry count"),
    name("transaction_timeout", "transaction timeout", "transaction timeout"),
    name("health_sensitivity", "health sensitivity", "health sensitivity"),
    name("recovery_interval", "recovery interval", "recovery interval"),
    name("router_sensitivity", "router sensitivity", "router health sensitivity"),
    Name {
        check: |v| (!(0..=3).contains(&v)).then_some("Valid values are: 0, 1, 2, or 3"),
        ..name("response_tracking", "response_tracking", "response tracking")
    },
    Name {
        check: |v| (v < 0).then_some("Must be greater than or equal to 0"),
        ..name("recovery_limit", "recovery_limit", "recovery limit")
    },
    Name {
        check: |v| (v <= 0).then_some("must be strictly positive"),
        object: "maximum recovery ping interval",
        ..name(
            "max_recovery_ping_interval",
            "maximum recovery interval",
            "maximum recovery ping interval",
        )
    },
];

fn boolean(value: i64) -> Option<&'static str> {
    (!(0..=1).contains(&value)).then_some("Valid values are: 0 or 1")
}

pub(crate) fn set(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let Some(word) = args.operands.first() else { return command.print_help(session, INVALID) };
    let original = NAMES.iter().find(|n| n.name == command.name);
    let ours = || OWN_KEYS.iter().find(|n| **n == command.name).map(|n| name(n, n, n));
    let Some(name) = original.copied().or_else(ours) else { return INVALID };
    let Some(value) = parse_setting(name.name, word) else {
        let text = format!("cannot parse {} value", name.parse);
        session.error(PARSER, PARSER_ERROR, &text, Some(&format!("'{word}' is not a number")));
        return PARSER_ERROR;
    };
    if let (Some(text), true) = ((name.check)(value), name.original || !session.strict) {
        session.error(Place::classic("add", name.object), INVALID, &format!("\"{text}\""), None);
        return INVALID;
    }
    // The original reads this one unsigned, 32 bits (C-set-1).
    let numa = name.name == "numa_range";
    let value = if numa && value == -1 { i64::from(u32::MAX) } else { value };
    let request = Request::Set { settings: vec![Setting::new(name.name, value)] };
    let Err(e) = session.order(&request) else { return 0 };
    let place = Place::classic("add", name.name);
    match e {
        lnet_admin::ClientError::Refused(refusal) => {
            let errno = refusal.errno;
            let (number, text) = match numa {
                // A request of its own in the original, so the real errno.
                true => (
                    errno.negative(),
                    format!("\"cannot configure numa_range to {word}: {errno}\""),
                ),
                false => {
                    (WRITE_REFUSED, format!("\"cannot configure {}: {errno}\"", name.configure))
                }
            };
            session.error(place, number, &text, refusal.detail.as_deref());
            number
        }
        unreachable => session.failed(place, &unreachable, |r| r.text.clone(), None),
    }
}
