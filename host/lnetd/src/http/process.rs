//! This process as `/proc` has it: what the `process_*` metrics of all programs are made of. Texts are
//! read totally: what is not there, or not as expected, is left out.

use std::fs;

/// A look at the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    /// Processor time in all, seconds.
    pub(super) cpu_s: Option<f64>,
    pub(super) threads: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_fds: Option<u64>,
    /// The soft limit of the descriptors.
    pub(super) max_fds: Option<u64>,
    /// Start, in seconds of the Unix time.
    pub(super) start_s: Option<f64>,
}

impl Process {
    /// Reads `/proc/self`. The start is given: the system derives it from the time of day, so that it
    /// would move with the clock.
    pub(super) fn read(start_s: Option<f64>) -> Self {
        let stat = stat();
        let ticks = ticks_per_second();
        Self {
            cpu_s: stat.map(|stat| stat.cpu_ticks as f64 / ticks),
            threads: stat.map(|stat| stat.threads),
            virtual_bytes: stat.map(|stat| stat.virtual_bytes),
            resident_bytes: stat
                .map(|stat| stat.resident_pages.saturating_mul(rustix::param::page_size() as u64)),
            open_fds: open_fds(),
            max_fds: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            start_s,
        }
    }
}

/// When this process started, in seconds of the Unix time.
pub(super) fn start() -> Option<f64> {
    let boot = of_boot(&fs::read_to_string("/proc/stat").ok()?)?;
    Some(boot as f64 + stat()?.start_ticks as f64 / ticks_per_second())
}

fn ticks_per_second() -> f64 {
    (rustix::param::clock_ticks_per_second() as f64).max(1.0)
}

fn stat() -> Option<Stat> {
    // The name may be no UTF-8.
    of_stat(&String::from_utf8_lossy(&fs::read("/proc/self/stat").ok()?))
}

/// Descriptors, without the one that counts them.
fn open_fds() -> Option<u64> {
    let fds = fs::read_dir("/proc/self/fd").ok()?.count();
    u64::try_from(fds).ok()?.checked_sub(1)
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    /// Since the system started.
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// Reads `/proc/PID/stat`. The second field is the name in parentheses, which may contain anything.
fn of_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // Numbered as in proc(5); the first one behind the name is 3.
    let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<u64>().ok();
    Some(Stat {
        cpu_ticks: field(14)?.checked_add(field(15)?)?,
        threads: field(20)?,
        start_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

/// When the system started, from `/proc/stat`.
fn of_boot(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "4711 (a) b (c)) S 1 4711 4711 0 -1 4194560 100 0 1 0 250 50 7 8 20 0 \
        9 0 123456 1048576 33 18446744073709551615 1 1 0 0 0 0 0 4096 1088 0 0 0 17 1 0 0 0 0 0\n";

    #[test]
    fn fields_are_found_behind_a_name_with_parentheses() {
        let stat = Stat {
            cpu_ticks: 300,
            threads: 9,
            start_ticks: 123_456,
            virtual_bytes: 1 << 20,
            resident_pages: 33,
        };
        assert_eq!(of_stat(STAT), Some(stat));
        assert_eq!(of_boot("cpu 1 2\nbtime 1700000000\nprocesses 5\n"), Some(1_700_000_000));
    }

    #[test]
    fn a_text_that_is_cut_or_has_other_words_gives_nothing() {
        let needed = STAT.find(" 33 ").unwrap() + 3;
        for end in 0..needed {
            let cut = of_stat(&STAT[..end]);
            assert!(cut.is_none() || end == needed - 1, "{end}: {cut:?}");
        }
        assert_eq!(of_stat(&STAT.replace(" 250 ", " -250 ")), None);
        assert_eq!(of_stat(&STAT.replace(" 250 ", " 18446744073709551615 ")), None);
        assert_eq!((of_boot("btime x"), of_boot("")), (None, None));
    }

    #[test]
    fn this_process_started_in_the_past_and_has_descriptors_threads_and_memory() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        let started = start().unwrap();
        assert!(started <= now + 1.0 && started > now - 86_400.0, "{started} {now}");
        let first = Process::read(Some(started));
        assert!(first.open_fds.unwrap() >= 3 && first.max_fds > first.open_fds, "{first:?}");
        assert!(first.threads.unwrap() >= 1 && first.cpu_s.unwrap() >= 0.0, "{first:?}");
        assert!(first.resident_bytes.unwrap() > 100_000, "{first:?}");
        assert!(first.virtual_bytes > first.resident_bytes, "{first:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in ".*", tail in "[0-9 ]{0,200}") {
            let _ = (of_stat(&text), of_boot(&text), of_stat(&format!("1 (x) {tail}")));
        }
    }
}
