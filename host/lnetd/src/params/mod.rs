//! Parameter files: every tunable and the status files of the kernel, by its names, as texts that
//! can be read and written (lnetctl.md 7; DEC-17). One table; `lctl get_param` and the directory of
//! `--parameters` (`fuse.rs`) are two ways to it. What status files say is in `status.rs`.

pub(crate) mod fuse;
pub(crate) mod rotor;
mod rpc;
mod status;

use lnd_sock::AcceptMode;
use lnet::{NetTunables, Tunables};
use lnet_admin::{AdminError, ParamInfo, Reply, Request};
use lnet_config::{
    IbParameters, ModuleParameters, Setting, SockParameters, nearest, parse_number, parse_setting,
};
use lnet_rt::CmConfig;
use lnet_types::{CpuPattern, Errno, Net, NetType};

use crate::control::Control;

/// Tunables that the kernel calls otherwise.
const KERNEL_NAMES: [(&str, &str); 16] = [
    ("numa_range", "lnet_numa_range"),
    ("max_interfaces", "lnet_interfaces_max"),
    ("discovery", DISCOVERY_DISABLED),
    ("drop_asym_route", "lnet_drop_asym_route"),
    ("retry_count", "lnet_retry_count"),
    ("transaction_timeout", "lnet_transaction_timeout"),
    ("health_sensitivity", "lnet_health_sensitivity"),
    ("recovery_interval", "lnet_recovery_interval"),
    ("router_sensitivity", "router_sensitivity_percentage"),
    ("response_tracking", "lnet_response_tracking"),
    ("recovery_limit", "lnet_recovery_limit"),
    ("max_recovery_ping_interval", "lnet_max_recovery_ping_interval"),
    ("tiny_buffers", "tiny_router_buffers"),
    ("small_buffers", "small_router_buffers"),
    ("large_buffers", "large_router_buffers"),
    ("peer_buffer_credits", "peer_buffer_credits"),
];
/// The one that says the opposite.
const DISCOVERY_DISABLED: &str = "lnet_peer_discovery_disabled";

