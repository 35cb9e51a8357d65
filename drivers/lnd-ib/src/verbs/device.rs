//! A device as an interface uses it: found by the address that the interface has, with a listener for
//! the requests of peers, a protection domain, and the three channels that bring news.

#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_void};
use core::mem::{replace, zeroed};
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ptr::null_mut;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use lnet_types::Errno;

use super::error::OpenError;
use super::events::rate;
use super::library::Functions;
use super::registrations::{Keys, Reach, Registrar};
use super::sys::{
    ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE, CmId, CompChannel, Context, DeviceAttr, EventChannel,
    LINK_LAYER_ETHERNET, Mr, PORT_ACTIVE, PS_TCP, Pd, PortAttr,
};

/// Requests of peers that wait for an answer at a time.
const BACKLOG: c_int = 1024;

/// What a device can do, of which the driver keeps within.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Requests of a send or receive queue.
    pub(super) queue: u32,
    /// Places that one request reads from.
    pub(super) places: u32,
    /// Entries of a completion queue.
    pub(super) completions: u32,
    /// Bytes of one RDMA write.
    pub(super) message: u32,
}

/// A port as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortState {
    /// The device, by its name below `/sys/class/infiniband`.
    pub device: String,
    /// The number of the port.
    pub port: u8,
    /// Whether it carries messages.
    pub active: bool,
    /// Mbit/s; 0 if not known.
    pub rate_mbps: u32,
    /// Bytes of a packet.
    pub mtu: u32,
    /// Whether it is RoCE or iWARP, not InfiniBand.
    pub ethernet: bool,
    /// The identifier of the port that goes with the address of the interface; none if not known.
    pub gid: Option<Ipv6Addr>,
    /// The partition key of the interface; 0 if not known.
    pub pkey: u16,
}

/// See the module's head.
pub(super) struct Device {
    pub(super) call: Functions,
    pub(super) events: *mut EventChannel,
    pub(super) listener: *mut CmId,
    pub(super) context: *mut Context,
    pub(super) pd: *mut Pd,
    pub(super) completions: *mut CompChannel,
    pub(super) port: u8,
    pub(super) name: String,
    pub(super) bounds: Bounds,
    /// The system listed it when it was opened.
    listed: bool,
    /// The device's descriptor, which all its interfaces in this process have, as one of our own: a
    /// poller takes a descriptor once.
    news: Option<OwnedFd>,
}

/// What registers memory with a device: part of it, valid as long as that is.
#[derive(Clone, Copy)]
pub(super) struct Pinner {
    call: Functions,
    pd: *mut Pd,
}

/// The error of the last call of this thread.
pub(super) fn last_error() -> Errno {
    Errno(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// An address as the connection manager takes it.
pub(super) fn socket_address(addr: Ipv4Addr, port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.octets()) },
        sin_zero: [0; 8],
    }
}

/// The port of an IPv4 address as the connection manager gives it.
pub(super) fn port_of(addr: &libc::sockaddr_storage) -> Option<u16> {
    if addr.ss_family != libc::AF_INET as libc::sa_family_t {
        return None;
    }
    // SAFETY: an address of this family is this structure, which is shorter and no more aligned.
    let addr = unsafe { &*core::ptr::from_ref(addr).cast::<libc::sockaddr_in>() };
    Some(u16::from_be(addr.sin_port))
}

/// Reads of this descriptor do not wait.
pub(super) fn set_nonblocking(fd: c_int) -> Result<(), Errno> {
    // SAFETY: flags of a descriptor, without pointers.
    let set = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
    };
    if set { Ok(()) } else { Err(last_error()) }
}

