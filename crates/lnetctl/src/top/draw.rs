//! The model on a grid of characters. At 80 by 24 everything has its place; what is wider or longer
//! gets more of it. Colours only add to what words and bars say.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Words, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table, Widget as _};

use super::model::{Line, Model, Page};

/// How things look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// Whether there are colours.
    pub(crate) colour: bool,
    /// Whether the terminal has more than ASCII.
    pub(crate) blocks: bool,
}

/// Cells of a health bar.
const BAR: usize = 8;
/// Rows of resends on the page with everything.
const RESENDS_SHOWN: usize = 3;
/// The most rows of routes there.
const ROUTES_SHOWN: usize = 4;

const HELP: &str = "\
1-5, Tab   page: all, nets, peers, routes, resends
arrows     scroll; also j k, PgUp PgDn, Home End
/          show only what has this text; Enter keeps it, Esc ends it
s          sort by the next column: age, NID, health, rate, queue,
           failures
r          the other way round
p          pause, or go on
space      look at the node now
q          quit

OUT and IN are messages a second. FAIL counts failures charged to an
interface. HEALTH is 1000 when nothing is wrong. Peers that are silent or
shaky are avoided before anything fails.";

impl Theme {
    fn ink(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn of_health(self, health: i32) -> Style {
        match health {
            1000.. => self.ink(Color::Green),
            501.. => self.ink(Color::Yellow),
            _ => self.ink(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    fn of_state(self, state: &str) -> Style {
        match state {
            "up" | "healthy" => self.ink(Color::Green),
            "down" | "silent" => self.ink(Color::Red).add_modifier(Modifier::BOLD),
            _ => self.ink(Color::Yellow),
        }
    }

    fn bar(self, health: i32) -> String {
        let full = usize::try_from(health.clamp(0, 1000)).unwrap_or(0) * BAR;
        // The last cell is full only for full health, the first one empty only for none.
        let full = if health >= 1000 { BAR } else { full.div_ceil(1000).min(BAR - 1) };
        let (on, off) = if self.blocks { ('█', '░') } else { ('#', '.') };
        core::iter::repeat_n(on, full).chain(core::iter::repeat_n(off, BAR - full)).collect()
    }
}

/// Draws the whole screen. How far the list could be scrolled is put right in the model.
pub(crate) fn draw(model: &mut Model, theme: Theme, area: Rect, buf: &mut Buffer) {
    let [top, body, foot] =
        Layout::vertical([Constraint::Length(3), Constraint::Fill(1), Constraint::Length(1)])
            .areas(area);
    head(model, theme, top, buf);
    if model.now.is_some() {
        match model.page {
            Page::All => all(model, theme, body, buf),
            Page::Nets => nets(model, theme, body, buf, true),
            Page::Peers => peers(model, theme, body, buf),
            Page::Routes => routes(model, theme, body, buf, true),
            Page::Resends => resends(model, theme, body, buf, usize::MAX),
        }
    }
    footer(model, theme, foot, buf);
    if model.help {
        help(area, buf);
    }
}

fn head(model: &Model, theme: Theme, area: Rect, buf: &mut Buffer) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let lines = match &model.now {
        None => {
            let why = model.trouble.as_deref().unwrap_or("looking");
            vec![Words::from(vec![Span::styled("lnetctl top  ", bold), Span::raw(why.to_owned())])]
        }
        Some(now) => {
            let (r, s) = (model.rates(), &now.stats);
            let state = match (&model.trouble, model.paused) {
                (Some(why), _) => format!("  {why}"),
                (None, true) => "  paused".to_owned(),
                (None, false) => String::new(),
            };
            let title = vec![
                Span::styled(format!("lnetd {}", now.status.version), bold),
                Span::raw(format!("  profile {}  pid {}", now.status.profile, now.status.pid)),
                Span::styled(state, theme.ink(Color::Red).add_modifier(Modifier::BOLD)),
            ];
            let rates = format!(
                "out {}/s {}/s   in {}/s {}/s   in hand {}   dropped {}",
                short(r.sent),
                bytes(r.sent_bytes),
                short(r.received),
                bytes(r.received_bytes),
                s.msgs_alloc,
                s.drop_count,
            );
            let trouble = format!(
                "resends {}   failed {}   late responses {}   suspected rails {}   fault rules {}",
                s.resend_count,
                s.failed_resends,
                s.response_timeout_count,
                now.rails.len(),
                now.faults.len(),
            );
            vec![Words::from(title), Words::from(rates), Words::from(trouble)]
        }
    };
    Paragraph::new(lines).render(area, buf);
}

fn footer(model: &Model, theme: Theme, area: Rect, buf: &mut Buffer) {
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let mut spans = Vec::new();
    if model.typing {
        spans.push(Span::styled(format!("filter: {}_", model.filter), reversed));
        spans.push(Span::raw("  Enter keeps it, Esc ends it"));
    } else {
        for (i, page) in Page::ALL.into_iter().enumerate() {
            let text = format!("{}:{}", i + 1, page.name());
            spans.push(if page == model.page {
                Span::styled(text, reversed)
            } else {
                Span::raw(text)
            });
            spans.push(Span::raw(" "));
        }
        let arrow = if model.reverse { " reversed" } else { "" };
        spans.push(Span::raw(format!(" s:by {}{arrow}", model.sort.name())));
        if model.filter.is_empty() {
            spans.push(Span::raw("  /:filter"));
        } else {
            let text = format!("  /:{}", model.filter);
            spans.push(Span::styled(text, theme.ink(Color::Cyan).add_modifier(Modifier::BOLD)));
        }
        spans.push(Span::raw("  ?:help  q:quit"));
    }
    Paragraph::new(Words::from(spans)).render(area, buf);
}

/// Everything: what is few gets what it needs, peers get the rest.
fn all(model: &mut Model, theme: Theme, area: Rect, buf: &mut Buffer) {
    let rows = |n: usize, most: usize| u16::try_from(n.min(most)).unwrap_or(0);
    let sample = model.now.as_ref();
    let (routes_there, resends_there) =
        sample.map_or((0, 0), |now| (now.routes.len(), now.resends.len()));
    let tall = usize::from(area.height);
    let nets_high = 1 + rows(model.nis().len(), (tall / 3).max(2));
    let routes_high = if routes_there == 0 { 0 } else { 1 + rows(routes_there, ROUTES_SHOWN) };
    let resends_high = if resends_there == 0 { 0 } else { 1 + rows(resends_there, RESENDS_SHOWN) };
    let [a, b, c, d] = Layout::vertical([
        Constraint::Length(nets_high),
        Constraint::Fill(1),
        Constraint::Length(routes_high),
        Constraint::Length(resends_high),
    ])
    .areas(area);
    nets(model, theme, a, buf, false);
    peers(model, theme, b, buf);
    if routes_high > 0 {
        routes(model, theme, c, buf, false);
    }
    if resends_high > 0 {
        resends(model, theme, d, buf, RESENDS_SHOWN);
    }
}

fn nets(model: &mut Model, theme: Theme, area: Rect, buf: &mut Buffer, scrolls: bool) {
    let lines = model.nis();
    let from = if scrolls { bounded(&mut model.scroll, lines.len(), area) } else { 0 };
    table(["NETWORK INTERFACE", "DEV"], &lines, from, theme, area, buf);
}

fn peers(model: &mut Model, theme: Theme, area: Rect, buf: &mut Buffer) {
    let lines = model.peer_nis();
    let from = bounded(&mut model.scroll, lines.len(), area);
    let title = format!("PEER INTERFACE ({})", lines.len());
    table([&title, ""], &lines, from, theme, area, buf);
}

/// The first row shown of `count` below a heading.
fn bounded(scroll: &mut usize, count: usize, area: Rect) -> usize {
    let room = usize::from(area.height.saturating_sub(1));
    *scroll = (*scroll).min(count.saturating_sub(room));
    *scroll
}

fn heading(theme: Theme) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if theme.colour { style.fg(Color::Cyan) } else { style.add_modifier(Modifier::UNDERLINED) }
}

fn table(
    names: [&str; 2],
    lines: &[Line],
    from: usize,
    theme: Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let right = |text: String| Words::from(text).alignment(Alignment::Right);
    let [name, device] = names.map(|n| Words::from(n.to_owned()));
    let header = ["OUT/s", "IN/s", "QUEUE", "FAIL"].map(|n| right(n.to_owned()));
    let header =
        [name, device, Words::from("STATE"), Words::from("HEALTH")].into_iter().chain(header);
    let rows = lines.iter().skip(from).take(usize::from(area.height)).map(|line| {
        let health = line.health.map_or_else(
            || Words::from(""),
            |h| Words::styled(format!("{} {h:>4}", theme.bar(h)), theme.of_health(h)),
        );
        Row::new([
            Words::from(line.nid.clone()),
            Words::from(line.device.clone()),
            Words::styled(line.state, theme.of_state(line.state)),
            health,
            right(short(line.out)),
            right(short(line.inward)),
            right(bytes(line.queued as f64)),
            right(line.failures.to_string()),
        ])
    });
    let widths = [
        Constraint::Min(22),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(13),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(5),
    ];
    let table = Table::new(rows, widths).header(Row::new(header).style(heading(theme)));
    ratatui::widgets::Widget::render(table, area, buf);
}

fn routes(model: &mut Model, theme: Theme, area: Rect, buf: &mut Buffer, scrolls: bool) {
    let count = model.routes().len();
    let from = if scrolls { bounded(&mut model.scroll, count, area) } else { 0 };
    let rows = model.routes().into_iter().skip(from).take(usize::from(area.height)).map(|route| {
        let state = if route.up { "up" } else { "down" };
        Row::new([
            Words::from(route.net.clone()),
            Words::from(route.gateway.clone()),
            Words::styled(state, theme.of_state(state)),
            Words::from(route.hops.map_or_else(String::new, |h| h.to_string())),
            Words::from(route.priority.to_string()),
        ])
    });
    let widths = [
        Constraint::Length(16),
        Constraint::Min(30),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(9),
    ];
    let header =
        Row::new(["ROUTE TO", "GATEWAY", "STATE", "HOPS", "PRIORITY"]).style(heading(theme));
    ratatui::widgets::Widget::render(Table::new(rows, widths).header(header), area, buf);
}

/// The newest first; a line each where there is little room, else all that is known.
fn resends(model: &mut Model, theme: Theme, area: Rect, buf: &mut Buffer, most: usize) {
    let whole = most == usize::MAX;
    let mut lines = vec![Words::styled("SENT AGAIN, NEWEST FIRST", heading(theme))];
    let all = model.now.iter().flat_map(|now| now.resends.iter().rev());
    for text in all.take(most) {
        let first = text.lines().next().unwrap_or_default();
        let last = text.trim_end().lines().last().unwrap_or_default().trim();
        if whole {
            lines.extend(text.trim_end().lines().map(|line| Words::from(line.to_owned())));
        } else {
            // The end says where it went; the beginning gives way to it.
            let what = first.split_once(": ").map_or(first, |(what, _)| what);
            let what = what.split_once(' ').map_or(what, |(_, rest)| rest);
            lines.push(Words::from(format!("{last}: {what}")));
        }
    }
    let from = if whole { bounded(&mut model.scroll, lines.len(), area) } else { 0 };
    let from = u16::try_from(from).unwrap_or(u16::MAX);
    Paragraph::new(lines).scroll((from, 0)).render(area, buf);
}

fn help(area: Rect, buf: &mut Buffer) {
    let (wide, high) = (72, HELP.lines().count() as u16 + 2);
    let [_, middle, _] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(high), Constraint::Fill(1)])
            .areas(area);
    let [_, middle, _] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(wide), Constraint::Fill(1)])
            .areas(middle);
    Clear.render(middle, buf);
    let frame = Block::new().borders(Borders::ALL).title(" lnetctl top: any key goes back ");
    Paragraph::new(HELP).block(frame).render(middle, buf);
}

/// A number in at most five characters.
pub(super) fn short(n: f64) -> String {
    match n {
        n if n >= 999.5e6 => format!("{:.1}G", n / 1e9),
        n if n >= 9.95e6 => format!("{:.0}M", n / 1e6),
        n if n >= 999.5e3 => format!("{:.1}M", n / 1e6),
        n if n >= 9_950.0 => format!("{:.0}k", n / 1e3),
        n if n >= 9.95 || n == n.round() => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

/// Bytes in at most six characters.
pub(super) fn bytes(mut n: f64) -> String {
    let mut unit = "";
    for next in ["K", "M", "G", "T"] {
        if n < 1000.0 {
            break;
        }
        n /= 1024.0;
        unit = next;
    }
    if unit.is_empty() || n >= 9.95 { format!("{n:.0}{unit}") } else { format!("{n:.1}{unit}") }
}
