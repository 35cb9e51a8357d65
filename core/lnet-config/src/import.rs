//! YAML to [`Config`]: every block that importers of LNet accept (lnetctl.md 5.3), in either layout
//! and in full YAML, keys in any order.
//!
//! Stricter than the original where that hid mistakes: unknown keys are errors. What an export
//! prints besides configuration (`status`, counters, …) is skipped, so that every export can be
//! read back. Kinder where the original set traps (the items marked "Q fix" there): loopback nets
//! are skipped, each NI keeps its own settings, gateway and peer NIDs may be ranges.

mod reading;
mod routing;
mod rules;

use core::fmt;
use core::num::NonZeroU32;

use lnet_types::{Errno, Net, NetType, Nid};

use crate::config::{
    Block, Config, ConfigError, DiscoverBlock, GLOBAL_KEYS, NetBlock, NiBlock, OWN_KEYS, PeerBlock,
    PingBlock,
};
use crate::yaml::{self, Key, Node, Pos, Value};
pub use reading::PassedOver;
use reading::Reading;

use crate::suggest::{key_hint, not_a_net, not_nids};
use crate::{
    Interface, LndTunables, NetTunables, O2IB_FIXED, Setting, UdspAdd, UdspRule, parse_cpts,
    parse_interfaces, parse_nid_list, parse_number, parse_setting,
};

/// Keys below `net` that exporters print and importers skip. `seq_no` and `detail` belong to the
/// classic importer (I-21).
const NET_READ_ONLY: [&str; 12] = [
    "status",
    "statistics",
    "sent_stats",
    "received_stats",
    "dropped_stats",
    "health stats",
    "udsp info",
    "dev cpt",
    "tcp bonding",
    "seq_no",
    "detail",
    "lnd timeout",
];

/// The blocks of a configuration, for hints.
const BLOCKS: [&str; 14] = [
    "net", "peer", "route", "routing", "buffers", "global", "ulnet", "udsp", "numa", "ip2nets",
    "ping", "discover", "profile", "max_intf",
];
/// Keys of an NI or of its net, for hints.
const NI_KEYS: [&str; 8] = [
    "net type",
    "local NI(s)",
    "interfaces",
    "nid",
    "tunables",
    "lnd tunables",
    "CPT",
    "accept from",
];
/// What a value must be that is no number.
const NUMBER: &str = "a number";

/// The key of a peer whose primary NID is locked: the option of `peer add`. Printed only where it is so.
pub(crate) const LOCK_KEY: &str = "lock_prim";

/// The bit of `peer state` of a peer whose primary NID is locked (S-peer-3).
const PRIMARY_LOCKED: i64 = 1 << 20;

/// Keys below `peer` that exporters print and importers skip.
const PEER_READ_ONLY: [&str; 2] = ["seq_no", "detail"];

