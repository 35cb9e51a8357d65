//! How commands reach a target: options, the node, the end.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use lnet_config::not_a_nid;
use lnet_rt::{Errno, Net, Nid, NodeHandle};
use lnet_types::NetType;
use lustre_rt::{CallError, Import, KEY_MAX, KvClient, KvError, RpcError, RpcNode, Tunables};

use crate::ping::{client_uuid, refused, said, source_towards};
use crate::rails::{self, Routes, Source};
use crate::stop::Stop;

/// A target and the nodes that may serve it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) nids: Vec<Nid>,
}

/// Options of all commands that use a target.
#[derive(Clone, Debug, Args)]
pub(crate) struct Access {
    /// Target, and the nodes that may serve it, the likeliest first
    #[arg(long, value_name = "NAME@NID[,NID]", value_parser = target)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) way: Way,
}

/// How a command sends, and how long it waits.
#[derive(Clone, Debug, Args)]
pub(crate) struct Way {
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
    /// Addresses of this machine to send from; the one that the system would use if not given
    #[arg(long, value_name = "IP[@NET],…", value_delimiter = ',')]
    pub(crate) source: Vec<Source>,
    #[command(flatten)]
    pub(crate) routes: Routes,
    /// TCP port of both nodes
    #[arg(long, default_value_t = 988)]
    pub(crate) port: u16,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn target(text: &str) -> Result<Target> {
    let (name, nids) = text.split_once('@').ok_or_else(|| anyhow!("expected NAME@NID[,NID]"))?;
    if name.is_empty() {
        bail!("expected a name before '@'");
    }
    let nids = nids.split(',').map(nid).collect::<Result<_>>()?;
    Ok(Target { name: name.to_owned(), nids })
}

/// A key of a key-value target.
pub(crate) fn key(text: &str) -> Result<String> {
    let len = text.len();
    if !(1..=KEY_MAX).contains(&len) {
        bail!("{len} bytes: expected 1 to {KEY_MAX}");
    }
    Ok(text.to_owned())
}

/// A NID that commands can reach.
pub(crate) fn nid(text: &str) -> Result<Nid> {
    // Without a network it would be one of tcp, and the mistake would cost a time-out.
    let nid = text.parse().ok().filter(|_| text.contains('@'));
    let nid: Nid = nid.ok_or_else(|| anyhow!(not_a_nid(text)))?;
    rails::address(nid)?;
    Ok(nid)
}

/// The addresses to send from. Beside a server on the loopback, which has the port, it is another one
/// of that network.
pub(crate) fn sources(to: Nid, given: &[Source], port: u16) -> Result<Vec<(Net, IpAddr)>> {
    let net = to.net();
    if !given.is_empty() {
        return Ok(given.iter().map(|source| source.on(net)).collect());
    }
    let found = source_towards(to, port)?;
    if found.is_loopback() && found.is_ipv4() {
        let [.., c, d] = std::process::id().to_be_bytes();
        return Ok(vec![(net, Ipv4Addr::new(127, 127, c, d.max(1)).into())]);
    }
    Ok(vec![(net, found)])
}

/// NIDs of one node or of several, with the first to the front that is on a network of TCP and to which
/// the system has a way: a node has an address on that one's network.
pub(crate) fn reachable_first(mut nids: Vec<Nid>, way: &Way) -> Vec<Nid> {
    let is_reachable =
        |nid: &Nid| rails::address(*nid).is_ok() && sources(*nid, &way.source, way.port).is_ok();
    if let Some(at) = nids.iter().position(is_reachable) {
        nids.swap(0, at);
    }
    nids
}

/// A network of this machine on a command line.
pub(crate) fn network(text: &str) -> Result<Net> {
    match text.parse::<Net>() {
        Ok(net) if net.kind == NetType::TCP => Ok(net),
        _ => bail!("network '{text}': expected a tcp network, such as tcp1"),
    }
}

/// The addresses to send from on a network that may be another one than the target's: that is behind a
/// gateway then.
fn sources_on(net: Net, to: Nid, way: &Way) -> Result<Vec<(Net, IpAddr)>> {
    if !way.source.is_empty() {
        return Ok(way.source.iter().map(|source| source.on(net)).collect());
    }
    let towards = way.routes.gateway_on(net).unwrap_or(to);
    let found = sources(towards, &[], way.port)?;
    Ok(found.into_iter().map(|(_, ip)| (net, ip)).collect())
}

/// A node for a command, and its request layer.
pub(crate) fn node(target: &Target, way: &Way) -> Result<(NodeHandle, RpcNode)> {
    node_with(target, way, Tunables::default())
}

/// The same on a network, if one is given.
pub(crate) fn node_on(
    net: Option<Net>,
    target: &Target,
    way: &Way,
) -> Result<(NodeHandle, RpcNode)> {
    let Some(net) = net else { return node(target, way) };
    let to = target.nids.first().copied().ok_or_else(|| anyhow!("expected a NID"))?;
    let node = rails::start(&sources_on(net, to, way)?, way.port, &way.routes, "rpc")?;
    let rpc = RpcNode::start(&node, Tunables::default())?;
    Ok((node, rpc))
}

/// The same with tunables of its own.
pub(crate) fn node_with(
    target: &Target,
    way: &Way,
    tunables: Tunables,
) -> Result<(NodeHandle, RpcNode)> {
    let to = target.nids.first().copied().ok_or_else(|| anyhow!("expected a NID"))?;
    let rails = sources(to, &way.source, way.port)?;
    let node = rails::start(&rails, way.port, &way.routes, "rpc")?;
    let rpc = RpcNode::start(&node, tunables)?;
    Ok((node, rpc))
}

/// Runs `f` with a client of the target.
///
/// # Errors
/// No way to the target, no answer within the time, or a refusal.
pub(crate) fn with<R>(
    options: &Access,
    f: impl FnOnce(&KvClient) -> Result<R, KvError>,
) -> Result<R> {
    let Access { target, way } = options;
    let (node, rpc) = node(target, way)?;
    let stop = Stop::of(&rpc)?;
    let kv = KvClient::new(&rpc, &target.name, &client_uuid(), target.nids.clone())?;
    let kv = kv.with_limit(Duration::from_secs(way.timeout));
    let result = f(&kv).map_err(|e| match e {
        KvError::Rpc(e) => explain(kv.import(), target, way, &e),
        e => anyhow!("{}: {e}", target.name),
    });
    kv.disconnect()?;
    node.stop(Duration::from_secs(1)).blocking();
    result.map_err(|e| stop.explain(e))
}

/// The same for a command about one key.
///
/// # Errors
/// The target has no such key, and as [`with`].
pub(crate) fn with_key<R>(
    options: &Access,
    key: &str,
    f: impl FnOnce(&KvClient) -> Result<R, KvError>,
) -> Result<R> {
    let found = with(options, |kv| match f(kv) {
        Err(KvError::Rpc(RpcError::Call(CallError::Refused(Errno::ENOENT)))) => Ok(None),
        result => result.map(Some),
    })?;
    found.ok_or_else(|| anyhow!("{}: no key '{key}'", options.target.name))
}

/// Why a call over an import failed, with what the import has met.
pub(crate) fn explain(import: &Import, target: &Target, way: &Way, e: &RpcError) -> anyhow::Error {
    match e {
        RpcError::Call(CallError::LimitPassed) => {
            let view = import.view().ok().flatten();
            let why = match view.as_ref().and_then(|view| view.refusal) {
                Some(CallError::Refused(errno)) => {
                    format!("the last connect was refused with {}", refused(errno))
                }
                _ => "see ulnet rpc probe".to_owned(),
            };
            let state = view.map_or("CLOSED", |view| view.state.name());
            anyhow!("{}: not answered within {} s (state {state}; {why})", target.name, way.timeout)
        }
        e => anyhow!("{}: {}", target.name, said(e)),
    }
}

/// Bytes as JSON: text if they are some, else hexadecimal digits.
pub(crate) fn text_or_hex(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let digits = bytes.iter().map(|b| format!("{b:02x}"));
            format!("0x{}", digits.collect::<String>())
        }
    }
}

