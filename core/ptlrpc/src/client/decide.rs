//! What is decided about one request: whether it may go (P-79), what a reply means (P-85), what a
//! failure or a deadline that has passed means (P-83, P-86). Pure; `request.rs` and `reply.rs` act.

use lnet_types::{Errno, Nid};
use lustre_wire::WireError;
use lustre_wire::body::MsgKind;
use lustre_wire::{Body, Opcode};

use super::ImportState;
use crate::error::CallError;

/// A request and its import, as far as P-79 looks at them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage {
    pub(crate) import: ImportState,
    /// The state in which the request goes.
    pub(crate) send_state: ImportState,
    pub(crate) limit_passed: bool,
    /// An invalidation is running (P-76).
    pub(crate) invalidating: bool,
    /// Nothing but connects may go.
    pub(crate) invalid: bool,
    /// It is of an older generation than its import.
    pub(crate) older: bool,
    pub(crate) delay: bool,
    /// It has woken the import itself (P-81).
    pub(crate) woke: bool,
    /// It is taken while the target recovers.
    pub(crate) in_recovery: bool,
}

/// What may be done with a request now (P-79).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    Go,
    Delay,
    Fail(CallError),
}

/// P-79, first match wins.
pub(crate) fn may(p: &Passage) -> May {
    use ImportState as S;
    if matches!(p.import, S::New | S::Closed) {
        return May::Fail(CallError::Closed);
    }
    if p.limit_passed {
        return May::Fail(CallError::LimitPassed);
    }
    if p.send_state == S::Connecting && p.import == S::Connecting {
        return if p.invalidating { May::Fail(CallError::Evicted) } else { May::Go };
    }
    if p.invalid {
        return May::Fail(CallError::Inactive);
    }
    if p.older {
        return May::Fail(CallError::Evicted);
    }
    if p.send_state == p.import {
        return May::Go;
    }
    if p.invalidating {
        return May::Fail(CallError::Evicted);
    }
    if !p.delay && !p.woke {
        return May::Fail(CallError::NotConnected);
    }
    if p.in_recovery && (p.import.is_replay() || p.import == S::Recover) {
        return May::Go;
    }
    May::Delay
}

/// What a reply means (P-85).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is no reply.
    Bad(CallError),
    /// The server works on it: once more under a new number, after a pause.
    Later,
    /// The server does not know this client: connect, and send it again.
    Reconnect(Errno),
    /// An error of the operation.
    Refused(Errno),
    /// Success.
    Done,
}

impl Verdict {
    /// Whether the times of the reply count.
    pub(crate) const fn teaches(&self) -> bool {
        !matches!(self, Self::Bad(_) | Self::Later)
    }
}

/// P-85, behind the check of its length. `full`: it was sent over an import in use, and may wait for
/// another connection.
pub(crate) fn verdict(parsed: Result<&Body, WireError>, resend: bool, full: bool) -> Verdict {
    let body = match parsed {
        Ok(body) => body,
        Err(e) => return Verdict::Bad(CallError::BadReply(e)),
    };
    let status = (body.status < 0).then(|| Errno(body.status.saturating_neg()));
    if status == Some(Errno::EINPROGRESS) && resend {
        return Verdict::Later;
    }
    if body.kind != MsgKind::REPLY && body.kind != MsgKind::ERROR {
        let (what, field, value) = ("reply", "type", u64::from(body.kind.0));
        return Verdict::Bad(CallError::BadReply(WireError::Value { what, field, value }));
    }
    let failed = (body.kind == MsgKind::ERROR).then_some(Errno::EINVAL);
    match status.or(failed) {
        None => Verdict::Done,
        Some(errno @ (Errno::ENOTCONN | Errno::ENODEV)) if full => Verdict::Reconnect(errno),
        Some(errno) => Verdict::Refused(errno),
    }
}

