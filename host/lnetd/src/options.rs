//! The command line of the daemon.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use lnet::Profile;

/// Runs an LNet node.
///
/// Without a configuration the node is what a freshly loaded kernel module is: there, but not
/// configured until `lnetctl lnet configure`. With `--config FILE` it configures itself from that
/// YAML, as `lnetctl import` would, and ends with an error if that fails.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "lnetd",
    version,
    after_help = "Examples:\n  \
    lnetd --background --socket /tmp/a.sock --port 9988\n  \
    ULNET_SOCKET=/tmp/a.sock lnetctl lnet configure\n  \
    lnetd --config /etc/ulnet/node.yaml --profile kernel\n  \
    lnetd --config /etc/ulnet/node.yaml --http 9110"
)]
pub struct Options {
    /// YAML configuration to start with: net, peer and global blocks.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Modprobe file with `options lnet ...`, `options ksocklnd ...` and `options ko2iblnd ...` lines. Its
    /// tunables are in force from the start; networks, ip2nets, routes and forwarding with `lnetctl lnet configure --all`, or
    /// at once with config_on_load=1. What it says wins over --port, --accept and the CPU partitions.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub modprobe: Option<PathBuf>,

    /// Control socket; default ULNET_SOCKET, else /run/ulnet/lnetd.sock.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Group (name or number) that may do everything at the control socket, as root and the daemon's
    /// own user may.
    #[arg(long, value_name = "GROUP", visible_alias = "group")]
    pub group_admin: Option<String>,

    /// Group (name or number) that may look: show, list, export, explain. It changes nothing and
    /// sends nothing.
    #[arg(long, value_name = "GROUP")]
    pub group_read: Option<String>,

    /// Set of defaults: default, documents, kernel, pre-2.13 or off. Without it the one that the
    /// configuration names, else default.
    #[arg(long, value_name = "NAME", value_parser = profile)]
    pub profile: Option<Profile>,

    /// TCP port of this node and of its peers. Ports below 1024 need privilege and are what kernel
    /// nodes use.
    #[arg(long, value_name = "PORT", default_value_t = 988, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Whose connections are accepted: secure (privileged source ports only), all, or none. On a
    /// port from 1024 up, source ports prove nothing and secure means all.
    #[arg(long, value_name = "MODE", default_value = "secure")]
    pub accept: Accept,

    /// Which peers may connect: networks (tcp1) or NIDs (10.0.[0-3].*@tcp, 192.168.0.0/16@tcp),
    /// separated by commas. A network that is not named accepts every peer. See also `lnetctl net
    /// set --accept-from`.
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    pub accept_from: lnd_sock::AcceptFrom,

    /// Most connections of one remote address.
    #[arg(long, value_name = "N", default_value_t = LIMITS.connections_per_address,
        value_parser = at_least_one())]
    pub connections_per_address: usize,

    /// Most connections of one remote address that have not said yet who they are.
    #[arg(long, value_name = "N", default_value_t = LIMITS.pending_accepts_per_address,
        value_parser = at_least_one())]
    pub pending_per_address: usize,

    /// Most bytes that the connections of one remote address may make the daemon hold: 1 KiB for
    /// each, and what was read ahead of messages that wait for a buffer.
    #[arg(long, value_name = "BYTES", default_value_t = LIMITS.memory_per_address,
        value_parser = clap::value_parser!(u64).range(lnd_sock::CONN_BYTES..))]
    pub memory_per_address: u64,

    /// Status page and Prometheus metrics at this address, read-only: a port (on loopback) or
    /// IP:PORT. Off unless given.
    #[arg(long, value_name = "ADDR", value_parser = crate::http::address)]
    pub http: Option<SocketAddr>,

    /// CPU partitions: how many; 0 leaves it to --cpu-pattern. Interfaces can be tied to them (`lnetctl
    /// net add --cpt`).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=lnet_types::CptTable::MAX as i64))]
    pub cpu_npartitions: Option<u32>,

    /// CPU partitions: their CPUs (`0[0-3] 1[4,5]`) or NUMA nodes (`N 0[0,1] 1[2]`); N alone, and as
    /// long as nothing is said, one for each NUMA node; C[...] leaves out CPUs of each NUMA node
    /// counted from 0, X[...] CPUs by their numbers.
    #[arg(long, value_name = "PATTERN")]
    pub cpu_pattern: Option<String>,

    /// Keep at least the last N calls of the node, for `lnetctl debug dump`, and of messages that
    /// succeed twenty times as many; some 2 KiB for each of the N at most. 0 keeps none.
    #[arg(long, value_name = "N", default_value_t = 16_384,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(..=1 << 20))]
    pub record: usize,

    /// Take part in LNet selftest sessions of other nodes' consoles (`lst`): a console that reaches
    /// this node can make it send test traffic. `lst new_session` on this node turns it on, too.
    #[arg(long)]
    pub selftest: bool,

    /// So many bulk transfers of selftest carry damaged data, to see that they are found.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub brw_inject_errors: u32,

    /// Show every tunable and status file in a directory, to be read and written with cat and echo
    /// (needs /dev/fuse); without DIR in /run/ulnet/parameters.
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = crate::params::fuse::DEFAULT_DIR)]
    pub parameters: Option<PathBuf>,

    /// Become a daemon: return when the control socket answers, with exit status 0, or with 1 and the
    /// reason why it does not.
    #[arg(short, long)]
    pub background: bool,

    /// Append the log to a file. Without it the log goes where standard error leads; with --background
    /// nowhere if that is a terminal.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    /// Write the process id to a file, which goes with the daemon.
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,

    /// Keep quiet but for warnings; RUST_LOG overrides.
    #[arg(short, long)]
    pub quiet: bool,
}

/// What peers may cost unless something else is said.
const LIMITS: lnd_sock::Limits = lnd_sock::Limits::DEFAULT;

fn at_least_one() -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(1..)
}

/// Source ports that the acceptor accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Accept {
    /// Privileged source ports only.
    Secure,
    /// Any source port.
    All,
    /// No connections: there is no listener.
    None,
}

impl Options {
    /// The profile that is in force.
    pub fn profile(&self) -> Profile {
        self.profile.unwrap_or_default()
    }
}

fn profile(name: &str) -> Result<Profile, String> {
    Profile::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Profile::ALL.iter().map(|p| p.name()).collect();
        format!("no such profile: expected one of {}", names.join(", "))
    })
}
