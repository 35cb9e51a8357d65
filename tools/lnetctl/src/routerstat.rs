//! `routerstat [INTERVAL]`: the classic counters of a node in one line, once or every so many seconds
//! (lnetctl.md 10).

use core::time::Duration;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use crate::Session;
use crate::lctl::param;
use crate::link::Link;

/// The file that is read.
const FILE: &str = "stats";
const USAGE: &str = "usage: routerstat [--socket PATH] [INTERVAL]\n";
const MIB: f64 = 1_048_576.0;

/// The eleven counters, in the order of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    msgs: u64,
    msgs_max: u64,
    errors: u64,
    send: (u64, u64),
    recv: (u64, u64),
    route: (u64, u64),
    drop: (u64, u64),
}

impl Counters {
    fn parse(text: &str) -> Option<Self> {
        let numbers: Vec<u64> =
            text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let &[msgs, msgs_max, errors, sc, rc, fc, dc, sl, rl, fl, dl] = numbers.as_slice() else {
            return None;
        };
        Some(Self {
            msgs,
            msgs_max,
            errors,
            send: (sc, sl),
            recv: (rc, rl),
            route: (fc, fl),
            drop: (dc, dl),
        })
    }

    /// Absolute values (RS-2).
    fn first(&self) -> String {
        let Self { msgs, msgs_max, errors, send, recv, route, drop } = self;
        format!(
            "M {msgs}({msgs_max}) E {errors} S {}/{} R {}/{} F {}/{} D {}/{}",
            send.1, send.0, recv.1, recv.0, route.1, route.0, drop.1, drop.0
        )
    }

    /// What has come since `before`, per second: MiB and messages (RS-3). Counts have 32 bits and
    /// wrap.
    fn since(&self, before: &Self, seconds: f64) -> String {
        let count =
            |now: u64, then: u64| f64::from((now as u32).wrapping_sub(then as u32)) / seconds;
        let rate = |now: (u64, u64), then: (u64, u64)| {
            (now.1.wrapping_sub(then.1) as f64 / MIB / seconds, count(now.0, then.0))
        };
        let (s, r) = (rate(self.send, before.send), rate(self.recv, before.recv));
        let (f, d) = (rate(self.route, before.route), rate(self.drop, before.drop));
        format!(
            "M {:>3}({:>3}) E {:.0} S {:>7.2}/{:>6.0} R {:>7.2}/{:>6.0} F {:>7.2}/{:>6.0} D {:>4.2}/{:.0}",
            self.msgs,
            self.msgs_max,
            count(self.errors, before.errors),
            s.0,
            s.1,
            r.0,
            r.1,
            f.0,
            f.1,
            d.0,
            d.1
        )
    }
}

/// The program. `args`: its name, then its words.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<String> =
        args.into_iter().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let (socket, words) = match words.as_slice() {
        [option, path, rest @ ..] if option == "--socket" => (Some(path.into()), rest),
        rest => (None, rest),
    };
    let interval = match words {
        [] => None,
        [help] if help == "--help" || help == "-h" => {
            print(USAGE);
            return ExitCode::SUCCESS;
        }
        [word] => match word.parse::<u32>() {
            Ok(seconds) if seconds > 0 => Some(Duration::from_secs(seconds.into())),
            _ => {
                eprintln!("routerstat: interval '{word}': expected 1 or more seconds");
                return ExitCode::FAILURE;
            }
        },
        _ => {
            eprint!("{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let mut link = Link::new(socket);
    let mut session = Session::new(&mut link);
    let mut last: Option<(Counters, Instant)> = None;
    loop {
        let Some(now) = read(&mut session) else {
            eprintln!("LNet stats not available");
            return ExitCode::FAILURE;
        };
        let at = Instant::now();
        let line = match &last {
            None => now.first(),
            Some((before, then)) => now.since(before, (at - *then).as_secs_f64()),
        };
        if !print(&format!("{line}\n")) {
            // No reader is left.
            return ExitCode::SUCCESS;
        }
        let Some(interval) = interval else { return ExitCode::SUCCESS };
        last = Some((now, at));
        thread::sleep(interval);
    }
}

fn read(session: &mut Session<'_>) -> Option<Counters> {
    match param::read(session, FILE) {
        Ok(text) => Counters::parse(&text),
        Err(e) => {
            eprintln!("routerstat: {e}");
            None
        }
    }
}

fn print(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_absolute_and_the_next_are_rates() {
        let first = Counters::parse("3 7 1 10 20 30 40 1000 2000 3000 4000\n").unwrap();
        assert_eq!(first.first(), "M 3(7) E 1 S 1000/10 R 2000/20 F 3000/30 D 4000/40");
        let next = Counters::parse("4 9 1 30 20 130 42 2098152 2000 3000 4000").unwrap();
        assert_eq!(
            next.since(&first, 2.0),
            "M   4(  9) E 0 S    1.00/    10 R    0.00/     0 F    0.00/    50 D 0.00/1"
        );
    }

    #[test]
    fn counters_that_wrap_give_small_rates_and_short_files_none() {
        let before = Counters { send: (u64::from(u32::MAX), 0), ..Counters::default() };
        let now = Counters { send: (9, 0), ..Counters::default() };
        assert!(now.since(&before, 1.0).contains("S    0.00/    10"));
        assert_eq!(Counters::parse("1 2 3"), None);
        assert_eq!(Counters::parse("1 2 3 4 5 6 7 8 9 10 x"), None);
    }
}
