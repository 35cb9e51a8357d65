//! The end of a visit before its time: its calls are abandoned, and those by which it lets go of what it has
//! wait for no server that does not answer.

use core::time::Duration;

use async_channel::{Receiver, Sender, bounded};

/// How long calls wait that begin after the interrupt: those that close files, remove parts of them, and
/// disconnect.
const AFTER: Duration = Duration::from_secs(2);

/// Interrupts a mount, from any thread: calls under way end with [`CallError::Cancelled`], further ones wait
/// for two seconds at most. A visit that does not end by itself is interrupted before it is ended.
///
/// [`CallError::Cancelled`]: ptlrpc::CallError::Cancelled
#[derive(Clone, Debug)]
pub struct Interrupt {
    /// Closed by the interrupt; nothing is sent.
    raise: Sender<()>,
    raised: Receiver<()>,
}

impl Default for Interrupt {
    fn default() -> Self {
        let (raise, raised) = bounded(1);
        Self { raise, raised }
    }
}

impl Interrupt {
    /// Interrupts.
    pub fn raise(&self) {
        self.raise.close();
    }

    /// Whether that has happened.
    pub fn is_raised(&self) -> bool {
        self.raise.is_closed()
    }

    /// Waits for it.
    pub(crate) async fn raised(&self) {
        let _closed = self.raised.recv().await;
    }

    /// How long a call waits that begins now.
    pub(crate) fn limit(&self, limit: Duration) -> Duration {
        if self.is_raised() { limit.min(AFTER) } else { limit }
    }
}
