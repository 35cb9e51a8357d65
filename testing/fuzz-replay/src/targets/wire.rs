//! The wire formats. What parses is emitted again: the bytes are those that were read, but for the
//! places that receivers do not read; and those bytes parse to the same value.

use std::fmt::Debug;
use std::ops::Range;

use lnet_wire::acceptor::{self, Request};
use lnet_wire::ib;
use lnet_wire::ping::Features;
use lnet_wire::selftest::{self, ReplyMessage, RequestMessage, Service};
use lnet_wire::sock::{FrameHdr, Hello, Noop, Version};
use lnet_wire::{ByteOrder, Hdr, HdrForm, Kind, Need, PingInfo, WireError};

/// A connection request.
pub fn acceptor(input: &[u8]) {
    let parsed = promises(input, Request::need, Request::parse);
    match parsed {
        Ok((request, used)) => {
            let mut out = [0xEE; Request::LEN_MAX];
            assert_eq!(request.emit(&mut out), Ok(used));
            assert_eq!(Request::parse(&out), Ok((request, used)));
            let unread = match request.version {
                acceptor::Version::V1 => nid4(input, 8, request.order),
                acceptor::Version::V2 => nid20(input, 8),
            };
            same_but(&out[..used], input, &[unread]);
            let _ = request.to_string();
        }
        Err(why) => {
            let _ = acceptor::wants_answer(&why);
        }
    }
    let _ = acceptor::is_answer(input);
}

/// A HELLO.
pub fn hello(input: &[u8]) {
    let Ok((hello, used)) = promises(input, Hello::need, Hello::parse) else {
        return;
    };
    let mut out = [0xEE; Hello::LEN_MAX];
    assert_eq!(hello.emit(&mut out), Ok(used));
    assert_eq!(Hello::parse(&out[..used]), Ok((hello.clone(), used)));
    match hello.version {
        Version::V1 => same_but(&out[..used], input, &[nid4(input, 8, hello.order), 44..72]),
        Version::V2 | Version::V3 => {
            same_but(
                &out[..used],
                input,
                &[nid4(input, 8, hello.order), nid4(input, 16, hello.order)],
            );
        }
        // The destination may be anything, and a number of addresses may follow.
        Version::V4 => same_but(&out[..used], input, &[nid20(input, 8), 28..48, 76..80]),
    }
    let _ = (hello.to_string(), hello.conn_type.inverse());
}

/// A frame header; the first byte of the input chooses the order.
pub fn frame(input: &[u8]) {
    let Some((choice, input)) = input.split_first() else {
        return;
    };
    let order = if choice & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    match FrameHdr::parse(order, input) {
        Ok(frame) => {
            same_but(&frame.to_bytes(order), input, &[]);
            if let Ok(noop) = Noop::from_cookies(frame.cookie0, frame.cookie1) {
                let (cookie0, cookie1) = noop.cookies();
                assert_eq!(Noop::from_cookies(cookie0, cookie1), Ok(noop));
            }
            let _ = frame.to_string();
        }
        Err(why) => is_short_if(input.len() < FrameHdr::LEN, &why),
    }
}

/// An LNet header; the first byte of the input chooses the form.
pub fn hdr(input: &[u8]) {
    let Some((choice, input)) = input.split_first() else {
        return;
    };
    let form = if choice & 1 == 0 { HdrForm::Short } else { HdrForm::Long };
    match Hdr::parse(form, input) {
        Ok(hdr) => {
            let mut out = [0xEE; Hdr::LEN_MAX];
            assert_eq!(hdr.emit(form, &mut out), Ok(form.len()));
            assert_eq!(Hdr::parse(form, &out), Ok(hdr));
            let (nids, body) = match form {
                HdrForm::Short => {
                    ([nid4(input, 0, ByteOrder::Little), nid4(input, 8, ByteOrder::Little)], 32)
                }
                HdrForm::Long => ([nid20(input, 0), nid20(input, 20)], 56),
            };
            let used = match hdr.kind {
                Kind::Ack { .. } => 28,
                Kind::Put { .. } => 40,
                Kind::Get { .. } => 36,
                Kind::Reply { .. } => 16,
            };
            let [dst, src] = nids;
            same_but(&out[..form.len()], input, &[dst, src, body + used..form.len()]);
            let _ = hdr.to_string();
        }
        Err(why) => is_short_if(input.len() < form.len(), &why),
    }
}

/// A ping info, whole or cut.
pub fn ping_info(input: &[u8]) {
    let parsed = match PingInfo::parse(input) {
        Ok(parsed) => parsed,
        Err(why) => return is_short_if(input.len() < 4, &why),
    };
    let info = &parsed.info;
    assert!(parsed.have == parsed.size.min(input.len()));
    assert_eq!(parsed.truncated().is_some(), input.len() < parsed.size);
    assert!(info.entries.len() * 12 <= input.len(), "no entry without bytes");
    let bytes = info.emit_in(parsed.order);
    assert_eq!(bytes.len(), info.size());
    let again = PingInfo::parse(&bytes).expect("what we emit is an info");
    assert_eq!(again.truncated(), None);
    assert_eq!(again.info.emit_in(parsed.order), bytes, "emitting is stable");
    assert_eq!((again.info.seq, again.info.pid), (info.seq, info.pid));
    assert_eq!(again.info.entries.len(), info.entries.len());
    assert_eq!(again.info.entries.first(), info.entries.first(), "the primary");
    let ours = Features::LARGE_ADDR | Features::PRIMARY_LARGE | Features::METADATA;
    assert_eq!(again.info.features - ours, info.features - ours);
    let _ = parsed.to_string();
}

