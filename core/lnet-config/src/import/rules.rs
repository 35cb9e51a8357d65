//! Nets by address: `ip2nets` (I-10), and `ip2net` in an item of `net` (I-21).

use lnet_types::Net;

use super::reading::Reading;
use super::{
    content, cpts, interfaces, invalid_key, invalid_net, list, lnd_tunables, map, scalar, tunables,
};
use crate::config::{ConfigError, NiBlock};
use crate::legacy::{LegacyError, parse_ip2nets};
use crate::yaml::{Node, Pos, Value};
use crate::{Choice, IpPattern, NetAdd, NetRule, NetRules};

/// The rules of an `ip2nets` block.
pub(super) fn net_rules(node: &Node, how: &mut Reading) -> Result<NetRules, ConfigError> {
    let items = list(node, "a list of rules that begin with 'net-spec'")?;
    let rules = items.iter().map(|item| rule(item, how)).collect::<Result<_, _>>()?;
    Ok(NetRules { rules, choice: Choice::FirstPerNet })
}

fn rule(item: &Node, how: &mut Reading) -> Result<NetRule, ConfigError> {
    let (mut net, mut ni, mut ranges) = (None, NiBlock::default(), Vec::new());
    let mut of_driver = None;
    for (key, node) in map(item, "a map that begins with 'net-spec'")? {
        match key.text.as_str() {
            "net-spec" => {
                let text = scalar(key, node)?;
                let bad = || invalid_net(node, text);
                net = Some(text.parse().ok().filter(|n| *n != Net::LO).ok_or_else(bad)?);
            }
            "interfaces" => ni.interfaces = interfaces(key, node)?,
            "ip-range" => {
                let patterns: Vec<&Node> = match &node.value {
                    Value::Map(entries) => entries.iter().map(|(_, node)| node).collect(),
                    Value::List(items) => items.iter().collect(),
                    _ => vec![node],
                };
                for pattern in patterns {
                    let text = scalar(key, pattern)?;
                    let parsed: Result<IpPattern, LegacyError> = text.parse();
                    ranges.push(parsed.map_err(|e| content(pattern.pos, e.to_string()))?);
                }
            }
            "tunables" => tunables(&mut ni.tunables, node)?,
            // Which there are depends on the net.
            "lnd tunables" => of_driver = Some(node),
            "CPT" => ni.cpts = cpts(key, node)?,
            "seq_no" => {}
            _ => {
                return Err(invalid_key(
                    key,
                    &["net-spec", "interfaces", "ip-range", "tunables", "lnd tunables", "CPT"],
                ));
            }
        }
    }
    let net = net.ok_or_else(|| {
        content(item.pos, "Malformed input. Expect 'net-spec' in a rule of ip2nets".to_owned())
    })?;
    if let Some(node) = of_driver {
        lnd_tunables(&mut ni.lnd, net, node, how)?;
    }
    let NiBlock { interfaces, nid, tunables, lnd, cpts } = ni;
    Ok(NetRule { nets: vec![NetAdd { net, interfaces, nid, cpts, tunables, lnd }], ranges })
}

/// The rules of an item of `net` that consists of `ip2net`.
pub(super) fn legacy_rules(item: &Node) -> Result<Option<NetRules>, ConfigError> {
    let Value::Map(entries) = &item.value else { return Ok(None) };
    let Some((key, node)) = entries.iter().find(|(key, _)| key.text == "ip2net") else {
        return Ok(None);
    };
    let at = |pos: Pos, text: String| Err(content(pos, text));
    for (other, _) in entries {
        if !["ip2net", "seq_no"].contains(&other.text.as_str()) {
            return at(other.pos, format!("'{}' besides 'ip2net'", other.text));
        }
    }
    match parse_ip2nets(scalar(key, node)?) {
        Ok(rules) if rules.rules.is_empty() => at(node.pos, "'ip2net' without a rule".to_owned()),
        Ok(rules) => Ok(Some(rules)),
        Err(e) => at(node.pos, e.to_string()),
    }
}
