//! What one line of a console says: lines of Lustre servers and clients, of Cray's network driver, and of
//! `ulnet`. Each phrase stands here once; what is none of them says nothing.

use serde::Serialize;

/// Longer names are cut.
const NAME_MAX: usize = 128;

/// Why a server has evicted a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It kept a lock that was called back.
    LockTimer,
    /// It did not answer a callback.
    Callback,
    /// Neither pings nor requests came.
    Silent,
    /// It was not back, or not done, when its target's recovery ended.
    NotRecovered,
    /// An administrator wanted it.
    Ordered,
    /// Any other one, or one that the line does not say.
    Other,
}

impl Reason {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::LockTimer => "kept a lock until its timer ended",
            Self::Callback => "did not answer a callback",
            Self::Silent => "silent for too long",
            Self::NotRecovered => "not back when the recovery ended",
            Self::Ordered => "ordered by an administrator",
            Self::Other => "reason not in the line",
        }
    }
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    QuiesceStart,
    QuiesceEnd,
    /// A client has lost its connection to a target.
    Lost {
        target: String,
    },
    /// A client has it again.
    Restored {
        target: String,
    },
    /// A server has evicted a client.
    Evicted {
        target: String,
        client: String,
        reason: Reason,
    },
    /// A client has learnt that it was evicted.
    EvictedHere {
        target: String,
    },
    /// A service does not keep up.
    Behind {
        service: String,
    },
}

/// The first word of a text, without the marks around it.
fn word(text: &str) -> String {
    let word = text.split_whitespace().next().unwrap_or_default();
    let bare = word.trim_matches(|c: char| matches!(c, ',' | ';' | ':' | '(' | ')'));
    bare.chars().take(NAME_MAX).collect()
}

/// The last word of a text.
fn last_word(text: &str) -> String {
    word(text.split_whitespace().next_back().unwrap_or_default())
}

/// A target by the name of its client's import: `fs-OST0000-osc-ffff…`.
fn target_of(import: &str) -> String {
    let cut = ["-osc-", "-mdc-", "-lwp-", "-osp-"].iter().find_map(|mark| import.find(mark));
    import.get(..cut.unwrap_or(import.len())).unwrap_or(import).to_owned()
}

/// The target that a line is about: as the line calls it, or, where it has a NID there, by the import
/// in front of the phrase.
fn target(before: &str, named: &str) -> String {
    if named.contains('@') { target_of(&last_word(before)) } else { target_of(named) }
}

pub(super) fn said(text: &str) -> Option<Said> {
    let around = |phrase: &str| text.split_once(phrase);
    if text.contains("Quiesce start") {
        return Some(Said::QuiesceStart);
    }
    if text.contains("Quiesce complete") {
        return Some(Said::QuiesceEnd);
    }
    if let Some((before, after)) = around("Connection restored to ") {
        return Some(Said::Restored { target: target(before, &word(after)) });
    }
    if let Some((before, after)) = around("Connection to ") {
        return after
            .contains("was lost")
            .then(|| Said::Lost { target: target(before, &word(after)) });
    }
    if let Some((before, after)) = around(": connection to ") {
        let target = last_word(before);
        let mut words = after.split_whitespace().skip(1);
        return match words.next()? {
            "lost;" => Some(Said::Lost { target }),
            "restored" => Some(Said::Restored { target }),
            _ => None,
        };
    }
    if let Some((_, after)) = around("This client was evicted by ") {
        return Some(Said::EvictedHere { target: word(after) });
    }
    if let Some((before, _)) = around(": evicted by ") {
        return Some(Said::EvictedHere { target: last_word(before) });
    }
    if let Some((before, _)) = around(": This server is not able to keep up") {
        return Some(Said::Behind { service: last_word(before) });
    }
    if let Some((before, _)) = around(": not able to keep up") {
        return Some(Said::Behind { service: last_word(before) });
    }
    let (target, client, reason) = evicted(text)?;
    Some(Said::Evicted { target, client, reason })
}

