//! The plots of a quick run: one page without anything from outside, drawn as SVG in it.

use core::fmt::Write as _;

use crate::quick::{Sample, Summary};

/// Size of a plot, and of the frame around its lines.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const BOTTOM: f64 = 30.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 12.0;
/// With more samples than this the line alone is drawn.
const DOTS_MAX: usize = 60;
/// Lines across a plot.
const GRID: u32 = 4;

const STYLE: &str = "\
:root{--bg:#fff;--fg:#1c2128;--mut:#656d76;--grid:#d8dee4;--a:#0a5fd8;--b:#c2410c}\
@media (prefers-color-scheme:dark){:root{--bg:#0f1318;--fg:#e6edf3;--mut:#8b949e;--grid:#2d333b;\
--a:#6cb0ff;--b:#ff9a5c}}\
body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;max-width:820px;\
margin:2em auto;padding:0 1em}h1{font-size:1.2em}h2{font-size:1em;margin:1.6em 0 .3em}\
table{border-collapse:collapse}td{padding:.15em 1.2em .15em 0;font-variant-numeric:tabular-nums}\
svg{width:100%;height:auto}text{fill:var(--mut);font-size:12px}.g{stroke:var(--grid)}\
.a{stroke:var(--a)}.b{stroke:var(--b)}.l{fill:none;stroke-width:2}.ka{color:var(--a)}\
.kb{color:var(--b)}";

/// One line of a plot.
struct Series {
    name: &'static str,
    value: fn(&Sample) -> f64,
}

/// The page.
pub(crate) fn page(summary: &Summary) -> String {
    let title = escape(&summary.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>LNet selftest</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<table>\n"
    );
    for (name, text) in &summary.rows {
        let (name, text) = (escape(name), escape(text));
        // Infallible here and below: writing to a String.
        let _ = writeln!(page, "<tr><td><b>{name}</b></td><td>{text}</td></tr>");
    }
    page.push_str("</table>\n");
    let bandwidth =
        [Series { name: "write", value: |s| s.write }, Series { name: "read", value: |s| s.read }];
    plot(&mut page, "Bandwidth, MiB/s", &bandwidth, &summary.samples);
    let rate = [Series { name: "pings", value: |s| s.pings }];
    plot(&mut page, "Rate, pings per second", &rate, &summary.samples);
    let latency =
        [Series { name: "p50", value: |s| s.p50 }, Series { name: "p99", value: |s| s.p99 }];
    plot(&mut page, "Latency of pings under this load, microseconds", &latency, &summary.samples);
    page.push_str("</body></html>\n");
    page
}

fn plot(page: &mut String, title: &str, series: &[Series], samples: &[Sample]) {
    let _ = write!(page, "<h2>{}", escape(title));
    for (s, class) in series.iter().zip(["ka", "kb"]) {
        let _ = write!(page, " &nbsp;<span class=\"{class}\">&#9644; {}</span>", s.name);
    }
    page.push_str("</h2>\n");
    let values = || series.iter().flat_map(|s| samples.iter().map(s.value));
    let top = round_up(values().fold(0.0, f64::max));
    let end = samples.last().map_or(1.0, |s| s.at).max(1.0);
    let x = |at: f64| LEFT + at / end * (WIDTH - LEFT - RIGHT);
    let y = |v: f64| HEIGHT - BOTTOM - v / top * (HEIGHT - BOTTOM - TOP);
    let _ = writeln!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(title)
    );
    for i in 0..=GRID {
        let value = top * f64::from(i) / f64::from(GRID);
        let (at, right) = (y(value), WIDTH - RIGHT);
        let _ = writeln!(
            page,
            "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            short(value)
        );
    }
    for i in 0..=GRID {
        let at = end * f64::from(i) / f64::from(GRID);
        // The last one would leave the picture.
        let anchor = if i == GRID { "end" } else { "middle" };
        let _ = writeln!(
            page,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{} s</text>",
            x(at),
            HEIGHT - 8.0,
            short(at)
        );
    }
    for (s, class) in series.iter().zip(["a", "b"]) {
        let points: Vec<String> =
            samples.iter().map(|p| format!("{:.1},{:.1}", x(p.at), y((s.value)(p)))).collect();
        let _ = writeln!(page, "<polyline class=\"l {class}\" points=\"{}\"/>", points.join(" "));
        // Of a few samples, and of a single one, each is shown.
        for p in samples.iter().filter(|_| samples.len() <= DOTS_MAX) {
            let (x, y) = (x(p.at), y((s.value)(p)));
            let _ =
                write!(page, "<circle class=\"l {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>");
        }
    }
    page.push_str("</svg>\n");
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

fn short(value: f64) -> String {
    if value >= 10.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_all_it_needs() {
        let samples = (1..=3)
            .map(|i| Sample { at: f64::from(i), write: 100.0 * f64::from(i), ..Sample::default() })
            .collect();
        let rows = vec![("write".to_owned(), "a<b".to_owned())];
        let text = page(&Summary { title: "t & u".to_owned(), rows, samples });
        assert!(text.contains("t &amp; u") && text.contains("a&lt;b"));
        assert_eq!(text.matches("<polyline").count(), 5);
        assert!(!text.contains("http"), "nothing from outside");
        // The highest value fits under the top of the plot, which is 500.
        let y = HEIGHT - BOTTOM - 300.0 / 500.0 * (HEIGHT - BOTTOM - TOP);
        assert!(text.contains(&format!("{:.1},{y:.1}", WIDTH - RIGHT)), "{text}");
    }

    #[test]
    fn scales_end_at_round_numbers_and_nothing_is_drawn_of_nothing() {
        let cases = [(0.0, 1.0), (0.7, 1.0), (1.1, 2.0), (499.0, 500.0), (501.0, 1000.0)];
        for (value, top) in cases {
            assert_eq!(round_up(value), top);
        }
        let empty = Summary { title: String::new(), rows: Vec::new(), samples: Vec::new() };
        assert!(page(&empty).contains("points=\"\""));
    }
}
