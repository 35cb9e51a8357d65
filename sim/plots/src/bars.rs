//! Bars: one row for each case, a bar for each part of a spread.

use core::fmt::Write as _;

use crate::escape;
use crate::line::{RIGHT, WIDTH};

/// Height of a bar, and the room between rows.
const BAR: f64 = 9.0;
const GAP: f64 = 8.0;
/// Room for names.
const NAMES: f64 = 300.0;
/// Room for the figure behind a bar.
const FIGURE: f64 = 70.0;

/// Rows of bars over one scale that begins at 0.
#[derive(Clone, Debug)]
pub struct Bars<'a, const N: usize> {
    /// What they show, with its unit.
    pub title: &'a str,
    /// What each bar of a row is.
    pub parts: &'a [&'a str; N],
    /// Name and figures of each row, top down.
    pub rows: &'a [(String, [f64; N])],
}

impl<const N: usize> Bars<'_, N> {
    pub(crate) fn draw(&self, page: &mut String) {
        // Writing to a string does not fail, here and below.
        let _ = write!(page, "<h2>{}", escape(self.title));
        for (n, part) in self.parts.iter().enumerate() {
            let part = escape(part);
            let _ = write!(page, " <span class=\"k k{}\">■ {part}</span>", n % crate::COLOURS);
        }
        page.push_str("</h2>\n");
        let most = self.rows.iter().flat_map(|(_, f)| f).fold(0.0, |a: f64, b| a.max(*b));
        let most = if most > 0.0 { most } else { 1.0 };
        let row = BAR * N as f64 + GAP;
        let height = row * self.rows.len() as f64 + GAP;
        let title = escape(self.title);
        let _ = writeln!(
            page,
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">"
        );
        for (n, (name, figures)) in self.rows.iter().enumerate() {
            let top = row * n as f64 + GAP;
            let middle = top + BAR * N as f64 / 2.0 + 4.0;
            let _ = writeln!(
                page,
                "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
                NAMES - 8.0,
                escape(name)
            );
            for (k, figure) in figures.iter().enumerate() {
                let y = top + BAR * k as f64;
                let width = (figure / most * (WIDTH - NAMES - RIGHT - FIGURE)).max(0.5);
                let colour = k % crate::COLOURS;
                let _ = writeln!(
                    page,
                    "<rect x=\"{NAMES}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" \
                     fill=\"currentColor\" class=\"k{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                     font-size=\"9\">{figure:.1}</text>",
                    BAR - 1.0,
                    NAMES + width + 5.0,
                    y + BAR - 1.0
                );
            }
        }
        page.push_str("</svg>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_its_name_and_a_bar_for_each_part() {
        let rows = [("a<b".to_owned(), [1.0, 4.0]), ("c".to_owned(), [0.0, 2.0])];
        let mut page = String::new();
        Bars { title: "t", parts: &["x", "y"], rows: &rows }.draw(&mut page);
        assert_eq!(page.matches("<rect").count(), 4);
        assert!(page.contains("a&lt;b") && page.contains(">4.0</text>"), "{page}");
    }
}
