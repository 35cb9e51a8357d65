//! The two libraries, loaded when the first RDMA interface is asked for, and never unloaded: devices'
//! own libraries, which they load in turn, do not survive that.
//!
//! A statically linked program loads nothing. It is built without this file's other half and says so.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::error::OpenError;
use super::sys::{
    AsyncEvent, CmEvent, CmId, CompChannel, ConnParam, Context, Cq, DeviceAttr, EventChannel, Mr,
    Pd, PortAttr, QpInitAttr,
};

macro_rules! functions {
    ($($library:ident { $($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)* })*) => {
        /// The functions that are called, by their names in C.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Functions {
            $($(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*)*
        }

        impl Functions {
            #[cfg(not(target_feature = "crt-static"))]
            #[allow(unsafe_code)]
            fn of(libraries: &Libraries) -> Result<Self, OpenError> {
                Ok(Self {
                    $($(
                        // SAFETY: the function has this signature in the headers of the version that
                        // the library's name ends with, and the library stays loaded for good.
                        $name: unsafe { *libraries.$library.get(stringify!($name))? },
                    )*)*
                })
            }
        }
    };
}

functions! {
    verbs {
        ibv_alloc_pd: fn(*mut Context) -> *mut Pd;
        ibv_dealloc_pd: fn(*mut Pd) -> c_int;
        ibv_reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
        ibv_dereg_mr: fn(*mut Mr) -> c_int;
        ibv_create_comp_channel: fn(*mut Context) -> *mut CompChannel;
        ibv_destroy_comp_channel: fn(*mut CompChannel) -> c_int;
        ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
        ibv_destroy_cq: fn(*mut Cq) -> c_int;
        ibv_get_cq_event: fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut Cq, c_uint);
        ibv_query_device: fn(*mut Context, *mut DeviceAttr) -> c_int;
        ibv_query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
        ibv_get_async_event: fn(*mut Context, *mut AsyncEvent) -> c_int;
        ibv_ack_async_event: fn(*mut AsyncEvent);
        ibv_get_device_name: fn(*mut c_void) -> *const c_char;
    }
    manager {
        rdma_create_event_channel: fn() -> *mut EventChannel;
        rdma_destroy_event_channel: fn(*mut EventChannel);
        rdma_create_id: fn(*mut EventChannel, *mut *mut CmId, *mut c_void, c_uint) -> c_int;
        rdma_destroy_id: fn(*mut CmId) -> c_int;
        rdma_bind_addr: fn(*mut CmId, *mut libc::sockaddr) -> c_int;
        rdma_listen: fn(*mut CmId, c_int) -> c_int;
        rdma_resolve_addr: fn(*mut CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        rdma_resolve_route: fn(*mut CmId, c_int) -> c_int;
        rdma_create_qp: fn(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int;
        rdma_destroy_qp: fn(*mut CmId);
        rdma_connect: fn(*mut CmId, *mut ConnParam) -> c_int;
        rdma_accept: fn(*mut CmId, *mut ConnParam) -> c_int;
        rdma_reject: fn(*mut CmId, *const c_void, u8) -> c_int;
        rdma_notify: fn(*mut CmId, c_uint) -> c_int;
        rdma_disconnect: fn(*mut CmId) -> c_int;
        rdma_get_cm_event: fn(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        rdma_ack_cm_event: fn(*mut CmEvent) -> c_int;
        rdma_set_option: fn(*mut CmId, c_int, c_int, *mut c_void, usize) -> c_int;
        rdma_get_devices: fn(*mut c_int) -> *mut *mut Context;
        rdma_free_devices: fn(*mut *mut Context);
    }
}

#[cfg(target_feature = "crt-static")]
impl Functions {
    pub(super) const fn load() -> Result<Self, OpenError> {
        Err(OpenError::Static)
    }
}

#[cfg(not(target_feature = "crt-static"))]
use loading::Libraries;

#[cfg(not(target_feature = "crt-static"))]
mod loading {
    use core::mem::ManuallyDrop;

    use libloading::os::unix::Library;

    use super::{Functions, OpenError};

    /// A loaded library with its name.
    pub(super) struct Loaded {
        name: &'static str,
        library: ManuallyDrop<Library>,
    }

    /// Both.
    pub(super) struct Libraries {
        pub(super) verbs: Loaded,
        pub(super) manager: Loaded,
    }

    impl Loaded {
        /// `packages`: what it comes with on Debian and on Red Hat.
        #[allow(unsafe_code)]
        fn open(name: &'static str, packages: [&'static str; 2]) -> Result<Self, OpenError> {
            // SAFETY: initialisers of these libraries read configuration and device lists; they are
            // made to be loaded by any program.
            let library = unsafe { Library::new(name) }.map_err(|e| OpenError::Library {
                name,
                packages,
                why: e.to_string(),
            })?;
            Ok(Self { name, library: ManuallyDrop::new(library) })
        }

        /// # Safety
        /// The symbol is of type `T`.
        #[allow(unsafe_code)]
        pub(super) unsafe fn get<T>(&self, symbol: &'static str) -> Result<Found<T>, OpenError> {
            // SAFETY: the caller's promise.
            unsafe { self.library.get(symbol.as_bytes()) }
                .map_err(|_| OpenError::Symbol { name: self.name, symbol })
        }
    }

    type Found<T> = libloading::os::unix::Symbol<T>;

    impl Functions {
        /// Loads both libraries.
        pub(in super::super) fn load() -> Result<Self, OpenError> {
            let verbs = Loaded::open("libibverbs.so.1", ["libibverbs1", "libibverbs"])?;
            let manager = Loaded::open("librdmacm.so.1", ["librdmacm1", "librdmacm"])?;
            Self::of(&Libraries { verbs, manager })
        }
    }
}
