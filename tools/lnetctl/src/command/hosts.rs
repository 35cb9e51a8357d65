//! NIDs as people write them: in the place of an address may stand the name of a host (N-2, C-ping-1).

use std::net::{IpAddr, ToSocketAddrs as _};

use lnet_config::{NidListError, parse_nid_list};
use lnet_types::{Net, NetType, Nid};

/// The NIDs of a list. Only what is no list of NIDs is looked at for names, so that NIDs never wait
/// for a name server.
pub(crate) fn nid_list(text: &str) -> Result<Vec<Nid>, NidListError> {
    parse_nid_list(text).or_else(|e| {
        let mut any = false;
        let words: Vec<String> = words(text)
            .map(|word| match host(word).and_then(|(host, net)| found(host, net)) {
                Some(nid) => {
                    any = true;
                    nid.to_string()
                }
                None => word.to_owned(),
            })
            .collect();
        if any { parse_nid_list(&words.join(",")) } else { Err(e) }
    })
}

/// Between commas, but not those in brackets.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// What can only be the name of a host, and its network.
fn host(word: &str) -> Option<(&str, Net)> {
    let (host, net) = word.split_once('@')?;
    let net: Net = net.parse().ok()?;
    let has_addresses = [NetType::TCP, NetType::O2IB].contains(&net.kind);
    let is_name = host.contains(|c: char| c.is_ascii_alphabetic())
        && host.chars().all(|c| c.is_ascii_alphanumeric() || ['-', '.', '_'].contains(&c));
    (has_addresses && is_name).then_some((host, net))
}

/// Its first IPv4 address, as kernel tools have it.
fn found(host: &str, net: Net) -> Option<Nid> {
    let mut all = (host, 0).to_socket_addrs().ok()?.map(|addr| addr.ip());
    all.find(IpAddr::is_ipv4).map(|ip| Nid::from_ip(net, ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_stand_for_their_addresses() {
        let nids = |text: &str| {
            nid_list(text).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            nids("localhost@tcp1,10.0.0.[1-2]@tcp").unwrap(),
            ["127.0.0.1@tcp1", "10.0.0.1@tcp", "10.0.0.2@tcp"]
        );
        assert!(nids("no-such-host.invalid@tcp").is_err());
    }

    #[test]
    fn only_names_are_looked_up() {
        for text in
            ["10.0.0.999@tcp", "localhost", "localhost@kfi", "fd00::1@tcp", "a[1-2]@tcp", "@tcp"]
        {
            assert_eq!(host(text), None, "{text}");
        }
        assert_eq!(host("oss-1.example@o2ib2").unwrap().0, "oss-1.example");
    }
}
