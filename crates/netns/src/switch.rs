//! A bridge that joins hosts, and the cables between it and them.

use crate::Error;
use crate::process::ip;

/// The bridge of a segment, from [`crate::World::switch`].
#[derive(Clone, Debug)]
pub struct Switch {
    fabric: String,
    plugs: Vec<String>,
}

impl Switch {
    pub(crate) fn new(fabric: String, plugs: Vec<String>) -> Self {
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

    fn set(&self, port: usize, to: &str) -> Result<(), Error> {
        let plug = self.plugs.get(port).ok_or_else(|| Error::System {
            what: format!("port {port} of a switch with {}", self.plugs.len()),
            source: std::io::Error::from(std::io::ErrorKind::NotFound),
        })?;
        ip(["-n", &self.fabric, "link", "set", plug, to]).map(drop)
    }
}
