//! Making a node: on its own thread, or to be driven by the caller.

use core::net::IpAddr;
use core::time::Duration;

use lnd_sock::SockConfig;
use lnet::{Node, NodeConfig, Tunables};
use lnet_types::{CptTable, Net, NetType, Nid};

use crate::{IbNi, NiError, NodeHandle, Spin, Stack, TcpNi, clock, ib};

/// What a node starts with. Everything can be changed later through the stack.
#[derive(Debug)]
#[must_use = "a builder does nothing until `start` or `build`"]
pub struct NodeBuilder {
    seed: Option<u64>,
    tunables: Tunables,
    tcp: Vec<(Nid, u16)>,
    ib: Vec<(Net, String)>,
    spin: Spin,
    thread_name: String,
    cpts: Option<CptTable>,
}

impl NodeBuilder {
    /// A node without interfaces.
    pub fn new() -> Self {
        Self {
            seed: None,
            tunables: Tunables::default(),
            tcp: Vec::new(),
            ib: Vec::new(),
            spin: Spin::default(),
            thread_name: "lnet".to_owned(),
            cpts: None,
        }
    }

    /// An interface on network `tcp` at `ip`. `port` is the one that it listens on and that its
    /// peers listen on: 988 on kernel nodes, and the same for all interfaces of a node.
    pub fn tcp(self, ip: IpAddr, port: u16) -> Self {
        self.tcp_on(Net::TCP, ip, port)
    }

    /// An interface on another TCP network: `tcp1`, ….
    pub fn tcp_on(mut self, net: Net, ip: IpAddr, port: u16) -> Self {
        self.tcp.push((Nid::from_ip(net, ip), port));
        self
    }

    /// An interface on network `o2ib`, which reaches peers by RDMA: by its name (`ib0`), the name of its
    /// RDMA device (`mlx5_0`), or its IPv4 address. Libraries and device are looked for when the node
    /// is made.
    pub fn ib(self, interface: impl Into<String>) -> Self {
        self.ib_on(Net { kind: NetType::O2IB, num: 0 }, interface)
    }

    /// An interface on another RDMA network: `o2ib1`, ….
    pub fn ib_on(mut self, net: Net, interface: impl Into<String>) -> Self {
        self.ib.push((net, interface.into()));
        self
    }

    /// Fixes all of the node's random choices. From the operating system if not called.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The node's tunables to begin with.
    pub fn tunables(mut self, tunables: Tunables) -> Self {
        self.tunables = tunables;
        self
    }

    /// How long the node's own thread looks for work before it sleeps: see [`Spin`].
    pub fn spin(mut self, max: Duration) -> Self {
        self.spin = Spin { max };
        self
    }

    /// Name of the node's own thread; `lnet` if not called.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// The CPU partitions that interfaces can be tied to, as [`cpt_table`](crate::cpt_table) makes
    /// them. One for each NUMA node if not called.
    pub fn cpts(mut self, cpts: CptTable) -> Self {
        self.cpts = Some(cpts);
        self
    }

    /// A node for the caller to drive with [`Stack::turn`].
    ///
    /// # Errors
    /// An interface could not be started, or the system refused a poller.
    pub fn build(self) -> Result<Stack, NiError> {
        let seed = self.seed.unwrap_or_else(clock::random_seed);
        let config = NodeConfig {
            seed,
            interface_cookie: clock::incarnation(),
            ping_seq: 0,
            tunables: self.tunables,
        };
        let mut stack = Stack::new(|now| Node::new(config, now))?;
        if let Some(cpts) = self.cpts {
            let refused = |errno| NiError::Refused { nid: Nid::LOOPBACK, errno };
            stack.node_mut().set_cpts(cpts).map_err(refused)?;
        }
        if let Some(&(_, port)) = self.tcp.first() {
            stack.enable_tcp(SockConfig::on_port(port))?;
            for (nid, asked) in self.tcp {
                if asked != port {
                    return Err(NiError::Port { nid, asked, port });
                }
                stack.add_tcp_ni(TcpNi::new(nid))?;
            }
        }
        for (net, name) in self.ib {
            let failed = |reason| NiError::Ib { nid: Nid::ANY, reason };
            let table = stack.interfaces().unwrap_or_default();
            let (interface, ip) = ib::resolve(&name, &table).map_err(failed)?;
            stack.add_ib_ni(IbNi { interface, ..IbNi::new(Nid::from_ip(net, ip)) })?;
        }
        Ok(stack)
    }

    /// A node on a thread of its own.
    ///
    /// # Errors
    /// As [`NodeBuilder::build`], or the system refused a thread.
    pub fn start(mut self) -> Result<NodeHandle, NiError> {
        let (spin, name) = (self.spin, core::mem::take(&mut self.thread_name));
        Ok(self.build()?.spawn(name, spin)?)
    }
}

impl Default for NodeBuilder {
    fn default() -> Self {
        Self::new()
    }
}
