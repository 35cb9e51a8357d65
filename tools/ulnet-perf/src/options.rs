//! The command line of `ulnet perf`: names, units, defaults and bounds.

use core::fmt;
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use anyhow::{Context as _, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use lnet_rt::{Interfaces, interface_of_rdma_device};
use lnet_types::{Net, NetType};
use serde::Serialize;

/// Measures latency, message rate and bandwidth between two nodes.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ulnet perf",
    after_help = "Examples:\n  \
    ulnet perf local --inline --baseline\n  \
    ulnet perf local --test put --size 8 --window 256\n  \
    ulnet perf rpc --inline --size 1M,16M --rounds 5\n  \
    ulnet perf server --addr 10.0.0.1,10.1.0.1\n  \
    ulnet perf client --addr 10.0.0.2,10.1.0.2 --server 10.0.0.1 --rails 2 --size 1M\n  \
    ulnet perf server --net o2ib --if ib0 --inline\n  \
    ulnet perf client --net o2ib --if ib0 --inline --server 10.2.0.1 --size 8,1M --window 16"
)]
pub(super) struct Options {
    #[command(subcommand)]
    pub(super) program: Program,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Program {
    /// Answer clients until stopped.
    Server(Server),
    /// Measure against a server.
    Client(Client),
    /// Start a server as another process on this machine and measure against it.
    Local(Local),
    /// Measure requests with their replies and bulk data, beside PUTs and GETs of the same stacks.
    Rpc(RpcOptions),
    /// Connect many peers that say nothing to one node.
    #[command(hide = true)]
    IdlePeers(IdlePeers),
}

/// What both sides must agree on.
#[derive(Clone, Debug, Args)]
pub(super) struct Common {
    /// Turn the stack on the measuring thread, instead of a node on its own thread. It spins, unless there is
    /// one processor alone
    #[arg(long)]
    pub(super) inline: bool,

    /// TCP port of both sides, 1024 or above.
    #[arg(long, default_value_t = 7988, value_parser = clap::value_parser!(u16).range(1024..))]
    pub(super) port: u16,

    /// Interfaces, each with its own address. Counts the addresses given, if there are any.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(super) rails: u8,

    /// With --inline: stacks, each on its own thread and at addresses one higher than the one
    /// before. Otherwise: threads of the client that share its node.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(super) threads: u8,

    /// Bulk connections each way per pair of interfaces.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=127))]
    pub(super) conns: u8,

    /// Messages to one peer interface at a time; 8 to 255 of these over RDMA.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) peer_credits: u32,

    /// Messages through one interface at a time.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) credits: u32,

    /// Calls that the flight recorder of each node keeps, as with `lnetd --record`; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    pub(super) record: u32,
}

/// The network, and this side's interfaces on it.
#[derive(Clone, Debug, Args)]
pub(super) struct Network {
    /// Network: tcp, or o2ib for RDMA, with a number if need be.
    #[arg(long, value_name = "NET", default_value_t = Net::TCP, value_parser = network)]
    pub(super) net: Net,

    /// Interfaces or RDMA devices instead of addresses, one per rail. Of `local`: the server's and the
    /// client's.
    #[arg(long = "if", value_name = "NAME,…", value_delimiter = ',')]
    pub(super) interfaces: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(super) struct Server {
    /// Own addresses, one per rail; 127.72.RAIL.1 if none are given.
    #[arg(long, value_name = "IP,…", value_delimiter = ',')]
    pub(super) addr: Vec<IpAddr>,

    /// Speak over a bare socket instead of LNet.
    #[arg(long)]
    pub(super) bare: bool,

    /// Answer requests of `ulnet perf rpc` as well.
    #[arg(long, hide = true)]
    pub(super) rpc: bool,

    /// End when standard input does.
    #[arg(long, hide = true)]
    pub(super) until_eof: bool,

    #[command(flatten)]
    pub(super) network: Network,

    #[command(flatten)]
    pub(super) common: Common,
}

/// What is measured.
#[derive(Clone, Debug, Args)]
pub(super) struct Work {
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) test: Vec<Test>,

    /// Bytes of payload, with K or M for powers of 1024, 1 to 1M. Default: 8 for latency, 8 and 1M
    /// otherwise.
    #[arg(long, value_delimiter = ',')]
    pub(super) size: Vec<Size>,

    /// Operations under way at a time, per thread. Latency has one.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) window: u16,

    /// How long each test runs.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub(super) seconds: f64,

    /// How many operations each test has at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,

    /// Print JSON instead of a table.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct Client {
    /// Own addresses, one per rail; 127.72.RAIL.129 if none are given.
    #[arg(long, value_name = "IP,…", value_delimiter = ',')]
    pub(super) addr: Vec<IpAddr>,

    /// The server's first address.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::new(127, 72, 0, 1)))]
    pub(super) server: IpAddr,

    /// Speak over a bare socket instead of LNet; `--size` is then the whole frame.
    #[arg(long)]
    pub(super) bare: bool,

    #[command(flatten)]
    pub(super) network: Network,