/// A request that was not answered in its time, or that LNet could not deliver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) opcode: Opcode,
    /// The state in which it goes.
    pub(crate) send_state: ImportState,
    pub(crate) xid: u64,
    /// Highest xid of the import that was answered.
    pub(crate) replied: u64,
    pub(crate) resend: bool,
    /// A server's request to its client (P-130).
    pub(crate) callback: bool,
    /// It only asks whether the server is still the same (DEC-48).
    pub(crate) probe: bool,
    /// The node that did not answer.
    pub(crate) nid: Nid,
}

/// What follows (P-86).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// The import loses its connection.
    pub(crate) disconnects: bool,
    /// The request goes again, when it may; else it ends with this.
    pub(crate) end: Option<CallError>,
}

/// P-86, P-83's end of what may not be repeated.
pub(crate) fn expiry(late: &Late) -> Expiry {
    let full = late.send_state == ImportState::Full;
    let end = (!late.resend || !full).then_some(CallError::TimedOut(late.nid));
    // A ping says nothing if a younger request was answered.
    let stale = late.opcode == Opcode::OBD_PING && late.xid <= late.replied;
    Expiry { disconnects: !late.callback && !late.probe && full && !stale, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Passage = Passage {
        import: ImportState::Full,
        send_state: ImportState::Full,
        limit_passed: false,
        invalidating: false,
        invalid: false,
        older: false,
        delay: true,
        woke: false,
        in_recovery: false,
    };

    #[test]
    fn p79_each_row_decides_and_goes_before_the_rows_behind_it() {
        use ImportState as S;
        let fail = May::Fail;
        // What makes a row match, on top of what makes the rows behind it match.
        type Row = (&'static str, fn(&mut Passage), May);
        let rows: [Row; 11] = [
            ("11 delay", |p| p.import = S::Disconnected, May::Delay),
            (
                "10 allowed during replay",
                |p| {
                    p.in_recovery = true;
                    p.import = S::ReplayWait;
                },
                May::Go,
            ),
            ("9 may not wait", |p| p.delay = false, fail(CallError::NotConnected)),
            ("8 invalidating", |p| p.invalidating = true, fail(CallError::Evicted)),
            ("7 its state", |p| p.send_state = S::ReplayWait, May::Go),
            ("6 older generation", |p| p.older = true, fail(CallError::Evicted)),
            ("5 invalid", |p| p.invalid = true, fail(CallError::Inactive)),
            (
                "4 connects while an invalidation runs",
                |p| {
                    p.send_state = S::Connecting;
                    p.import = S::Connecting;
                },
                fail(CallError::Evicted),
            ),
            ("3 limit passed", |p| p.limit_passed = true, fail(CallError::LimitPassed)),
            ("2 closed", |p| p.import = S::Closed, fail(CallError::Closed)),
            ("1 new", |p| p.import = S::New, fail(CallError::Closed)),
        ];
        let mut passage = FREE;
        for (row, set, wanted) in rows {
            set(&mut passage);
            assert_eq!(may(&passage), wanted, "{row}");
        }
        let connects = Passage { import: S::Connecting, send_state: S::Connecting, ..FREE };
        assert_eq!(may(&Passage { invalid: true, older: true, ..connects }), May::Go, "4");
        let woke = Passage { import: S::Connecting, delay: false, woke: true, ..FREE };
        assert_eq!(may(&woke), May::Delay, "9: it has woken the import");
    }

    #[test]
    fn p79_in_each_state_only_the_requests_of_that_state_go() {
        use ImportState as S;
        let sends = [S::Full, S::Connecting, S::Replay, S::ReplayWait];
        for import in S::ALL {
            for send_state in sends {
                let got = may(&Passage { import, send_state, ..FREE });
                let wanted = match import {
                    S::New | S::Closed => May::Fail(CallError::Closed),
                    _ if import == send_state => May::Go,
                    _ => May::Delay,
                };
                assert_eq!(got, wanted, "{} {}", import.name(), send_state.name());
                // Allowed during replay.
                let got = may(&Passage { import, send_state, in_recovery: true, ..FREE });
                let replays =
                    matches!(import, S::Replay | S::ReplayLocks | S::ReplayWait | S::Recover);
                assert_eq!(got, if replays { May::Go } else { wanted }, "{}", import.name());
            }
        }
    }

    #[test]
    fn p85_each_row_of_a_reply() {
        let body = |kind, status| Body { kind, status, ..Body::default() };
        let (reply, error) = (MsgKind::REPLY, MsgKind::ERROR);
        let refused = |errno| Verdict::Refused(errno);
        for (row, kind, status, resend, full, wanted) in [
            ("in progress", reply, -115, true, true, Verdict::Later),
            ("in progress, of error type", error, -115, true, true, Verdict::Later),
            ("in progress, no resend", reply, -115, false, true, refused(Errno::EINPROGRESS)),
            ("error type without an error", error, 0, true, true, refused(Errno::EINVAL)),
            ("error type, positive", error, 7, true, true, refused(Errno::EINVAL)),
            ("error type", error, -22, true, true, refused(Errno::EINVAL)),
            ("not connected", error, -107, true, true, Verdict::Reconnect(Errno::ENOTCONN)),
            ("no device", error, -19, true, true, Verdict::Reconnect(Errno::ENODEV)),
            ("no device, of reply type", reply, -19, true, true, Verdict::Reconnect(Errno::ENODEV)),
            ("not connected, in recovery", error, -107, true, false, refused(Errno::ENOTCONN)),
            ("an error of the operation", reply, -2, true, true, refused(Errno::ENOENT)),
            ("the lowest number", reply, i32::MIN, true, true, refused(Errno(i32::MAX))),
            ("success", reply, 0, true, true, Verdict::Done),
            ("success with a number", reply, 9, false, false, Verdict::Done),
        ] {
            assert_eq!(verdict(Ok(&body(kind, status)), resend, full), wanted, "{row}");
        }
        let request = verdict(Ok(&body(MsgKind::REQUEST, 0)), true, true);
        assert!(matches!(request, Verdict::Bad(CallError::BadReply(_))), "{request:?}");
        assert!(!request.teaches() && !Verdict::Later.teaches());
        assert!(Verdict::Done.teaches() && refused(Errno::ENOENT).teaches());
        let broken = WireError::Value { what: "message", field: "magic", value: 1 };
        let broken = verdict(Err(broken), true, true);
        assert_eq!(
            broken,
            Verdict::Bad(CallError::BadReply(WireError::Value {
                what: "message",
                field: "magic",
                value: 1
            }))
        );
        assert_eq!(
            CallError::BadReply(WireError::Value { what: "", field: "", value: 0 }).errno(),
            Errno::EPROTO
        );
    }

    #[test]
    fn p86_each_row_of_a_deadline_that_has_passed() {
        use ImportState as S;
        let nid = Nid::LOOPBACK;
        let ends = Some(CallError::TimedOut(nid));
        let (op, ping) = (Opcode::OST_WRITE, Opcode::OBD_PING);
        for (row, opcode, send_state, xid, resend, callback, disconnects, end) in [
            ("a call", op, S::Full, 128, true, false, true, None),
            ("a call that may not be repeated", op, S::Full, 128, false, false, true, ends),
            ("a call, younger ones answered", op, S::Full, 1, true, false, true, None),
            ("a ping", ping, S::Full, 128, false, false, true, ends),
            ("a ping, a younger one answered", ping, S::Full, 64, false, false, false, ends),
            ("a connect", op, S::Connecting, 128, false, false, false, ends),
            ("a replay", op, S::Replay, 128, true, false, false, ends),
            ("a final ping", ping, S::ReplayWait, 128, false, false, false, ends),
            ("a callback", op, S::Full, 128, true, true, false, None),
            ("a callback that is not repeated", op, S::Full, 128, false, true, false, ends),
        ] {
            let probe = false;
            let late = Late { opcode, send_state, xid, replied: 64, resend, callback, probe, nid };
            assert_eq!(expiry(&late), Expiry { disconnects, end }, "{row}");
            let probe = expiry(&Late { probe: true, ..late });
            assert_eq!(probe, Expiry { disconnects: false, end }, "{row}, as a probe");
        }
    }
}