/// An eviction by a server: target, client, reason.
fn evicted(text: &str) -> Option<(String, String, Reason)> {
    let around = |phrase: &str| text.split_once(phrase);
    if let Some((before, after)) = around(": evicting client at ") {
        let timer = before.contains("lock callback timer expired");
        let space = after.split_once("ns: ").map(|(_, space)| word(space)).unwrap_or_default();
        let space =
            ["filter-", "mdt-"].iter().find_map(|p| space.strip_prefix(p)).unwrap_or(&space);
        let target = space.trim_end_matches("_UUID").to_owned();
        return Some((target, word(after), if timer { Reason::LockTimer } else { Reason::Other }));
    }
    if let Some((before, after)) = around(": A client on nid ") {
        let (client, why) = after.split_once(" was evicted due to a lock ")?;
        let reason = if why.contains("callback") { Reason::Callback } else { Reason::Other };
        return Some((last_word(before), word(client), reason));
    }
    if let Some((before, after)) = around(": haven't heard from client ") {
        // The NID is what other lines of the same client name.
        let client = after.split_once("(at ").map_or(after, |(_, nid)| nid);
        return Some((last_word(before), word(client), Reason::Silent));
    }
    if let Some((before, after)) = around(": disconnect stale client ") {
        // The kernel does not know its NID.
        let client = word(after.trim_end_matches("@<unknown>"));
        return Some((last_word(before), client, Reason::NotRecovered));
    }
    if let Some((before, after)) = around(": evicting ")
        && after.contains(" request")
    {
        return Some((last_word(before), word(after), Reason::Ordered));
    }
    let (before, after) = around(": client ")?;
    let (client, why) = after.split_once(" was evicted: ")?;
    let reason = if why.contains("give a lock back") {
        Reason::LockTimer
    } else if why.contains("callback") {
        Reason::Callback
    } else if why.contains("silent") {
        Reason::Silent
    } else if why.contains("recovery") {
        Reason::NotRecovered
    } else if why.contains("ordered") {
        Reason::Ordered
    } else {
        Reason::Other
    };
    Some((last_word(before), word(client), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evicted(target: &str, client: &str, reason: Reason) -> Said {
        Said::Evicted { target: target.into(), client: client.into(), reason }
    }

    #[test]
    fn each_phrase_is_recognized() {
        let restored = |target: &str| Said::Restored { target: target.into() };
        let lost = |target: &str| Said::Lost { target: target.into() };
        for (text, wanted) in [
            ("LNet: Quiesce start: hardware quiesce", Said::QuiesceStart),
            ("LNet: Quiesce complete: hardware quiesce", Said::QuiesceEnd),
            (
                "Lustre: snx11023-OST0009-osc-ffff88: Connection restored to snx11023-OST0009 (at \
                 10.149.4.7@o2ib)",
                restored("snx11023-OST0009"),
            ),
            (
                "Lustre: fs-MDT0000-mdc-ffff88: Connection restored to 10.0.0.1@tcp (at 10.0.0.1@tcp)",
                restored("fs-MDT0000"),
            ),
            ("INFO rpc: Connection restored to log-1 (at 10.0.0.1@tcp)", restored("log-1")),
            ("INFO rpc: log-1: connection to 10.0.0.1@tcp restored", restored("log-1")),
            (
                "Lustre: fs-OST0000-osc-ffff88: Connection to fs-OST0000 (at 10.0.0.1@tcp) was lost; in \
                 progress operations using this service will wait for recovery to complete",
                lost("fs-OST0000"),
            ),
            (
                "rpc: log-1: connection to 10.0.0.1@tcp lost; calls wait for a new one",
                lost("log-1"),
            ),
            (
                "LustreError: 167-0: fs-OST0000-osc-ffff88: This client was evicted by fs-OST0000; in \
                 progress operations using this service will fail.",
                Said::EvictedHere { target: "fs-OST0000".into() },
            ),
            (
                "rpc: log-1: evicted by 10.0.0.1@tcp; calls under way fail, locks are void",
                Said::EvictedHere { target: "log-1".into() },
            ),
            (
                "LustreError: 0:0:(ldlm_lockd.c:1:f()) ### lock callback timer expired after 101s: \
                 evicting client at 10.0.0.9@tcp  ns: filter-fs-OST0000_UUID lock: ffff/0x1",
                evicted("fs-OST0000", "10.0.0.9@tcp", Reason::LockTimer),
            ),
            (
                "LustreError: 138-a: fs-OST0000: A client on nid 10.0.0.9@tcp was evicted due to a lock \
                 blocking callback time out: rc -107",
                evicted("fs-OST0000", "10.0.0.9@tcp", Reason::Callback),
            ),
            (
                "Lustre: fs-OST0000: haven't heard from client 4a-5b (at 10.0.0.9@tcp) in 227 seconds. I \
                 think it's dead, and I am evicting it. exp ffff",
                evicted("fs-OST0000", "10.0.0.9@tcp", Reason::Silent),
            ),
            (
                "lock-1: client c-1 was evicted: did not give a lock back in time",
                evicted("lock-1", "c-1", Reason::LockTimer),
            ),
            (
                "lock-1: client c-1 was evicted: did not answer the callback of a lock",
                evicted("lock-1", "c-1", Reason::Callback),
            ),
            (
                "lock-1: client c-1 was evicted: silent for too long",
                evicted("lock-1", "c-1", Reason::Silent),
            ),
            ("lock-1: client c-1 was evicted: ordered", evicted("lock-1", "c-1", Reason::Ordered)),
            (
                "Lustre: 10575:0:(genops.c:1773:f()) fs-OST0000: evicting 21e6-78f6 at adminstrative \
                 request",
                evicted("fs-OST0000", "21e6-78f6", Reason::Ordered),
            ),
            (
                "Lustre: 376:0:(genops.c:1599:f()) fs-OST0000: disconnect stale client \
                 c4f3-7ca4@<unknown>",
                evicted("fs-OST0000", "c4f3-7ca4", Reason::NotRecovered),
            ),
            (
                "Lustre: ost_io: This server is not able to keep up with request traffic (cpu-bound).",
                Said::Behind { service: "ost_io".into() },
            ),
            (
                "rpc: service log: not able to keep up: OST_WRITE x1 of c waits for 13 s",
                Said::Behind { service: "log".into() },
            ),
        ] {
            assert_eq!(said(text), Some(wanted), "{text}");
        }
    }

    #[test]
    fn the_log_lines_of_the_request_layer_are_recognized_as_it_writes_them() {
        let target = || "t".to_owned();
        let nid = lnet_types::Nid::LOOPBACK;
        let is = |line: ptlrpc::LogLine, wanted: Said| {
            assert_eq!(said(&format!("rpc: {line}")), Some(wanted), "{line}");
        };
        is(ptlrpc::LogLine::Lost { target: target(), nid }, Said::Lost { target: target() });
        is(
            ptlrpc::LogLine::Restored { target: target(), nid },
            Said::Restored { target: target() },
        );
        is(
            ptlrpc::LogLine::Evicted { target: target(), nid },
            Said::EvictedHere { target: target() },
        );
        for (reason, wanted) in [
            (ptlrpc::EvictReason::LockTimeout, Reason::LockTimer),
            (ptlrpc::EvictReason::LockCallback, Reason::Callback),
            (ptlrpc::EvictReason::Silent, Reason::Silent),
            (ptlrpc::EvictReason::NotRecovered, Reason::NotRecovered),
            (ptlrpc::EvictReason::Ordered, Reason::Ordered),
        ] {
            let line = format!("t: client c was evicted: {reason}");
            assert_eq!(said(&line), Some(evicted("t", "c", wanted)));
        }
    }

    #[test]
    fn what_says_nothing_is_passed_over() {
        for text in [
            "",
            "Lustre: fs-OST0000: Connection to something",
            "x: connection to y",
            ": A client on nid ",
            ": client x",
            "Lustre: Mounted fs-client",
        ] {
            assert_eq!(said(text), None, "{text}");
        }
    }
}
