//! The model on a grid of characters. At 80 by 24 everything has its place; what is wider or longer
//! gets more of it: a column with nothing in it gives its place to others, and what is cut is
//! counted. Colours only add to what words and bars say.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Words, Span, Text};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table, Widget as _};

use lnet_admin::InterfaceState;

use super::columns::{BAR, Column, fitting, mib, short};
use super::model::{Line, Model, Page, Sort};

/// How things look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// Whether there are colours.
    pub(crate) colour: bool,
    /// Whether the terminal has more than ASCII.
    pub(crate) blocks: bool,
}

/// The least and the most room of the first column.
const NAME_WIDTHS: (usize, usize) = (19, 48);
/// Rows of a heading: names and units.
const HEADING: u16 = 2;
/// Rows of resends on the page with everything.
const RESENDS_SHOWN: usize = 3;
/// The most rows of routes there.
const ROUTES_SHOWN: usize = 4;

const HELP: &str = "\
1-5, Tab   page: all, nets, peers, routes, resends
arrows     scroll; also j k, PgUp PgDn, Home End
/          show only what has this text; Enter keeps it, Esc ends it
c          choose columns
s > <      sort by the next or the previous column
r          reverse the order
p          pause, or go on
space      look at the node now
h ?        this help
q          quit

Columns with nothing in them give their place to others. LATENCY is the
median from a PUT or GET to its ACK or REPLY, LAST the age of the last
message received. FAILED counts failures charged to an interface. An
interface is up, degraded (health below 1000), suspect (avoided before
anything fails), unknown (never reached) or down.";

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

    fn of_state(self, state: InterfaceState) -> Style {
        match state {
            InterfaceState::Up => self.ink(Color::Green),
            InterfaceState::Down => self.ink(Color::Red).add_modifier(Modifier::BOLD),
            _ => self.ink(Color::Yellow),
        }
    }

    fn bar(self, health: i32) -> String {
        let cells = usize::from(BAR);
        let full = usize::try_from(health.clamp(0, 1000)).unwrap_or(0) * cells;
        // The last cell is full only for full health, the first one empty only for none.
        let full = if health >= 1000 { cells } else { full.div_ceil(1000).min(cells - 1) };
        let (on, off) = if self.blocks { ('█', '░') } else { ('#', '.') };
        core::iter::repeat_n(on, full).chain(core::iter::repeat_n(off, cells - full)).collect()
    }

    /// The name of the key that scrolls down.
    const fn down(self) -> &'static str {
        if self.blocks { "↓" } else { "Down" }
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
            Page::Nets => {
                let lines = model.nis();
                let plan = Plan::new(model, &[&lines], body.width);
                nets(model, &lines, &plan, theme, body, buf, true);
            }
            Page::Peers => {
                let lines = model.peer_nis();
                let plan = Plan::new(model, &[&lines], body.width);
                peers(model, &lines, &plan, theme, body, buf);
            }
            Page::Routes => routes(model, theme, body, buf, true),
            Page::Resends => resends(model, theme, body, buf, usize::MAX),
        }
    }
    footer(model, theme, foot, buf);
    if model.help {
        help(area, buf);
    } else if let Some(at) = model.choosing {
        choice(model, at, area, buf);
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
                Span::styled(name(now), bold),
                Span::raw(format!("  profile {}  pid {}", now.status.profile, now.status.pid)),
                Span::styled(state, theme.ink(Color::Red).add_modifier(Modifier::BOLD)),
            ];
            let rates = format!(
                "out {} msg/s {} MiB/s   in {} msg/s {} MiB/s   in hand {}   dropped {}",
                short(r.sent),
                mib(r.sent_bytes),
                short(r.received),
                mib(r.received_bytes),
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

/// The version, and on which host.
fn name(now: &super::model::Sample) -> String {
    let status = &now.status;
    match status.host.as_str() {
        "" => format!("lnetd {}", status.version),
        host => format!("lnetd {} on {host}", status.version),
    }
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
        let reversed = if model.reverse { ", r" } else { "" };
        spans.push(Span::raw(format!(" s:by {}{reversed}", model.sort.name())));
        let ends = "  ?:help  q:quit";
        if !model.filter.is_empty() {
            let text = format!("  /:{}", model.filter);
            spans.push(Span::styled(text, theme.ink(Color::Cyan).add_modifier(Modifier::BOLD)));
        }
        // Where there is room; the help has them all.
        for hint in ["  /:filter", "  c:columns"] {
            let used: usize = spans.iter().map(Span::width).sum();
            let room = used + hint.len() + ends.len() <= usize::from(area.width);
            if room && (model.filter.is_empty() || !hint.contains('/')) {
                spans.push(Span::raw(hint));
            }
        }
        spans.push(Span::raw(ends));
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
    let (ours, theirs) = (model.nis(), model.peer_nis());
    let nets_high = HEADING + rows(ours.len(), (tall / 3).max(2));
    let routes_high = if routes_there == 0 { 0 } else { 1 + rows(routes_there, ROUTES_SHOWN) };
    let resends_high = if resends_there == 0 { 0 } else { 1 + rows(resends_there, RESENDS_SHOWN) };
    let [a, b, c, d] = Layout::vertical([
        Constraint::Length(nets_high),
        Constraint::Fill(1),
        Constraint::Length(routes_high),
        Constraint::Length(resends_high),
    ])
    .areas(area);
    let plan = Plan::new(model, &[&ours, &theirs], area.width);
    nets(model, &ours, &plan, theme, a, buf, false);
    peers(model, &theirs, &plan, theme, b, buf);
    if routes_high > 0 {
        routes(model, theme, c, buf, false);
    }
    if resends_high > 0 {
        resends(model, theme, d, buf, RESENDS_SHOWN);
    }
}

fn nets(
    model: &mut Model,
    lines: &[Line],
    plan: &Plan,
    theme: Theme,
    area: Rect,
    buf: &mut Buffer,
    scrolls: bool,
) {
    let rows = usize::from(area.height.saturating_sub(HEADING));
    let (from, key) = if scrolls {
        (bounded(&mut model.scroll, lines.len(), rows), theme.down())
    } else {
        (0, "2")
    };
    table("NETWORK INTERFACE", lines, from, key, plan, theme, area, buf);
}

fn peers(
    model: &mut Model,
    lines: &[Line],
    plan: &Plan,
    theme: Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let rows = usize::from(area.height.saturating_sub(HEADING));
    let from = bounded(&mut model.scroll, lines.len(), rows);
    let title = format!("PEER INTERFACE ({})", lines.len());
    table(&title, lines, from, theme.down(), plan, theme, area, buf);
}

/// The first row shown of `count` where there is place for `room`.
fn bounded(scroll: &mut usize, count: usize, room: usize) -> usize {
    *scroll = (*scroll).min(count.saturating_sub(room));
    *scroll
}

fn heading(theme: Theme) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if theme.colour { style.fg(Color::Cyan) } else { style.add_modifier(Modifier::UNDERLINED) }
}

