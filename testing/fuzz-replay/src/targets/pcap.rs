//! The capture reader.

use lnet_pcap::Direction;

/// A capture: every byte of a stream is in exactly one segment.
pub fn pcap(input: &[u8]) {
    let _ = lnet_pcap::roce::operations(input);
    let Ok(conversations) = lnet_pcap::parse(input) else {
        return;
    };
    for c in conversations {
        for (direction, all) in
            [(Direction::ToServer, &c.to_server), (Direction::ToClient, &c.to_client)]
        {
            let segments = c.segments.iter().filter(|s| s.direction == direction);
            let bytes: Vec<u8> = segments.flat_map(|s| s.bytes.iter().copied()).collect();
            assert_eq!(&bytes, all);
        }
        assert!(c.segments.is_sorted_by_key(|s| s.frame));
        assert!(c.segments.iter().all(|s| !s.bytes.is_empty()));
    }
}
