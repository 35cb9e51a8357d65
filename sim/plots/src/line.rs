//! Lines over time.

use core::fmt::Write as _;

use crate::{COLOURS, escape};

/// Size of a plot, and of the frame around its lines.
pub(crate) const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 240.0;
pub(crate) const LEFT: f64 = 64.0;
const BOTTOM: f64 = 30.0;
const TOP: f64 = 12.0;
pub(crate) const RIGHT: f64 = 12.0;
/// With more points than this the line alone is drawn.
const DOTS_MAX: usize = 60;
/// Lines across a plot.
pub(crate) const GRID: u32 = 4;
/// Most powers of ten that a logarithmic plot shows; what is smaller lies at its bottom.
const DECADES_MAX: i32 = 8;

/// One line.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// What it is called.
    pub name: &'a str,
    /// Time in seconds, and a value or that there is none: the line has a gap there.
    pub points: Vec<(f64, Option<f64>)>,
}

/// A part of the time that is to be seen behind the lines.
#[derive(Clone, Debug)]
pub struct Band {
    /// What it is, shown on pointing at it.
    pub name: String,
    /// From when, seconds.
    pub from: f64,
    /// Until when.
    pub to: f64,
}

/// How values are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// From 0 to a round number.
    #[default]
    Linear,
    /// By powers of ten.
    Log,
}

/// Some lines over the same time.
#[derive(Clone, Debug)]
pub struct Plot<'a> {
    /// What it shows.
    pub title: &'a str,
    /// Its lines.
    pub lines: &'a [Line<'a>],
    /// Behind them.
    pub bands: &'a [Band],
    /// Where time ends, seconds; it begins at 0.
    pub end: f64,
    /// How values are placed.
    pub scale: Scale,
    /// How a value is written at the edge.
    pub show: fn(f64) -> String,
}

impl Plot<'_> {
    pub(crate) fn draw(&self, page: &mut String) {
        // Writing to a string does not fail, here and below.
        let _ = write!(page, "<h2>{}", escape(self.title));
        for (n, line) in self.lines.iter().enumerate() {
            let (colour, name) = (n % COLOURS, escape(line.name));
            let _ = write!(page, " <span class=\"k k{colour}\">&#9644; {name}</span>");
        }
        page.push_str("</h2>\n");
        let values = || self.lines.iter().flat_map(|l| l.points.iter().filter_map(|(_, v)| *v));
        let axis = Axis::of(self.scale, values());
        let end = if self.end > 0.0 { self.end } else { 1.0 };
        let x = |at: f64| LEFT + at / end * (WIDTH - LEFT - RIGHT);
        let y = |v: f64| HEIGHT - BOTTOM - axis.part(v) * (HEIGHT - BOTTOM - TOP);
        let _ = writeln!(
            page,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\"{}>",
            escape(self.title),
            timed(LEFT, end)
        );
        bands(page, self.bands, x, (TOP, HEIGHT - BOTTOM), end);
        for value in axis.grid() {
            let (at, right) = (y(value), WIDTH - RIGHT);
            let _ = writeln!(
                page,
                "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                at + 4.0,
                escape(&(self.show)(value))
            );
        }
        times(page, x, HEIGHT - 8.0, end);
        for (n, line) in self.lines.iter().enumerate() {
            let colour = n % COLOURS;
            for part in line.points.split(|(_, v)| v.is_none()) {
                let points: Vec<String> = part
                    .iter()
                    .filter_map(|(at, v)| Some(format!("{:.1},{:.1}", x(*at), y((*v)?))))
                    .collect();
                // A line without any point is there all the same: it shows that there is nothing.
                if !points.is_empty() || line.points.is_empty() {
                    let points = points.join(" ");
                    let _ = writeln!(page, "<polyline class=\"l l{colour}\" points=\"{points}\"/>");
                }
                // Of a few points, and of a single one between gaps, each is shown.
                let single = part.len() == 1;
                for (at, v) in part.iter().filter(|_| single || line.points.len() <= DOTS_MAX) {
                    let Some(v) = *v else { continue };
                    let (x, y) = (x(*at), y(v));
                    let _ = write!(
                        page,
                        "<circle class=\"l l{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>"
                    );
                }
            }
        }
        page.push_str("</svg>\n");
    }
}

/// What lies behind, between two heights.
pub(crate) fn bands(
    page: &mut String,
    bands: &[Band],
    x: impl Fn(f64) -> f64,
    (top, bottom): (f64, f64),
    end: f64,
) {
    for band in bands {
        let from = x(band.from.clamp(0.0, end));
        // What is over at once is still to be seen.
        let width = (x(band.to.clamp(0.0, end)) - from).max(2.0);
        let height = bottom - top;
        let _ = writeln!(
            page,
            "<rect class=\"band\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"><title>{}</title></rect>",
            escape(&band.name)
        );
    }
}