    #[command(flatten)]
    pub(super) common: Common,

    #[command(flatten)]
    pub(super) work: Work,
}

#[derive(Clone, Debug, Args)]
pub(super) struct Local {
    /// Alternate with the same over a bare socket, and print ratios: a frame of the same length for
    /// latency, a stream for PUTs of 64 KiB or more.
    #[arg(long)]
    pub(super) baseline: bool,

    /// Do everything so often, each time with a fresh server, and print medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(super) rounds: u8,

    #[command(flatten)]
    pub(super) network: Network,

    #[command(flatten)]
    pub(super) common: Common,

    #[command(flatten)]
    pub(super) work: Work,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet perf rpc --seconds 1\n  \
    ulnet perf rpc --inline --size 1M,16M --rounds 5 --json")]
pub(super) struct RpcOptions {
    /// Bytes of bulk data of a call, with K or M for powers of 1024, 1 to 16M.
    #[arg(long, value_delimiter = ',', default_values = ["1M", "16M"], value_parser = bulk_size)]
    pub(super) size: Vec<Size>,

    /// Calls under way at a time. Round trips have one, bulk data 4 MiB or one call.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) window: u16,

    /// How long each line is measured.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub(super) seconds: f64,

    /// Do everything so often, each time with a fresh server, and print medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(super) rounds: u8,

    /// Print JSON instead of a table.
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Clone, Debug, Args)]
pub(super) struct IdlePeers {
    /// The node's address.
    #[arg(long, value_name = "IP")]
    pub(super) server: Ipv4Addr,

    /// The node's TCP port.
    #[arg(long)]
    pub(super) port: u16,

    /// Peers, each with its own address from 127.80.0.1 on.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) peers: u32,

    /// The node's process, whose memory is reported.
    #[arg(long)]
    pub(super) pid: Option<u32>,

    /// Stay connected for so long after the last peer.
    #[arg(long, default_value_t = 0.0, value_parser = seconds)]
    pub(super) hold: f64,
}

fn network(s: &str) -> Result<Net, String> {
    let known = s.parse().ok().filter(|n: &Net| [NetType::TCP, NetType::O2IB].contains(&n.kind));
    known.ok_or_else(|| format!("network '{s}': expected tcp or o2ib, such as o2ib1"))
}

impl Network {
    pub(super) fn is_rdma(&self) -> bool {
        self.net.kind == NetType::O2IB
    }

    /// The options that both sides share, within what the network has room for.
    ///
    /// # Errors
    /// What the network cannot do.
    pub(super) fn common(&self, common: &Common) -> anyhow::Result<Common> {
        let mut common = common.clone();
        if self.is_rdma() {
            ensure!(
                !common.inline || common.threads == 1,
                "--threads {}: must be 1 with --inline over {}: stacks need addresses of their own",
                common.threads,
                self.net
            );
            common.peer_credits = common.peer_credits.clamp(8, 255);
        }
        Ok(common)
    }

    /// The addresses of this side: those given, or those of its interfaces; none for the defaults.
    ///
    /// # Errors
    /// No such interface, or nothing was given where there are no defaults.
    pub(super) fn given(&self, addr: &[IpAddr]) -> anyhow::Result<Vec<IpAddr>> {
        ensure!(
            addr.is_empty() || self.interfaces.is_empty(),
            "--addr and --if: expected one of them"
        );
        ensure!(
            !self.is_rdma() || !addr.is_empty() || !self.interfaces.is_empty(),
            "net {}: expected --if or --addr: RDMA has no loopback addresses",
            self.net
        );
        if self.interfaces.is_empty() {
            return Ok(addr.to_vec());
        }
        let table = Interfaces::load().context("interfaces")?;
        let address = |name: &String| {
            let device = interface_of_rdma_device(name).filter(|_| self.is_rdma());
            let (_, ip) = table
                .resolve(device.as_deref().unwrap_or(name))
                .with_context(|| format!("interface {name}: not there, or without an address"))?;
            Ok(ip)
        };
        self.interfaces.iter().map(address).collect()
    }
}

/// A thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Test {
    /// A PUT, answered by a PUT: half of the time from one to the other.
    Latency,
    /// PUTs without acknowledgement.
    Put,
    /// PUTs with acknowledgement.
    PutAck,
    /// GETs.
    Get,
}

impl Test {
    pub(super) const ALL: [Self; 4] = [Self::Latency, Self::Put, Self::PutAck, Self::Get];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Put => "put",
            Self::PutAck => "put-ack",
            Self::Get => "get",
        }
    }
}

/// Bytes of payload of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub(super) u32);

impl Size {
    /// The most that one message can carry.
    pub(super) const MAX: u32 = 1 << 20;
}

/// A size of bulk data, which may have many messages.
fn bulk_size(s: &str) -> Result<Size, String> {
    Size::up_to(s, 16 << 20)
}

impl FromStr for Size {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::up_to(s, Self::MAX)
    }
}

