//! The blocks `route`, `routing` and `buffers` (I-11, I-13, I-14).

use lnet_types::Net;

use super::{
    content, entries_or_none, invalid_key, invalid_value, list, map, nid_list, number, scalar,
};
use crate::config::{BUFFER_KEYS, ConfigError};
use crate::suggest::not_a_net;
use crate::yaml::{Key, Node, Value};
use crate::{RouteAdd, Setting};
use lnet_types::Errno;

/// Keys below `route` that exporters print and importers skip.
const READ_ONLY: [&str; 5] = ["state", "type", "health_sensitivity", "seq_no", "detail"];

/// One item of `route`: a route for each gateway of its list.
pub(super) fn routes(item: &Node) -> Result<Vec<RouteAdd>, ConfigError> {
    let (mut net, mut gateways, mut hops, mut priority) = (None, Vec::new(), None, 0);
    for (key, node) in map(item, "a map with 'net' and 'gateway'")? {
        match key.text.as_str() {
            "net" => net = Some(remote(key, node)?),
            "gateway" => gateways = nid_list(key, node)?,
            "hop" => {
                hops = match number(key, node)? {
                    -1 => None,
                    n => Some(u32::try_from(n).ok().filter(|n| (1..=255).contains(n)).ok_or_else(
                        || {
                            let text = "invalid hop count must be between 1 and 255".to_owned();
                            content(node.pos, text)
                        },
                    )?),
                };
            }
            "priority" => {
                priority = u32::try_from(number(key, node)?).map_err(|_| {
                    content(node.pos, "invalid priority, must not be negative".to_owned())
                })?;
            }
            name if READ_ONLY.contains(&name) => {}
            _ => return Err(invalid_key(key, &["net", "gateway", "hop", "priority"])),
        }
    }
    let missing = |key: &str| content(item.pos, format!("a route needs '{key}'"));
    let net = net.ok_or_else(|| missing("net"))?;
    if gateways.is_empty() {
        return Err(missing("gateway"));
    }
    Ok(gateways.into_iter().map(|gateway| RouteAdd { net, gateway, hops, priority }).collect())
}

fn remote(key: &Key, node: &Node) -> Result<Net, ConfigError> {
    let text = scalar(key, node)?;
    let bad = || ConfigError::Content {
        errno: Errno::ENODEV,
        text: format!("cannot parse remote net '{text}'"),
        pos: node.pos,
        hint: Some(not_a_net(text)),
    };
    text.parse().map_err(|_| bad())
}

/// Whether a `routing` block asks for forwarding: by the map of a backup, or by the list that other
/// exports print, in which `enable` stands beside the pools (I-13).
pub(super) fn is_on(node: &Node) -> Result<bool, ConfigError> {
    let maps: Vec<&[(Key, Node)]> = match &node.value {
        Value::Map(entries) => vec![entries],
        _ => list(node, "'enable'")?
            .iter()
            .map(|item| map(item, "a map"))
            .collect::<Result<_, _>>()?,
    };
    let mut on = false;
    for (key, node) in maps.into_iter().flatten() {
        match key.text.as_str() {
            // 2 and 3 are a router that is being stopped or started (S-routing-2).
            "enable" => match number(key, node)? {
                n @ 0..=3 => on = n == 1 || n == 3,
                _ => return Err(invalid_value(key, node, "0 to 3")),
            },
            // State.
            pool if pool.starts_with("cpt[") => {}
            "seq_no" => {}
            _ => return Err(invalid_key(key, &["enable"])),
        }
    }
    Ok(on)
}

/// Router buffers; what is not named is to have its default (I-14).
pub(super) fn buffers(node: &Node) -> Result<Vec<Setting>, ConfigError> {
    let mut settings = BUFFER_KEYS.map(|(_, name)| Setting::new(name, 0));
    for (key, node) in entries_or_none(node, "a map with 'tiny', 'small', 'large'")? {
        let at = BUFFER_KEYS.iter().position(|(k, _)| *k == key.text);
        match at.and_then(|at| settings.get_mut(at)) {
            Some(setting) => {
                setting.value = number(key, node)?;
                if setting.value < 0 {
                    return Err(invalid_value(key, node, "0 or more"));
                }
            }
            None if key.text == "seq_no" => {}
            None => return Err(invalid_key(key, &BUFFER_KEYS.map(|(name, _)| name))),
        }
    }
    Ok(settings.to_vec())
}
