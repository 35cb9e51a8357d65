//! Settings, and every limit by its name. What is beyond a limit is refused with an errno, made to
//! wait, or dropped and counted; nothing grows without end.

use core::time::Duration;

/// What may be set. The defaults are the kernel's (wire.md 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a test waits for its answer; zero is for ever.
    pub rpc_timeout: Duration,
    /// How long a session lives on this node without a word from its console; zero is for ever.
    pub session_timeout: Duration,
    /// So many of the next bulk transfers carry damaged data: tests of the test (T-8).
    pub inject_errors: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rpc_timeout: Duration::from_secs(64),
            session_timeout: Duration::from_secs(100),
            inject_errors: 0,
        }
    }
}

/// Batches of one session.
pub(crate) const BATCHES_MAX: usize = 1024;
/// Tests of one batch.
pub(crate) const TESTS_MAX: usize = 64;
/// Test units of one session: each has at most one request in flight.
pub(crate) const UNITS_MAX: usize = 16_384;
/// Bytes of bulk data that are kept to be checked at a time, as client by what its units may ask
/// for, as server by what is in hand (requests beyond wait).
pub(crate) const KEPT_BYTES_MAX: u64 = 1 << 30;
/// Bulk requests in service at a time.
pub(crate) const SERVED_MAX: usize = 4096;
/// Bulk requests that wait to be served; more are dropped and counted.
pub(crate) const WAITING_MAX: usize = 16_384;
/// Lists of destinations that are being fetched.
pub(crate) const FETCHES_MAX: usize = 64;
/// Request buffers of a framework service.
pub(crate) const FRAMEWORK_BUFFERS: u32 = 16;
/// Request buffers of a test service before any test needs more.
pub(crate) const TEST_BUFFERS: u32 = 64;
/// The most request buffers that tests get, whatever they want. More requests wait in LNet, which
/// is what lazy portals are for.
pub(crate) const TEST_BUFFERS_MAX: u32 = 2048;
/// A unit whose calls fail waits before the next, twice as long each time …
pub(crate) const BACK_OFF: Duration = Duration::from_millis(10);
/// … up to this.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// Nodes of a console's session.
pub(crate) const NODES_MAX: usize = 4096;
/// Groups of a console's session.
pub(crate) const GROUPS_MAX: usize = 256;
/// Batches of a console's session.
pub(crate) const CONSOLE_BATCHES_MAX: usize = 256;
/// Commands in hand.
pub(crate) const COMMANDS_MAX: usize = 64;
/// How often the console looks for nodes that it has not heard from (wire.md 6.7).
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(8);
/// How long the console waits for answers to what has no time-out of its own.
pub(crate) const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time-out that a command may have.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// A node in a session more than once (a reply of its was lost) is asked so often to leave.
pub(crate) const LEAVES_MAX: u32 = 8;