/// Where time is in a picture, for scripts of the page.
pub(crate) fn timed(left: f64, end: f64) -> String {
    format!(" data-left=\"{left}\" data-right=\"{}\" data-end=\"{end}\"", WIDTH - RIGHT)
}

/// The times below a plot.
pub(crate) fn times(page: &mut String, x: impl Fn(f64) -> f64, y: f64, end: f64) {
    for i in 0..=GRID {
        let at = end * f64::from(i) / f64::from(GRID);
        // The last one would leave the picture.
        let anchor = if i == GRID { "end" } else { "middle" };
        let _ = writeln!(
            page,
            "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{} s</text>",
            x(at),
            clock(at)
        );
    }
}

/// The axis of values.
#[derive(Clone, Copy, Debug)]
enum Axis {
    /// From 0 to this.
    Linear(f64),
    /// From one power of ten to another.
    Log(i32, i32),
}

impl Axis {
    fn of(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let most = values.clone().filter(|v| v.is_finite()).fold(0.0, f64::max);
        if scale == Scale::Linear || most <= 0.0 {
            return Self::Linear(round_up(most));
        }
        let least = values.filter(|v| *v > 0.0).fold(most, f64::min);
        let high = most.log10().ceil() as i32;
        let low = (least.log10().floor() as i32).clamp(high - DECADES_MAX, high - 1);
        Self::Log(low, high)
    }

    /// Where a value is: 0 at the bottom, 1 at the top.
    fn part(self, value: f64) -> f64 {
        match self {
            Self::Linear(top) => value / top,
            Self::Log(low, _) if value <= 10f64.powi(low) => 0.0,
            Self::Log(low, high) => (value.log10() - f64::from(low)) / f64::from(high - low),
        }
    }

    fn grid(self) -> Vec<f64> {
        match self {
            Self::Linear(top) => (0..=GRID).map(|i| top * f64::from(i) / f64::from(GRID)).collect(),
            Self::Log(low, high) => (low..=high).map(|n| 10f64.powi(n)).collect(),
        }
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.iter().map(|s| s * power).find(|top| *top >= value).unwrap_or(10.0 * power)
}

/// A time with a digit behind the point if it needs one.
fn clock(at: f64) -> String {
    without_zeros(format!("{at:.1}"))
}

/// A number with as many digits as are readable.
pub(crate) fn short(value: f64) -> String {
    without_zeros(if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") })
}

fn without_zeros(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

impl Plot<'_> {
    /// A plain number, for [`Plot::show`].
    pub fn number(value: f64) -> String {
        short(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(scale: Scale, points: Vec<(f64, Option<f64>)>) -> String {
        let lines = [Line { name: "one", points }];
        let bands = [Band { name: "fault".to_owned(), from: 1.0, to: 2.0 }];
        let plot =
            Plot { title: "t", lines: &lines, bands: &bands, end: 4.0, scale, show: Plot::number };
        let mut text = String::new();
        plot.draw(&mut text);
        text
    }

    #[test]
    fn scales_end_at_round_numbers() {
        let cases = [(0.0, 1.0), (0.7, 1.0), (1.1, 2.0), (499.0, 500.0), (501.0, 1000.0)];
        for (value, top) in cases {
            assert_eq!(round_up(value), top);
        }
    }

    #[test]
    fn numbers_have_the_digits_that_they_need() {
        for (value, text) in
            [(0.0, "0"), (12.5, "12.5"), (250.4, "250"), (40.0, "40"), (0.25, "0.25")]
        {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn a_line_has_gaps_where_there_is_nothing() {
        let text = drawn(
            Scale::Linear,
            vec![(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(1.0))],
        );
        assert_eq!(text.matches("<polyline").count(), 2, "{text}");
        assert!(text.contains("<title>fault</title>"));
        assert!(drawn(Scale::Linear, Vec::new()).contains("points=\"\""));
    }

    #[test]
    fn on_a_logarithmic_scale_equal_ratios_are_equally_far() {
        let axis = Axis::of(Scale::Log, [0.002, 3.0, 20.0].into_iter());
        assert_eq!(axis.grid(), [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0]);
        let far = |a: f64, b: f64| axis.part(b) - axis.part(a);
        assert!((far(0.01, 0.1) - far(1.0, 10.0)).abs() < 1e-9);
        assert_eq!((axis.part(0.0), axis.part(100.0)), (0.0, 1.0));
    }
}