/// LND tunables of other drivers than that of the net, or with values that the driver does not have.
const FOREIGN_LND_KEYS: [&str; 9] = [
    "peercredits_hiw",
    "concurrent_sends",
    "fmr_pool_size",
    "fmr_flush_trigger",
    "fmr_cache",
    "ntx",
    "map_on_demand",
    "auth_key",
    "traffic_class",
];

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigError> {
        Self::read(text, &mut Reading::default())
    }

    fn read(text: &str, how: &mut Reading) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for document in yaml::parse(text)? {
            if document.value == Value::Null {
                continue;
            }
            let entries = map(&document, "a map of blocks such as 'net' and 'peer'")?;
            for (key, node) in entries {
                config.number_blocks(key, node)?;
            }
            // Tunables may stand at top level; they are one block, at the place of the first.
            let mut loose = Vec::new();
            let mut loose_at = None;
            for (key, node) in entries {
                if !config.block(key, node, how)? {
                    loose_at.get_or_insert((key.pos, config.blocks.len()));
                    config.setting(key, node, &mut loose)?;
                }
            }
            if let (Some((pos, at)), false) = (loose_at, loose.is_empty()) {
                config.blocks.insert(at, (pos, Block::Settings(loose)));
            }
        }
        Ok(config)
    }

    /// Keeps the `seq_no` of a block, or those of its items (I-21).
    fn number_blocks(&mut self, key: &Key, node: &Node) -> Result<(), ConfigError> {
        let mut look = |pos: Pos, node: &Node| {
            let Value::Map(entries) = &node.value else { return Ok(()) };
            for (key, node) in entries.iter().filter(|(key, _)| key.text == "seq_no") {
                self.seq_nos.push((pos, number(key, node)?));
            }
            Ok(())
        };
        match &node.value {
            Value::List(items) => items.iter().try_for_each(|item| look(item.pos, item)),
            _ => look(key.pos, node),
        }
    }

    /// One top-level key. `false`: it is none of the blocks.
    fn block(&mut self, key: &Key, node: &Node, how: &mut Reading) -> Result<bool, ConfigError> {
        match key.text.as_str() {
            "net" => {
                for item in list(node, "a list of nets")? {
                    if let Some(rules) = rules::legacy_rules(item)? {
                        self.blocks.push((item.pos, Block::NetRules(rules)));
                        continue;
                    }
                    if let Some(net) = net_block(item, how)? {
                        self.blocks.push((item.pos, Block::Net(net)));
                    }
                }
            }
            "peer" => {
                for item in list(node, "a list of peers")? {
                    if let Some(peer) = peer_block(item, how)? {
                        self.blocks.push((item.pos, Block::Peer(peer)));
                    }
                }
            }
            "global" => {
                let mut settings = Vec::new();
                for (key, node) in entries_or_none(node, "a map of tunables")? {
                    self.setting(key, node, &mut settings)?;
                }
                if !settings.is_empty() {
                    self.blocks.push((key.pos, Block::Settings(settings)));
                }
            }
            "numa" => {
                let mut settings = Vec::new();
                for (key, node) in entries_or_none(node, "a map with the key 'range'")? {
                    if key.text != "range" {
                        return Err(invalid_key(key, &["range"]));
                    }
                    settings.push(Setting::new("numa_range", number(key, node)?));
                }
                if !settings.is_empty() {
                    self.blocks.push((key.pos, Block::Settings(settings)));
                }
            }
            "ping" => self.blocks.push((key.pos, Block::Ping(ping_block(node)?))),
            "discover" => self.blocks.push((key.pos, Block::Discover(discover_block(node)?))),
            "udsp" => {
                for item in list(node, "a list of rules")? {
                    self.blocks.push((item.pos, Block::Udsp(udsp_rule(item)?)));
                }
            }
            "route" => {
                for item in list(node, "a list of routes")? {
                    let routes = routing::routes(item)?;
                    self.blocks.extend(routes.into_iter().map(|r| (item.pos, Block::Route(r))));
                }
            }
            "routing" => {
                let routing = Block::Routing(routing::is_on(node)?);
                self.blocks.push((key.pos, routing));
            }
            "buffers" => {
                self.blocks.push((key.pos, Block::Buffers(routing::buffers(node)?)));
            }
            "ulnet" => {
                let mut settings = Vec::new();
                for (key, node) in entries_or_none(node, "a map of tunables")? {
                    let name = OWN_KEYS.iter().find(|k| **k == key.text);
                    let name = *name.ok_or_else(|| own_key(key))?;
                    let value = parse_setting(name, scalar(key, node)?);
                    let value = value.ok_or_else(|| invalid_value(key, node, NUMBER))?;
                    settings.push(Setting::new(name, value));
                }
                if !settings.is_empty() {
                    self.blocks.push((key.pos, Block::Own(settings)));
                }
            }
            "ip2nets" => {
                let rules = rules::net_rules(node, how)?;
                if !rules.rules.is_empty() {
                    self.blocks.push((key.pos, Block::NetRules(rules)));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// One tunable of `global`.
    fn setting(
        &mut self,
        key: &Key,
        node: &Node,
        settings: &mut Vec<Setting>,
    ) -> Result<(), ConfigError> {
        let name = match key.text.as_str() {
            // Derived, and shown by exporters.
            "lnd_timeout" => return number(key, node).map(drop),
            "profile" => {
                self.profile = Some((node.pos, scalar(key, node)?.to_owned()));
                return Ok(());
            }
            "max_intf" => "max_interfaces",
            name => *GLOBAL_KEYS.iter().find(|k| **k == name).ok_or_else(|| global_key(key))?,
        };
        let value = parse_setting(name, scalar(key, node)?)
            .ok_or_else(|| invalid_value(key, node, NUMBER))?;
        settings.push(Setting::new(name, value));
        Ok(())
    }
}

/// A key that is none of the tunables of `global`, nor of the blocks beside it.
fn global_key(key: &Key) -> ConfigError {
    if OWN_KEYS.contains(&key.text.as_str()) {
        let text = format!("invalid key '{}'", key.text);
        return hinted(key.pos, text, format!("'{}' stands below 'ulnet'", key.text));
    }
    let all: Vec<&str> = GLOBAL_KEYS.into_iter().chain(BLOCKS).collect();
    invalid_key(key, &all)
}

/// A key that is none of the tunables of `ulnet`.
fn own_key(key: &Key) -> ConfigError {
    if GLOBAL_KEYS.contains(&key.text.as_str()) {
        let text = format!("invalid key '{}'", key.text);
        return hinted(key.pos, text, format!("'{}' stands below 'global'", key.text));
    }
    invalid_key(key, &OWN_KEYS)
}

/// One item of `net`; `None` for loopback, which every node has.
fn net_block(item: &Node, how: &mut Reading) -> Result<Option<NetBlock>, ConfigError> {
    let entries = map(item, "a map that begins with 'net type'")?;
    let Some((key, name)) = entries.iter().find(|(key, _)| key.text == "net type") else {
        let found = entries.first().map_or("nothing", |(key, _)| key.text.as_str());
        let text = format!("Malformed input. Expect 'net type' found '{found}'");
        return Err(content(item.pos, text));
    };
    let net_text = scalar(key, name)?;
    let net: Net = net_text.parse().map_err(|_| invalid_net(name, net_text))?;
    if net == Net::LO {
        return Ok(None);
    }
    // What stands at the level of the net is the default of its NIs.
    let mut common = NiBlock::default();
    let (mut nis, mut accept_from) = (Vec::new(), None);
    for (key, node) in entries {
        match key.text.as_str() {
            "net type" | "local NI(s)" => {}
            "accept from" => accept_from = Some(patterns(key, node)?),
            _ => ni_key(&mut common, net, key, node, how)?,
        }
    }
    for (key, node) in entries.iter().filter(|(key, _)| key.text == "local NI(s)") {
        for item in list(node, "a list of NIs")? {
            let mut ni = NiBlock { interfaces: Vec::new(), nid: None, ..common.clone() };
            for (key, node) in map(item, "a map that describes an NI")? {
                ni_key(&mut ni, net, key, node, how)?;
            }
            nis.push(finish_ni(ni, how));
        }
        if nis.is_empty() && !matches!(node.value, Value::Null) {
            return Err(content(key.pos, "'local NI(s)' without NIs".to_owned()));
        }
    }
    if nis.is_empty() || !common.interfaces.is_empty() {
        nis.insert(0, finish_ni(common, how));
    }
    Ok(Some(NetBlock { net, nis, accept_from }))
}

/// Who may connect: patterns as a list or as one text.
fn patterns(key: &Key, node: &Node) -> Result<Vec<String>, ConfigError> {
    let all: Vec<String> = match &node.value {
        Value::List(items) => items
            .iter()
            .map(|item| scalar(key, item).map(str::to_owned))
            .collect::<Result<_, _>>()?,
        _ => vec![scalar(key, node)?.to_owned()],
    };
    if all.is_empty() {
        // An empty list could mean no NID or all NIDs.
        return Err(content(node.pos, format!("no value specified for key '{}'", key.text)));
    }
    Ok(all)
}

/// One key of an NI.
fn ni_key(
    ni: &mut NiBlock,
    net: Net,
    key: &Key,
    node: &Node,
    how: &mut Reading,
) -> Result<(), ConfigError> {
    match key.text.as_str() {
        "interfaces" => ni.interfaces = interfaces(key, node)?,
        "nid" => {
            let nid = single_nid(key, node)?;
            if nid.net() != net {
                let text = format!("NID '{nid}' is not on net '{net}'");
                return Err(content(node.pos, text));
            }
            ni.nid = Some(nid);
        }
        "tunables" => tunables(&mut ni.tunables, node)?,
        "lnd tunables" => lnd_tunables(&mut ni.lnd, net, node, how)?,
        "CPT" => ni.cpts = cpts(key, node)?,
        name if NET_READ_ONLY.contains(&name) => {}
        _ => return Err(invalid_key(key, &NI_KEYS)),
    }
    Ok(())
}

/// An interface says where the NI is; the NID beside a single one says which of its addresses is meant.
/// Large NIDs say it alone.
fn finish_ni(mut ni: NiBlock, how: &Reading) -> NiBlock {
    if how.describes {
        return ni;
    }
    if ni.nid.is_some_and(|nid| nid.is_large()) {
        ni.interfaces.clear();
    }
    if ni.interfaces.len() > 1 {
        ni.nid = None;
    }
    ni
}

fn interfaces(key: &Key, node: &Node) -> Result<Vec<Interface>, ConfigError> {
    let names: Vec<(&Key, &Node)> = match &node.value {
        Value::Map(entries) => entries.iter().map(|(key, name)| (key, name)).collect(),
        Value::List(items) => items.iter().map(|name| (key, name)).collect(),
        _ => vec![(key, node)],
    };
    let mut all = Vec::new();
    for (key, name) in names {
        let text = scalar(key, name)?;
        all.extend(parse_interfaces(text).map_err(|e| content(name.pos, e.to_string()))?);
    }
    Ok(all)
}

fn tunables(to: &mut NetTunables, node: &Node) -> Result<(), ConfigError> {
    for (key, node) in entries_or_none(node, "a map of tunables")? {
        // 0 and less ask for the default; of a time-out 0 is a value (I-9), and of router buffers
        // it is the default.
        let (slot, least) = match key.text.as_str() {
            "peer_timeout" => (&mut to.peer_timeout_s, 0),
            "peer_credits" => (&mut to.peer_credits, 1),
            "peer_buffer_credits" => (&mut to.peer_buffer_credits, 0),
            "credits" => (&mut to.credits, 1),
            _ => {
                return Err(invalid_key(
                    key,
                    &["peer_timeout", "peer_credits", "peer_buffer_credits", "credits"],
                ));
            }
        };
        let value = number(key, node)?;
        *slot = match value {
            v if v < -1 => {
                let text =
                    format!("invalid value '{v}' for key '{}': must be at least -1", key.text);
                return Err(content(node.pos, text));
            }
            v if v < least => None,
            v if v <= i64::from(i32::MAX) => u32::try_from(v).ok(),
            _ => return Err(invalid_value(key, node, format_args!("-1 to {}", i32::MAX))),
        };
    }
    Ok(())
}

fn lnd_tunables(
    to: &mut LndTunables,
    net: Net,
    node: &Node,
    how: &mut Reading,
) -> Result<(), ConfigError> {
    let is_rdma = net.kind == NetType::O2IB;
    let count = |key: &Key, node: &Node| {
        let value = number(key, node)?;
        let value = u32::try_from(value).ok().filter(|v| *v <= i32::MAX as u32);
        value.map(Some).ok_or_else(|| invalid_value(key, node, format_args!("0 to {}", i32::MAX)))
    };
    for (key, node) in entries_or_none(node, "a map of tunables")? {
        match key.text.as_str() {
            "conns_per_peer" => {
                let value = u8::try_from(number(key, node)?).ok().filter(|v| *v <= 127);
                to.conns_per_peer =
                    Some(value.ok_or_else(|| invalid_value(key, node, "0 to 127"))?);
            }
            "tos" => {
                let value = number(key, node)?;
                let value = i16::try_from(value).ok().filter(|v| (-1..=255).contains(v));
                to.tos = Some(value.ok_or_else(|| invalid_value(key, node, "-1 to 255"))?);
            }
            // Shown by exporters; one for the whole driver.
            "timeout" => {}
            "peercredits_hiw" if is_rdma => to.peercredits_hiw = count(key, node)?,
            "concurrent_sends" if is_rdma => to.concurrent_sends = count(key, node)?,
            // Shown by exporters; here they have one value each.
            name if is_rdma && O2IB_FIXED.contains(&(name, scalar(key, node)?)) => {}
            name if is_rdma && !how.describes && fixed(name).is_some() => {
                let e = invalid_value(key, node, fixed(name).unwrap_or_default());
                return Err(e.with_errno(Errno::EOPNOTSUPP));
            }
            name if FOREIGN_LND_KEYS.contains(&name) => {
                let foreign = PassedOver::ForeignTunable(name.to_owned());
                if !how.describes {
                    return Err(error(Errno::EOPNOTSUPP, key.pos, foreign.to_string()));
                }
                how.pass_over(key.pos, foreign);
            }
            _ => return Err(invalid_key(key, &["conns_per_peer", "tos", "timeout"])),
        }
    }
    Ok(())
}

/// The one value that a tunable of the RDMA driver has here.
fn fixed(name: &str) -> Option<&'static str> {
    O2IB_FIXED.iter().find(|(fixed, _)| *fixed == name).map(|(_, value)| *value)
}

fn cpts(key: &Key, node: &Node) -> Result<Option<Vec<u32>>, ConfigError> {
    let text = match &node.value {
        Value::List(items) => {
            let texts: Result<Vec<_>, _> = items.iter().map(|item| scalar(key, item)).collect();
            format!("[{}]", texts?.join(","))
        }
        _ => scalar(key, node)?.to_owned(),
    };
    parse_cpts(&text).map_err(|_| content(node.pos, format!("Unable to parse CPT '{text}'")))
}

/// `None`: the document describes the peer, but no administrator configured it.
fn peer_block(item: &Node, how: &mut Reading) -> Result<Option<PeerBlock>, ConfigError> {
    let (mut primary, mut nids, mut multi_rail) = (None, Vec::new(), true);
    let mut lock_primary = false;
    for (key, node) in map(item, "a map that describes a peer")? {
        match key.text.as_str() {
            "primary nid" => primary = Some(single_nid(key, node)?),
            "Multi-Rail" => multi_rail = boolean(key, node)?,
            LOCK_KEY => lock_primary = boolean(key, node)?,
            "peer ni" | "peer_ni" => {
                for item in list(node, "a list of peer NIs")? {
                    nids.extend(peer_ni(item)?);
                }
            }
            "peer state" => {
                let bits = number(key, node)?;
                lock_primary |= bits & PRIMARY_LOCKED != 0;
                if how.describes {
                    how.peer_state(bits);
                }
            }
            name if PEER_READ_ONLY.contains(&name) => {}
            _ => return Err(invalid_key(key, &["primary nid", "Multi-Rail", LOCK_KEY, "peer ni"])),
        }
    }
    let primary = primary.ok_or_else(|| content(item.pos, "missing primary NID".to_owned()))?;
    // Exporters list the primary NID among the others.
    let secondary_only = !nids.is_empty() && !nids.contains(&primary);
    nids.retain(|nid| *nid != primary);
    if how.was_only_found(item.pos, primary) {
        return Ok(None);
    }
    Ok(Some(PeerBlock { primary, nids, multi_rail, lock_primary, secondary_only }))
}

/// The NIDs of one item of `peer ni`. Everything but the NID is state.
fn peer_ni(item: &Node) -> Result<Vec<Nid>, ConfigError> {
    const STATE: [&str; 15] = [
        "udsp info",
        "state",
        "max_ni_tx_credits",
        "available_tx_credits",
        "min_tx_credits",
        "tx_q_num_of_buf",
        "available_rtr_credits",
        "min_rtr_credits",
        "refcount",
        "statistics",
        "sent_stats",
        "received_stats",
        "dropped_stats",
        "health stats",
        "seq_no",
    ];
    let mut nids = Vec::new();
    for (key, node) in map(item, "a map with the key 'nid'")? {
        match key.text.as_str() {
            "nid" => nids.extend(nid_list(key, node)?),
            name if STATE.contains(&name) => {}
            _ => return Err(invalid_key(key, &["nid"])),
        }
    }
    if nids.is_empty() {
        return Err(content(item.pos, "a peer NI without 'nid'".to_owned()));
    }
    Ok(nids)
}

/// One item of `udsp` (I-16): every item has its own action, priority 0 is one, and `idx` may be
/// absent.
fn udsp_rule(item: &Node) -> Result<UdspAdd, ConfigError> {
    let mut add = UdspAdd { rule: UdspRule::default(), index: None };
    for (key, node) in map(item, "a map that describes a rule")? {
        let rule = &mut add.rule;
        match key.text.as_str() {
            // The place; -1 is the end.
            "idx" => match number(key, node)? {
                -1 => {}
                n => {
                    add.index =
                        Some(u32::try_from(n).map_err(|_| invalid_value(key, node, "-1 or more"))?);
                }
            },
            "src" => rule.src = pattern(key, node)?,
            "dst" => rule.dst = pattern(key, node)?,
            "rte" => rule.rte = pattern(key, node)?,
            "action" => udsp_action(rule, node)?,
            "seq_no" => {}
            _ => return Err(invalid_key(key, &["idx", "src", "dst", "rte", "action"])),
        }
    }
    let UdspRule { src, dst, rte, .. } = &add.rule;
    if (src, dst, rte) == (&None, &None, &None) {
        return Err(content(item.pos, "a rule needs src, dst or rte".to_owned()));
    }
    Ok(add)
}

/// A pattern, or the `NA` that older exporters print for none.
fn pattern(key: &Key, node: &Node) -> Result<Option<String>, ConfigError> {
    let text = scalar(key, node)?;
    Ok((text != "NA").then(|| text.to_owned()))
}

fn udsp_action(rule: &mut UdspRule, node: &Node) -> Result<(), ConfigError> {
    for (key, node) in map(node, "a map with the key 'priority'")? {
        let value = u32::try_from(number(key, node)?).ok();
        match key.text.as_str() {
            "priority" => {
                let priority = value.ok_or_else(|| invalid_value(key, node, "0 or more"))?;
                rule.priority = Some(priority);
            }
            "messages" => {
                let messages = value.and_then(NonZeroU32::new);
                rule.messages =
                    Some(messages.ok_or_else(|| invalid_value(key, node, "1 or more"))?);
            }
            other => {
                let text = format!("bad action type specified: {other}");
                return Err(content(key.pos, text));
            }
        }
    }
    Ok(())
}

fn ping_block(node: &Node) -> Result<PingBlock, ConfigError> {
    let mut ping = PingBlock::default();
    for entries in target_maps(node)? {
        for (key, node) in entries {
            match key.text.as_str() {
                "nids" | "primary nid" => ping.nids.extend(nid_list(key, node)?),
                "timeout" => {
                    let value = u64::try_from(number(key, node)?);
                    ping.timeout_ms =
                        Some(value.map_err(|_| invalid_value(key, node, "0 or more"))?);
                }
                "source" | "source_nid" => ping.source = Some(single_nid(key, node)?),
                "seq_no" => {}
                _ => {
                    return Err(invalid_key(
                        key,
                        &["nids", "primary nid", "timeout", "source_nid"],
                    ));
                }
            }
        }
    }
    Ok(ping)
}

fn discover_block(node: &Node) -> Result<DiscoverBlock, ConfigError> {
    let mut discover = DiscoverBlock::default();
    for entries in target_maps(node)? {
        for (key, node) in entries {
            match key.text.as_str() {
                "nids" | "primary nid" => discover.nids.extend(nid_list(key, node)?),
                "force" => discover.force = boolean(key, node)?,
                "seq_no" => {}
                _ => return Err(invalid_key(key, &["nids", "primary nid", "force"])),
            }
        }
    }
    Ok(discover)
}

/// The map form of `ping` and `discover`, or the maps of the list form (I-17, I-21).
fn target_maps(node: &Node) -> Result<Vec<&[(Key, Node)]>, ConfigError> {
    match &node.value {
        Value::Map(entries) => Ok(vec![entries]),
        _ => list(node, "NIDs")?.iter().map(|item| map(item, "a map with a NID")).collect(),
    }
}

fn error(errno: Errno, pos: Pos, text: String) -> ConfigError {
    ConfigError::Content { errno, text, pos, hint: None }
}

fn content(pos: Pos, text: String) -> ConfigError {
    error(Errno::EINVAL, pos, text)
}

/// The same with what was expected, or may have been meant.
fn hinted(pos: Pos, text: String, hint: String) -> ConfigError {
    ConfigError::Content { errno: Errno::EINVAL, text, pos, hint: Some(hint) }
}

/// A key that is none of `known`.
fn invalid_key(key: &Key, known: &[&str]) -> ConfigError {
    let text = format!("invalid key '{}'", key.text);
    let hint = key_hint(&key.text, known);
    ConfigError::Content { errno: Errno::EINVAL, text, pos: key.pos, hint }
}

/// A value that is not as `expected` says.
fn invalid_value(key: &Key, node: &Node, expected: impl fmt::Display) -> ConfigError {
    let value = match &node.value {
        Value::Text(text) => text.as_str(),
        Value::Null => "",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
    };
    let text = format!("invalid value '{value}' for key '{}'", key.text);
    hinted(node.pos, text, format!("{}: must be {expected}", key.text))
}

fn invalid_net(node: &Node, text: &str) -> ConfigError {
    hinted(node.pos, format!("Invalid network ID '{text}'"), not_a_net(text))
}

fn map<'a>(node: &'a Node, expected: &str) -> Result<&'a [(Key, Node)], ConfigError> {
    match &node.value {
        Value::Map(entries) => Ok(entries),
        _ => Err(content(node.pos, format!("Malformed input. Expect {expected}"))),
    }
}

