//! A node from a file: what `export` printed on it, there or on a kernel node, or what
//! `doctor --save` wrote, which has the settings of the system as well. Keys that say nothing about
//! health are passed over; what is there but makes no sense is an error with its place.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;

use lnet_admin::{PeerFlags, RailSnapshot, RdmaPortSnapshot};
use lnet_config::parse_number;
use lnet_config::yaml::{self, Value, YAML_BYTES_MAX};
use lnet_types::{Net, Nid};

use super::site::{Device, Ni, Node, Peer, PeerNi, Route, Rpc, RpcEviction, RpcImport, RpcService};

/// Reads the file.
pub(super) fn file(path: &str) -> Result<Node, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(YAML_BYTES_MAX as u64 + 1).read_to_string(&mut text))
        .map_err(|e| format!("{path}: {e}"))?;
    let stem = std::path::Path::new(path).file_stem().map(|s| s.to_string_lossy().into_owned());
    node(&text, stem.as_deref().unwrap_or(path)).map_err(|e| format!("{path}: {e}"))
}

/// Reads a text. `name`: what the node is called if the text does not say.
pub(super) fn node(text: &str, name: &str) -> Result<Node, String> {
    let documents = yaml::parse(text).map_err(|e| e.to_string())?;
    let mut node = Node { name: name.to_owned(), routes: Some(Vec::new()), ..Node::default() };
    node.forwards = Some(false);
    for (key, value) in documents.iter().flat_map(entries) {
        match key {
            "node" => {
                node.name = text_of(value).unwrap_or(name).to_owned();
                node.is_named = true;
            }
            "saved" => {
                node.saved_s = text_of(value).and_then(parse_number).filter(|at| *at != 0);
            }
            "incarnation" => {
                let number = text_of(value).and_then(|text| text.parse().ok());
                node.incarnation = number.filter(|n| *n != 0);
            }
            "peer" => {
                for item in items(value) {
                    node.peers.push(peer(item)?);
                }
            }
            "suspects" => {
                for item in items(value) {
                    node.suspects.push(suspect(item)?);
                }
            }
            "rising" => {
                for item in items(value) {
                    let by = number(item, "by").and_then(|n| n.try_into().ok());
                    node.rising.insert(required(item, "counter")?.to_owned(), by.unwrap_or(1));
                }
            }
            "net" => {
                for net in items(value) {
                    for ni in get(net, "local NI(s)").map(items).unwrap_or_default() {
                        node.nis.push(self::ni(ni)?);
                    }
                }
            }
            "route" => {
                let routes = items(value).into_iter().map(route).collect::<Result<Vec<_>, _>>()?;
                node.routes.get_or_insert_default().extend(routes);
            }
            "routing" => {
                let states = items(value);
                let on = states.iter().filter_map(|item| number(item, "enable")).any(|n| n != 0);
                node.forwards = Some(on || node.forwards == Some(true));
            }
            "global" => {
                for (key, value) in entries(value) {
                    if let Some(number) = text_of(value).and_then(parse_number) {
                        node.tunables.insert(key.to_owned(), number);
                    }
                }
            }
            "rpc" => node.rpc = Some(rpc(value)?),
            "system" => {
                for item in items(value) {
                    let (name, device) = device(item)?;
                    node.devices.insert(name, device);
                }
            }
            _ => {}
        }
    }
    if node.nis.is_empty() && node.tunables.is_empty() {
        return Err("neither 'net' nor 'global': expected what 'lnetctl export' prints".to_owned());
    }
    Ok(node)
}

