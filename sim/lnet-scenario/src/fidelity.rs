//! How closely a scenario is played: message by message, or byte by byte with the real driver.

use lnet_types::{Net, NetType};
use lnet_wire::sock::Version;

use crate::error::ScenarioError;
use crate::model::{Clocks, FaultKind, Scenario, Transport};
use crate::read::{Table, Value};
use crate::units::Share;

/// What is modelled under the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fidelity {
    /// What a driver would do with each message: large worlds, fast.
    #[default]
    Messages,
    /// Byte streams and RDMA adapters, under the real drivers.
    Bytes,
}

impl Fidelity {
    /// Both, by the words of the text.
    pub const ALL: [(&str, Self); 2] = [("messages", Self::Messages), ("bytes", Self::Bytes)];

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Bytes => "bytes",
        }
    }
}

/// Settings of all drivers, `[bytes]`; the message level has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSettings {
    /// Whether frames of version 2 carry checksums; those of later versions have none.
    pub checksum: bool,
    /// The version that connections begin with, where nothing is known of the peer; the newest that
    /// fits if `None`.
    pub version: Option<Version>,
    /// Bulk connections each way per peer.
    pub conns_per_peer: u8,
}

impl Default for ByteSettings {
    fn default() -> Self {
        Self { checksum: false, version: None, conns_per_peer: 1 }
    }
}

pub(crate) fn read(top: &mut Table<'_, '_>) -> Result<(Fidelity, ByteSettings), ScenarioError> {
    let fidelity = top.take("fidelity").map(|v| v.word(&Fidelity::ALL)).transpose()?;
    let mut settings = ByteSettings::default();
    if let Some(v) = top.take("bytes") {
        let mut t = v.table()?;
        if let Some(v) = t.take("checksum") {
            settings.checksum = v.flag()?;
        }
        settings.version = t.take("version").map(|v| version(&v)).transpose()?;
        if let Some(v) = t.take("conns_per_peer") {
            settings.conns_per_peer = v.number(1, 127)? as u8;
        }
        t.finish()?;
    }
    Ok((fidelity.unwrap_or_default(), settings))
}

fn version(v: &Value<'_, '_>) -> Result<Version, ScenarioError> {
    match v.number(2, 3)? {
        2 => Ok(Version::V2),
        _ => Ok(Version::V3),
    }
}

/// Whether the RDMA driver serves such networks: the kernel's is for `o2ib` alone.
fn is_of_rdma(net: Net) -> bool {
    net.kind == NetType::O2IB
}

impl Scenario {
    /// Another fidelity than the text's.
    ///
    /// # Errors
    /// What of the scenario can't be played so, with its place.
    pub fn set_fidelity(&mut self, fidelity: Fidelity) -> Result<(), String> {
        match self.against(fidelity) {
            Some((_, why)) => Err(why),
            None => {
                self.fidelity = fidelity;
                Ok(())
            }
        }
    }

    /// What can't be played at `fidelity`, with its line where it has one.
    pub(crate) fn against(&self, fidelity: Fidelity) -> Option<(Option<u32>, String)> {
        match fidelity {
            Fidelity::Messages => {
                let rdma = self.world.nets.iter().find(|net| net.transport == Transport::Rdma);
                if let Some(net) = rdma {
                    let what = "transport \"rdma\" is of adapters: expected fidelity = \"bytes\"";
                    return Some((None, format!("net {}: {what}", net.net)));
                }
                let fault = self.faults.iter().find(|f| {
                    matches!(f.kind, FaultKind::Corrupt { unnoticed, .. } if unnoticed != Share::NONE)
                })?;
                let what = "unnoticed corruption is of bytes: expected fidelity = \"bytes\"";
                Some((Some(fault.line), format!("line {}: {what}", fault.line)))
            }
            Fidelity::Bytes => self.world.nets.iter().find_map(|net| {
                let name = net.net;
                if net.transport == Transport::Datagram {
                    let what = "transport \"datagram\" has no bytes in order: expected \"stream\"";
                    return Some((None, format!("net {name}: {what} for fidelity = \"bytes\"")));
                }
                if net.transport == Transport::Gni || net.clocks != Clocks::default() {
                    let what = "transport \"gni\" and clocks of a network are of messages";
                    return Some((None, format!("net {name}: {what}: expected \"messages\"")));
                }
                if net.transport == Transport::Rdma && !is_of_rdma(net.net) {
                    let what = "transport \"rdma\" needs 4-byte addresses: expected o2ib";
                    return Some((None, format!("net {name}: {what}")));
                }
                let what = "its NIDs have no IP addresses, which fidelity = \"bytes\" needs";
                (!name.kind.has_ip_addresses()).then(|| (None, format!("net {name}: {what}")))
            }),
        }
    }
}