/// The columns of tables that stand below each other.
struct Plan {
    columns: Vec<Column>,
    sort: Sort,
    device: usize,
    /// There is room for bars of health.
    bars: bool,
}

impl Plan {
    fn new(model: &Model, tables: &[&[Line]], width: u16) -> Self {
        let lines = || tables.iter().copied().flatten();
        let longest = |text: fn(&Line) -> &String| {
            lines().map(|line| text(line).chars().count()).max().unwrap_or(0)
        };
        let (least, most) = NAME_WIDTHS;
        let name = longest(|line| &line.nid).clamp(least, most);
        let device = longest(|line| &line.device);
        let there = |c: Column| model.wants(c) && lines().any(|line| present(c, line));
        let room = width.saturating_sub(u16::try_from(name).unwrap_or(width));
        let (columns, left) = fitting(there, model.sort.column(), device, room);
        Self { columns, sort: model.sort, device, bars: left > BAR }
    }

    fn width(&self, column: Column) -> u16 {
        let bar = if self.bars && column == Column::Health { BAR + 1 } else { 0 };
        column.width(self.device) + bar
    }
}

/// Whether a row has something for a column. What comes and goes with traffic keeps its place.
fn present(column: Column, line: &Line) -> bool {
    match column {
        Column::OutBytes | Column::InBytes | Column::OutMessages | Column::InMessages => true,
        Column::Queued => true,
        _ => column.is_there(line),
    }
}

#[allow(clippy::too_many_arguments, reason = "a table, its place and its look")]
fn table(
    name: &str,
    lines: &[Line],
    from: usize,
    key: &str,
    plan: &Plan,
    theme: Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let room = usize::from(area.height.saturating_sub(HEADING));
    let rest = lines.len().saturating_sub(from);
    // The last row gives way to the count of those that have no place.
    let shown = if rest > room { room.saturating_sub(1) } else { rest };
    let [body, hint] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(u16::from(rest > room))])
            .areas(area);

    let sorted = |yes: bool| {
        if yes { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() }
    };
    let first = Words::styled(name.to_owned(), sorted(plan.sort == Sort::Nid));
    let columns = plan.columns.iter().map(|column| {
        let (name, unit) = column.heading();
        let name = Words::styled(name, sorted(plan.sort == Sort::By(*column)));
        let side = if column.is_number() { Alignment::Right } else { Alignment::Left };
        Text::from(vec![name, Words::from(unit)]).alignment(side)
    });
    let header = Row::new(core::iter::once(Text::from(first)).chain(columns)).height(HEADING);
    let rows = lines.iter().skip(from).take(shown).map(|line| {
        let cells = plan.columns.iter().map(|column| cell(*column, line, plan, theme));
        Row::new(core::iter::once(Words::from(line.nid.clone())).chain(cells))
    });
    let widths = plan.columns.iter().map(|column| Constraint::Length(plan.width(*column)));
    let widths = core::iter::once(Constraint::Fill(1)).chain(widths);
    let table = Table::new(rows, widths).header(header.style(heading(theme)));
    ratatui::widgets::Widget::render(table, body, buf);
    if rest > room {
        let text = format!("{} more rows: make the window higher or press {key}", rest - shown);
        Paragraph::new(text).style(theme.ink(Color::Yellow)).render(hint, buf);
    }
}

