//! A bridge that joins hosts, and the cables between it and them.

use crate::{Error, Host};

/// The bridge of a segment, from [`crate::World::switch`].
#[derive(Clone, Debug)]
pub struct Switch {
    fabric: Host,
    plugs: Vec<String>,
}

impl Switch {
    pub(crate) fn new(fabric: Host, plugs: Vec<String>) -> Self {
        Self { fabric, plugs }
    }

    /// Pulls the cable of the port with this place in the list that the switch was made from: the
    /// host's interface loses its carrier and keeps its addresses.
    ///
    /// # Errors
    /// There is no such port.
    pub fn unplug(&self, port: usize) -> Result<(), Error> {
        self.set(port, "down")
    }

    /// Puts it back.
    ///
    /// # Errors
    /// As [`Self::unplug`].
    pub fn plug_in(&self, port: usize) -> Result<(), Error> {
        self.set(port, "up")
    }

    /// Limits what goes to the host at this port, as [`crate::Host::shape`] limits what leaves it.
    ///
    /// # Errors
    /// As there, and there is no such port.
    pub fn shape(&self, port: usize, rate: &str, burst: &str, wait: &str) -> Result<(), Error> {
        self.fabric.shape(self.plug(port)?, rate, burst, wait)
    }

    /// Takes that limit away.
    ///
    /// # Errors
    /// There is none, or no such port.
    pub fn unshape(&self, port: usize) -> Result<(), Error> {
        self.fabric.qdisc_clear(self.plug(port)?)
    }

    fn set(&self, port: usize, to: &str) -> Result<(), Error> {
        self.fabric.ip(["link", "set", self.plug(port)?, to])
    }

    fn plug(&self, port: usize) -> Result<&str, Error> {
        self.plugs.get(port).map(String::as_str).ok_or_else(|| Error::System {
            what: format!("port {port} of a switch with {}", self.plugs.len()),
            source: std::io::Error::from(std::io::ErrorKind::NotFound),
        })
    }
}
