//! From snapshots to the blocks of a configuration that make the same again.

use lnet_config::{Interface, LndTunables, NetBlock, NetTunables, NiBlock, PeerBlock};

use crate::{LndSnapshot, NetSnapshot, NiSnapshot, PeerFlags, PeerSnapshot};

impl NetSnapshot {
    /// What configures this net again. An interface stands alone where its first IPv4 address is meant.
    pub fn block(&self) -> NetBlock {
        let mut block = self.block_with_nids();
        for ni in &mut block.nis {
            ni.nid = ni.nid.filter(|nid| nid.is_large() || ni.interfaces.is_empty());
        }
        block
    }

    /// The same with the NID of each NI, whether or not its interface stands for it.
    pub fn block_with_nids(&self) -> NetBlock {
        let accept_from = (!self.accept_from.is_empty()).then(|| self.accept_from.clone());
        NetBlock { net: self.net, nis: self.nis.iter().map(ni_block).collect(), accept_from }
    }
}

fn ni_block(ni: &NiSnapshot) -> NiBlock {
    let name = |name: &String| Interface { name: name.clone(), cpts: None };
    // An interface alone means its first IPv4 address.
    let by_address = ni.detail.as_ref().is_some_and(|d| d.more.by_address);
    let interfaces = ni.interface.iter().filter(|_| !by_address).map(name).collect();
    let nid = Some(ni.nid);
    let Some(detail) = &ni.detail else {
        return NiBlock { interfaces, nid, ..NiBlock::default() };
    };
    let t = &detail.tunables;
    let count = |value: i32| u32::try_from(value).ok();
    let lnd = detail.lnd.as_ref().map(|lnd| match *lnd {
        LndSnapshot::Sock { conns_per_peer, tos, .. } => LndTunables {
            conns_per_peer: u8::try_from(conns_per_peer).ok(),
            tos: i16::try_from(tos).ok(),
            ..LndTunables::default()
        },
        LndSnapshot::O2ib { peercredits_hiw, concurrent_sends, conns_per_peer, tos, .. } => {
            LndTunables {
                conns_per_peer: u8::try_from(conns_per_peer).ok(),
                tos: i16::try_from(tos).ok(),
                peercredits_hiw: Some(peercredits_hiw),
                concurrent_sends: Some(concurrent_sends),
            }
        }
    });
    NiBlock {
        interfaces,
        nid,
        tunables: NetTunables {
            peer_timeout_s: count(t.peer_timeout_s),
            peer_credits: count(t.peer_credits),
            peer_buffer_credits: count(t.peer_buffer_credits),
            credits: count(t.credits),
        },
        lnd: lnd.unwrap_or_default(),
        cpts: Some(detail.cpts.clone()),
    }
}

impl PeerSnapshot {
    /// What configures this peer again.
    pub fn block(&self) -> PeerBlock {
        let nids = self.nis.iter().map(|ni| ni.nid).filter(|nid| *nid != self.primary).collect();
        PeerBlock {
            primary: self.primary,
            nids,
            multi_rail: self.multi_rail,
            lock_primary: self.state & PeerFlags::PRIMARY_LOCKED != 0,
            secondary_only: false,
        }
    }
}
