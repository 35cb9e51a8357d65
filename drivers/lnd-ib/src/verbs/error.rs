//! Why an interface cannot be opened: what is missing on this machine, and what brings it.

use core::net::Ipv4Addr;

use lnet_types::Errno;
use thiserror::Error;

/// Why an adapter cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The program is statically linked.
    #[error(
        "this program is statically linked and loads no library: RDMA needs the program that is linked \
         to the C library of the system"
    )]
    Static,
    /// A library is not there.
    #[error("library {name}: not loaded: package {} or {} must be installed: {why}", .packages[0], .packages[1])]
    Library {
        /// The library.
        name: &'static str,
        /// Its packages on Debian and on Red Hat.
        packages: [&'static str; 2],
        /// What the loader says.
        why: String,
    },
    /// A library is too old.
    #[error("library {name}: function {symbol} is missing: rdma-core 17 or later expected")]
    Symbol {
        /// The library.
        name: &'static str,
        /// The function.
        symbol: &'static str,
    },
    /// There is no connection manager.
    #[error(
        "device /dev/infiniband/rdma_cm: {0}: an RDMA device and the kernel modules rdma_ucm and ib_uverbs \
         must be there"
    )]
    Manager(Errno),
    /// No device has the address.
    #[error("address {addr}: no RDMA device has it: devices: {devices}")]
    Device {
        /// The address.
        addr: Ipv4Addr,
        /// The devices of this machine.
        devices: String,
    },
    /// The service cannot be listened on.
    #[error("service {port} on {addr}: {errno}{}", if *.errno == Errno::EACCES { ": ports below 1024 need CAP_NET_BIND_SERVICE" } else { "" })]
    Listen {
        /// The address.
        addr: Ipv4Addr,
        /// The service.
        port: u16,
        /// Why.
        errno: Errno,
    },
    /// Memory cannot be locked.
    #[error(
        "locked memory: limit {limit} bytes reached: `ulimit -l` or LimitMEMLOCK must allow more, or the \
         program needs CAP_IPC_LOCK"
    )]
    Locked {
        /// The limit of the process.
        limit: u64,
    },
    /// The device refuses something else.
    #[error("RDMA device {device}: {call}: {errno}")]
    Call {
        /// The device.
        device: String,
        /// What was called.
        call: &'static str,
        /// Why it failed.
        errno: Errno,
    },
}

impl OpenError {
    /// The error number that a kernel node gives.
    pub const fn errno(&self) -> Errno {
        match self {
            // A network whose driver or device cannot be had.
            Self::Static
            | Self::Library { .. }
            | Self::Symbol { .. }
            | Self::Manager(_)
            | Self::Device { .. } => Errno::ENETDOWN,
            Self::Listen { errno, .. } | Self::Call { errno, .. } => *errno,
            Self::Locked { .. } => Errno::ENOMEM,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_what_is_missing() {
        let library = OpenError::Library {
            name: "librdmacm.so.1",
            packages: ["librdmacm1", "librdmacm"],
            why: "no such file".to_owned(),
        };
        let text = library.to_string();
        assert!(text.contains("package librdmacm1 or librdmacm must be installed"), "{text}");
        let addr = Ipv4Addr::new(10, 0, 0, 1);
        let listen = |errno| OpenError::Listen { addr, port: 987, errno }.to_string();
        assert!(listen(Errno::EACCES).ends_with("need CAP_NET_BIND_SERVICE"));
        assert!(!listen(Errno::EADDRINUSE).contains("CAP"));
        let device = OpenError::Device { addr, devices: "none".to_owned() };
        assert_eq!(device.to_string(), "address 10.0.0.1: no RDMA device has it: devices: none");
    }
}
