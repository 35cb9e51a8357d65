//! Log lines on standard error, for programs that have no collector of their own for what Rust logs: those
//! in C and Python, and the tools that run a node for as long as a command takes. The environment variable
//! `ULNET_LOG` chooses the lowest level that is printed; without it nothing is. Other programs in Rust
//! install a subscriber of their choice for `tracing`.

use core::fmt::{self, Write as _};
use std::io::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The environment variable: `off`, `error`, `warn`, `info`, `debug` or `trace`.
pub const LOG_ENV: &str = "ULNET_LOG";

/// Prints log lines to standard error from now on, if [`LOG_ENV`] asks for it and this process has no other
/// subscriber for `tracing` yet. A value that is no level is reported once, and `warn` is chosen.
pub fn log_to_stderr() {
    let Some(value) = std::env::var_os(LOG_ENV) else { return };
    let value = value.to_string_lossy();
    let (level, is_known) = level(&value);
    let is_ours = tracing::subscriber::set_global_default(Lines { level }).is_ok();
    if is_ours && !is_known {
        tracing::warn!(
            "{LOG_ENV} '{value}': must be one of off, error, warn, info, debug, trace; warn is used"
        );
    }
}

/// The level of that name, or `warn`, and whether it is one.
fn level(name: &str) -> (LevelFilter, bool) {
    match name.trim().parse() {
        // Numbers are levels as well, which no page promises.
        Ok(level) if !name.trim().is_empty() => (level, true),
        Ok(_) | Err(_) => (LevelFilter::WARN, false),
    }
}

/// Prints events as single lines: level, target, message, fields.
struct Lines {
    level: LevelFilter,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        // In one write: lines of several threads and of the program itself don't mix. No reader is no error.
        let _ = io::stderr().write_all(line(event).as_bytes());
    }

    // Spans are not shown.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn line(event: &Event<'_>) -> String {
    let metadata = event.metadata();
    let mut fields = Fields::default();
    event.record(&mut fields);
    let Fields { message, others } = fields;
    // Text that came from outside begins no line of its own.
    let text = format!("{message}{others}").replace(['\n', '\r'], " ");
    format!("ulnet {:>5} {}: {}\n", metadata.level(), metadata.target(), text.trim_start())
}

#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.others, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn levels_have_the_names_that_the_page_gives_and_others_mean_warn() {
        for (name, level_of, known) in [
            ("off", LevelFilter::OFF, true),
            ("error", LevelFilter::ERROR, true),
            ("WARN", LevelFilter::WARN, true),
            (" info ", LevelFilter::INFO, true),
            ("debug", LevelFilter::DEBUG, true),
            ("trace", LevelFilter::TRACE, true),
            ("", LevelFilter::WARN, false),
            ("lnet=debug", LevelFilter::WARN, false),
        ] {
            assert_eq!(level(name), (level_of, known), "{name:?}");
            assert_eq!(Lines { level: level_of }.max_level_hint(), Some(level_of), "{name:?}");
        }
    }

    /// Keeps the lines that [`Lines`] would print.
    struct Kept(Lines, Arc<Mutex<Vec<String>>>);

    impl Subscriber for Kept {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.0.enabled(metadata)
        }

        fn event(&self, event: &Event<'_>) {
            self.1.lock().unwrap().push(line(event));
        }

        fn new_span(&self, attributes: &Attributes<'_>) -> Id {
            self.0.new_span(attributes)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn an_event_is_one_line_with_its_fields_and_less_important_ones_are_left_out() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let to = Kept(Lines { level: LevelFilter::WARN }, kept.clone());
        tracing::subscriber::with_default(to, || {
            let nid = "10.0.0.1@tcp";
            tracing::warn!(target: "lnet", peer = %nid, "interface\n{nid} is down");
            tracing::info!(target: "lnet", "not printed");
        });
        let lines = kept.lock().unwrap();
        assert_eq!(
            *lines,
            ["ulnet  WARN lnet: interface 10.0.0.1@tcp is down peer=10.0.0.1@tcp\n"]
        );
    }
}
