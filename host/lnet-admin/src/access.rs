//! What each request needs: the right to look, or the right to change. One table for all of them,
//! which the compiler keeps whole.

use crate::Request;

/// The right of a user at a control socket. The greater right holds the lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Look at state. Nothing in the node changes by it, and no message leaves for its sake.
    Read,
    /// Everything.
    Write,
}

impl Request {
    /// The right that it needs.
    pub const fn needs(&self) -> Access {
        self.row().1
    }

    /// Its name in reports.
    pub const fn name(&self) -> &'static str {
        self.row().0
    }

    const fn row(&self) -> (&'static str, Access) {
        use Access::{Read, Write};
        match self {
            Self::Status => ("status", Read),
            Self::LnetConfigure { .. } => ("lnet configure", Write),
            Self::LnetUnconfigure => ("lnet unconfigure", Write),
            Self::NetAdd(_) => ("net add", Write),
            Self::NetRules { add: true, .. } => ("net add by rules", Write),
            Self::NetRules { add: false, .. } => ("net del by rules", Write),
            Self::NetDel(_) => ("net del", Write),
            Self::NetShow { .. } => ("net show", Read),
            Self::NetSet { .. } => ("net set", Write),
            Self::NetCptsSet(_) => ("net set --cpt", Write),
            Self::AcceptFromSet { .. } => ("net set --accept-from", Write),
            Self::LndTimeoutSet { .. } => ("net set --lnd-timeout", Write),
            Self::PeerAdd(_) => ("peer add", Write),
            Self::PeersAdd(_) => ("peer add", Write),
            Self::PeerDel(_) => ("peer del", Write),
            Self::PeerShow { .. } => ("peer show", Read),
            Self::PeerSet { .. } => ("peer set", Write),
            Self::RouteAdd(_) => ("route add", Write),
            Self::RouteDel(_) => ("route del", Write),
            Self::RouteShow { .. } => ("route show", Read),
            Self::RoutingSet { .. } => ("set routing", Write),
            Self::RoutingShow => ("routing show", Read),
            // They send, and leave a peer behind.
            Self::Ping(_) => ("ping", Write),
            Self::Discover(_) => ("discover", Write),
            Self::GlobalShow => ("global show", Read),
            Self::Set { .. } => ("set", Write),
            // On a copy.
            Self::Trial(_) => ("trial of a change", Read),
            Self::StatsShow => ("stats show", Read),
            Self::StatsReset | Self::CountersReset { .. } => ("stats reset", Write),
            Self::UdspAdd(_) => ("udsp add", Write),
            Self::UdspDel(_) => ("udsp del", Write),
            Self::UdspShow => ("udsp show", Read),
            Self::FaultAdd(_) => ("fault add", Write),
            Self::FaultDel(_) => ("fault del", Write),
            Self::FaultShow(_) => ("fault show", Read),
            Self::FaultReset(_) => ("fault reset", Write),
            Self::PeerFail { .. } => ("fail", Write),
            Self::LinkSimulate { .. } => ("fault link", Write),
            // It changes nothing, but fills the log.
            Self::PeerDump { .. } => ("debug peer", Write),
            Self::Mark { .. } => ("mark", Write),
            Self::CptOfNid { .. } => ("cpt-of-nid", Read),
            Self::Distance { .. } => ("which_nid", Read),
            Self::DriverShow { .. } => ("list of the driver", Read),
            Self::DriverDisconnect { forget: false, .. } => ("disconnect", Write),
            Self::DriverDisconnect { forget: true, .. } => ("del_peer", Write),
            Self::PeerNotify { .. } => ("set_route", Write),
            Self::ParamList => ("list of parameters", Read),
            Self::ParamGet { .. } => ("get_param", Read),
            Self::ParamSet { .. } => ("set_param", Write),
            Self::Explain { .. } | Self::ExplainLast { .. } | Self::ExplainResends { .. } => {
                ("explain", Read)
            }
            // Its console makes other nodes send, and even its questions go to them.
            Self::Selftest { .. } => ("selftest", Write),
            Self::SuspicionShow | Self::RailsShow => ("debug suspicion", Read),
            // Headers of messages are for administrators only.
            Self::Recording { .. } => ("debug dump", Write),
            Self::RecoveryShow { .. } => ("debug recovery", Read),
            Self::TimersShow => ("debug timers", Read),
            Self::TargetAdd { .. } => ("target add", Write),
            Self::TargetDel { .. } => ("target del", Write),
            Self::TargetShow => ("target show", Read),
            Self::ImportShow { .. } => ("import show", Read),
            Self::ImportExplain { .. } => ("explain import", Read),
            Self::ExportShow { .. } => ("export show", Read),
            Self::ExportEvict { .. } => ("export evict", Write),
            Self::LockShow { .. } => ("lock show", Read),
            Self::LockBreak { .. } => ("lock break", Write),
            Self::NamespaceShow => ("namespace show", Read),
            Self::ServiceShow => ("service show", Read),
            Self::RpcLose(_) => ("fault rpc lose", Write),
            Self::RpcDelay(_) => ("fault rpc delay", Write),
            Self::RpcFaultDel(_) => ("fault rpc del", Write),
            Self::RpcFaultShow => ("fault rpc show", Read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_and_administrators_change() {
        assert!(Access::Read < Access::Write);
        let nid = lnet_types::Nid::LOOPBACK;
        let reads = [
            Request::GlobalShow,
            Request::NetShow { net: None, detail: true },
            Request::PeerShow { nid: None, detail: false, from: None },
            Request::ParamGet { name: "stats".to_owned() },
            Request::Explain { target: nid, source: None, size: 1 },
            Request::TargetShow,
            Request::ExportShow { from: None },
            Request::ImportExplain { name: "kv-1".to_owned() },
            Request::NamespaceShow,
            Request::RpcFaultShow,
        ];
        for request in reads {
            assert_eq!(request.needs(), Access::Read, "{}", request.name());
        }
        let writes = [
            Request::LnetUnconfigure,
            Request::Ping(crate::Ping { nids: vec![nid], timeout_ms: None, source: None }),
            Request::Set { settings: Vec::new() },
            Request::ParamSet { name: "stats".to_owned(), value: "0".to_owned() },
            Request::Recording { part: 0, number: 0 },
            Request::LockBreak { lock: 1 },
            Request::DriverDisconnect { net: lnet_types::Net::TCP, nid: None, forget: false },
            Request::PeerNotify { nid, up: false, ago_s: 0 },
            Request::TargetAdd { target: "kv-1=kv:/srv".to_owned() },
            Request::ExportEvict { uuid: None, nid: Some(nid) },
            Request::RpcFaultDel(crate::RpcFaultDel::All),
        ];
        for request in writes {
            assert_eq!(request.needs(), Access::Write, "{}", request.name());
        }
    }
}
