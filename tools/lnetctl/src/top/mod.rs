//! `lnetctl top`: the node live on a terminal, or as plain text where there is none.
//!
//! `model.rs` is what is known and what keys do, `columns.rs` what is shown of an interface, `draw.rs`
//! puts it on a grid of characters; all are pure. This file has the terminal and the clock, and gives the terminal back whatever happens.

mod columns;
mod draw;
mod model;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use lnet_admin::{Ask, ClientError, FaultKind, Reply, Request};
use lnet_config::parse_number;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;

use self::draw::{Theme, draw};
use self::model::{Key, Model, Next, Sample};
use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::table::Command;

const PLACE: Place = Place::classic("show", "top");
/// Seconds between two looks, by default.
const INTERVAL: u64 = 1;
/// The longest time between two looks, seconds.
const INTERVAL_MAX: i64 = 3600;
/// How many resends are asked for.
const RESENDS: u32 = 32;
/// Size of the grid where there is no terminal; as many rows as there is to show.
const PLAIN_WIDTH: u16 = 120;
const PLAIN_ROWS_MAX: usize = 60_000;

/// The command.
pub(crate) fn top(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let number = |name: &str, low: i64, high: i64, default: i64| match args.value(name) {
        None => Ok(default),
        Some(word) => match parse_number(word) {
            Some(n) if (low..=high).contains(&n) => Ok(n),
            _ => Err(format!("invalid {name} value '{word}': expected {low} to {high}")),
        },
    };
    let interval = number("interval", 1, INTERVAL_MAX, INTERVAL as i64);
    let count = number("count", 1, i64::from(u32::MAX), 1);
    let (interval, count) = match (interval, count) {
        (Ok(interval), Ok(count)) => (Duration::from_secs(interval as u64), count),
        (Err(what), _) | (_, Err(what)) => return session.bad_value(PLACE, &what),
    };
    let live = io::stdout().is_terminal() && io::stdin().is_terminal() && !args.has("count");
    let outcome = if live { run_live(session, interval) } else { plain(session, interval, count) };
    match outcome {
        Ok(()) => 0,
        Err(Trouble::Node(e)) => session.failed(PLACE, &e, |r| format!("\"{}\"", r.text), None),
        Err(Trouble::Terminal(e)) => {
            session.err_line(format_args!("lnetctl: top: terminal: {e}"));
            INVALID
        }
    }
}

