//! The console and the responder of LNet selftest, on `selftest.rs`.

use std::sync::Arc;
use std::time::Duration;

use lnet_admin::{AdminError, Reply};
use lnet_rt::NodeHandle;
use lnet_selftest::{Command, Settings};
use lnet_types::Errno;

use super::{Control, off};
use crate::selftest::Selftest;

/// How long the console may take over a command beside the time-out that the command names.
const SELFTEST_LIMIT: Duration = Duration::from_secs(90);

impl Control {
    pub(super) fn start_selftest(&self, handle: &NodeHandle) -> Result<Arc<Selftest>, AdminError> {
        let inject_errors = self.options.brw_inject_errors;
        let settings = Settings { inject_errors, ..Settings::default() };
        Selftest::start(handle, settings)
            .map(Arc::new)
            .map_err(|e| AdminError::errno(e.errno()).because(format_args!("selftest: {e}")))
    }

    /// Gives the console of selftest a command. A new session turns selftest on.
    pub(super) fn selftest(&self, key: u32, command: Command) -> Result<Reply, AdminError> {
        let selftest = {
            let mut state = self.state();
            let node = state.node.as_mut().ok_or_else(|| off(Errno::ENETDOWN))?;
            match (&node.selftest, &command) {
                (Some(selftest), _) => Arc::clone(selftest),
                (None, Command::NewSession { .. }) => {
                    let selftest = self.start_selftest(&node.handle)?;
                    node.selftest = Some(Arc::clone(&selftest));
                    selftest
                }
                (None, _) => return Err(AdminError::errno(Errno::ESRCH)),
            }
        };
        let limit = SELFTEST_LIMIT + Duration::from_secs(command.timeout_s().into());
        let answer = selftest.command(key, command, limit);
        answer.map(Reply::Selftest).map_err(AdminError::errno)
    }
}
