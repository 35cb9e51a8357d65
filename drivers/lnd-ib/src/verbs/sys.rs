//! What `libibverbs` and `librdmacm` look like in memory: the parts of their structures that are read
//! or written here, with the names of C. The layout is theirs and fixed by the version in their names
//! (`libibverbs.so.1`, `librdmacm.so.1`); a test holds it against the C headers where these are there.

use core::ffi::{c_char, c_int, c_uint, c_void};

/// `struct ibv_context`: a device in use.
#[repr(C)]
pub(super) struct Context {
    pub(super) device: *mut c_void,
    pub(super) ops: ContextOps,
    pub(super) cmd_fd: c_int,
    pub(super) async_fd: c_int,
}

/// `struct ibv_context_ops`. Calls on the way of a message go to the device's library through it.
#[repr(C)]
pub(super) struct ContextOps {
    before_poll: [*mut c_void; 11],
    pub(super) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    before_send: [*mut c_void; 12],
    pub(super) post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub(super) post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    behind: [*mut c_void; 5],
}

#[cfg(test)]
impl ContextOps {
    /// Those of a device that has completions and nothing else.
    pub(super) fn with(
        poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
        req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    ) -> Self {
        unsafe extern "C" fn send(_: *mut Qp, _: *mut SendWr, _: *mut *mut SendWr) -> c_int {
            libc::EINVAL
        }
        unsafe extern "C" fn receive(_: *mut Qp, _: *mut RecvWr, _: *mut *mut RecvWr) -> c_int {
            libc::EINVAL
        }
        let none = core::ptr::null_mut();
        Self {
            before_poll: [none; 11],
            poll_cq,
            req_notify_cq,
            before_send: [none; 12],
            post_send: send,
            post_recv: receive,
            behind: [none; 5],
        }
    }
}

/// `struct ibv_pd`, which nothing of is read.
#[repr(C)]
pub(super) struct Pd {
    private: [u8; 0],
}

/// `struct ibv_mr`: registered memory.
#[repr(C)]
pub(super) struct Mr {
    pub(super) context: *mut Context,
    pub(super) pd: *mut Pd,
    pub(super) addr: *mut c_void,
    pub(super) length: usize,
    pub(super) handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(super) struct CompChannel {
    pub(super) context: *mut Context,
    pub(super) fd: c_int,
}

/// `struct ibv_cq`, its first part.
#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
    pub(super) channel: *mut CompChannel,
    pub(super) cq_context: *mut c_void,
    pub(super) handle: u32,
    pub(super) cqe: c_int,
}

/// `struct ibv_qp`, its first part.
#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
    pub(super) qp_context: *mut c_void,
    pub(super) pd: *mut Pd,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) handle: u32,
    pub(super) qp_num: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_uint,
    pub(super) sq_sig_all: c_int,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
pub(super) struct SendWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_uint,
    pub(super) send_flags: c_uint,
    pub(super) imm_data: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    /// The rest of the unions, of which an RDMA write and a send use nothing.
    pub(super) unused: [u64; 9],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(super) struct RecvWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// `struct ibv_wc`: a completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wc {
    pub(super) wr_id: u64,
    pub(super) status: c_uint,
    pub(super) opcode: c_uint,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    pub(super) imm_data: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DeviceAttr {
    pub(super) fw_ver: [c_char; 64],
    pub(super) guids: [u64; 2],
    pub(super) max_mr_size: u64,
    pub(super) page_size_cap: u64,
    pub(super) vendor: [u32; 3],
    pub(super) max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    pub(super) device_cap_flags: c_uint,
    pub(super) max_sge: c_int,
    pub(super) max_sge_rd: c_int,
    pub(super) max_cq: c_int,
    pub(super) max_cqe: c_int,
    pub(super) max_mr: c_int,
    /// Everything behind it.
    pub(super) behind: [u32; 22],
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PortAttr {
    pub(super) state: c_uint,
    pub(super) max_mtu: c_uint,
    pub(super) active_mtu: c_uint,
    pub(super) gid_tbl_len: c_int,
    pub(super) port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    pub(super) violations: [u32; 2],
    pub(super) halves: [u16; 3],
    pub(super) bytes: [u8; 5],
    pub(super) active_width: u8,
    pub(super) active_speed: u8,
    pub(super) phys_state: u8,
    pub(super) link_layer: u8,
    pub(super) flags: u8,
    pub(super) port_cap_flags2: u16,
}

/// `struct ibv_async_event`.
#[repr(C)]
pub(super) struct AsyncEvent {
    /// A queue pair, a completion queue, or the number of a port.
    pub(super) element: Element,
    pub(super) event_type: c_uint,
}

/// What an asynchronous event is about.
#[repr(C)]
pub(super) union Element {
    pub(super) qp: *mut Qp,
    pub(super) port_num: c_int,
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub(super) struct EventChannel {
    pub(super) fd: c_int,
}

/// `struct rdma_cm_id`, its first part.
#[repr(C)]
pub(super) struct CmId {
    pub(super) verbs: *mut Context,
    pub(super) channel: *mut EventChannel,
    pub(super) context: *mut c_void,
    pub(super) qp: *mut Qp,
    pub(super) src_addr: libc::sockaddr_storage,
    pub(super) dst_addr: libc::sockaddr_storage,
    pub(super) ib_addr: IbAddr,
    pub(super) path_rec: *mut c_void,
    pub(super) num_paths: c_int,
    pub(super) gap: u32,
    pub(super) ps: c_uint,
    pub(super) port_num: u8,
}

/// `struct rdma_ib_addr`: GIDs and partition key, in network order.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct IbAddr {
    pub(super) sgid: [u8; 16],
    pub(super) dgid: [u8; 16],
    pub(super) pkey: u16,
}

/// `struct rdma_conn_param`.
#[repr(C)]
pub(super) struct ConnParam {
    pub(super) private_data: *const c_void,
    pub(super) private_data_len: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) flow_control: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
    pub(super) srq: u8,
    pub(super) qp_num: u32,
}

