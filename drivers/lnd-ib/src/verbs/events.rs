//! What the numbers of the libraries' events mean to the driver, as tables.

use core::ffi::{c_int, c_uint};

use super::sys::PortAttr;
use crate::device::DeviceEvent;
use crate::value::{CmEvent, CmRejection};

/// What an event of the connection manager is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CmNews {
    /// A peer asks for a connection.
    Request,
    /// The connection is there; its private data are the peer's.
    Established,
    /// The peer refuses; the private data are the peer's.
    Rejected(CmRejection),
    /// Anything else about a connection.
    Plain(CmEvent<'static>),
    /// Nothing that the driver knows.
    Other,
}

/// `enum rdma_cm_event_type`, with the status that goes with it.
pub(super) const fn cm_news(event: c_uint, status: c_int) -> CmNews {
    match event {
        0 => CmNews::Plain(CmEvent::AddrResolved),
        1 => CmNews::Plain(CmEvent::AddrError),
        2 => CmNews::Plain(CmEvent::RouteResolved),
        3 => CmNews::Plain(CmEvent::RouteError),
        4 => CmNews::Request,
        // The library makes an ESTABLISHED of a CONNECT_RESPONSE (5) where it has made the queue pair.
        6 => CmNews::Plain(CmEvent::ConnectError),
        7 => CmNews::Plain(CmEvent::Unreachable),
        8 => CmNews::Rejected(rejection(status)),
        9 => CmNews::Established,
        10 => CmNews::Plain(CmEvent::Disconnected),
        11 => CmNews::Plain(CmEvent::DeviceRemoval),
        14 => CmNews::Plain(CmEvent::AddrChange),
        15 => CmNews::Plain(CmEvent::TimewaitExit),
        _ => CmNews::Other,
    }
}

/// The reason of a refusal, as the connection management of InfiniBand numbers them; of iWARP it is an
/// error number.
const fn rejection(status: c_int) -> CmRejection {
    match status {
        // Invalid service ID; ECONNREFUSED of iWARP.
        8 | -111 => CmRejection::NoListener,
        10 => CmRejection::Stale,
        28 => CmRejection::Consumer,
        _ => CmRejection::Other,
    }
}

/// What an asynchronous event of a device is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceNews {
    /// The device, or all its ports.
    Device(DeviceEvent),
    /// One port, by the number in the event.
    Port(DeviceEvent),
    /// A queue pair that has got a message before its connection was known to be there.
    Communicates,
    /// Nothing that the driver acts on: failures of a queue pair show in its completions.
    Other,
}

/// `enum ibv_event_type`.
pub(super) const fn device_news(event: c_uint) -> DeviceNews {
    match event {
        0 => DeviceNews::Device(DeviceEvent::CompletionQueue),
        4 => DeviceNews::Communicates,
        8 => DeviceNews::Device(DeviceEvent::Fatal),
        9 => DeviceNews::Port(DeviceEvent::PortActive),
        10 => DeviceNews::Port(DeviceEvent::PortError),
        // LID, partition keys, subnet manager, reregistration, GIDs.
        11 | 12 | 13 | 17 | 18 => DeviceNews::Port(DeviceEvent::PortChanged),
        _ => DeviceNews::Other,
    }
}

/// `IBV_EVENT_COMM_EST`, to be passed to the connection manager.
pub(super) const COMMUNICATES: c_uint = 4;

/// The rate of a port, Mbit/s; 0 where its width or speed is not known.
pub(super) const fn rate(port: &PortAttr) -> u32 {
    let lanes = match port.active_width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    // Of one lane, by the names SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR.
    let lane = match port.active_speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    lanes * lane
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RS-055, RS-058: the numbers are those of `rdma_cma.h` and of the InfiniBand specification.
    #[test]
    fn events_of_the_connection_manager_are_those_of_the_header() {
        let plain = [
            (0, CmEvent::AddrResolved),
            (1, CmEvent::AddrError),
            (2, CmEvent::RouteResolved),
            (3, CmEvent::RouteError),
            (6, CmEvent::ConnectError),
            (7, CmEvent::Unreachable),
            (10, CmEvent::Disconnected),
            (11, CmEvent::DeviceRemoval),
            (14, CmEvent::AddrChange),
            (15, CmEvent::TimewaitExit),
        ];
        for (number, event) in plain {
            assert_eq!(cm_news(number, 0), CmNews::Plain(event), "{number}");
        }
        assert_eq!(cm_news(4, 0), CmNews::Request);
        assert_eq!(cm_news(9, 0), CmNews::Established);
        for number in [5, 12, 13, 16, u32::MAX] {
            assert_eq!(cm_news(number, 0), CmNews::Other, "{number}");
        }
        let rejections = [
            (8, CmRejection::NoListener),
            (10, CmRejection::Stale),
            (28, CmRejection::Consumer),
            (4, CmRejection::Other),
        ];
        for (status, why) in rejections {
            assert_eq!(cm_news(8, status), CmNews::Rejected(why), "{status}");
        }
    }

    /// RS-054, RS-057.
    #[test]
    fn events_of_a_device_are_those_of_the_header() {
        assert_eq!(device_news(0), DeviceNews::Device(DeviceEvent::CompletionQueue));
        assert_eq!(device_news(8), DeviceNews::Device(DeviceEvent::Fatal));
        assert_eq!(device_news(9), DeviceNews::Port(DeviceEvent::PortActive));
        assert_eq!(device_news(10), DeviceNews::Port(DeviceEvent::PortError));
        for number in [11, 12, 13, 17, 18] {
            assert_eq!(device_news(number), DeviceNews::Port(DeviceEvent::PortChanged));
        }
        assert_eq!(device_news(COMMUNICATES), DeviceNews::Communicates);
        for number in [1, 2, 3, 5, 16, 99] {
            assert_eq!(device_news(number), DeviceNews::Other, "{number}");
        }
    }

    #[test]
    fn the_rate_of_a_port_is_its_lanes_times_their_speed() {
        let port = |active_width, active_speed| PortAttr {
            active_width,
            active_speed,
            ..PortAttr::default()
        };
        assert_eq!(rate(&port(2, 32)), 100_000, "4x EDR");
        assert_eq!(rate(&port(1, 1)), 2_500, "1x SDR, which soft-RoCE reports");
        assert_eq!(rate(&port(16, 64)), 100_000, "2x HDR");
        assert_eq!(rate(&port(0, 1)), 0);
    }
}
