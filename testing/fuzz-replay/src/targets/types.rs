//! Texts of networks, NIDs and NID lists. Bytes that are no UTF-8 are read with replacements.

use lnet_types::{Net, Nid, NidList};

/// A network: what parses prints as something that parses to the same.
pub fn net(input: &[u8]) {
    if let Ok(net) = String::from_utf8_lossy(input).parse::<Net>() {
        assert_eq!(net.to_string().parse(), Ok(net));
    }
}

/// A NID: likewise; and its wire forms give it back.
pub fn nid(input: &[u8]) {
    if let Ok(nid) = String::from_utf8_lossy(input).parse::<Nid>() {
        assert_eq!(nid.to_string().parse(), Ok(nid));
        assert_eq!(Nid::from_wire(*nid.as_wire()), Ok(nid));
        assert_eq!(nid.to_nid4().map(Nid::from_nid4), (!nid.is_large()).then_some(nid));
    }
}

/// A NID list: printing is stable, the list contains what it expands to, limits hold.
pub fn nid_list(input: &[u8]) {
    const LIMIT: usize = 500;
    let Ok(list) = String::from_utf8_lossy(input).parse::<NidList>() else {
        return;
    };
    let printed = list.to_string();
    let again: NidList = printed.parse().expect("what a list prints is a list");
    assert_eq!(again.to_string(), printed);
    if let Ok(nids) = list.expand(LIMIT) {
        assert!(!nids.is_empty() && nids.len() <= LIMIT);
        assert!(nids.iter().all(|nid| list.contains(*nid)));
    }
}