/// A message of the RDMA driver, and the refusal of a connection.
pub fn ib(input: &[u8]) {
    if let Ok(reject) = ib::Reject::parse(input) {
        assert_eq!(ib::Reject::parse(&reject.to_bytes()), Ok(reject));
        let _ = reject.to_string();
    }
    let (msg, nob) = match ib::Msg::parse(input) {
        Ok(parsed) => parsed,
        Err(why) => return is_short_if(input.len() < 4, &why),
    };
    assert!(msg.len() <= nob && nob <= input.len());
    let (again, n) = ib::Msg::parse(&input[..nob]).expect("a whole message");
    assert_eq!((&again, n), (&msg, nob), "what follows a message changes it");
    let cut = ib::Msg::parse(&input[..nob - 1]).expect_err("a part of a message");
    is_short_if(true, &cut);
    let mut out = [0xEE; ib::MSG_MAX];
    assert_eq!(msg.emit(0, &mut out), Ok(msg.len()));
    assert_eq!(ib::Msg::parse(&out), Ok((msg.clone(), msg.len())));
    let _ = (msg.to_string(), ib::peek_version(input));
}

/// What every message with a `need` promises; gives what `parse` says.
fn promises<T: PartialEq + Debug>(
    input: &[u8],
    need: impl Fn(&[u8]) -> Result<Need, WireError>,
    parse: impl Fn(&[u8]) -> Result<(T, usize), WireError>,
) -> Result<(T, usize), WireError> {
    let parsed = parse(input);
    match &parsed {
        Ok((value, used)) => {
            assert_eq!(need(input), Ok(Need::Exactly(*used)));
            for have in 0..*used {
                let before = &input[..have];
                match need(before) {
                    Ok(Need::AtLeast(n)) => assert!(have < n && n <= *used),
                    other => assert_eq!(other, Ok(Need::Exactly(*used))),
                }
                is_short_if(true, &parse(before).expect_err("a part of a message"));
            }
            let (again, n) = parse(&input[..*used]).expect("a whole message");
            assert_eq!((&again, n), (value, *used), "what follows a message changes it");
        }
        Err(WireError::Short { need: wanted, have, .. }) => {
            assert!(*have == input.len() && wanted > have);
            let more = need(input).expect("a part of a message").bytes();
            assert!(more > *have && more >= *wanted);
        }
        // What is refused early is refused whatever follows.
        Err(why) => match need(input) {
            Err(early) => assert_eq!(&early, why),
            Ok(Need::Exactly(n)) => assert!(n <= input.len()),
            Ok(Need::AtLeast(n)) => panic!("refused as {why}, but {n} bytes asked for"),
        },
    }
    parsed
}

fn is_short_if(short: bool, why: &WireError) {
    let is = matches!(why, WireError::Short { .. });
    assert!(!short || is, "too few bytes, but: {why}");
}

/// Asserts that `out` begins `input`, except in the places `unread`.
fn same_but(out: &[u8], input: &[u8], unread: &[Range<usize>]) {
    for (at, (ours, theirs)) in out.iter().zip(input).enumerate() {
        if !unread.iter().any(|place| place.contains(&at)) {
            assert_eq!(ours, theirs, "at {at}");
        }
    }
}

/// What receivers ignore of the 8-byte NID at `at`: the highest byte; all of it in wildcards.
fn nid4(input: &[u8], at: usize, order: ByteOrder) -> Range<usize> {
    let (highest, kind) = match order {
        ByteOrder::Little => (at + 7, at + 6),
        ByteOrder::Big => (at, at + 1),
    };
    if input[kind] == 0xFF { at..at + 8 } else { highest..highest + 1 }
}

/// What receivers ignore of the 20-byte NID at `at`: nothing but in wildcards.
fn nid20(input: &[u8], at: usize) -> Range<usize> {
    if input[at + 1] == 0xFF { at..at + 20 } else { at..at }
}

/// A selftest message, or a list of destinations; the first byte of the input chooses the service
/// and what it is.
pub fn selftest(input: &[u8]) {
    let Some((choice, input)) = input.split_first() else {
        return;
    };
    let service = Service::ALL[usize::from(choice >> 2) % Service::ALL.len()];
    match choice & 3 {
        0 => {
            let _ = selftest::reply_id(input);
            match RequestMessage::parse(service, input) {
                Ok(message) => {
                    assert_eq!(
                        RequestMessage::parse(service, &message.emit()),
                        Ok(message.clone())
                    );
                    if let selftest::Request::Test(test) = message.body
                        && let Some(params) = test.params(message.order, message.features)
                    {
                        assert!(params.emit(message.order)[..8] == test.param[..8]);
                    }
                    let _ = message.to_string();
                }
                Err(why) => is_short_if(input.len() < 4, &why),
            }
        }
        1 => match ReplyMessage::parse(service, input) {
            Ok(message) => {
                assert_eq!(ReplyMessage::parse(service, &message.emit()), Ok(message.clone()));
                let _ = message.to_string();
            }
            Err(why) => is_short_if(input.len() < 4, &why),
        },
        order => {
            let order = if order == 2 { ByteOrder::Little } else { ByteOrder::Big };
            let count = u32::from(*choice >> 2) * 37;
            if let Ok(list) = selftest::parse_destinations(order, count, input) {
                let again = selftest::emit_destinations(order, &list);
                assert_eq!(
                    selftest::parse_destinations(order, list.len() as u32, &again),
                    Ok(list)
                );
            }
        }
    }
}
