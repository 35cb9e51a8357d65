//! NID lists: what they contain, how they print, what they refuse (wire.md 1.5).

use lnet_types::{NidList, NidRange, TooMany};
use proptest::prelude::*;

fn list(text: &str) -> NidList {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn contains(text: &str, nid: &str) -> bool {
    list(text).contains(nid.parse().expect("a NID"))
}

fn expanded(text: &str) -> Vec<String> {
    let nids = list(text).expand(100).unwrap_or_else(|e| panic!("{text}: {e}"));
    nids.iter().map(ToString::to_string).collect()
}

#[test]
fn a_star_is_every_nid_of_its_network_and_no_other() {
    assert!(contains("*@tcp", "10.0.0.1@tcp"));
    assert!(contains("*@tcp", "fd00::1@tcp"));
    assert!(!contains("*@tcp", "10.0.0.1@tcp1"));
    assert!(!contains("*@tcp", "10.0.0.1@o2ib"));
    assert!(!contains("*@tcp", "<?>"));
    assert!(contains("*@lo", "0@lo"));
}

#[test]
fn bracket_lists_take_numbers_ranges_strides_and_stars() {
    assert_eq!(expanded("10.0.0.[1-5/2]@tcp"), ["10.0.0.1@tcp", "10.0.0.3@tcp", "10.0.0.5@tcp"]);
    assert_eq!(expanded("10.0.[1-2].[7,3]@o2ib"), {
        ["10.0.1.7@o2ib", "10.0.1.3@o2ib", "10.0.2.7@o2ib", "10.0.2.3@o2ib"]
    });
    assert_eq!(expanded("[1-3,2-4]@kfi"), ["1@kfi", "2@kfi", "3@kfi", "4@kfi"]);
    assert_eq!(expanded("10.0.0.[5-7/9]@tcp"), ["10.0.0.5@tcp"]);
    assert!(contains("10.0.*.[1,*]@tcp", "10.0.255.0@tcp"));
    assert!(!contains("10.0.0.[1-5/2]@tcp", "10.0.0.2@tcp"));
    assert!(!contains("10.0.0.[1-5/2]@tcp", "10.0.0.7@tcp"));
    assert!(contains("[0-4294967295]@gni", "4294967295@gni"));
    assert!(contains("10.0.0.[ 1 , 3 - 5 / 2 ]@tcp 10.1.1.1@tcp", "10.0.0.5@tcp"));
}

#[test]
fn numbers_may_be_hexadecimal_and_octal_in_addresses_and_networks() {
    assert_eq!(expanded("0x0a.012.0.[0x10-0x11]@tcp0x2"), ["10.10.0.16@tcp2", "10.10.0.17@tcp2"]);
    assert_eq!(expanded("010@kfi010"), ["8@kfi8"]);
}

#[test]
fn masks_match_addresses_of_their_own_length_alone() {
    assert!(contains("10.0.0.0/8@tcp", "10.255.0.1@tcp"));
    assert!(!contains("10.0.0.0/8@tcp", "11.0.0.1@tcp"));
    assert!(contains("10.0.0.77/24@tcp", "10.0.0.1@tcp"), "host bits do not count");
    assert!(!contains("10.0.0.0/1@tcp", "a00::@tcp"));
    assert!(contains("fd00::/64@tcp", "fd00::1:2@tcp"));
    assert!(!contains("fd00::/64@tcp", "fd00:0:0:1::@tcp"));
    assert!(!contains("::/1@o2ib", "1.0.0.1@o2ib"));
    assert!(contains("fd00::1@tcp", "fd00::1@tcp"));
    assert!(!contains("fd00::1@tcp", "fd00::2@tcp"));
    assert_eq!(expanded("10.0.0.6/30@tcp")[..2], ["10.0.0.4@tcp", "10.0.0.5@tcp"]);
    assert_eq!(expanded("fd00::6/127@tcp"), ["fd00::6@tcp", "fd00::7@tcp"]);
    assert_eq!(expanded("255.255.255.254/31@tcp").len(), 2, "up to the last address");
}

#[test]
fn octets_look_at_the_first_four_bytes_of_any_address() {
    assert!(contains("253.0.0.0@tcp", "fd00::1@tcp"));
    assert!(!contains("253.0.0.1@tcp", "fd00::1@tcp"));
}

#[test]
fn lists_print_in_canonical_form_with_the_ranges_of_a_network_together() {
    for (text, printed) in [
        ("10.0.0.1@tcp0", "10.0.0.1@tcp"),
        ("10.77.1.*@tcp1", "10.77.1.[0-255]@tcp1"),
        ("10.0.0.[7]@tcp", "10.0.0.7@tcp"),
        ("10.0.0.[ 1, 3-5 ,7-9/2]@tcp", "10.0.0.[1,3-5,7-9/2]@tcp"),
        ("10.0.0.[5-5/3]@tcp", "10.0.0.5@tcp"),
        ("[1-2]@kfi", "[1-2]@kfi"),
        ("*@kfi", "*@kfi"),
        ("10.0.0.7/24@tcp", "10.0.0.7/24@tcp"),
        ("10.0.0.7/32@tcp", "10.0.0.7@tcp"),
        ("FD00:0::7/64@tcp", "fd00::7/64@tcp"),
        ("fd00::7/128@tcp", "fd00::7@tcp"),
        ("  10.0.0.1@tcp\t1@kfi 10.0.0.2@tcp 1@kfi ", "10.0.0.1@tcp 10.0.0.2@tcp 1@kfi"),
        ("10.0.0.1@tcp 1@kfi 10.0.0.2@tcp *@tcp 10.0.0.3@tcp", "*@tcp 1@kfi"),
    ] {
        assert_eq!(list(text).to_string(), printed, "{text}");
        assert_eq!(list(printed).to_string(), printed);
    }
    assert!(list("*@tcp").ranges()[0].is_all());
}

#[test]
fn expansion_has_a_limit_and_names_each_nid_once() {
    assert_eq!(list("10.0.0.[1-100]@tcp").expand(100).map(|n| n.len()), Ok(100));
    assert_eq!(list("10.0.0.[1-101]@tcp").expand(100), Err(TooMany { limit: 100 }));
    for endless in [
        "*@tcp",
        "[0-4294967295]@kfi",
        "*.*.*.*@tcp",
        "::/1@tcp",
        "0.0.0.0/1@tcp",
        "[0-99]@kfi [0-99,0-4294967295]@kfi",
    ] {
        assert_eq!(list(endless).expand(100), Err(TooMany { limit: 100 }), "{endless}");
    }
    assert_eq!(expanded("10.0.0.[1-2]@tcp 10.0.0.0/30@tcp").len(), 4);
    assert_eq!(TooMany { limit: 7 }.to_string(), "the list names more than 7 NIDs");
}

#[test]
fn a_bad_nid_list_is_refused_with_the_range_and_what_was_expected() {
    for (text, why) in [
        (" \t", "empty NID list: expected ranges such as 10.0.0.[1-5]@tcp, separated by blanks"),
        ("10.0.0.1@tcp 10.0.0.2", "NID range '10.0.0.2': no '@', expected ADDRESSES@NETWORK"),
        (
            "10.0.0.1@foo",
            "NID range '10.0.0.1@foo': unknown network type in 'foo': \
             expected tcp, o2ib, gni, kfi, … and a number 0 to 65535",
        ),
        (
            "10.0.0.1@tcp65536",
            "NID range '10.0.0.1@tcp65536': bad network number in 'tcp65536': \
             expected a decimal number 0 to 65535",
        ),
        (
            "10.0.0.1@tcp09",
            "NID range '10.0.0.1@tcp09': bad network number in 'tcp09': \
             expected a decimal number 0 to 65535",
        ),
        ("0@lo0", "NID range '0@lo0': bad network 'lo0': lo has no number"),
        ("10.0.0@tcp", "NID range '10.0.0@tcp': 3 octets, expected 4 or '*'"),
        ("10.0.0.1.2@tcp", "NID range '10.0.0.1.2@tcp': 5 octets, expected 4 or '*'"),
        ("@tcp", "NID range '@tcp': 0 octets, expected 4 or '*'"),
        (
            "10.0.0.256@tcp",
            "NID range '10.0.0.256@tcp': '256', \
             expected a number 0 to 255, '*' or a list such as [1,5-7/2]",
        ),
        (
            "10.0.0.1-2@tcp",
            "NID range '10.0.0.1-2@tcp': '1-2', \
             expected a number 0 to 255, '*' or a list such as [1,5-7/2]",
        ),
        (
            "10.0.0.[1,]@tcp",
            "NID range '10.0.0.[1,]@tcp': '', \
             expected a number 0 to 255, '*' or a list such as [1,5-7/2]",
        ),
        (
            "4294967296@kfi",
            "NID range '4294967296@kfi': '4294967296', \
             expected a number 0 to 4294967295, '*' or a list such as [1,5-7/2]",
        ),
        ("10.0.0.[5-1]@tcp", "NID range '10.0.0.[5-1]@tcp': '5-1': the range begins above its end"),
        (
            "10.0.0.[1-5/0]@tcp",
            "NID range '10.0.0.[1-5/0]@tcp': '1-5/0': the stride must be a number of at least 1",
        ),
        (
            "10.0.0.[1-5/]@tcp",
            "NID range '10.0.0.[1-5/]@tcp': '1-5/': the stride must be a number of at least 1",
        ),
        ("10.0.0.[1@tcp", "NID range '10.0.0.[1@tcp': incomplete bracket list, expected […]"),
        ("10.[0.0.1@tcp", "NID range '10.[0.0.1@tcp': incomplete bracket list, expected […]"),
        ("10.0.0.1]@tcp", "NID range '10.0.0.1]@tcp': incomplete bracket list, expected […]"),
        ("10.0.0.[[1]]@tcp", "NID range '10.0.0.[[1]]@tcp': incomplete bracket list, expected […]"),
        ("10.0.0.0/33@tcp", "NID range '10.0.0.0/33@tcp': prefix length '33', expected 1 to 32"),
        ("10.0.0.0/0@tcp", "NID range '10.0.0.0/0@tcp': prefix length '0', expected 1 to 32"),
        ("fd00::/129@tcp", "NID range 'fd00::/129@tcp': prefix length '129', expected 1 to 128"),
        ("fd00::/@tcp", "NID range 'fd00::/@tcp': prefix length '', expected 1 to 128"),
        (
            "10.0.0/8@tcp",
            "NID range '10.0.0/8@tcp': '10.0.0' is no IP address, expected ADDRESS/PREFIX",
        ),
        (
            "fd00::[1-2]@tcp",
            "NID range 'fd00::[1-2]@tcp': 'fd00::[1-2]' is no IP address, expected ADDRESS/PREFIX",
        ),
        ("10.0.0.0/8@gip", "NID range '10.0.0.0/8@gip': masks are for tcp and o2ib networks"),
    ] {
        assert_eq!(text.parse::<NidList>().map_err(|e| e.to_string()), Err(why.to_owned()));
    }
}

fn set(max: u32) -> impl Strategy<Value = String> {
    let number = move || prop_oneof![0..=9u32.min(max), 0..=max];
    let expr = prop_oneof![
        4 => number().prop_map(|n| n.to_string()),
        2 => (number(), number()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (number(), number(), 1..9u32)
            .prop_map(|(a, b, s)| format!("{}-{}/{s}", a.min(b), a.max(b))),
        1 => Just("*".to_owned()),
    ];
    prop_oneof![
        number().prop_map(|n| n.to_string()),
        Just("*".to_owned()),
        prop::collection::vec(expr, 1..4).prop_map(|all| format!("[{}]", all.join(","))),
    ]
}

fn range() -> impl Strategy<Value = String> {
    let octets = prop::collection::vec(set(255), 4).prop_map(|all| all.join("."));
    let ip4 = (any::<u32>(), 1..=32u8)
        .prop_map(|(ip, p)| format!("{}/{p}", std::net::Ipv4Addr::from(ip)));
    let ip6 = (any::<u128>(), 1..=128u8)
        .prop_map(|(ip, p)| format!("{}/{p}", std::net::Ipv6Addr::from(ip)));
    let ip = prop_oneof![octets, ip4, ip6, Just("*".to_owned())];
    prop_oneof![
        (ip, prop::sample::select(vec!["tcp", "tcp3", "o2ib"]))
            .prop_map(|(a, n)| format!("{a}@{n}")),
        set(u32::MAX).prop_map(|a| format!("{a}@kfi")),
    ]
}

proptest! {
    #[test]
    fn a_printed_nid_list_reads_back_as_the_same_list(
        ranges in prop::collection::vec(range(), 1..6),
    ) {
        let text = ranges.join(" ");
        let printed = list(&text).to_string();
        prop_assert_eq!(list(&printed).to_string(), printed);
    }

    #[test]
    fn a_list_contains_exactly_what_it_expands_to(
        ranges in prop::collection::vec(range(), 1..4), strangers: [u32; 4],
    ) {
        let list = list(&ranges.join(" "));
        if let Ok(nids) = list.expand(300) {
            prop_assert!(nids.iter().all(|nid| list.contains(*nid)));
            let mut once = nids.clone();
            once.sort();
            once.dedup();
            prop_assert_eq!(once.len(), nids.len(), "each once");
            for range in list.ranges() {
                for addr in strangers.iter().copied().chain(nids.iter().map(|nid| nid.addr() ^ 1)) {
                    let nid = lnet_types::Nid::new(range.net(), addr);
                    prop_assert_eq!(list.contains(nid), nids.contains(&nid), "{}", nid);
                }
            }
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[0-9,*./:@tcpkfi \\-\\[\\]]{0,40}|\\PC{0,20}") {
        if let Ok(range) = text.parse::<NidRange>() {
            let printed = range.to_string();
            let again = printed.parse::<NidRange>().map(|r| r.to_string());
            prop_assert_eq!(again, Ok(printed));
        }
        let _ = text.parse::<NidList>();
    }
}
