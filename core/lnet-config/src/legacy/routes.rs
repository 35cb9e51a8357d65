//! `routes=`: which networks are behind which routers (N-14).

use lnet_types::{Net, Nid};

use super::{LegacyError, bad, rules};
use crate::RouteAdd;

const PARAMETER: &str = "routes";
/// Most routes of one text.
pub const ROUTES_MAX: usize = 16_384;

/// A route, and how its network and its gateway were written.
pub(super) struct Entry {
    pub(super) route: RouteAdd,
    pub(super) net: String,
    pub(super) gateway: String,
}

/// The routes of `NET[SET] [HOPS] GATEWAY[:PRIORITY] …; …`, sets being expanded. A gateway without
/// a network is on `tcp` (N-2).
///
/// # Errors
/// The entry that is wrong.
pub fn parse_routes(text: &str) -> Result<Vec<RouteAdd>, LegacyError> {
    Ok(parse_entries(text)?.into_iter().map(|entry| entry.route).collect())
}

/// [`parse_routes`] with the names as they were written.
pub(super) fn parse_entries(text: &str) -> Result<Vec<Entry>, LegacyError> {
    let mut entries = Vec::new();
    for rule in rules(text) {
        entry(rule, &mut entries)?;
    }
    Ok(entries)
}

fn entry(rule: &str, routes: &mut Vec<Entry>) -> Result<(), LegacyError> {
    let fail = |what: String| bad(PARAMETER, rule, what);
    let mut words = rule.split_whitespace().peekable();
    let nets: Vec<(String, Net)> = expand(words.next().unwrap_or_default())
        .map_err(&fail)?
        .into_iter()
        .map(|name| match name.parse() {
            Ok(net) => Ok((name, net)),
            Err(_) => Err(fail(format!("'{name}' is not a network"))),
        })
        .collect::<Result<_, _>>()?;
    // Gateways have an address, with dots or colons, or a network; a hop count has neither.
    let hops = match words.next_if(|word| !word.contains(['@', '.', ':'])) {
        None => None,
        Some(word) => {
            let hops = word.parse().ok().filter(|n| (1..=255).contains(n));
            Some(hops.ok_or_else(|| fail(format!("hop count '{word}': expected 1 to 255")))?)
        }
    };
    if words.peek().is_none() {
        return Err(fail("expected a gateway such as 10.0.0.1@tcp".to_owned()));
    }
    for word in words {
        let (nid, digits) = split_priority(word);
        let priority = match digits {
            None => 0,
            Some(digits) => {
                let bad = || fail(format!("priority '{digits}': expected a number, 0 or more"));
                digits.parse::<u32>().map_err(|_| bad())?
            }
        };
        for text in expand(nid).map_err(&fail)? {
            let text = if text.contains('@') { text } else { text + "@tcp" };
            let gateway: Nid = text.parse().map_err(|_| fail(format!("'{text}' is not a NID")))?;
            if gateway.is_any() {
                return Err(fail(format!("'{text}' is not one NID")));
            }
            for (name, net) in &nets {
                if routes.len() == ROUTES_MAX {
                    return Err(fail(format!("more than {ROUTES_MAX} routes")));
                }
                let route = RouteAdd { net: *net, gateway, hops, priority };
                routes.push(Entry { route, net: name.clone(), gateway: text.clone() });
            }
        }
    }
    Ok(())
}

/// A gateway and the priority behind it. An IPv6 address has colons too: behind one a priority needs
/// the network between them.
fn split_priority(word: &str) -> (&str, Option<&str>) {
    let from = match word.find('@') {
        Some(at) => at,
        None if word.contains('.') => 0,
        None => return (word, None),
    };
    let colon = word.get(from..).and_then(|behind| behind.find(':'));
    match colon.and_then(|at| Some((word.get(..from + at)?, word.get(from + at + 1..)?))) {
        Some((nid, digits)) => (nid, Some(digits)),
        None => (word, None),
    }
}

/// The texts that a text with sets `[item,item]` stands for, in order, at most [`ROUTES_MAX`]. An
/// item is `LO-HI`, `LO-HI/STRIDE` or any text.
fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut all = vec![String::new()];
    let mut rest = text;
    while let Some((head, behind)) = rest.split_once('[') {
        let (set, tail) =
            behind.split_once(']').ok_or_else(|| format!("'{text}' has '[' without ']'"))?;
        let items = items(set)?;
        if all.len().saturating_mul(items.len()) > ROUTES_MAX {
            return Err(format!("'{text}' stands for more than {ROUTES_MAX}"));
        }
        all = all
            .iter()
            .flat_map(|left| items.iter().map(move |item| format!("{left}{head}{item}")))
            .collect();
        rest = tail;
    }
    for text in &mut all {
        text.push_str(rest);
    }
    Ok(all)
}

