//! Where the control socket is.

use std::env;
use std::path::PathBuf;

/// The environment variable that names the socket.
pub const SOCKET_ENV: &str = "ULNET_SOCKET";
/// Where the daemon of a machine listens.
pub const SOCKET_SYSTEM: &str = "/run/ulnet/lnetd.sock";

/// The socket to use when no option names one: [`SOCKET_ENV`], else for root [`SOCKET_SYSTEM`],
/// else `$XDG_RUNTIME_DIR/ulnet/lnetd.sock`, else [`SOCKET_SYSTEM`] after all.
pub fn default_socket() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = set(SOCKET_ENV) {
        return path.into();
    }
    match set("XDG_RUNTIME_DIR") {
        Some(dir) if !rustix::process::geteuid().is_root() => {
            PathBuf::from(dir).join("ulnet/lnetd.sock")
        }
        _ => SOCKET_SYSTEM.into(),
    }
}