/// `struct rdma_cm_event`, with the parameters of connected transports.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) id: *mut CmId,
    pub(super) listen_id: *mut CmId,
    pub(super) event: c_uint,
    pub(super) status: c_int,
    pub(super) conn: ConnParam,
}

/// `RDMA_PS_TCP`.
pub(super) const PS_TCP: c_uint = 0x0106;
/// `IBV_QPT_RC`.
pub(super) const QPT_RC: c_uint = 2;
/// `IBV_WR_RDMA_WRITE`, `IBV_WR_SEND`.
pub(super) const WR_RDMA_WRITE: c_uint = 0;
pub(super) const WR_SEND: c_uint = 2;
/// `IBV_SEND_SIGNALED`, `IBV_SEND_INLINE`.
pub(super) const SEND_SIGNALED: c_uint = 2;
pub(super) const SEND_INLINE: c_uint = 8;
/// `IBV_ACCESS_LOCAL_WRITE`, `IBV_ACCESS_REMOTE_WRITE`.
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 2;
/// `IBV_PORT_ACTIVE`.
pub(super) const PORT_ACTIVE: c_uint = 4;
/// `IBV_LINK_LAYER_ETHERNET`.
pub(super) const LINK_LAYER_ETHERNET: u8 = 2;
/// `RDMA_OPTION_ID`, and of it `RDMA_OPTION_ID_TOS`, `RDMA_OPTION_ID_REUSEADDR`.
pub(super) const OPTION_ID: c_int = 0;
pub(super) const OPTION_TOS: c_int = 0;
pub(super) const OPTION_REUSEADDR: c_int = 1;

