//! Fault injection, for tests and demonstrations: connections that break and interfaces that are cut
//! on command. Nothing in the driver calls it.

use lnet_types::{Errno, Instant, NiId};

use super::SockDriver;
use crate::error::{CUT, StartError, Why};
use crate::streams::Streams;
use crate::upper::Upper;

impl<S: Streams> SockDriver<S> {
    /// Breaks all connections of an interface, as if the network had: both sides see a reset. New
    /// ones can be made at once. Returns how many there were.
    pub fn kill_connections<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        ni: NiId,
        up: &mut U,
    ) -> usize {
        let keys: Vec<_> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.ni == ni && conn.up().is_some())
            .map(|(key, _)| key)
            .collect();
        for key in &keys {
            self.part_conn(now, *key, Why::Read(Errno::ECONNRESET), true, up);
        }
        keys.len()
    }

    /// Cuts an interface or restores it. While it is cut its connections are reset, no peer can
    /// connect to it, and connecting from it fails with `ENETUNREACH` without back-off.
    ///
    /// # Errors
    /// The address can't be listened on again; the interface stays cut then.
    pub fn ni_block<U: Upper + ?Sized>(
        &mut self,
        now: Instant,
        ni: NiId,
        blocked: bool,
        up: &mut U,
    ) -> Result<(), StartError> {
        let Some(state) = self.nis.get_mut(ni) else { return Ok(()) };
        if state.blocked == blocked {
            return Ok(());
        }
        if blocked {
            state.blocked = true;
            self.unlisten(ni);
            self.end_all(now, ni, Why::Cut, CUT, up);
            return Ok(());
        }
        if let Some(mut state) = self.nis.remove(ni) {
            let listening = self.listen(&mut state);
            state.blocked = listening.is_err();
            self.nis.insert(ni, state);
            listening?;
            self.keep_listeners(ni);
        }
        Ok(())
    }
}
