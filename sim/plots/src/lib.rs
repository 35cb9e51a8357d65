//! Pages with plots that need nothing from outside: HTML with style and SVG in it, in light and dark.
//!
//! Texts in, text out. `line.rs` draws lines over time, `strips.rs` rows of coloured cells over the
//! same time, `bars.rs` bars; [`Page`] puts them under each other. What they show is the caller's.

mod bars;
mod line;
mod strips;

pub use bars::Bars;
pub use line::{Band, Line, Plot, Scale};
pub use strips::{Cell, Row, Strips};

use core::fmt::Write as _;

/// Lines of one plot have so many colours; more lines begin again.
pub const COLOURS: usize = 8;

const STYLE: &str = "\
:root{--bg:#fff;--fg:#1c2128;--mut:#656d76;--grid:#d8dee4;--band:#f6e3da;--good:#bfe3cb;\
--soft:#f2dd9b;--fair:#f0a35c;--bad:#d13b3b;--gone:#57606a;\
--c0:#0a5fd8;--c1:#c2410c;--c2:#1a7f37;--c3:#8250df;--c4:#0e7490;--c5:#bf3989;--c6:#7d6608;--c7:#57606a}\
@media (prefers-color-scheme:dark){:root{--bg:#0f1318;--fg:#e6edf3;--mut:#8b949e;--grid:#2d333b;\
--band:#3a2a20;--good:#1f4d30;--soft:#6b5a1c;--fair:#a85f1a;--bad:#d9534f;--gone:#8b949e;\
--c0:#6cb0ff;--c1:#ff9a5c;--c2:#56d364;--c3:#c297ff;--c4:#39c5cf;--c5:#ff7bc0;--c6:#d4b40a;--c7:#b1bac4}}\
body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;max-width:820px;\
margin:2em auto;padding:0 1em}h1{font-size:1.2em}h2{font-size:1em;margin:1.6em 0 .3em}\
table{border-collapse:collapse}td{padding:.15em 1.2em .15em 0;font-variant-numeric:tabular-nums}\
svg{width:100%;height:auto;display:block}text{fill:var(--mut);font-size:12px}.g{stroke:var(--grid)}\
.band{fill:var(--band)}.l{fill:none;stroke-width:2}\
.k{white-space:nowrap;margin-left:.9em;font-weight:400}\
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}\
.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}.l6{stroke:var(--c6)}.l7{stroke:var(--c7)}\
.k0{color:var(--c0)}.k1{color:var(--c1)}.k2{color:var(--c2)}.k3{color:var(--c3)}\
.k4{color:var(--c4)}.k5{color:var(--c5)}.k6{color:var(--c6)}.k7{color:var(--c7)}\
.good{fill:var(--good)}.soft{fill:var(--soft)}.fair{fill:var(--fair)}.bad{fill:var(--bad)}\
.gone{fill:var(--gone)}.sw{display:inline-block;width:.8em;height:.8em;margin-right:.3em}\
.sw.good{background:var(--good)}.sw.soft{background:var(--soft)}.sw.fair{background:var(--fair)}\
.sw.bad{background:var(--bad)}.sw.gone{background:var(--gone)}";

/// A page in the making.
#[derive(Clone, Debug)]
pub struct Page {
    text: String,
}

impl Page {
    /// A page with this title; the heading is the caller's. `head` goes into its head as it is.
    pub fn new(title: &str, head: &str) -> Self {
        let title = escape(title);
        let text = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
             <style>{STYLE}</style>{head}</head><body>\n"
        );
        Self { text }
    }

    /// A heading of the first order.
    pub fn heading(&mut self, text: &str) {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(self.text, "<h1>{}</h1>", escape(text));
    }

    /// Names and what is to be said of each.
    pub fn facts<'a>(&mut self, rows: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.text.push_str("<table>\n");
        for (name, text) in rows {
            let (name, text) = (escape(name), escape(text));
            let _ = writeln!(self.text, "<tr><td><b>{name}</b></td><td>{text}</td></tr>");
        }
        self.text.push_str("</table>\n");
    }

    /// Lines over time.
    pub fn plot(&mut self, plot: &Plot<'_>) {
        plot.draw(&mut self.text);
    }

    /// Rows of cells over time.
    pub fn strips(&mut self, strips: &Strips<'_>) {
        strips.draw(&mut self.text);
    }

    /// Bars for each of several cases.
    pub fn bars<const N: usize>(&mut self, bars: &Bars<'_, N>) {
        bars.draw(&mut self.text);
    }

    /// HTML of the caller's own, which has escaped what needs it.
    pub fn raw(&mut self, html: &str) {
        self.text.push_str(html);
    }

    /// The whole page.
    pub fn finish(mut self) -> String {
        self.text.push_str("</body></html>\n");
        self.text
    }
}

/// A text as HTML shows it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_page_are_escaped() {
        let mut page = Page::new("a & b", "");
        page.heading("<script>");
        page.facts([("x\"", "y>")]);
        let text = page.finish();
        assert!(text.contains("<title>a &amp; b</title>") && text.contains("<h1>&lt;script&gt;"));
        assert!(text.contains("x&quot;") && text.contains("y&gt;"));
        assert!(!text.contains("http"), "nothing from outside");
    }
}
