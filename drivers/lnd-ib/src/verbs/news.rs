//! What the connection manager and the device say.

#![allow(unsafe_code)]

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

use super::Verbs;
use super::connections::PRIVILEGED;
use super::device;
use super::endpoint;
use super::events::{COMMUNICATES, CmNews, DeviceNews, cm_news, device_news};
use crate::adapter::{CmFact, Fact};
use crate::device::DeviceEvent;
use crate::value::{CmEvent, CmRejection, ConnId, RequestId};

impl Verbs {
    /// Takes what the connection manager says.
    pub(super) fn managed(&mut self) {
        let call = self.device.call;
        loop {
            let mut event = null_mut();
            // SAFETY: the channel is the device's; the place for the result is this function's.
            if unsafe { (call.rdma_get_cm_event)(self.device.events, &raw mut event) } != 0 {
                return;
            }
            // SAFETY: the event was just given out, and is acknowledged once, behind the last use of
            // what it holds. Its identifier lives: identifiers are destroyed by this thread only, and
            // their events with them.
            let (id, news, conn, private) = unsafe {
                let news = cm_news((*event).event, (*event).status);
                let id = (*event).id;
                let conn = (*id).context as u64;
                let has_private =
                    matches!(news, CmNews::Request | CmNews::Established | CmNews::Rejected(_));
                let (at, len) = ((*event).conn.private_data, (*event).conn.private_data_len);
                let private = if has_private && !at.is_null() {
                    core::slice::from_raw_parts(at.cast::<u8>(), len.into()).to_vec()
                } else {
                    Vec::new()
                };
                (call.rdma_ack_cm_event)(event);
                (id, news, conn, private)
            };
            if news == CmNews::Request {
                // SAFETY: the identifier came with the request and is this side's; the library has
                // filled in where it comes from.
                let port = unsafe { device::port_of(&(*id).dst_addr) };
                if self.config.cm.wants_privileged_port && port.is_none_or(|p| p >= PRIVILEGED.end)
                {
                    tracing::warn!(
                        port,
                        "a request is refused: its source port must be below 1024"
                    );
                    endpoint::refuse(&call, id, &[]);
                    continue;
                }
                self.last_request += 1;
                let request = RequestId(self.last_request);
                self.requests.insert(request, id);
                self.facts.push_back(Fact::Request { request, private });
                continue;
            }
            if conn == 0 {
                // Of the listener, or of a request that is about to be answered.
                if id == self.device.listener {
                    self.listener_news(news);
                }
                continue;
            }
            let conn = ConnId::from(slotmap::KeyData::from_ffi(conn));
            let event = match news {
                CmNews::Established => CmFact::Established(private),
                CmNews::Rejected(why) => CmFact::Rejected(why, private),
                CmNews::Plain(event) => CmFact::Plain(event),
                CmNews::Request | CmNews::Other => continue,
            };
            if let CmFact::Rejected(CmRejection::Other, _) = event {
                tracing::debug!(?conn, "refused by the connection manager of the peer");
            }
            self.facts.push_back(Fact::Cm { conn, event });
        }
    }

    pub(super) fn listener_news(&mut self, news: CmNews) {
        match news {
            CmNews::Plain(CmEvent::DeviceRemoval) => {
                self.facts.push_back(Fact::Device(DeviceEvent::Removed));
            }
            CmNews::Plain(CmEvent::AddrChange) => {
                self.facts.push_back(Fact::Device(DeviceEvent::PortChanged));
            }
            _ => {}
        }
    }

    /// Takes what the device says.
    pub(super) fn device_says(&mut self) {
        let call = self.device.call;
        loop {
            let mut event = MaybeUninit::uninit();
            // SAFETY: the context is the listener's; the place for the result is this function's.
            if unsafe { (call.ibv_get_async_event)(self.device.context, event.as_mut_ptr()) } != 0 {
                return;
            }
            // SAFETY: filled by the call. It is acknowledged once, behind the last use of what it
            // names: a queue pair does not go before that.
            let (news, port) = unsafe {
                let event = event.assume_init_mut();
                let news = device_news(event.event_type);
                if news == DeviceNews::Communicates {
                    let qp = event.element.qp.cast_const().cast();
                    if let Some(endpoint) = self.endpoints.values().find(|e| e.qp() == qp) {
                        (call.rdma_notify)(endpoint.id, COMMUNICATES);
                    }
                }
                let port = match news {
                    DeviceNews::Port(_) => event.element.port_num,
                    _ => 0,
                };
                (call.ibv_ack_async_event)(event);
                (news, port)
            };
            match news {
                DeviceNews::Device(event) => self.facts.push_back(Fact::Device(event)),
                DeviceNews::Port(DeviceEvent::PortChanged)
                    if port == c_int::from(self.device.port) =>
                {
                    self.facts.push_back(Fact::Device(DeviceEvent::PortChanged));
                }
                _ => {}
            }
        }
    }
}
