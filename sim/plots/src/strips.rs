//! Rows of coloured cells over time: how well many things were, at a glance.

use core::fmt::Write as _;

use crate::escape;
use crate::line::{Band, LEFT, RIGHT, WIDTH, bands, timed, times};

/// Height of a row, and of what is coloured of it.
const ROW: f64 = 18.0;
const FILLED: f64 = 14.0;
/// Room for names.
const NAMES: f64 = 170.0;
const BOTTOM: f64 = 26.0;
/// A name that is longer is cut.
const NAME_CHARS_MAX: usize = 26;

/// How well something was during a part of the time.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// From when, seconds.
    pub from: f64,
    /// Until when.
    pub to: f64,
    /// The class of its colour: `good`, `soft`, `fair`, `bad` or `gone`.
    pub class: &'static str,
    /// What it was, shown on pointing at it.
    pub what: String,
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Whose.
    pub name: String,
    /// Its cells, in order of time.
    pub cells: Vec<Cell>,
}

/// Rows over the same time.
#[derive(Clone, Debug)]
pub struct Strips<'a> {
    /// What they show.
    pub title: &'a str,
    /// Names of the colours that occur.
    pub legend: &'a [(&'static str, &'a str)],
    /// The rows, top down.
    pub rows: &'a [Row],
    /// Parts of the time that are marked above the rows.
    pub bands: &'a [Band],
    /// Where time ends, seconds; it begins at 0.
    pub end: f64,
}

impl Strips<'_> {
    pub(crate) fn draw(&self, page: &mut String) {
        // Writing to a string does not fail, here and below.
        let _ = write!(page, "<h2>{}", escape(self.title));
        for (class, name) in self.legend {
            let name = escape(name);
            let _ = write!(page, " <span class=\"k\"><i class=\"sw {class}\"></i>{name}</span>");
        }
        page.push_str("</h2>\n");
        let height = ROW * (self.rows.len() + 1) as f64 + BOTTOM;
        let end = if self.end > 0.0 { self.end } else { 1.0 };
        let left = LEFT.max(NAMES);
        let x = |at: f64| left + at.clamp(0.0, end) / end * (WIDTH - left - RIGHT);
        let _ = writeln!(
            page,
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\"{}>",
            escape(self.title),
            timed(left, end)
        );
        bands(page, self.bands, x, (0.0, height - BOTTOM), end);
        for (n, row) in self.rows.iter().enumerate() {
            let top = ROW * (n + 1) as f64;
            let name = match row.name.char_indices().nth(NAME_CHARS_MAX) {
                Some((at, _)) => format!("{}…", row.name.get(..at).unwrap_or_default()),
                None => row.name.clone(),
            };
            let _ = writeln!(
                page,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}<title>{}</title></text>",
                left - 8.0,
                top + FILLED - 3.0,
                escape(&name),
                escape(&row.name)
            );
            for cell in &row.cells {
                let from = x(cell.from);
                let width = (x(cell.to) - from).max(0.5);
                let (class, what) = (cell.class, escape(&cell.what));
                let _ = writeln!(
                    page,
                    "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
                     height=\"{FILLED}\"><title>{what}</title></rect>"
                );
            }
        }
        times(page, x, height - 8.0, end);
        page.push_str("</svg>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_and_width_of_a_cell_are_those_of_its_time() {
        let cell = |from, to| Cell { from, to, class: "bad", what: "health 0".to_owned() };
        let rows = [Row { name: "a<b".to_owned(), cells: vec![cell(0.0, 5.0), cell(5.0, 10.0)] }];
        let strips = Strips {
            title: "health",
            legend: &[("bad", "degraded")],
            rows: &rows,
            bands: &[],
            end: 10.0,
        };
        let mut text = String::new();
        strips.draw(&mut text);
        let half = (WIDTH - NAMES - RIGHT) / 2.0;
        assert!(
            text.contains(&format!("x=\"{NAMES:.1}\" y=\"18.0\" width=\"{half:.1}\"")),
            "{text}"
        );
        assert!(text.contains(&format!("x=\"{:.1}\" y=\"18.0\"", NAMES + half)), "{text}");
        assert!(text.contains("a&lt;b") && text.contains("<title>health 0</title>"));
    }
}