fn cell(column: Column, line: &Line, plan: &Plan, theme: Theme) -> Words<'static> {
    let text = column.cell(line);
    match (column, line.health) {
        (Column::State, _) => Words::styled(text, theme.of_state(line.state)),
        (Column::Health, Some(h)) if plan.bars => {
            Words::styled(format!("{} {h:>4}", theme.bar(h)), theme.of_health(h))
        }
        (Column::Health, Some(h)) => Words::styled(format!("{h:>4}"), theme.of_health(h)),
        _ if column.is_number() => Words::from(text).alignment(Alignment::Right),
        _ => Words::from(text),
    }
}

fn routes(model: &mut Model, theme: Theme, area: Rect, buf: &mut Buffer, scrolls: bool) {
    let count = model.routes().len();
    let room = usize::from(area.height.saturating_sub(1));
    let from = if scrolls { bounded(&mut model.scroll, count, room) } else { 0 };
    let rows = model.routes().into_iter().skip(from).take(usize::from(area.height)).map(|route| {
        let state = if route.up { InterfaceState::Up } else { InterfaceState::Down };
        Row::new([
            Words::from(route.net.to_string()),
            Words::from(route.gateway.to_string()),
            Words::styled(state.name(), theme.of_state(state)),
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
    let cut = count.saturating_sub(from + room);
    let gateway = match (cut, scrolls) {
        (0, _) => "GATEWAY".to_owned(),
        (_, true) => format!("GATEWAY ({cut} more: press {})", theme.down()),
        (_, false) => format!("GATEWAY ({cut} more: press 4)"),
    };
    let header = ["ROUTE TO", &gateway, "STATE", "HOPS", "PRIORITY"].map(str::to_owned);
    let header = Row::new(header).style(heading(theme));
    ratatui::widgets::Widget::render(Table::new(rows, widths).header(header), area, buf);
}

/// The newest first; a line each where there is little room, else all that is known.
fn resends(model: &mut Model, theme: Theme, area: Rect, buf: &mut Buffer, most: usize) {
    let whole = most == usize::MAX;
    let count = model.now.as_ref().map_or(0, |now| now.resends.len());
    let cut = count.saturating_sub(most);
    let more = if cut > 0 { format!(" ({cut} more: press 5)") } else { String::new() };
    let mut lines = vec![Words::styled(format!("SENT AGAIN, NEWEST FIRST{more}"), heading(theme))];
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
    let room = usize::from(area.height.saturating_sub(1));
    let from = if whole { bounded(&mut model.scroll, lines.len(), room) } else { 0 };
    let from = u16::try_from(from).unwrap_or(u16::MAX);
    Paragraph::new(lines).scroll((from, 0)).render(area, buf);
}

fn help(area: Rect, buf: &mut Buffer) {
    let lines = HELP.lines().map(Words::from).collect();
    overlay(" lnetctl top: any key goes back ", lines, 0, area, buf);
}

/// The choice of columns, with the cursor in row `at`.
fn choice(model: &Model, at: usize, area: Rect, buf: &mut Buffer) {
    let row = |(i, column): (usize, &Column)| {
        let mark = if model.hidden.contains(column) { ' ' } else { 'x' };
        let empty = if model.is_empty(*column) { " (nothing in it)" } else { "" };
        let text = format!("[{mark}] {:<14} {}{empty}", column.name(), column.about());
        let style = if i == at { Modifier::REVERSED } else { Modifier::empty() };
        Words::styled(text, Style::new().add_modifier(style))
    };
    let lines = Column::ALL.iter().enumerate().map(row).collect();
    overlay(" columns: space chooses, a all, Enter goes back ", lines, at, area, buf);
}

/// A frame in the middle; the line `at` is in sight.
fn overlay(title: &str, lines: Vec<Words<'_>>, at: usize, area: Rect, buf: &mut Buffer) {
    let high = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
    let [_, middle, _] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(high), Constraint::Fill(1)])
            .areas(area);
    let [_, middle, _] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(76), Constraint::Fill(1)])
            .areas(middle);
    Clear.render(middle, buf);
    let room = usize::from(middle.height.saturating_sub(2)).max(1);
    let from = u16::try_from((at + 1).saturating_sub(room)).unwrap_or(0);
    let frame = Block::new().borders(Borders::ALL).title(title);
    Paragraph::new(lines).scroll((from, 0)).block(frame).render(middle, buf);
}