/// What stands behind a file.
#[derive(Clone, Copy)]
enum Source {
    /// A tunable of the node, by our name.
    Tunable(&'static str),
    /// A tunable of the request layer.
    Rpc(&'static lustre_rt::Setting),
    /// A status file, and what writing anything to it does.
    Status(status::Show, Option<status::Touch>),
    /// The driver's time limit, seconds; 0 follows the node's.
    SockTimeout,
    /// How messages for wildcard portals are spread over CPU partitions.
    Rotor,
    /// A setting of the driver that is fixed when it starts.
    Sock(fn(&lnd_sock::SockConfig) -> i64),
    /// Whose connections are accepted.
    Accept,
    /// How the machine is parted.
    Cpus(fn(&CpuPattern) -> String),
    /// Something else that module parameters say.
    Module(fn(&ModuleParameters) -> i64),
    /// What interfaces to come have where nothing else is said for them.
    Ni(fn(&SockParameters) -> i64),
    /// The RDMA driver's time limit, seconds; 0 follows the node's.
    IbTimeout,
    /// What RDMA interfaces to come have where nothing else is said for them.
    Ib(fn(&IbParameters) -> i64),
    /// The RDMA interface where none is named.
    IbInterface,
}

/// One file.
struct Param {
    name: &'static str,
    source: Source,
}

impl Param {
    fn is_writable(&self) -> bool {
        match self.source {
            Source::Tunable(_)
            | Source::Rpc(_)
            | Source::SockTimeout
            | Source::IbTimeout
            | Source::Rotor => true,
            Source::Status(_, touch) => touch.is_some(),
            Source::Sock(_)
            | Source::Accept
            | Source::Cpus(_)
            | Source::Module(_)
            | Source::Ni(_)
            | Source::Ib(_)
            | Source::IbInterface => false,
        }
    }
}

/// All of them, by name.
fn table() -> Vec<Param> {
    let kernel = |ours: &'static str| {
        KERNEL_NAMES.iter().find(|(name, _)| *name == ours).map_or(ours, |(_, name)| name)
    };
    let tunables = Tunables::TABLE
        .iter()
        .map(|row| Param { name: kernel(row.name), source: Source::Tunable(row.name) });
    let rpc = lustre_rt::Tunables::TABLE
        .iter()
        .map(|row| Param { name: row.name, source: Source::Rpc(row) });
    let status = status::FILES
        .iter()
        .map(|&(name, show, touch)| Param { name, source: Source::Status(show, touch) });

    let sock: [(&str, Source); 23] = [
        ("accept", Source::Accept),
        ("accept_port", Source::Sock(|c| c.port.into())),
        ("accept_port_bulk", Source::Sock(|c| c.bulk_port.into())),
        ("accept_timeout", Source::Sock(|c| c.accept_timeout.as_secs() as i64)),
        ("ksocklnd/credits", Source::Ni(|p| positive(p.credits, NetTunables::SOCK.credits))),
        (
            "ksocklnd/peer_credits",
            Source::Ni(|p| positive(p.peer_credits, NetTunables::SOCK.peer_credits)),
        ),
        (
            "ksocklnd/peer_buffer_credits",
            Source::Ni(|p| or(p.peer_buffer_credits, NetTunables::SOCK.peer_buffer_credits)),
        ),
        (
            "ksocklnd/peer_timeout",
            Source::Ni(|p| or(p.peer_timeout, NetTunables::SOCK.peer_timeout)),
        ),
        ("ksocklnd/conns_per_peer", Source::Ni(|p| p.conns_per_peer.map_or(0, i64::from))),
        ("ksocklnd/tos", Source::Ni(|p| p.tos.map_or(-1, i64::from))),
        (
            "ksocklnd/keepalive_idle",
            Source::Sock(|c| c.tcp_keepalive.map_or(0, |(idle, ..)| idle.as_secs() as i64)),
        ),
        (
            "ksocklnd/keepalive_intvl",
            Source::Sock(|c| c.tcp_keepalive.map_or(0, |(_, every, _)| every.as_secs() as i64)),
        ),
        (
            "ksocklnd/keepalive_count",
            Source::Sock(|c| c.tcp_keepalive.map_or(0, |(.., count)| count.into())),
        ),
        ("ksocklnd/sock_timeout", Source::SockTimeout),
        ("ksocklnd/min_reconnectms", Source::Sock(|c| c.min_reconnect.as_millis() as i64)),
        ("ksocklnd/max_reconnectms", Source::Sock(|c| c.max_reconnect.as_millis() as i64)),
        ("ksocklnd/min_bulk", Source::Sock(|c| c.min_bulk.into())),
        ("ksocklnd/keepalive", Source::Sock(|c| c.keepalive.as_secs() as i64)),
        ("ksocklnd/nagle", Source::Sock(|c| c.nagle.into())),
        ("ksocklnd/enable_csum", Source::Sock(|c| c.checksum.into())),
        ("ksocklnd/tx_buffer_size", Source::Sock(|c| c.send_buffer.unwrap_or(0).into())),
        ("ksocklnd/rx_buffer_size", Source::Sock(|c| c.recv_buffer.unwrap_or(0).into())),
        ("ksocklnd/accept_port", Source::Sock(|c| c.port.into())),
    ];
    let sock = sock.into_iter().chain(rdma()).map(|(name, source)| Param { name, source });
    let others = [
        Param {
            name: "lock_prim_nid",
            source: Source::Module(|p| p.lock_prim_nid.unwrap_or(true).into()),
        },
        Param { name: "portal_rotor", source: Source::Rotor },
        Param {
            name: "cpu_npartitions",
            source: Source::Cpus(|cpus| cpus.npartitions().to_string()),
        },
        Param { name: "cpu_pattern", source: Source::Cpus(ToString::to_string) },
    ];
    let mut all: Vec<Param> = tunables.chain(rpc).chain(status).chain(sock).chain(others).collect();
    all.sort_unstable_by_key(|p| p.name);
    all
}

/// Those of the RDMA driver. They are shown as they were given; what follows from them stands with the
/// interfaces.
fn rdma() -> [(&'static str, Source); 16] {
    [
        (
            "ko2iblnd/service",
            Source::Ib(|p| or(p.service.map(u32::from), CmConfig::default().service)),
        ),
        ("ko2iblnd/timeout", Source::IbTimeout),
        ("ko2iblnd/conns_per_peer", Source::Ib(|p| p.conns_per_peer.map_or(1, i64::from))),
        ("ko2iblnd/credits", Source::Ib(|p| positive(p.credits, NetTunables::SOCK.credits))),
        (
            "ko2iblnd/peer_credits",
            Source::Ib(|p| positive(p.peer_credits, NetTunables::SOCK.peer_credits)),
        ),
        ("ko2iblnd/peer_credits_hiw", Source::Ib(|p| or(p.peer_credits_hiw, 0_u32))),
        (
            "ko2iblnd/peer_buffer_credits",
            Source::Ib(|p| or(p.peer_buffer_credits, NetTunables::SOCK.peer_buffer_credits)),
        ),
        (
            "ko2iblnd/peer_timeout",
            Source::Ib(|p| or(p.peer_timeout, NetTunables::SOCK.peer_timeout)),
        ),
        ("ko2iblnd/ipif_name", Source::IbInterface),
        (
            "ko2iblnd/retry_count",
            Source::Ib(|p| or(p.retry_count.map(u32::from), CmConfig::default().retries)),
        ),
        (
            "ko2iblnd/rnr_retry_count",
            Source::Ib(|p| {
                or(p.rnr_retry_count.map(u32::from), CmConfig::default().receiver_retries)
            }),
        ),
        (
            "ko2iblnd/keepalive",
            Source::Ib(|p| {
                or(p.keepalive, lnet_rt::IbConfig::default().keepalive.as_secs() as u32)
            }),
        ),
        ("ko2iblnd/concurrent_sends", Source::Ib(|p| or(p.concurrent_sends, 0_u32))),
        (
            "ko2iblnd/require_privileged_port",
            Source::Ib(|p| {
                p.require_privileged_port
                    .unwrap_or_else(|| CmConfig::default().wants_privileged_port)
                    .into()
            }),
        ),
        (
            "ko2iblnd/use_privileged_port",
            Source::Ib(|p| {
                p.use_privileged_port
                    .unwrap_or_else(|| CmConfig::default().uses_privileged_port)
                    .into()
            }),
        ),
        ("ko2iblnd/tos", Source::Ib(|p| p.tos.map_or(-1, i64::from))),
    ]
}

/// What is said of a setting of interfaces, else the driver's own.
fn or(said: Option<u32>, own: impl Into<i64>) -> i64 {
    said.map_or_else(|| own.into(), i64::from)
}

/// The same of what can't be 0.
fn positive(said: Option<u32>, own: u32) -> i64 {
    or(said.filter(|n| *n > 0), own)
}

fn find(name: &str) -> Result<Param, AdminError> {
    table().into_iter().find(|p| p.name == name).ok_or_else(|| {
        let near = nearest(name, table().into_iter().map(|p| p.name));
        let hint = near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
        AdminError::errno(Errno::ENOENT)
            .because(format_args!("no parameter is called '{name}'{hint}"))
    })
}

/// The files, by name.
pub(crate) fn list() -> Vec<ParamInfo> {
    let info = |p: Param| ParamInfo { name: p.name.to_owned(), writable: p.is_writable() };
    table().into_iter().map(info).collect()
}

/// The files, and what there is besides: parameters of imports, exports and services come and go.
pub(crate) fn list_all(control: &Control) -> Vec<ParamInfo> {
    let mut all = list();
    all.extend(rpc::list(control));
    all
}

/// What a file says, with its last newline.
pub(crate) fn get(control: &Control, name: &str) -> Result<String, AdminError> {
    let line = |n: i64| format!("{n}\n");
    let param = match find(name) {
        Ok(param) => param,
        Err(e) => return rpc::get(control, name)?.ok_or(e),
    };
    match param.source {
        Source::Tunable(tunable) => {
            let Reply::Global(global) = control.answer(Request::GlobalShow)? else {
                return Err(AdminError::errno(Errno::EPROTO));
            };
            let value = global.value(tunable).ok_or_else(|| AdminError::errno(Errno::ENOENT))?;
            Ok(line(if name == DISCOVERY_DISABLED { i64::from(value == 0) } else { value }))
        }
        Source::Rpc(row) => Ok(line(row.value(&control.rpc_tunables()).into())),
        Source::Status(show, _) => show(control),
        Source::SockTimeout => Ok(line(control.sock_timeout().into())),
        Source::Rotor => Ok(rotor::show(control.rotor())),
        Source::Sock(value) => Ok(line(value(&control.sock_config()))),
        Source::Accept => {
            let mode = match control.sock_config().accept {
                AcceptMode::Secure => "secure",
                AcceptMode::All => "all",
                AcceptMode::None => "none",
            };
            Ok(format!("{mode}\n"))
        }
        Source::Cpus(text) => Ok(text(control.cpus.pattern()) + "\n"),
        Source::Ni(value) => Ok(line(value(&control.sock_parameters()))),
        Source::IbTimeout => Ok(line(control.ib_timeout().into())),
        Source::Ib(value) => Ok(line(value(&control.parameters().ib))),
        Source::IbInterface => {
            Ok(format!("{}\n", control.parameters().ib.ipif_name.as_deref().unwrap_or("ib0")))
        }
        Source::Module(value) => Ok(line(value(control.parameters()))),
    }
}

/// Writes a file, as `echo` does: spaces and newlines around the value mean nothing.
pub(crate) fn set(control: &Control, name: &str, text: &str) -> Result<(), AdminError> {
    let word = text.trim();
    let param = match find(name) {
        Ok(param) => param,
        Err(e) => return rpc::set(control, name, word)?.ok_or(e),
    };
    let refused = || {
        AdminError::errno(Errno::EINVAL).because(format_args!("{name} '{word}': expected a number"))
    };
    let number = || parse_number(word).ok_or_else(refused);
    let request = match param.source {
        Source::Tunable(tunable) => {
            let value = match parse_setting(tunable, word).ok_or_else(refused)? {
                n if name == DISCOVERY_DISABLED => i64::from(n == 0),
                n => n,
            };
            Request::Set { settings: vec![Setting::new(tunable, value)] }
        }
        Source::Rpc(row) => {
            let value = u32::try_from(number()?).map_err(|_| refused())?;
            return control.set_rpc_tunable(row, value);
        }
        Source::Rotor => {
            let at = rotor::parse(word).ok_or_else(|| {
                AdminError::errno(Errno::EINVAL)
                    .because(format_args!("{name} '{word}': expected {}", rotor::words()))
            })?;
            tracing::info!(
                "portal_rotor {word} is kept and without effect: one thread works for all partitions"
            );
            control.set_rotor(at);
            return Ok(());
        }
        Source::Status(_, Some(touch)) => return touch(control),
        Source::SockTimeout | Source::IbTimeout => {
            let seconds = u32::try_from(number()?).map_err(|_| {
                AdminError::errno(Errno::EINVAL)
                    .because(format_args!("{name} '{word}': expected 0 or more seconds"))
            })?;
            let rdma = Net { kind: NetType::O2IB, num: 0 };
            let net = if matches!(param.source, Source::IbTimeout) { rdma } else { Net::TCP };
            Request::LndTimeoutSet { net, seconds }
        }
        Source::Status(_, None)
        | Source::Sock(_)
        | Source::Accept
        | Source::Cpus(_)
        | Source::Module(_)
        | Source::Ni(_)
        | Source::Ib(_)
        | Source::IbInterface => {
            return Err(
                AdminError::errno(Errno::EACCES).because(format_args!("{name} can be read only"))
            );
        }
    };
    control.answer(request).map(|_| ())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::Options;

    fn control() -> Control {
        Control::new(
            &Options::parse_from(["lnetd", "--profile", "kernel", "--port", "9988"]),
            ModuleParameters::default(),
        )
        .unwrap()
    }

    fn errno<T: core::fmt::Debug>(result: Result<T, AdminError>) -> Errno {
        result.unwrap_err().errno
    }

    #[test]
    fn every_tunable_is_a_file_under_the_kernels_name() {
        let control = control();
        let names: Vec<_> = list().into_iter().map(|p| p.name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for row in Tunables::TABLE {
            let known = KERNEL_NAMES.iter().find(|(ours, _)| *ours == row.name);
            let name = known.map_or(row.name, |(_, kernel)| kernel);
            let text = get(&control, name).unwrap();
            assert!(text.ends_with('\n') && parse_number(text.trim()).is_some(), "{name}: {text}");
        }
        for (ours, _) in KERNEL_NAMES {
            assert!(Tunables::row(ours).is_some(), "{ours}");
        }
    }

    #[test]
    fn a_written_parameter_is_read_back_and_a_refused_one_changes_nothing() {
        let control = control();
        let read = |name: &str| get(&control, name).unwrap();
        assert_eq!(read("lnet_retry_count"), "2\n");
        set(&control, "lnet_retry_count", "3\n").unwrap();
        assert_eq!(read("lnet_retry_count"), "3\n");
        set(&control, "lnet_health_sensitivity", " 0x32\n").unwrap();
        assert_eq!(read("lnet_health_sensitivity"), "50\n");
        set(&control, "lnet_health_sensitivity", "5%").unwrap();
        assert_eq!(read("lnet_health_sensitivity"), "50\n");
        for bad in ["", "foo", "1001", "-1", "5 6"] {
            assert_eq!(
                errno(set(&control, "lnet_health_sensitivity", bad)),
                Errno::EINVAL,
                "{bad}"
            );
        }
        assert_eq!(read("lnet_health_sensitivity"), "50\n");
        assert_eq!(errno(set(&control, "lnet_lnd_timeout", "1")), Errno::EACCES);
        assert_eq!(errno(get(&control, "nonsense")), Errno::ENOENT);
        assert_eq!(errno(set(&control, "nonsense", "1")), Errno::ENOENT);
        assert_eq!(
            (read("ksocklnd/sock_timeout"), read("ksocklnd/accept_port")),
            ("50\n".to_owned(), "9988\n".to_owned())
        );
    }

    /// UG-041: the driver had a limit of its own before there was health; since then it is what the retries
    /// leave of the whole operation.
    #[test]
    fn the_limit_of_one_transmission_was_50_s_and_is_now_a_share_of_the_operation() {
        let of = |profile| {
            let options = Options::parse_from(["lnetd", "--profile", profile]);
            Control::new(&options, ModuleParameters::default()).unwrap()
        };
        let own = |control: &Control| get(control, "ksocklnd/sock_timeout").unwrap();
        assert_eq!(own(&of("pre-2.13")), "50\n");
        let control = of("documents");
        assert_eq!(own(&control), "0\n", "the node's");
        let share = || get(&control, "lnet_lnd_timeout").unwrap().trim().parse::<u32>().unwrap();
        let of_five = share();
        assert!((1..5).contains(&of_five), "{of_five}");
        set(&control, "lnet_transaction_timeout", "50").unwrap();
        assert!((of_five + 1..50).contains(&share()), "{}", share());
    }

    #[test]
    fn the_file_that_disables_discovery_says_the_opposite_of_discovery() {
        let control = control();
        assert_eq!(get(&control, DISCOVERY_DISABLED).unwrap(), "0\n");
        set(&control, DISCOVERY_DISABLED, "7").unwrap();
        assert_eq!(get(&control, DISCOVERY_DISABLED).unwrap(), "1\n");
    }

    #[test]
    fn the_rotor_takes_its_words_and_nothing_else() {
        let control = control();
        assert!(get(&control, "portal_rotor").unwrap().contains("rotor: HASH_RT"));
        set(&control, "portal_rotor", "rr_rt\n").unwrap();
        assert!(get(&control, "portal_rotor").unwrap().contains("rotor: RR_RT"));
        assert_eq!(errno(set(&control, "portal_rotor", "SIDEWAYS")), Errno::EINVAL);
        assert!(get(&control, "portal_rotor").unwrap().contains("rotor: RR_RT"));
    }

    #[test]
    fn status_files_exist_while_lnet_is_configured() {
        let control = control();
        for (name, ..) in status::FILES {
            let there = get(&control, name);
            if *name == "lnet_lnd_timeout" {
                assert_eq!(there.unwrap(), "49\n");
            } else if name.starts_with("cpu_") {
                assert!(there.unwrap().starts_with("0\t: 0"), "{name}");
            } else {
                assert_eq!(errno(there), Errno::ENETDOWN, "{name}");
            }
        }
        control.answer(Request::LnetConfigure { all: false, large: false }).unwrap();
        let text = |name: &str| get(&control, name).unwrap();
        assert_eq!(text("stats"), "0 0 0 0 0 0 0 0 0 0 0\n");
        assert_eq!(text("routes"), "Routing disabled\nnet      hops priority   state router\n");
        assert_eq!(text("routers"), "ref  rtr_ref alive router\n");
        assert_eq!(text("buffers"), "pages count credits     min\n");
        assert_eq!(
            text("peers"),
            "nid                      refs state  last   max   rtr   min    tx   min queue\n"
        );
        assert_eq!(
            text("nis"),
            "nid                      status alive refs peer  rtr   max    tx   min\n\
             0@lo                         up     0    2    0    0     0     0     0\n"
        );
        for name in ["stats", "peers", "nis"] {
            set(&control, name, "0").unwrap();
        }
        assert_eq!(errno(set(&control, "routes", "0")), Errno::EACCES);
        control.stop(core::time::Duration::ZERO);
    }

    fn fixture(name: &str) -> String {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/parameters");
        std::fs::read_to_string(format!("{dir}/{name}")).unwrap()
    }

    fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
        let rows = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
        rows.map(|row| row.split_whitespace().collect())
    }

    /// Names, defaults, who may write and what may be written are those of kernel modules, but for what
    /// the table marks.
    #[test]
    fn files_of_module_parameters_are_those_of_the_table() {
        let options = Options::parse_from(["lnetd", "--profile", "kernel"]);
        let control = Control::new(&options, ModuleParameters::default()).unwrap();
        let (all, text) = (list(), fixture("modules.txt"));
        let mut listed = Vec::new();
        for row in rows(&text) {
            let [module, name, default, perm, range, file, _] = row[..] else { panic!("{row:?}") };
            let name = if module == "lnet" { name.to_owned() } else { format!("{module}/{name}") };
            // The file `routes` is about the routes there are, not the parameter.
            let status = status::FILES.iter().any(|(file, ..)| *file == name);
            let there = all.iter().find(|p| p.name == name && !status);
            let expected = match (there.map(|p| p.writable), perm) {
                (None, _) => "-",
                (Some(false), "ro") | (Some(true), "rw") => "same",
                (Some(true), _) => "writable",
                (Some(false), _) => "fixed",
            };
            assert_eq!(file, expected, "{row:?}");
            listed.push(name.clone());
            if there.is_none() {
                continue;
            }
            let shown = get(&control, &name).unwrap();
            assert!(default == "-" || shown.trim() == default, "{row:?}: {shown}");
            let ours = KERNEL_NAMES.iter().find(|(_, k)| *k == name).map_or(&*name, |(o, _)| o);
            if let (Some((least, most)), Some(tunable)) =
                (range.split_once(".."), Tunables::row(ours))
            {
                assert_eq!(least, tunable.min.to_string(), "{row:?}");
                assert!(most.is_empty() || most == tunable.max.to_string(), "{row:?}");
            }
        }
        // What is here besides is a tunable of our own, or a status file.
        for param in all.iter().filter(|p| !listed.contains(&p.name)) {
            let own = Tunables::row(&param.name).is_some();
            let status = status::FILES.iter().any(|(name, ..)| *name == param.name);
            let twice = param.name == "ksocklnd/accept_port";
            let rpc = lustre_rt::Tunables::setting(&param.name).is_some();
            assert!(own || status || twice || rpc, "{} is not in the table", param.name);
        }
    }

    #[test]
    fn status_files_are_those_of_the_table() {
        let control = control();
        control.answer(Request::LnetConfigure { all: false, large: false }).unwrap();
        let (all, text) = (list(), fixture("status.txt"));
        let mut listed = Vec::new();
        for row in rows(&text) {
            let [name, perm, header @ ..] = &row[..] else { panic!("{row:?}") };
            listed.push(*name);
            let there = all.iter().find(|p| p.name == *name);
            assert_eq!(there.is_none(), header == ["-"], "{row:?}");
            let Some(there) = there else { continue };
            assert_eq!(there.writable, *perm == "rw", "{row:?}");
            let shown = get(&control, name).unwrap();
            let has = shown.lines().any(|l| l.split_whitespace().eq(header.iter().copied()));
            assert!(header.is_empty() || has, "{row:?}: {shown}");
        }
        for (name, ..) in status::FILES {
            assert!(listed.contains(name), "{name} is not in the table");
        }
        control.stop(core::time::Duration::ZERO);
    }
}
