//! What a node starts with.

#![allow(unsafe_code, reason = "entries of a C library: the header says what callers keep to")]
#![allow(clippy::missing_safety_doc, reason = "the comments are those of the header")]

use core::ffi::{c_char, c_int};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lnet_rt::{
    NetTunables, Nid, NodeBuilder, NodeHandle, Profile, SockConfig, Spin, TcpNi, Tunables,
};

use super::raw;
use super::types::{ulnet_config, ulnet_ni_options};
use crate::failure::{Failure, entry};
use crate::table::Table;

/// The port of kernel nodes.
const PORT: u16 = 988;

pub(super) struct Config(Mutex<Settings>);

struct Settings {
    tunables: Tunables,
    port: u16,
    seed: Option<u64>,
    spin: Spin,
    nis: Vec<TcpNi>,
}

pub(super) static CONFIGS: Table<Config> = Table::new("config");

impl Config {
    fn lock(&self) -> MutexGuard<'_, Settings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node made from it.
    pub(super) fn start(&self) -> Result<NodeHandle, Failure> {
        lnet_rt::log_to_stderr();
        let settings = self.lock();
        let mut builder = NodeBuilder::new().tunables(settings.tunables.clone());
        if let Some(seed) = settings.seed {
            builder = builder.seed(seed);
        }
        let mut stack = builder.build()?;
        stack.enable_tcp(SockConfig::on_port(settings.port))?;
        for ni in &settings.nis {
            stack.add_tcp_ni(ni.clone())?;
        }
        Ok(stack.spawn("lnet", settings.spin)?)
    }
}

/// An interface as C describes it.
///
/// # Safety
/// `options` is NULL or readable, and its strings end with NUL.
pub(super) unsafe fn interface(
    nid: Nid,
    options: *const ulnet_ni_options,
) -> Result<TcpNi, Failure> {
    let mut ni = TcpNi::new(nid);
    // SAFETY: the caller's promise.
    let Some(options) = (unsafe { raw::read("options", options)? }) else { return Ok(ni) };
    let [first, second] = options.reserved;
    raw::reserved("ulnet_ni_options", &[u64::from(options.reserved32), first, second])?;
    // SAFETY: the caller's promise.
    let device = unsafe { raw::optional_text("interface", options.interface)? };
    ni.interface = device.map(str::to_owned);
    let chosen = |value, default| if value == 0 { default } else { value };
    ni.tunables = NetTunables {
        credits: chosen(options.credits, ni.tunables.credits),
        peer_credits: chosen(options.peer_credits, ni.tunables.peer_credits),
        ..ni.tunables
    };
    ni.conns_per_peer = match options.conns_per_peer {
        0 => None,
        n @ 1..=127 => u8::try_from(n).ok(),
        n => {
            let text = format!("conns_per_peer {n}: expected 0 to 127");
            return Err(Failure::argument(text));
        }
    };
    ni.tos = match options.tos {
        0 => ni.tos,
        tos @ 1..=255 => i16::try_from(tos).unwrap_or(ni.tos),
        tos => return Err(Failure::argument(format!("tos {tos}: expected 0 to 255"))),
    };
    ni.timeout = match options.timeout_ms {
        0 => None,
        ms => Some(Duration::from_millis(ms.into())),
    };
    Ok(ni)
}

/// Makes a configuration without interfaces, with the defaults of a profile: "default" (or NULL),
/// "documents", "kernel", "pre-2.13" or "off". ulnet_config_free ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_config_new(
    profile: *const c_char,
    config: *mut *mut ulnet_config,
) -> c_int {
    entry(|| {
        raw::place("config", config)?;
        // SAFETY: the header demands a string or NULL.
        let name = unsafe { raw::optional_text("profile", profile)? }.unwrap_or("default");
        let profile = Profile::from_name(name).ok_or_else(|| {
            let all = Profile::ALL.map(Profile::name).join(", ");
            Failure::argument(format!("profile '{name}': expected one of {all}"))
        })?;
        let settings = Settings {
            tunables: Tunables::new(profile),
            port: PORT,
            seed: None,
            spin: Spin::default(),
            nis: Vec::new(),
        };
        let number = CONFIGS.insert(Arc::new(Config(Mutex::new(settings))));
        // SAFETY: looked at above; the header demands that it is writable.
        unsafe { raw::write(config, raw::handle(number)) };
        Ok(0)
    })
}

/// Sets a tunable by its name, such as "transaction_timeout"; units and bounds as lnetctl(8) has them.
/// INT64_MIN as "retry_count" is what is written "paths" there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_config_set(
    config: *mut ulnet_config,
    name: *const c_char,
    value: i64,
) -> c_int {
    entry(|| {
        let config = CONFIGS.get(raw::number(config))?;
        // SAFETY: the header demands a string.
        let name = unsafe { raw::text("name", name)? };
        config.lock().tunables.set(name, value)?;
        Ok(0)
    })
}

/// The TCP port that all interfaces listen on, and that peers are expected to listen on: 988 if this is
/// not called, which needs CAP_NET_BIND_SERVICE.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_config_port(config: *mut ulnet_config, port: u16) -> c_int {
    entry(|| {
        let config = CONFIGS.get(raw::number(config))?;
        if port == 0 {
            return Err(Failure::argument("port 0: expected 1 to 65535"));
        }
        config.lock().port = port;
        Ok(0)
    })
}

/// Fixes all random choices of the node. From the system if this is not called.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_config_seed(config: *mut ulnet_config, seed: u64) -> c_int {
    entry(|| {
        CONFIGS.get(raw::number(config))?.lock().seed = Some(seed);
        Ok(0)
    })
}

/// How long the node's thread looks for work before it sleeps, microseconds: less latency for more
/// processor time.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_config_spin(config: *mut ulnet_config, microseconds: u64) -> c_int {
    entry(|| {
        let config = CONFIGS.get(raw::number(config))?;
        config.lock().spin = Spin { max: Duration::from_micros(microseconds) };
        Ok(0)
    })
}

/// Adds an interface on a TCP network, such as 10.0.0.1@tcp or fd00::1@tcp1: the address is listened on
/// and connected from. options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_config_add_ni(
    config: *mut ulnet_config,
    nid: *const c_char,
    options: *const ulnet_ni_options,
) -> c_int {
    entry(|| {
        let config = CONFIGS.get(raw::number(config))?;
        // SAFETY: the header demands a string.
        let nid = unsafe { raw::nid("nid", nid)? };
        // SAFETY: the header demands NULL or a structure whose strings end with NUL.
        let ni = unsafe { interface(nid, options)? };
        config.lock().nis.push(ni);
        Ok(0)
    })
}

/// Ends a configuration. Nodes that were started from it go on.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_config_free(config: *mut ulnet_config) -> c_int {
    entry(|| {
        CONFIGS.remove(raw::number(config))?;
        Ok(0)
    })
}
