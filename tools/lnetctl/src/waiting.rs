//! A sign of life on the terminal while the daemon takes longer than a second over something.

use core::time::Duration;
use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};

const SECOND: Duration = Duration::from_secs(1);
/// Back to the first column, and what stands there goes.
const WIPE: &str = "\r\x1b[K";

/// Says every second how long it takes, until it is dropped; then nothing of it is left.
pub(crate) struct Waiting {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// For something that may take as long as `limit`. `None` without a terminal.
    pub(crate) fn at_terminal(what: &'static str, limit: Duration) -> Option<Self> {
        io::stderr().is_terminal().then(|| Self::begin(what, limit, SECOND, io::stderr()))
    }

    fn begin(
        what: &'static str,
        limit: Duration,
        tick: Duration,
        mut to: impl Write + Send + 'static,
    ) -> Self {
        let (over, ended) = mpsc::channel::<()>();
        let limit = limit.as_secs();
        let talk = move || {
            let mut ticks = 0_u64;
            while ended.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                ticks += 1;
                let text = format!("{WIPE}{what}: {ticks} s, at most {limit} s; Ctrl-C to give up");
                let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
            }
            if ticks > 0 {
                let _ = to.write_all(WIPE.as_bytes()).and_then(|()| to.flush());
            }
        };
        // Without a thread there is no sign, and everything else as with one.
        let thread = thread::Builder::new().name("waiting".to_owned()).spawn(talk).ok();
        Self { over: Some(over), thread }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn text(&self) -> String {
            self.0.lock().unwrap().clone()
        }
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push_str(core::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_long_wait_is_shown_and_wiped_away() {
        let screen = Screen::default();
        let tick = Duration::from_millis(1);
        let waiting = Waiting::begin("ping", Duration::from_secs(180), tick, screen.clone());
        while !screen.text().contains("ping: 2 s, at most 180 s") {
            thread::yield_now();
        }
        drop(waiting);
        assert!(screen.text().ends_with(WIPE));
    }

    #[test]
    fn a_short_wait_shows_nothing() {
        let screen = Screen::default();
        let hour = Duration::from_secs(3600);
        drop(Waiting::begin("ping", hour, hour, screen.clone()));
        assert_eq!(screen.text(), "");
    }
}