fn ni(item: &yaml::Node) -> Result<Ni, String> {
    let nid = required(item, "nid")?;
    let health = get(item, "health stats").and_then(|h| number(h, "health value"));
    let device =
        get(item, "interfaces").and_then(|i| entries(i).next()).and_then(|(_, v)| text_of(v));
    Ok(Ni {
        nid: nid.parse().map_err(|_| format!("'{nid}' is no NID, at {}", item.pos))?,
        device: device.map(str::to_owned),
        up: get(item, "status").and_then(text_of).is_none_or(|s| s == "up"),
        health,
        pings: get(item, "health stats").and_then(|h| number(h, "ping_count")),
        is_flapping: is_flapping(item),
        peer_credits: get(item, "tunables").and_then(|t| number(t, "peer_credits")),
        peer_timeout_s: get(item, "tunables").and_then(|t| number(t, "peer_timeout")),
        timeout_s: get(item, "lnd tunables").and_then(|t| number(t, "timeout")),
        rdma: get(item, "ulnet").and_then(|ours| get(ours, "rdma")).map(rdma).transpose()?,
    })
}

/// An RDMA port, as `net show -v 5` prints it.
fn rdma(item: &yaml::Node) -> Result<RdmaPortSnapshot, String> {
    let is = |key, word| get(item, key).and_then(text_of) == Some(word);
    let count = |key| number(item, key).and_then(|n| u64::try_from(n).ok());
    let small = |key| count(key).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    let gid = get(item, "gid").and_then(text_of).map(str::parse);
    let gid = gid.transpose().map_err(|_| format!("'gid' is no GID, at {}", item.pos))?;
    Ok(RdmaPortSnapshot {
        active: is("active", "true"),
        rate_mbps: small("rate_mbps"),
        degraded: is("degraded", "true"),
        connections: small("connections"),
        pinned: count("pinned_bytes").unwrap_or(0),
        pinned_max: count("pinned_max").unwrap_or(0),
        registered: count("registrations").unwrap_or(0),
        found: count("registrations_found").unwrap_or(0),
        locked_limit: count("locked_limit"),
        mtu: small("mtu"),
        ethernet: is("link_layer", "Ethernet"),
        gid,
        pkey: u16::try_from(small("pkey")).unwrap_or(0),
        roce: u8::try_from(small("roce_version")).unwrap_or(0),
        keepalive_s: count("keepalive").and_then(|n| u32::try_from(n).ok()),
    })
}

fn route(item: &yaml::Node) -> Result<Route, String> {
    let (net, gateway) = (required(item, "net")?, required(item, "gateway")?);
    let net: Net = net.parse().map_err(|_| format!("'{net}' is no network, at {}", item.pos))?;
    let gateway: Nid =
        gateway.parse().map_err(|_| format!("'{gateway}' is no NID, at {}", item.pos))?;
    let up = get(item, "state").and_then(text_of).map(|state| state == "up");
    Ok(Route { net, gateway, up })
}

fn nid_at(item: &yaml::Node, key: &str) -> Result<Nid, String> {
    let nid = required(item, key)?;
    nid.parse().map_err(|_| format!("'{nid}' is no NID, at {}", item.pos))
}

fn is_flapping(item: &yaml::Node) -> bool {
    get(item, "ulnet").and_then(|ours| number(ours, "flapping")).is_some_and(|n| n != 0)
}

fn peer(item: &yaml::Node) -> Result<Peer, String> {
    let mut nis = Vec::new();
    for ni in get(item, "peer ni").map(items).unwrap_or_default() {
        let count = |key| get(ni, "statistics").and_then(|s| number(s, key)).unwrap_or(0);
        let health = |key| get(ni, "health stats").and_then(|h| number(h, key));
        nis.push(PeerNi {
            nid: nid_at(ni, "nid")?,
            is_down: get(ni, "state").and_then(text_of) == Some("down"),
            sent: count("send_count"),
            received: count("recv_count"),
            health: health("health value"),
            pings: health("ping_count").unwrap_or(0),
            is_flapping: is_flapping(ni),
        });
    }
    let primary = nid_at(item, "primary nid")?;
    let flags = number(item, "peer state").and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    Ok(Peer { primary, flags: PeerFlags(flags), nis })
}

