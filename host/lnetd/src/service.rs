//! The daemon as a service of systemd: it says when it is ready, reloads or ends, and keeps the
//! watchdog quiet for as long as the node answers. Without systemd nothing of this happens.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::control::Control;

/// Notifies systemd, if it is there.
pub(crate) fn report(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(false, states) {
        tracing::warn!("cannot notify systemd of {states:?}: {e}");
    }
}

/// Is ready.
pub(crate) fn ready() {
    report(&[NotifyState::Ready]);
}

/// Begins to read its configuration anew.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => report(&[NotifyState::Reloading, now]),
        Err(e) => tracing::warn!("cannot notify systemd of a reload: {e}"),
    }
}

/// Ends.
pub(crate) fn stopping() {
    report(&[NotifyState::Stopping]);
}

/// Feeds the watchdog, if one was asked for: twice per interval the node is asked for a sign of life,
/// and only its answer counts.
pub(crate) fn watchdog(control: &Arc<Control>) -> std::io::Result<()> {
    let mut micros = 0;
    if !sd_notify::watchdog_enabled(false, &mut micros) {
        return Ok(());
    }
    let interval = Duration::from_micros(micros) / 2;
    let control = Arc::clone(control);
    thread::Builder::new().name("lnetd-watchdog".to_owned()).spawn(move || {
        loop {
            // Waits for as long as the node does not answer: then systemd gets no sign of life.
            control.sign_of_life();
            report(&[NotifyState::Watchdog]);
            thread::sleep(interval);
        }
    })?;
    Ok(())
}