fn entries_or_none<'a>(node: &'a Node, expected: &str) -> Result<&'a [(Key, Node)], ConfigError> {
    if node.value == Value::Null { Ok(&[]) } else { map(node, expected) }
}

fn list<'a>(node: &'a Node, expected: &str) -> Result<&'a [Node], ConfigError> {
    match &node.value {
        Value::List(items) => Ok(items),
        Value::Null => Ok(&[]),
        _ => Err(content(node.pos, format!("Malformed input. Expect {expected}"))),
    }
}

fn scalar<'a>(key: &Key, node: &'a Node) -> Result<&'a str, ConfigError> {
    match &node.value {
        Value::Text(text) => Ok(text),
        Value::Null => Err(content(node.pos, format!("no value specified for key '{}'", key.text))),
        Value::List(_) | Value::Map(_) => Err(invalid_value(key, node, "one value")),
    }
}

fn number(key: &Key, node: &Node) -> Result<i64, ConfigError> {
    parse_number(scalar(key, node)?).ok_or_else(|| invalid_value(key, node, NUMBER))
}

fn boolean(key: &Key, node: &Node) -> Result<bool, ConfigError> {
    match scalar(key, node)?.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(invalid_value(key, node, "true or false")),
    }
}

fn single_nid(key: &Key, node: &Node) -> Result<Nid, ConfigError> {
    match nid_list(key, node)?.as_slice() {
        [nid] => Ok(*nid),
        _ => Err(invalid_value(key, node, "one NID")),
    }
}

/// NIDs from a text (a list or a range), from a YAML list of texts, or from a map that numbers them.
fn nid_list(key: &Key, node: &Node) -> Result<Vec<Nid>, ConfigError> {
    let parse = |node: &Node| {
        let text = scalar(key, node)?;
        parse_nid_list(text).map_err(|e| ConfigError::Content {
            errno: e.errno(),
            text: format!("{e}: '{text}'"),
            pos: node.pos,
            hint: Some(not_nids(text, e)),
        })
    };
    match &node.value {
        Value::List(items) => Ok(items.iter().map(parse).collect::<Result<Vec<_>, _>>()?.concat()),
        Value::Map(entries) => {
            let numbered = |(number, nid): &(Key, Node)| match parse_number(&number.text) {
                Some(0..) => parse(nid),
                _ => Err(invalid_key(number, &["0"])),
            };
            Ok(entries.iter().map(numbered).collect::<Result<Vec<_>, _>>()?.concat())
        }
        _ => parse(node),
    }
}

#[cfg(test)]
#[path = "import/tests.rs"]
mod tests;
