use lnet_config::Setting;
use lnet_types::{Errno, Net, NetType, Nid, Prng};

use super::*;
use crate::{Contact, Contacted, NetSnapshot, NiSnapshot, Ping};

fn frames(max: u32, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut decoder = FrameDecoder::new(max);
    decoder.push(bytes);
    let mut all = Vec::new();
    while let Some(frame) = decoder.next_frame().unwrap() {
        all.push(frame);
    }
    assert!(!decoder.is_partial());
    all
}

fn nid(text: &str) -> Nid {
    text.parse().unwrap()
}

#[test]
fn requests_and_replies_survive_the_way_there_and_back() {
    let ping = Request::Ping(Ping {
        nids: vec![nid("10.0.0.1@tcp"), nid("fd00::1@o2ib3"), Nid::LOOPBACK],
        timeout_ms: Some(2500),
        source: None,
    });
    let set = Request::Set { settings: vec![Setting::new("retry_count", -1)] };
    let mut bytes = encode_request(7, &ping).unwrap();
    bytes.extend(encode_request(8, &set).unwrap());
    let frames = frames(REQUEST_MAX, &bytes);
    assert_eq!(decode_request(&frames[0]), Ok((7, ping)));
    assert_eq!(decode_request(&frames[1]), Ok((8, set)));

    let contact = Contact {
        primary: nid("10.0.0.1@tcp"),
        multi_rail: true,
        pid: 12345,
        nids: vec![nid("10.0.0.1@tcp")],
    };
    let refused = AdminError::errno(Errno::EHOSTUNREACH).because("no route to tcp9");
    let reply = Ok(Reply::Contacted(vec![
        Contacted { nid: nid("10.0.0.1@tcp"), outcome: Ok(contact) },
        Contacted { nid: nid("10.0.0.1@tcp9"), outcome: Err(refused) },
    ]));
    let frame = self::frames(REPLY_MAX, &encode_reply(9, &reply)).remove(0);
    assert_eq!(decode_reply(&frame), Ok((9, reply)));
}

#[test]
fn nids_and_nets_of_unknown_types_survive_too() {
    let strange = Net::new(NetType(77), 3);
    let nis = vec![NiSnapshot {
        nid: Nid::new(strange, 0x0a00_0001),
        up: true,
        interface: None,
        detail: None,
    }];
    let reply = Ok(Reply::Nets(vec![NetSnapshot {
        net: strange,
        nis,
        sum: None,
        accept_from: Vec::new(),
        refused: Vec::new(),
    }]));
    let frame = frames(REPLY_MAX, &encode_reply(1, &reply)).remove(0);
    assert_eq!(decode_reply(&frame), Ok((1, reply)));
}

#[test]
fn another_version_is_named_whatever_else_the_message_holds() {
    let frame = br#"{"version":2,"id":5,"body":{"of-the-future":{}}}"#;
    let error = ProtocolError::Version { theirs: 2, ours: VERSION };
    assert_eq!(decode_request(frame), Err((5, error)));
}

#[test]
fn frames_come_out_whole_however_the_stream_is_cut() {
    let mut bytes = encode_request(1, &Request::Status).unwrap();
    bytes.extend(encode_request(2, &Request::StatsReset).unwrap());
    for cut in 0..bytes.len() {
        let mut decoder = FrameDecoder::new(REQUEST_MAX);
        let mut seen = Vec::new();
        for part in [&bytes[..cut], &bytes[cut..]] {
            decoder.push(part);
            while let Some(frame) = decoder.next_frame().unwrap() {
                seen.push(decode_request(&frame).unwrap());
            }
        }
        assert_eq!(seen, [(1, Request::Status), (2, Request::StatsReset)], "cut at {cut}");
    }
}

#[test]
fn a_frame_announced_too_long_is_refused_before_its_bytes_come() {
    let mut decoder = FrameDecoder::new(REQUEST_MAX);
    decoder.push(&(REQUEST_MAX + 1).to_le_bytes());
    let error = ProtocolError::TooLong { len: u64::from(REQUEST_MAX) + 1, max: REQUEST_MAX };
    assert_eq!(decoder.next_frame(), Err(error));
}

#[test]
fn a_request_that_cannot_fit_is_not_sent() {
    let settings = vec![Setting::new("x".repeat(REQUEST_MAX as usize), 0)];
    let error = encode_request(1, &Request::Set { settings }).unwrap_err();
    assert!(matches!(error, ProtocolError::TooLong { max: REQUEST_MAX, .. }), "{error}");
}

#[test]
fn a_reply_that_cannot_fit_becomes_an_error_of_the_same_number() {
    let huge = AdminError::new(Errno::EIO, "x".repeat(REPLY_MAX as usize));
    let frame = frames(REPLY_MAX, &encode_reply(3, &Err(huge))).remove(0);
    let (id, answer) = decode_reply(&frame).unwrap();
    assert_eq!((id, answer.unwrap_err().errno), (3, Errno::EMSGSIZE));
}

#[test]
fn garbage_is_an_error_and_never_a_panic() {
    let seed = 0x5eed_ad31;
    println!("seed {seed:#x}");
    let mut prng = Prng::new(seed);
    let good = encode_request(4, &Request::NetShow { net: Some(Net::TCP), detail: true }).unwrap();
    for _ in 0..2000 {
        let mut frame = good[LENGTH_BYTES..].to_vec();
        for _ in 0..=prng.below(8) {
            let at = prng.below(frame.len() as u64) as usize;
            frame[at] = prng.next_u64() as u8;
        }
        // Either is fine; what counts is that it returns.
        let _ = decode_request(&frame);
        let _ = decode_reply(&frame);
    }
    assert!(decode_request(b"").is_err());
    assert!(decode_request(b"{").is_err());
    assert!(decode_request(&[b'['; 100_000]).is_err());
    assert!(decode_request(br#"{"version":1,"id":1,"body":"frob"}"#).is_err());
    let nid = br##"{"version":1,"id":1,"body":{"net-show":{"net":"#zz","detail":true}}}"##;
    assert!(decode_request(nid).is_err());
}