/// Why it ended.
enum Trouble {
    Node(ClientError),
    Terminal(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(e: io::Error) -> Self {
        Self::Terminal(e)
    }
}

/// Looks at the node once.
fn look(node: &mut dyn Ask) -> Result<Sample, ClientError> {
    let Reply::Status(status) = node.ask(&Request::Status)? else {
        return Err(ClientError::Unexpected);
    };
    Ok(Sample {
        nets: match node.ask(&Request::NetShow { net: None, detail: true })? {
            Reply::Nets(nets) => nets,
            _ => return Err(ClientError::Unexpected),
        },
        peers: node.peers(None, true)?,
        stats: match node.ask(&Request::StatsShow)? {
            Reply::Stats(stats) => stats,
            _ => return Err(ClientError::Unexpected),
        },
        routes: node.routes()?,
        rails: match node.ask(&Request::RailsShow)? {
            Reply::Rails(rails) => rails,
            _ => return Err(ClientError::Unexpected),
        },
        resends: match node.ask(&Request::ExplainResends { count: RESENDS })? {
            Reply::Texts(texts) => texts,
            _ => return Err(ClientError::Unexpected),
        },
        faults: {
            let mut faults = Vec::new();
            for kind in [FaultKind::Drop, FaultKind::Delay] {
                match node.ask(&Request::FaultShow(kind))? {
                    Reply::Faults(some) => faults.extend(some),
                    _ => return Err(ClientError::Unexpected),
                }
            }
            faults
        },
        status,
    })
}

/// On a terminal, until the user quits. Another thread looks at the node, so that keys are answered
/// at once though a look takes its time where there are many peers.
fn run_live(session: &mut Session<'_>, interval: Duration) -> Result<(), Trouble> {
    let mut model = Model::default();
    // What fails at once fails like any command; what fails later is shown and tried again.
    model.take(look(session.daemon).map_err(Trouble::Node)?, 0.0);
    let node = &mut *session.daemon;
    std::thread::scope(|scope| {
        let (wish, wishes) = mpsc::channel();
        let (show, seen) = mpsc::channel();
        scope.spawn(move || {
            while wishes.recv().is_ok() && show.send((look(node), Instant::now())).is_ok() {}
        });
        let mut terminal = ratatui::try_init()?;
        let outcome = watch(&mut terminal, &mut model, interval, &wish, &seen);
        ratatui::restore();
        outcome
    })
}

/// Draws what is seen and does what keys say. A look is asked for by `wish`, and comes by `seen`.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    model: &mut Model,
    interval: Duration,
    wish: &mpsc::Sender<()>,
    seen: &mpsc::Receiver<(Result<Sample, ClientError>, Instant)>,
) -> Result<(), Trouble> {
    let theme = Theme { colour: colours(), blocks: speaks_utf8() };
    // When the node was looked at last, and when that was last requested.
    let (mut looked, mut asked) = (Instant::now(), Instant::now());
    let mut looking = false;
    loop {
        terminal.draw(|frame| {
            let area = frame.area();
            draw(model, theme, area, frame.buffer_mut());
        })?;
        let rest = interval.saturating_sub(asked.elapsed());
        let mut due = !model.paused && rest.is_zero();
        let wait = match (looking, model.paused) {
            (true, _) => LOOK_EVERY,
            (false, true) => INTERVAL_PAUSED,
            (false, false) => rest,
        };
        if event::poll(wait)? {
            match press(&event::read()?).map_or(Next::Stay, |key| model.key(key)) {
                Next::Stay => {}
                Next::Look => due = true,
                Next::Quit => return Ok(()),
            }
        }
        if let Ok((outcome, at)) = seen.try_recv() {
            looking = false;
            match outcome {
                Ok(sample) => model.take(sample, (at - looked).as_secs_f64()),
                Err(e) => model.trouble = Some(e.to_string()),
            }
            looked = at;
        }
        if due && !looking {
            asked = Instant::now();
            looking = wish.send(()).is_ok();
        }
    }
}

/// How long to wait for a key when nothing else happens.
const INTERVAL_PAUSED: Duration = Duration::from_secs(1);
/// The same while a look is under way.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The key of an event, if it is one that is pressed.
fn press(event: &Event) -> Option<Key> {
    let Event::Key(KeyEvent { code, modifiers, kind, .. }) = event else { return None };
    if *kind == KeyEventKind::Release {
        return None;
    }
    Some(match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(c) => Key::Char(*c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

/// As text, `count` times.
fn plain(session: &mut Session<'_>, interval: Duration, count: i64) -> Result<(), Trouble> {
    let mut model = Model::default();
    model.take(look(session.daemon).map_err(Trouble::Node)?, 0.0);
    let theme = Theme { colour: false, blocks: speaks_utf8() };
    for _ in 0..count {
        let since = Instant::now();
        std::thread::sleep(interval);
        let sample = look(session.daemon).map_err(Trouble::Node)?;
        model.take(sample, since.elapsed().as_secs_f64());
        let text = text(&mut model, theme);
        let mut out = io::stdout().lock();
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            Ok(()) => {}
            // The reader has gone.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// All there is, as lines.
fn text(model: &mut Model, theme: Theme) -> String {
    let rows = 20 + 3 * model.nis().len() + model.peer_nis().len() + model.routes().len();
    let high = u16::try_from(rows.min(PLAIN_ROWS_MAX)).unwrap_or(u16::MAX);
    let area = Rect::new(0, 0, PLAIN_WIDTH, high);
    let mut buf = Buffer::empty(area);
    draw(model, theme, area, &mut buf);
    let mut text = String::new();
    for line in buf.content().chunks(usize::from(PLAIN_WIDTH)) {
        let line: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
        // The last line is about keys.
        if !line.starts_with("1:all") && !line.trim().is_empty() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

/// Colours are for terminals that have them, and for those who want them (no-color.org).
fn colours() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether the locale's characters are UTF-8.
fn speaks_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    locale.is_some_and(|l| l.to_lowercase().replace('-', "").contains("utf8"))
}