fn rpc(item: &yaml::Node) -> Result<Rpc, String> {
    let flag = |item: &yaml::Node, key| number(item, key).is_some_and(|n| n != 0);
    let list = |key| get(item, key).map(items).unwrap_or_default();
    let word = |item: &yaml::Node, key| required(item, key).map(str::to_owned);
    let count = |item: &yaml::Node, key| number(item, key).unwrap_or(0);
    let mut rpc = Rpc {
        in_use: flag(item, "in_use"),
        by_kernel_rules: flag(item, "by_kernel_rules"),
        ..Rpc::default()
    };
    for (key, value) in get(item, "tunables").into_iter().flat_map(entries) {
        if let Some(number) = text_of(value).and_then(parse_number) {
            rpc.tunables.insert(key.to_owned(), number);
        }
    }
    for import in list("imports") {
        rpc.imports.push(RpcImport {
            target: word(import, "target")?,
            state: word(import, "state")?,
            for_s: count(import, "for"),
            truncated: count(import, "truncated"),
        });
    }
    for service in list("services") {
        rpc.services.push(RpcService {
            name: word(service, "name")?,
            posted: count(service, "posted"),
            buffers: count(service, "buffers"),
            behind_ago_s: number(service, "behind_ago"),
            unhealthy: flag(service, "unhealthy"),
        });
    }
    for eviction in list("evictions") {
        rpc.evictions.push(RpcEviction {
            target: word(eviction, "target")?,
            client: word(eviction, "client")?,
            reason: word(eviction, "reason")?,
            ago_s: count(eviction, "ago"),
        });
    }
    Ok(rpc)
}

fn suspect(item: &yaml::Node) -> Result<RailSnapshot, String> {
    Ok(RailSnapshot {
        local: nid_at(item, "local")?,
        peer: nid_at(item, "peer")?,
        doubt: required(item, "doubt")?.to_owned(),
        for_ms: number(item, "for_ms").and_then(|n| n.try_into().ok()).unwrap_or(0),
    })
}

fn device(item: &yaml::Node) -> Result<(String, Device), String> {
    let name = required(item, "device")?.to_owned();
    let words = |key: &str| {
        let text = get(item, key).and_then(text_of).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut addresses = Vec::new();
    for word in words("addresses") {
        let parsed =
            word.split_once('/').and_then(|(ip, n)| Some((ip.parse().ok()?, n.parse().ok()?)));
        addresses.push(
            parsed.ok_or_else(|| format!("'{word}' is not ADDRESS/PREFIX, at {}", item.pos))?,
        );
    }
    let mut source_routed: Vec<IpAddr> = Vec::new();
    for word in words("source routed") {
        source_routed
            .push(word.parse().map_err(|_| format!("'{word}' is no address, at {}", item.pos))?);
    }
    let device = Device {
        mtu: number(item, "mtu"),
        addresses,
        rp_filter: number(item, "rp_filter"),
        arp_ignore: number(item, "arp_ignore"),
        arp_announce: number(item, "arp_announce"),
        source_routed,
    };
    Ok((name, device))
}

fn entries(node: &yaml::Node) -> impl Iterator<Item = (&str, &yaml::Node)> {
    let all = match &node.value {
        Value::Map(all) => all.as_slice(),
        _ => &[],
    };
    all.iter().map(|(key, value)| (key.text.as_str(), value))
}

/// The items of a list, or the one thing that stands in its place.
fn items(node: &yaml::Node) -> Vec<&yaml::Node> {
    match &node.value {
        Value::List(all) => all.iter().collect(),
        Value::Null => Vec::new(),
        _ => vec![node],
    }
}

fn get<'a>(node: &'a yaml::Node, key: &str) -> Option<&'a yaml::Node> {
    entries(node).find(|(k, _)| *k == key).map(|(_, value)| value)
}

fn text_of(node: &yaml::Node) -> Option<&str> {
    match &node.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn number(node: &yaml::Node, key: &str) -> Option<i64> {
    get(node, key).and_then(text_of).and_then(parse_number)
}

fn required<'a>(node: &'a yaml::Node, key: &str) -> Result<&'a str, String> {
    get(node, key).and_then(text_of).ok_or_else(|| format!("no '{key}' at {}", node.pos))
}