fn items(set: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for item in set.split(',').map(str::trim) {
        if item.is_empty() {
            return Err(format!("'[{set}]' has an empty item"));
        }
        let (range, stride) = match item.split_once('/') {
            Some((range, stride)) => (range, Some(stride)),
            None => (item, None),
        };
        let ends = range
            .split_once('-')
            .and_then(|(lo, hi)| Some((lo.parse::<u32>().ok()?, hi.parse::<u32>().ok()?)));
        let Some((low, high)) = ends else {
            all.push(item.to_owned());
            continue;
        };
        let stride = stride.map_or(Ok(1), str::parse).ok().filter(|n| *n > 0);
        let stride: u32 = stride.ok_or_else(|| format!("'{item}': expected LO-HI/STRIDE"))?;
        if low > high || !(high - low).is_multiple_of(stride) {
            return Err(format!("'{item}': HI must be LO and a multiple of the stride"));
        }
        let step = usize::try_from(stride).unwrap_or(usize::MAX);
        all.extend((low..=high).step_by(step).take(ROUTES_MAX + 1).map(|n| n.to_string()));
        if all.len() > ROUTES_MAX {
            return Err(format!("'[{set}]' stands for more than {ROUTES_MAX}"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let one = |r: &RouteAdd| format!("{} {} {:?} {}", r.net, r.gateway, r.hops, r.priority);
        parse_routes(text).unwrap().iter().map(one).collect()
    }

    #[test]
    fn n14_sets_expand_and_every_gateway_has_its_priority() {
        assert_eq!(
            shown("tcp 1 10.1.0.[1-2]@o2ib:0 10.1.0.5@o2ib:1"),
            [
                "tcp 10.1.0.1@o2ib Some(1) 0",
                "tcp 10.1.0.2@o2ib Some(1) 0",
                "tcp 10.1.0.5@o2ib Some(1) 1"
            ]
        );
        assert_eq!(
            shown("tcp[1,3] 10.0.0.[1-5/4]@tcp # all\n; o2ib fd00::1@tcp:7"),
            [
                "tcp1 10.0.0.1@tcp None 0",
                "tcp3 10.0.0.1@tcp None 0",
                "tcp1 10.0.0.5@tcp None 0",
                "tcp3 10.0.0.5@tcp None 0",
                "o2ib fd00::1@tcp None 7"
            ]
        );
        assert_eq!(shown(" ;\n#x"), [] as [&str; 0]);
    }

    #[test]
    fn n14_a_gateway_without_a_network_is_on_tcp() {
        let shown = |text: &str| -> Vec<String> {
            let routes = parse_routes(text).unwrap();
            let shown =
                |r: &RouteAdd| format!("{} {:?} {} {}", r.net, r.hops, r.gateway, r.priority);
            routes.iter().map(shown).collect()
        };
        assert_eq!(
            shown("o2ib 10.9.1.[2-3]"),
            ["o2ib None 10.9.1.2@tcp 0", "o2ib None 10.9.1.3@tcp 0"]
        );
        assert_eq!(shown("o2ib 3 10.9.1.2:7"), ["o2ib Some(3) 10.9.1.2@tcp 7"]);
        assert_eq!(shown("o2ib fd00::1"), ["o2ib None fd00::1@tcp 0"]);
        assert_eq!(shown("tcp1 10.9.1.2 10.9.2.2@tcp2:1").len(), 2);
    }

    #[test]
    fn a_wrong_route_entry_is_refused_with_what_was_expected() {
        for (text, what) in [
            ("tcp", "expected a gateway"),
            ("foo 10.0.0.1@tcp", "'foo' is not a network"),
            ("tcp 0 10.0.0.1@tcp", "hop count '0': expected 1 to 255"),
            ("tcp 256 10.0.0.1@tcp", "hop count '256'"),
            ("tcp 10.0.0.1@tcp:-1", "priority '-1'"),
            ("tcp 10.0.0.300@tcp", "'10.0.0.300@tcp' is not a NID"),
            ("tcp 10.0.0.[1-4/2]@tcp", "multiple of the stride"),
            ("tcp 10.0.0.[4-1]@tcp", "multiple of the stride"),
            ("tcp 10.0.0.[1@tcp", "'[' without ']'"),
            ("tcp 10.0.0.[]@tcp", "empty item"),
            ("tcp 10.[0-255].[0-255].[0-255]@o2ib", "more than 16384"),
            ("tcp 10.0.0.[0-4294967295]@o2ib", "more than 16384"),
        ] {
            let e = parse_routes(text).unwrap_err().to_string();
            assert!(e.contains(what), "{text}: {e}");
        }
    }
}
