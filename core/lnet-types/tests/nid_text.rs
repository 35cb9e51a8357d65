//! Text forms of networks, NIDs and process ids, both ways (wire.md 1.4, 1.6, 9.9).

use lnet_types::{Net, NetType, Nid, NidError, ParseNetError, ParseNidError, Pid, ProcessId};
use proptest::prelude::*;

fn wire(hex: &str) -> [u8; 20] {
    let bytes: Vec<u8> =
        hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect();
    bytes.try_into().expect("20 bytes")
}

#[test]
fn the_golden_nids_have_these_texts_numbers_and_bytes() {
    for (text, nid4, nid20) in [
        (
            "0@lo",
            Some(0x0009_0000_0000_0000),
            "00 09 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
        ),
        (
            "192.168.1.20@tcp",
            Some(0x0002_0000_C0A8_0114),
            "00 02 00 00 c0 a8 01 14 00 00 00 00 00 00 00 00 00 00 00 00",
        ),
        (
            "10.1.2.3@tcp7",
            Some(0x0002_0007_0A01_0203),
            "00 02 00 07 0a 01 02 03 00 00 00 00 00 00 00 00 00 00 00 00",
        ),
        (
            "10.10.0.2@o2ib",
            Some(0x0005_0000_0A0A_0002),
            "00 05 00 00 0a 0a 00 02 00 00 00 00 00 00 00 00 00 00 00 00",
        ),
        (
            "10.10.0.2@o2ib65535",
            Some(0x0005_FFFF_0A0A_0002),
            "00 05 ff ff 0a 0a 00 02 00 00 00 00 00 00 00 00 00 00 00 00",
        ),
        (
            "17@kfi",
            Some(0x0010_0000_0000_0011),
            "00 10 00 00 00 00 00 11 00 00 00 00 00 00 00 00 00 00 00 00",
        ),
        ("fd00::20@tcp", None, "0c 02 00 00 fd 00 00 00 00 00 00 00 00 00 00 00 00 00 00 20"),
        ("2001:db8::1@tcp300", None, "0c 02 01 2c 20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01"),
        ("<?>", Some(u64::MAX), "ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff"),
    ] {
        let nid: Nid = text.parse().expect(text);
        assert_eq!(nid.to_string(), text);
        assert_eq!(nid.to_nid4(), nid4, "{text}");
        assert_eq!(nid.as_wire(), &wire(nid20), "{text}");
        assert_eq!(Nid::from_wire(wire(nid20)), Ok(nid));
        if let Some(nid4) = nid4 {
            assert_eq!(Nid::from_nid4(nid4), nid);
        }
    }
}

#[test]
fn other_spellings_give_the_same_nid() {
    for (text, canonical) in [
        ("10.0.0.1", "10.0.0.1@tcp"),
        ("10.0.0.1@tcp0", "10.0.0.1@tcp"),
        ("10.0.0.1@tcp007", "10.0.0.1@tcp7"),
        ("fd00::1", "fd00::1@tcp"),
        ("FD00:0:0:0:0:0:0:10@tcp2", "fd00::10@tcp2"),
        ("::ffff:10.0.0.1@tcp", "::ffff:10.0.0.1@tcp"),
        ("::ffff:0a00:0001@o2ib", "::ffff:10.0.0.1@o2ib"),
        ("foo@lo", "0@lo"),
        ("@lo", "0@lo"),
        ("10.0.0.1@lo", "0@lo"),
        ("0x11@kfi", "17@kfi"),
        ("0XfFfFfFfF@gni2", "4294967295@gni2"),
        ("10.0.0.1@efa", "10.0.0.1@efa"),
        ("fe80::1@efa3", "fe80::1@efa3"),
        ("10.0.0.1@gip", "10.0.0.1@gip"),
        ("5@ptlf", "5@ptlf"),
        ("5@bxi3f1", "5@bxi3f1"),
    ] {
        let nid: Nid = text.parse().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(nid.to_string(), canonical, "{text}");
    }
}

