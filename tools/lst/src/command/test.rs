//! Tests (L-15): the words of `add_test`, and of the kind of test behind its options.

use lnet_admin::ClientError;
use lnet_selftest::{Brw, Check, Command as Order, Kind, TestSpec};
use lnet_types::Errno;
use lnetctl::args::Args;

use super::DEFAULT_BATCH;
use crate::Lst;
use crate::errors::{LOCAL, REMOTE};
use crate::frame::wrong_usage;
use crate::table::Command;

/// The most bytes of one transfer.
pub(crate) const SIZE_MAX: u64 = 1 << 20;
/// And how many unless something else is said.
const SIZE: u32 = 4096;
const CONCURRENCY_MAX: u32 = 1024;

pub(crate) fn add_test(lst: &mut Lst<'_>, command: &Command, args: &Args) -> i32 {
    let (Some(from), Some(to)) = (args.value("from"), args.value("to")) else {
        return wrong_usage(lst, command);
    };
    let spec = match spec(args, from, to) {
        Ok(spec) => spec,
        Err(complaint) => {
            lst.complain(complaint);
            return LOCAL;
        }
    };
    let kind = spec.kind.name();
    let (from, to) = (spec.from.clone(), spec.to.clone());
    match lst.nodes(Order::AddTest(spec)) {
        Ok(nodes) if lst.node_failures(&nodes) > 0 => {
            lst.complain(format_args!("Failed to add test ({kind})"));
            REMOTE
        }
        Ok(_) => {
            lst.say("Test was added successfully");
            0
        }
        Err(ClientError::Refused(refusal)) if refusal.errno == Errno::ENODATA => {
            lst.complain(format_args!(
                "Can't get count of nodes from {from}: no node is active there, or in {to}"
            ));
            LOCAL
        }
        Err(error) => lst.failed(&error, "test", "add test"),
    }
}

/// The test that the words describe, or what is wrong with them.
fn spec(args: &Args, from: &str, to: &str) -> Result<TestSpec, String> {
    let repeat = match args.value("loop").unwrap_or("-1") {
        "-1" => None,
        text => {
            let n = text.parse().ok().filter(|n| (1..u32::MAX).contains(n));
            Some(n.ok_or_else(|| format!("Invalid loop number of test: {text}"))?)
        }
    };
    let text = args.value("concurrency").unwrap_or("1");
    let concurrency = text
        .parse()
        .ok()
        .filter(|n| (1..=CONCURRENCY_MAX).contains(n))
        .ok_or_else(|| format!("Invalid concurrency of test: {text}"))?;
    let text = args.value("distribute").unwrap_or("1:1");
    let (clients, servers) = text
        .split_once(':')
        .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)))
        .filter(|(a, b)| *a > 0 && *b > 0)
        .ok_or_else(|| format!("Invalid distribution: {text}"))?;
    let (word, rest) = args.operands.split_first().ok_or("Missing test type")?;
    let kind = match word.to_lowercase().as_str() {
        "ping" => match rest.first() {
            None => Ok(Kind::Ping),
            Some(extra) => Err(format!("Unknow parameter: {extra}")),
        },
        "brw" => brw(rest).map(Kind::Brw),
        _ => Err(format!("Unknow test name {word}")),
    }
    .map_err(|complaint| format!("{complaint}\nFailed to add test ({word})"))?;
    Ok(TestSpec {
        batch: args.value("batch").unwrap_or(DEFAULT_BATCH).to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        repeat,
        concurrency,
        clients,
        servers,
        kind,
    })
}

/// The arguments of a bulk test, in any order and case.
fn brw(words: &[String]) -> Result<Brw, String> {
    let mut brw = Brw { write: false, size: SIZE, offset: 0, check: Check::None };
    let mut checked = None;
    for word in words {
        let lower = word.to_lowercase();
        match lower.split_once('=') {
            None => match lower.as_str() {
                "read" | "r" => brw.write = false,
                "write" | "w" => brw.write = true,
                "skip_rx_copy" | "skip-rx-copy" => agree(&mut checked, Check::Discard, word)?,
                _ => return Err(format!("Unknow flag {word}")),
            },
            Some(("size" | "s", value)) => brw.size = size(value)?,
            Some(("check" | "c", value)) => {
                let check = match value {
                    "full" => Check::Full,
                    "simple" => Check::Simple,
                    "discard" => Check::Discard,
                    _ => return Err(format!("Unknow parameter: {word}")),
                };
                agree(&mut checked, check, word)?;
            }
            Some(("off" | "o", value)) => {
                let offset = value.parse().ok().filter(|n: &u32| n.is_multiple_of(8));
                brw.offset = offset
                    .ok_or_else(|| format!("Invalid offset {value}, expected a multiple of 8"))?;
            }
            Some(_) => return Err(format!("Unknow parameter: {word}")),
        }
    }
    brw.check = checked.unwrap_or(Check::None);
    Ok(brw)
}

/// One check only: two that differ contradict each other.
fn agree(checked: &mut Option<Check>, check: Check, word: &str) -> Result<(), String> {
    match checked.replace(check) {
        Some(before) if before != check => Err(format!("Unknow flag {word}: another check is set")),
        _ => Ok(()),
    }
}

/// `N`, `NK` or `NM`: at most 1 MiB, and a multiple of 8, for kernel nodes do not survive others.
pub(crate) fn size(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?;
    if bytes > SIZE_MAX {
        return Err(format!("Size exceed limitation: {bytes} bytes"));
    }
    if bytes % 8 != 0 {
        return Err(format!("Invalid size {text}, expected a multiple of 8"));
    }
    Ok(bytes as u32)
}

/// A number of bytes, of any size.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_lowercase();
    let (digits, unit) = match lower.strip_suffix('k') {
        Some(digits) => (digits, 1 << 10),
        None => lower.strip_suffix('m').map_or((lower.as_str(), 1), |digits| (digits, 1 << 20)),
    };
    let invalid = || format!("Invalid size {text}");
    let n: u64 = digits.parse().map_err(|_| invalid())?;
    n.checked_mul(unit).filter(|n| *n > 0).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn bulk_arguments_come_in_any_order_and_case() {
        let whole = Brw { write: true, size: 1 << 20, offset: 16, check: Check::Full };
        for line in ["write size=1M check=full off=16", "OFF=16 C=FULL s=1024k W"] {
            assert_eq!(brw(&words(line)), Ok(whole), "{line}");
        }
        let plain = Brw { write: false, size: 4096, offset: 0, check: Check::None };
        assert_eq!(brw(&[]), Ok(plain));
        assert_eq!(brw(&words("skip_rx_copy c=discard")).unwrap().check, Check::Discard);
    }

    #[test]
    fn errors_have_the_wording_of_the_original() {
        let text = |line: &str| brw(&words(line)).unwrap_err();
        assert_eq!(text("frob"), "Unknow flag frob");
        assert_eq!(text("frob=1"), "Unknow parameter: frob=1");
        assert_eq!(text("check=none"), "Unknow parameter: check=none");
        assert_eq!(text("size=9M"), "Size exceed limitation: 9437184 bytes");
        assert_eq!(text("size=x"), "Invalid size x");
        assert_eq!(text("size=0"), "Invalid size 0");
        assert!(text("size=12").starts_with("Invalid size 12"));
        assert!(text("off=4").starts_with("Invalid offset 4"));
        assert!(text("check=full skip-rx-copy").starts_with("Unknow flag"));
    }
}
