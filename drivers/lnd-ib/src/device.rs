//! Events of the device and their consequences, as one table (RS-054, RS-056, RS-057, B-40).

/// An asynchronous event of the device, or of the network interface on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The device is in an error that it does not leave by itself.
    Fatal,
    /// The port has lost its link.
    PortError,
    /// The port has its link.
    PortActive,
    /// The device is being taken away.
    Removed,
    /// The address of the interface is gone.
    AddressGone,
    /// The address of the interface is there.
    AddressThere,
    /// The network interface is down, or has no carrier.
    LinkDown,
    /// The network interface is up with a carrier.
    LinkUp,
    /// Identifiers of the port, its partition keys or the subnet manager have changed.
    PortChanged,
    /// The completion queue has overrun: completions are lost.
    CompletionQueue,
    /// The rate of the link, Mbit/s.
    Rate(u32),
}

/// What a device event means to the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEffect {
    /// The interface is unusable until further notice.
    Down,
    /// The interface is usable.
    Up,
    /// The interface is unusable, and so is every connection.
    Gone,
    /// Every connection ends; new ones may be made.
    Close,
    /// The rate counts.
    Rate,
    /// Nothing.
    Nothing,
}

impl DeviceEvent {
    /// What follows.
    pub const fn effect(self) -> DeviceEffect {
        match self {
            Self::Fatal | Self::PortError | Self::AddressGone | Self::LinkDown => {
                DeviceEffect::Down
            }
            Self::PortActive | Self::AddressThere | Self::LinkUp => DeviceEffect::Up,
            Self::Removed => DeviceEffect::Gone,
            Self::CompletionQueue => DeviceEffect::Close,
            Self::Rate(_) => DeviceEffect::Rate,
            Self::PortChanged => DeviceEffect::Nothing,
        }
    }
}