/// The value of a command line: `-` is standard input.
pub(crate) fn value(text: &str) -> Result<Vec<u8>> {
    if text != "-" {
        return Ok(text.as_bytes().to_vec());
    }
    let mut value = Vec::new();
    let most = (64 << 20) + 1;
    std::io::Read::read_to_end(&mut std::io::Read::take(std::io::stdin(), most), &mut value)
        .context("standard input")?;
    if value.len() as u64 == most {
        bail!("value on standard input: limit 64 MiB");
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_has_a_name_and_nids() {
        let t = target("kv-1@10.0.0.1@tcp,10.0.0.2@tcp1").unwrap();
        assert_eq!((t.name.as_str(), t.nids.len()), ("kv-1", 2));
        for (text, part) in [
            ("kv-1", "NAME@NID"),
            ("@10.0.0.1@tcp", "name"),
            ("a@b", "'b' is not a NID such as 10.0.0.1@tcp"),
            (
                "a@10.0.0.1",
                "'10.0.0.1' is not a NID such as 10.0.0.1@tcp: did you mean '10.0.0.1@tcp'?",
            ),
            ("a@10.0.0.1@tpc", "did you mean '10.0.0.1@tcp'?"),
        ] {
            // As the command line prints it: without the causes.
            let e = target(text).unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
        }
    }

    #[test]
    fn nid_that_this_machine_can_reach_comes_first() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            way: Way,
        }
        let Line { way } = clap::Parser::parse_from(["x"]);
        let nids = |texts: &[&str]| texts.iter().map(|n| n.parse().unwrap()).collect::<Vec<Nid>>();
        let listed = nids(&["10.10.0.1@o2ib", "127.0.0.1@tcp", "127.0.0.2@tcp"]);
        let front = reachable_first(listed, &way);
        assert_eq!(front, nids(&["127.0.0.1@tcp", "10.10.0.1@o2ib", "127.0.0.2@tcp"]));
        let none = nids(&["10.10.0.1@o2ib", "10.10.0.2@o2ib"]);
        assert_eq!(reachable_first(none.clone(), &way), none);
    }

    #[test]
    fn network_of_a_client_is_its_gateways_where_the_target_is_behind_one() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            way: Way,
        }
        let rails = |words: &str, net: &str| {
            let line: Line = clap::Parser::parse_from(words.split(' '));
            sources_on(network(net).unwrap(), "127.0.0.1@tcp1".parse().unwrap(), &line.way).unwrap()
        };
        let tcp: Net = "tcp".parse().unwrap();
        assert_eq!(rails("x --source 10.0.0.7", "tcp"), [(tcp, [10, 0, 0, 7].into())]);
        let found = rails("x --route tcp1=127.0.0.9@tcp", "tcp");
        assert!(matches!(found[..], [(net, ip)] if net == tcp && ip.is_loopback()), "{found:?}");
        for text in ["o2ib", "x"] {
            let e = format!("{:#}", network(text).unwrap_err());
            assert!(e.contains(&format!("network '{text}'")), "{e}");
        }
    }

    #[test]
    fn a_key_that_no_target_stores_is_refused_with_its_length() {
        assert_eq!(key(&"k".repeat(255)).unwrap().len(), 255);
        for (text, error) in [("".to_owned(), "0 bytes"), ("k".repeat(300), "300 bytes")] {
            let e = key(&text).unwrap_err().to_string();
            assert_eq!(e, format!("{error}: expected 1 to 255"));
        }
    }
}