/// The limit of the process on locked memory, bytes; `None` if there is none, or the process may lock
/// beyond it.
pub fn locked_limit() -> Option<u64> {
    /// `CAP_IPC_LOCK`, by its number.
    const IPC_LOCK: u64 = 1 << 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    if effective.is_some_and(|all| all & IPC_LOCK != 0) {
        return None;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is this function's.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    Some(limit.rlim_cur).filter(|limit| *limit != libc::RLIM_INFINITY)
}

/// Where the system lists what programs open, each with the name of its device in `ibdev`.
const VERBS_CLASS: &str = "/sys/class/infiniband_verbs";

/// Whether a device is among those that programs can open.
fn is_listed(class: &Path, device: &str) -> bool {
    let entries = std::fs::read_dir(class).into_iter().flatten().flatten();
    let names = entries.filter_map(|e| std::fs::read_to_string(e.path().join("ibdev")).ok());
    names.into_iter().any(|name| name.trim() == device)
}

/// The RDMA devices of this machine, for an error.
fn devices() -> String {
    let names = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut names: Vec<_> = names.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Device {
    /// Loads the libraries and asks for a connection manager.
    pub(super) fn available() -> Result<(), OpenError> {
        let call = Functions::load()?;
        // SAFETY: without arguments.
        let events = unsafe { (call.rdma_create_event_channel)() };
        if events.is_null() {
            return Err(OpenError::Manager(last_error()));
        }
        // SAFETY: just made, and used by nothing.
        unsafe { (call.rdma_destroy_event_channel)(events) };
        Ok(())
    }

    /// Opens the device that has `addr`, and listens there.
    pub(super) fn open(addr: Ipv4Addr, port: u16) -> Result<Self, OpenError> {
        let call = Functions::load()?;
        // SAFETY: without arguments.
        let events = unsafe { (call.rdma_create_event_channel)() };
        if events.is_null() {
            return Err(OpenError::Manager(last_error()));
        }
        let mut new = Self {
            call,
            events,
            listener: null_mut(),
            context: null_mut(),
            pd: null_mut(),
            completions: null_mut(),
            port: 0,
            name: String::new(),
            bounds: Bounds { queue: 0, places: 0, completions: 0, message: 0 },
            listed: false,
            news: None,
        };
        // From here on what was made is released by `drop`.
        new.listen(addr, port)?;
        new.prepare()?;
        new.listed = is_listed(Path::new(VERBS_CLASS), &new.name);
        Ok(new)
    }

    fn failed(&self, call: &'static str, errno: Errno) -> OpenError {
        if errno == Errno::ENOMEM {
            return OpenError::Locked { limit: locked_limit().unwrap_or(u64::MAX) };
        }
        OpenError::Call { device: self.name.clone(), call, errno }
    }

    fn listen(&mut self, addr: Ipv4Addr, port: u16) -> Result<(), OpenError> {
        let listen = |errno| OpenError::Listen { addr, port, errno };
        // SAFETY: the channel was just made; the place for the result is this function's.
        let made = unsafe {
            (self.call.rdma_create_id)(self.events, &raw mut self.listener, null_mut(), PS_TCP)
        };
        if made != 0 {
            return Err(listen(last_error()));
        }
        let mut at = socket_address(addr, port);
        // SAFETY: the identifier was just made; the address outlives the call, which says by its
        // family how long it is.
        let bound = unsafe { (self.call.rdma_bind_addr)(self.listener, (&raw mut at).cast()) };
        if bound != 0 {
            let errno = last_error();
            let absent = matches!(errno, Errno::ENODEV | Errno::EADDRNOTAVAIL);
            return Err(match absent {
                true => OpenError::Device { addr, devices: devices() },
                false => listen(errno),
            });
        }
        // SAFETY: the identifier is bound; its fields are the library's and stay as they are now.
        unsafe {
            self.context = (*self.listener).verbs;
            self.port = (*self.listener).port_num;
            if self.context.is_null() {
                return Err(OpenError::Device { addr, devices: devices() });
            }
            let name = (self.call.ibv_get_device_name)((*self.context).device);
            if !name.is_null() {
                self.name = CStr::from_ptr(name).to_string_lossy().into_owned();
            }
            if (self.call.rdma_listen)(self.listener, BACKLOG) != 0 {
                return Err(listen(last_error()));
            }
        }
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), OpenError> {
        // SAFETY: a structure of numbers, filled by the call.
        let mut can: DeviceAttr = unsafe { zeroed() };
        // SAFETY: the context is the listener's and lives as long as that.
        let asked = unsafe { (self.call.ibv_query_device)(self.context, &raw mut can) };
        if asked != 0 {
            return Err(self.failed("ibv_query_device", Errno(asked)));
        }
        let port = self.query().map_err(|errno| self.failed("ibv_query_port", errno))?;
        let at_least_one = |n: c_int| u32::try_from(n).unwrap_or(1).max(1);
        self.bounds = Bounds {
            queue: at_least_one(can.max_qp_wr),
            places: at_least_one(can.max_sge),
            completions: at_least_one(can.max_cqe),
            message: if port.max_msg_sz == 0 { 1 << 30 } else { port.max_msg_sz },
        };
        // SAFETY: as above.
        unsafe {
            self.pd = (self.call.ibv_alloc_pd)(self.context);
            if self.pd.is_null() {
                return Err(self.failed("ibv_alloc_pd", last_error()));
            }
            self.completions = (self.call.ibv_create_comp_channel)(self.context);
            if self.completions.is_null() {
                return Err(self.failed("ibv_create_comp_channel", last_error()));
            }
        }
        // SAFETY: the context lives as long as this value, and its descriptor with it.
        let shared = unsafe { BorrowedFd::borrow_raw((*self.context).async_fd) };
        let own = shared.try_clone_to_owned();
        self.news = Some(own.map_err(|_| self.failed("dup", last_error()))?);
        for fd in self.sources().into_iter().flatten() {
            set_nonblocking(fd).map_err(|errno| self.failed("fcntl", errno))?;
        }
        Ok(())
    }

    /// Whether the system offers it to programs, as it did when it was opened. One that is being taken
    /// away is not offered any more, long before it is gone.
    pub(super) fn is_there(&self) -> bool {
        !self.listed || is_listed(Path::new(VERBS_CLASS), &self.name)
    }

    /// Whether it has been opened, and not closed since.
    pub(super) const fn is_open(&self) -> bool {
        !self.events.is_null()
    }

    /// The descriptors that become readable: of the connection manager, of completions, of the device.
    /// None of one that is closed.
    pub(super) fn sources(&self) -> Option<[c_int; 3]> {
        if self.events.is_null() || self.completions.is_null() {
            return None;
        }
        // SAFETY: both were made by `open`, and live until they are null.
        let (events, completions) = unsafe { ((*self.events).fd, (*self.completions).fd) };
        Some([events, completions, self.news.as_ref().map_or(-1, AsRawFd::as_raw_fd)])
    }

    pub(super) const fn pinner(&self) -> Pinner {
        Pinner { call: self.call, pd: self.pd }
    }

    fn query(&self) -> Result<PortAttr, Errno> {
        if self.context.is_null() {
            return Err(Errno::ENODEV);
        }
        let mut port = PortAttr::default();
        // SAFETY: the context lives as long as this value; older libraries fill the first part only.
        let asked = unsafe { (self.call.ibv_query_port)(self.context, self.port, &raw mut port) };
        if asked == 0 { Ok(port) } else { Err(Errno(asked)) }
    }

    /// The identifier of the port and the partition key that the listener is bound to.
    fn address(&self) -> (Ipv6Addr, u16) {
        if self.listener.is_null() {
            return (Ipv6Addr::UNSPECIFIED, 0);
        }
        // SAFETY: the listener lives; its address is the library's, which does not change it behind
        // `listen`.
        let addr = unsafe { (*self.listener).ib_addr };
        (addr.sgid.into(), u16::from_be(addr.pkey))
    }

    /// The port as it is now.
    pub(super) fn port_state(&self) -> PortState {
        let port = self.query().unwrap_or_default();
        let (gid, pkey) = self.address();
        PortState {
            device: self.name.clone(),
            port: self.port,
            active: port.state == PORT_ACTIVE,
            rate_mbps: rate(&port),
            // 1 is 256 bytes, and each number twice the one before it.
            mtu: 128 << port.active_mtu.min(8),
            ethernet: port.link_layer == LINK_LAYER_ETHERNET,
            gid: Some(gid).filter(|gid| !gid.is_unspecified()),
            pkey,
        }
    }
}

impl Device {
    /// Releases everything of it. Nothing that stands on it may be left.
    pub(super) fn close(&mut self) {
        self.news = None;
        self.context = null_mut();
        // SAFETY: each was made by `open` or is null, and is released once, being null behind that.
        // What stands on them is gone: the owner's promise.
        unsafe {
            if !self.listener.is_null() {
                (self.call.rdma_destroy_id)(replace(&mut self.listener, null_mut()));
            }
            if !self.completions.is_null() {
                (self.call.ibv_destroy_comp_channel)(replace(&mut self.completions, null_mut()));
            }
            if !self.pd.is_null() {
                (self.call.ibv_dealloc_pd)(replace(&mut self.pd, null_mut()));
            }
            if !self.events.is_null() {
                (self.call.rdma_destroy_event_channel)(replace(&mut self.events, null_mut()));
            }
        }
    }
}

impl Device {
    /// Has the library of the connection manager give up devices that the system has taken away. It
    /// keeps a device open for good otherwise, and the system waits with the removal for that; it
    /// compares its list with the system's when the list is asked for.
    pub(super) fn release_removed(&self) {
        let mut count = 0;
        // SAFETY: the place for the count is this function's; the list is given back once, and nothing
        // of it is used.
        unsafe {
            let list = (self.call.rdma_get_devices)(&raw mut count);
            if !list.is_null() {
                (self.call.rdma_free_devices)(list);
            }
        }
    }
}

impl Drop for Device {
    /// The adapter's fields go in the order of their declaration, this one last.
    fn drop(&mut self) {
        self.close();
    }
}

impl Registrar for Pinner {
    type Handle = *mut Mr;

    fn register(&self, addr: u64, len: u64, reach: Reach) -> Result<Keys<*mut Mr>, Errno> {
        let access = match reach {
            Reach::Read => 0,
            Reach::Write => ACCESS_LOCAL_WRITE,
            Reach::Remote => ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE,
        };
        if self.pd.is_null() {
            return Err(Errno::ENODEV);
        }
        let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the domain lives as long as the adapter. The system checks that the memory is there
        // and may be written, and pins it; what devices may then do with it is for the caller of
        // `Registrations` to settle.
        let mr = unsafe { (self.call.ibv_reg_mr)(self.pd, addr as *mut c_void, len, access) };
        if mr.is_null() {
            return Err(last_error());
        }
        // SAFETY: just made.
        let (local, remote) = unsafe { ((*mr).lkey, (*mr).rkey) };
        Ok(Keys { handle: mr, local, remote })
    }

    fn deregister(&self, mr: *mut Mr) {
        // SAFETY: made by `register`, and given back once.
        let failed = unsafe { (self.call.ibv_dereg_mr)(mr) };
        if failed != 0 {
            tracing::error!("memory is not deregistered: {}", Errno(failed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_listed_as_long_as_programs_can_open_it() {
        let class = fresh::path("verbs-class");
        for (entry, device) in [("uverbs0", "rxe0\n"), ("uverbs1", "rxe1\n")] {
            std::fs::create_dir_all(class.join(entry)).expect("a directory");
            std::fs::write(class.join(entry).join("ibdev"), device).expect("a file");
        }
        std::fs::write(class.join("abi_version"), "6\n").expect("a file");
        assert!(is_listed(&class, "rxe0") && is_listed(&class, "rxe1"));
        assert!(!is_listed(&class, "rxe"));
        std::fs::remove_dir_all(class.join("uverbs1")).expect("it goes");
        assert!(!is_listed(&class, "rxe1") && is_listed(&class, "rxe0"));
        std::fs::remove_dir_all(&class).expect("it goes");
        assert!(!is_listed(&class, "rxe0"));
    }

    #[test]
    fn the_port_of_an_address_is_read_where_its_family_has_one() {
        // SAFETY: a structure of numbers.
        let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
        assert_eq!(port_of(&storage), None);
        let at = socket_address(Ipv4Addr::new(10, 0, 0, 1), 1023);
        // SAFETY: the storage has room for every kind of address.
        unsafe { core::ptr::from_mut(&mut storage).cast::<libc::sockaddr_in>().write(at) };
        assert_eq!(port_of(&storage), Some(1023));
    }
}