#[test]
fn a_bad_nid_is_refused_with_its_text_and_what_was_expected() {
    for (text, why) in [
        ("", "NID '': bad address, expected an IP address such as 10.0.0.1 or fd00::1"),
        (
            "10.0.0@tcp",
            "NID '10.0.0@tcp': bad address, expected an IP address such as 10.0.0.1 or fd00::1",
        ),
        (
            "10.0.0.256@tcp",
            "NID '10.0.0.256@tcp': bad address, expected an IP address such as 10.0.0.1 or fd00::1",
        ),
        (
            "[fd00::1]@tcp",
            "NID '[fd00::1]@tcp': bad address, expected an IP address such as 10.0.0.1 or fd00::1",
        ),
        (
            "fd00::1@gip",
            "NID 'fd00::1@gip': bad address, expected an IPv4 address such as 10.0.0.1",
        ),
        ("-1@kfi", "NID '-1@kfi': bad address, expected a number up to 4294967295"),
        ("+1@kfi", "NID '+1@kfi': bad address, expected a number up to 4294967295"),
        ("0x@kfi", "NID '0x@kfi': bad address, expected a number up to 4294967295"),
        ("0x+1@kfi", "NID '0x+1@kfi': bad address, expected a number up to 4294967295"),
        ("4294967296@kfi", "NID '4294967296@kfi': bad address, expected a number up to 4294967295"),
        ("10.0.0.1@kfi", "NID '10.0.0.1@kfi': bad address, expected a number up to 4294967295"),
        (
            "10.0.0.1@tcp65536",
            "NID '10.0.0.1@tcp65536': bad network number in 'tcp65536': \
             expected a decimal number 0 to 65535",
        ),
        ("0@lo1", "NID '0@lo1': bad network 'lo1': lo has no number"),
        ("0@lo0", "NID '0@lo0': bad network 'lo0': lo has no number"),
        (
            "1@elan",
            "NID '1@elan': unknown network type in 'elan': \
             expected tcp, o2ib, gni, kfi, … and a number 0 to 65535",
        ),
        (
            "10.0.0.1@tcp-1",
            "NID '10.0.0.1@tcp-1': unknown network type in 'tcp-1': \
             expected tcp, o2ib, gni, kfi, … and a number 0 to 65535",
        ),
        (
            "10.0.0.1@",
            "NID '10.0.0.1@': unknown network type in '': \
             expected tcp, o2ib, gni, kfi, … and a number 0 to 65535",
        ),
    ] {
        assert_eq!(text.parse::<Nid>().map_err(|e| e.to_string()), Err(why.to_owned()));
    }
}

#[test]
fn networks_print_without_number_zero_and_unknown_ones_as_numbers() {
    for (text, net, printed) in [
        ("tcp", Net::TCP, "tcp"),
        ("tcp0", Net::TCP, "tcp"),
        ("tcp65535", Net::new(NetType::TCP, 65535), "tcp65535"),
        ("o2ib3", Net::new(NetType::O2IB, 3), "o2ib3"),
        ("lo", Net::LO, "lo"),
    ] {
        assert_eq!(text.parse(), Ok(net));
        assert_eq!(net.to_string(), printed);
    }
    assert_eq!("TCP".parse::<Net>(), Err(ParseNetError::UnknownType("TCP".to_owned())));
    assert_eq!("lo2".parse::<Net>(), Err(ParseNetError::Loopback("lo2".to_owned())));
    assert_eq!(Net::ANY.to_string(), "<255:65535>");
    assert_eq!(Net::new(NetType(17), 4).to_string(), "<17:4>");
    assert_eq!(Nid::new(Net::new(NetType(17), 4), 0xab).to_string(), "ab@<17:4>");
    assert!(matches!("1@nosuch".parse::<Nid>(), Err(ParseNidError::Net { .. })));
}

#[test]
fn twenty_bytes_that_are_no_nid_are_refused() {
    let mut b = *"10.0.0.1@tcp".parse::<Nid>().expect("a NID").as_wire();
    b[19] = 1;
    assert_eq!(Nid::from_wire(b), Err(NidError::Padding));
    b[0] = 13;
    assert_eq!(Nid::from_wire(b), Err(NidError::Size(13)));
    b[1] = 0xFF;
    assert_eq!(Nid::from_wire(b), Ok(Nid::ANY), "the type alone makes the wildcard");
    assert_eq!(Nid::from_nid4(0x00FF_0000_0A00_0001), Nid::ANY);
    assert_eq!(Nid::from_nid4(0xEE02_0000_0A00_0001).to_string(), "10.0.0.1@tcp");
}

#[test]
fn process_ids_print_with_their_nid() {
    let at = |pid| ProcessId { nid: "10.0.0.1@tcp".parse().expect("a NID"), pid: Pid(pid) };
    assert_eq!(at(12345).to_string(), "12345-10.0.0.1@tcp");
    assert_eq!(at(0x8000_0309).to_string(), "U777-10.0.0.1@tcp");
    assert_eq!(at(u32::MAX).to_string(), "LNET_PID_ANY-10.0.0.1@tcp");
}

proptest! {
    #[test]
    fn every_named_nid_is_read_back_as_it_was_printed(
        kind in prop::sample::select(NetType::NAMED.to_vec()), num: u16, addr: u32, ip: u128,
        large: bool,
    ) {
        let kind = kind.0;
        let net = Net::new(kind, if kind == NetType::LO { 0 } else { num });
        let short = Nid::new(net, if kind == NetType::LO { 0 } else { addr });
        let nid = if large && kind.has_ip_addresses() && kind != NetType::GIP {
            Nid::from_ip(net, std::net::Ipv6Addr::from(ip).into())
        } else {
            short
        };
        prop_assert_eq!(nid.to_string().parse(), Ok(nid));
        prop_assert!(nid.to_string().len() < 64);
        prop_assert_eq!(net.to_string().parse(), Ok(net));
        prop_assert_eq!(Nid::from_wire(*nid.as_wire()), Ok(nid));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[0-9a-fx.:@tcpo2iblo<?>+\\-]{0,40}|\\PC{0,20}") {
        if let Ok(nid) = text.parse::<Nid>() {
            prop_assert_eq!(nid.to_string().parse(), Ok(nid));
        }
    }
}
