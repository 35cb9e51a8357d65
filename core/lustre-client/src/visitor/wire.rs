//! What a visit stands on: calls to targets. A host makes them over a node, a test plays a recording.

use core::future::Future;

use lustre_wire::ConnectData;
use ptlrpc::{Call, CallError, ImportConfig, Reply};

/// Calls to targets. Its futures are polled by whatever runs the visit; none of them waits on a thread.
pub trait Wire: Sync {
    /// A connection.
    type Link: Send + Sync;

    /// A connection to a target, which connects with its first call.
    ///
    /// # Errors
    /// A uuid that is empty or too long, no NID, a node that has stopped.
    fn link(&self, config: ImportConfig) -> Result<Self::Link, CallError>;

    /// A call, and its bulk data: at most so many bytes as `room`, 0 for none. It ends within a bound
    /// that the host knows, with [`CallError::LimitPassed`] if it is not answered.
    fn call(
        &self,
        link: &Self::Link,
        call: Call,
        room: u32,
    ) -> impl Future<Output = Result<(Reply, Vec<u8>), CallError>> + Send;

    /// What the target has granted; nothing before it has answered a call.
    fn terms(&self, link: &Self::Link) -> impl Future<Output = ConnectData> + Send;

    /// Ends a connection, if it is connected.
    fn close(&self, link: &Self::Link) -> impl Future<Output = ()> + Send;
}
