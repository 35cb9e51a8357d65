//! Recorded conversations come out whole, and what is no capture is refused.

use std::path::PathBuf;

use lnet_pcap::{Closed, Conversation, Direction, PcapError, Signal, conversations, parse};

fn capture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pcap").join(name)
}

fn recorded(name: &str) -> Vec<Conversation> {
    conversations(capture(name)).expect(name)
}

#[test]
fn conversations_have_their_ends_their_bytes_and_their_order() {
    let all = recorded("tcp-hello-ping.pcap");
    let ends: Vec<_> = all.iter().map(|c| (c.client.to_string(), c.server.to_string())).collect();
    let server = || "10.77.0.3:988".to_owned();
    assert_eq!(ends, [1023, 1022, 1021].map(|port| (format!("10.77.0.2:{port}"), server())));
    let first = &all[0];
    // Connection request, HELLO, GET; HELLO, REPLY with 64 bytes.
    assert_eq!(first.to_server.len(), 16 + 56 + 96);
    assert_eq!(first.to_client.len(), 56 + 96 + 64);
    let spoke: Vec<_> = first.segments.iter().map(|s| (s.direction, s.bytes.len())).collect();
    assert_eq!(
        spoke,
        [
            (Direction::ToServer, 16),
            (Direction::ToServer, 56),
            (Direction::ToClient, 56),
            (Direction::ToServer, 96),
            (Direction::ToClient, 160)
        ]
    );
    assert_eq!((first.events[0].signal, first.events[0].frame), (Signal::Syn, 1));
    assert_eq!((first.client_closed, first.server_closed), (Closed::Open, Closed::Open));
}

#[test]
fn both_address_families_and_both_ways_to_close_are_seen() {
    let v6 = recorded("ipv6-large-nid.pcap");
    assert_eq!(v6[0].client.to_string(), "[fd77::2]:1023");
    let lost = &recorded("conn-race.pcap")[0];
    assert_eq!((lost.client_closed, lost.server_closed), (Closed::Fin, Closed::Fin));
    let refused = &recorded("connreq-refused.pcap")[0];
    assert_eq!(refused.server_closed, Closed::Rst);
}

#[test]
fn large_transfers_are_put_together_without_a_gap() {
    let all = recorded("selftest-brw-read-1m.pcap");
    let longest = all.iter().map(|c| c.to_client.len()).max();
    assert!(longest > Some(1 << 20), "{longest:?}");
}

#[test]
fn a_file_that_is_no_capture_is_refused() {
    let good = std::fs::read(capture("tcp-hello-ping.pcap")).expect("a capture");
    for len in 0..24 {
        assert!(matches!(parse(&good[..len]), Err(PcapError::Short { frame: 0 })), "{len}");
    }
    assert!(matches!(parse(&good[..24]), Ok(none) if none.is_empty()));
    assert!(matches!(parse(&good[..30]), Err(PcapError::Short { frame: 1 })));
    let with = |at: usize, byte| {
        let mut bad = good.clone();
        bad[at] = byte;
        parse(&bad).expect_err("a bad capture").to_string()
    };
    assert_eq!(
        with(0, 0),
        "magic of the capture is 0xa1b2c300: expected classic pcap with link type Ethernet"
    );
    assert_eq!(
        with(20, 113),
        "link type of the capture is 0x71: expected classic pcap with link type Ethernet"
    );
    let captured = u32::from_le_bytes([good[32], good[33], good[34], good[35]]);
    assert_eq!(
        with(37, good[37] + 1),
        format!("frame 1: {captured} of {} bytes captured", captured + 256)
    );
    let missing = conversations("no-such.pcap").expect_err("no file").to_string();
    assert!(missing.starts_with("no-such.pcap: "), "{missing}");
}

/// The capture begins in the middle of a connection on which only the server speaks before it breaks.
#[test]
fn a_syn_after_a_connection_without_its_syn_begins_another_conversation() {
    let all = recorded("../ptlrpc/evict-ping-and-lock.pcap");
    let between = all.iter().filter(|c| {
        let ports = [c.client.to_string(), c.server.to_string()];
        ports.contains(&"10.78.0.11:1023".to_owned())
            && ports.contains(&"10.78.0.10:988".to_owned())
    });
    let opened: Vec<bool> = between
        .map(|c| c.events.iter().any(|e| e.signal == Signal::Syn) && c.client.port() == 1023)
        .collect();
    assert_eq!(opened, [false, true]);
}