impl Size {
    fn up_to(s: &str, max: u32) -> Result<Self, String> {
        let wrong = || format!("size '{s}': expected 1 to {}M bytes", max >> 20);
        let (digits, unit) = match s.as_bytes().last() {
            Some(b'K' | b'k') => (&s[..s.len() - 1], 1 << 10),
            Some(b'M' | b'm') => (&s[..s.len() - 1], 1 << 20),
            _ => (s, 1),
        };
        let n = digits.parse::<u32>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)?;
        if (1..=max).contains(&n) { Ok(Self(n)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n % (1 << 20) == 0 => write!(f, "{}M", n >> 20),
            n if n % (1 << 10) == 0 => write!(f, "{}K", n >> 10),
            n => write!(f, "{n}"),
        }
    }
}

fn seconds(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(n) if (0.0..=86_400.0).contains(&n) => Ok(n),
        _ => Err(format!("'{s}': expected 0 to 86400 seconds")),
    }
}

/// When a test is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) time: Duration,
    pub(super) count: u64,
}

impl Work {
    pub(super) fn limit(&self) -> Limit {
        Limit { time: Duration::from_secs_f64(self.seconds), count: self.count.unwrap_or(u64::MAX) }
    }

    /// Tests with their sizes, in order; those of `able` if none are named.
    pub(super) fn list(&self, able: &[Test]) -> Vec<(Test, Size)> {
        let tests = if self.test.is_empty() { able } else { &self.test };
        let sizes = |test| match (self.size.as_slice(), test) {
            ([], Test::Latency) => vec![Size(8)],
            ([], _) => vec![Size(8), Size(Size::MAX)],
            (given, _) => given.to_vec(),
        };
        tests.iter().flat_map(|&t| sizes(t).into_iter().map(move |s| (t, s))).collect()
    }
}

/// Addresses of stack number `stack`: those given, or 127.72.RAIL.`host`, each `stack` higher.
pub(super) fn addresses(given: &[IpAddr], rails: u8, host: u8, stack: u8) -> Vec<IpAddr> {
    let higher = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => IpAddr::from(ip.to_bits().wrapping_add(stack.into()).to_be_bytes()),
        IpAddr::V6(ip) => IpAddr::from(ip.to_bits().wrapping_add(stack.into()).to_be_bytes()),
    };
    if given.is_empty() {
        (0..rails).map(|rail| higher(&Ipv4Addr::new(127, 72, rail, host).into())).collect()
    } else {
        given.iter().map(higher).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_alike() {
        for text in ["1", "8", "4K", "1M", "1000"] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.to_string(), text);
        }
        assert_eq!("1024K".parse(), Ok(Size(Size::MAX)));
        for wrong in ["", "0", "K", "2M", "-1", "8B", "4096M", "1.5K"] {
            let error = wrong.parse::<Size>().unwrap_err();
            assert!(error.contains(wrong) && error.contains("expected"), "{error}");
        }
    }

    #[test]
    fn every_stack_has_addresses_of_its_own() {
        let of = |given: &[IpAddr], stack| {
            addresses(given, 2, 129, stack).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&[], 0), ["127.72.0.129", "127.72.1.129"]);
        assert_eq!(of(&[], 1), ["127.72.0.130", "127.72.1.130"]);
        assert_eq!(of(&["10.0.0.255".parse().unwrap()], 1), ["10.0.1.0"]);
        assert_eq!(of(&["fd00::1".parse().unwrap()], 2), ["fd00::3"]);
    }

    #[test]
    fn an_rdma_network_needs_interfaces_and_bounds_credits_and_stacks() {
        let of = |words: &[&str]| {
            let line = ["perf", "client"].iter().chain(words);
            let Program::Client(client) = Options::try_parse_from(line)?.program else { panic!() };
            let common = client.network.common(&client.common)?;
            let addr = client.network.given(&client.addr)?;
            Ok::<_, anyhow::Error>((client.network.net.to_string(), common.peer_credits, addr))
        };
        let refused = |words: &[&str]| of(words).unwrap_err().to_string();
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(of(&[]).unwrap(), ("tcp".to_owned(), 1024, vec![]));
        let by_addr = of(&["--net", "o2ib1", "--addr", "10.0.0.1"]).unwrap();
        assert_eq!(by_addr, ("o2ib1".to_owned(), 255, vec![ip]));
        let by_name = of(&["--net", "tcp1", "--if", "lo"]).unwrap();
        assert_eq!(by_name.2, ["127.0.0.1".parse::<IpAddr>().unwrap()]);
        assert!(refused(&["--net", "gni"]).contains("network 'gni': expected tcp or o2ib"));
        assert!(refused(&["--net", "o2ib"]).contains("expected --if or --addr"));
        assert!(refused(&["--if", "lo", "--addr", "10.0.0.1"]).contains("expected one of them"));
        assert!(refused(&["--if", "no-such-if"]).contains("interface no-such-if: not there"));
        let two = ["--net", "o2ib", "--addr", "10.0.0.1", "--inline", "--threads", "2"];
        assert!(refused(&two).contains("must be 1 with --inline over o2ib"));
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
    }
}