/// The declarations as the C compiler sees them.
#[cfg(test)]
mod tests {
    use core::mem::{offset_of, size_of};
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// A structure or a field of it: what C calls it, and its size or offset here.
    fn rows() -> Vec<(&'static str, usize)> {
        macro_rules! at {
            ($c:literal, $rust:ty, $field:ident) => {
                (concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"), offset_of!($rust, $field))
            };
            ($c:literal, $rust:ty, $path:literal, $($field:ident).+) => {
                (concat!("offsetof(struct ", $c, ", ", $path, ")"), offset_of!($rust, $($field).+))
            };
        }
        vec![
            at!("ibv_context", Context, "ops.poll_cq", ops.poll_cq),
            at!("ibv_context", Context, "ops.req_notify_cq", ops.req_notify_cq),
            at!("ibv_context", Context, "ops.post_send", ops.post_send),
            at!("ibv_context", Context, "ops.post_recv", ops.post_recv),
            at!("ibv_context", Context, cmd_fd),
            at!("ibv_context", Context, async_fd),
            ("sizeof(struct ibv_mr)", size_of::<Mr>()),
            at!("ibv_mr", Mr, lkey),
            at!("ibv_mr", Mr, rkey),
            at!("ibv_comp_channel", CompChannel, fd),
            at!("ibv_cq", Cq, context),
            at!("ibv_cq", Cq, cqe),
            at!("ibv_qp", Qp, context),
            at!("ibv_qp", Qp, qp_num),
            ("sizeof(struct ibv_qp_init_attr)", size_of::<QpInitAttr>()),
            at!("ibv_qp_init_attr", QpInitAttr, cap),
            at!("ibv_qp_init_attr", QpInitAttr, qp_type),
            ("sizeof(struct ibv_sge)", size_of::<Sge>()),
            ("sizeof(struct ibv_send_wr)", size_of::<SendWr>()),
            at!("ibv_send_wr", SendWr, opcode),
            at!("ibv_send_wr", SendWr, send_flags),
            at!("ibv_send_wr", SendWr, "wr.rdma.remote_addr", remote_addr),
            at!("ibv_send_wr", SendWr, "wr.rdma.rkey", rkey),
            ("sizeof(struct ibv_recv_wr)", size_of::<RecvWr>()),
            ("sizeof(struct ibv_wc)", size_of::<Wc>()),
            at!("ibv_wc", Wc, status),
            at!("ibv_wc", Wc, byte_len),
            at!("ibv_wc", Wc, qp_num),
            ("sizeof(struct ibv_device_attr)", size_of::<DeviceAttr>()),
            at!("ibv_device_attr", DeviceAttr, max_qp_wr),
            at!("ibv_device_attr", DeviceAttr, max_sge),
            at!("ibv_device_attr", DeviceAttr, max_cqe),
            ("sizeof(struct ibv_port_attr)", size_of::<PortAttr>()),
            at!("ibv_port_attr", PortAttr, max_msg_sz),
            at!("ibv_port_attr", PortAttr, active_width),
            at!("ibv_port_attr", PortAttr, active_speed),
            at!("ibv_port_attr", PortAttr, link_layer),
            ("sizeof(struct ibv_async_event)", size_of::<AsyncEvent>()),
            at!("ibv_async_event", AsyncEvent, event_type),
            at!("rdma_event_channel", EventChannel, fd),
            at!("rdma_cm_id", CmId, context),
            at!("rdma_cm_id", CmId, qp),
            at!("rdma_cm_id", CmId, "route.addr.dst_addr", dst_addr),
            at!("rdma_cm_id", CmId, "route.addr.addr.ibaddr.sgid", ib_addr.sgid),
            at!("rdma_cm_id", CmId, "route.addr.addr.ibaddr.pkey", ib_addr.pkey),
            at!("rdma_cm_id", CmId, "route.path_rec", path_rec),
            at!("rdma_cm_id", CmId, ps),
            at!("rdma_cm_id", CmId, port_num),
            ("sizeof(struct rdma_conn_param)", size_of::<ConnParam>()),
            at!("rdma_conn_param", ConnParam, rnr_retry_count),
            at!("rdma_conn_param", ConnParam, qp_num),
            at!("rdma_cm_event", CmEvent, status),
            at!("rdma_cm_event", CmEvent, "param.conn", conn),
            ("RDMA_PS_TCP", PS_TCP as usize),
            ("IBV_QPT_RC", QPT_RC as usize),
            ("IBV_WR_RDMA_WRITE", WR_RDMA_WRITE as usize),
            ("IBV_WR_SEND", WR_SEND as usize),
            ("IBV_SEND_SIGNALED", SEND_SIGNALED as usize),
            ("IBV_SEND_INLINE", SEND_INLINE as usize),
            ("IBV_ACCESS_LOCAL_WRITE", ACCESS_LOCAL_WRITE as usize),
            ("IBV_ACCESS_REMOTE_WRITE", ACCESS_REMOTE_WRITE as usize),
            ("IBV_PORT_ACTIVE", PORT_ACTIVE as usize),
            ("IBV_LINK_LAYER_ETHERNET", LINK_LAYER_ETHERNET as usize),
            ("RDMA_OPTION_ID_TOS", OPTION_TOS as usize),
            ("RDMA_OPTION_ID_REUSEADDR", OPTION_REUSEADDR as usize),
        ]
    }

    /// The compiler checks all rows; what differs fails as a negative array length with its number.
    #[test]
    fn structures_lie_as_the_c_headers_say() {
        let mut source = "#include <stddef.h>\n#include <rdma/rdma_cma.h>\n".to_owned();
        for (n, (c, here)) in rows().iter().enumerate() {
            source += &format!(
                "_Static_assert((size_t)({c}) == {here}, \"row {n}: {c} is not {here}\");\n"
            );
        }
        let compile = |text: &str| {
            let mut compiler = Command::new("cc")
                .args(["-fsyntax-only", "-x", "c", "-"])
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .ok()?;
            compiler.stdin.take()?.write_all(text.as_bytes()).ok()?;
            compiler.wait_with_output().ok()
        };
        let headers = compile("#include <rdma/rdma_cma.h>\n");
        if !headers.is_some_and(|out| out.status.success()) {
            eprintln!("SKIPPED: no C compiler, or no headers of librdmacm (package librdmacm-dev)");
            return;
        }
        let out = compile(&source).expect("it ran a moment ago");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}
