//! The plots of a quick run: one page without anything from outside, drawn as SVG in it.

use plots::{Line, Page, Plot, Scale};

use crate::quick::{Sample, Summary};

/// One line of a plot.
struct Series {
    name: &'static str,
    value: fn(&Sample) -> f64,
}

/// The page.
pub(crate) fn page(summary: &Summary) -> String {
    let mut page = Page::new("LNet selftest", "");
    page.heading(&summary.title);
    page.facts(summary.rows.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let bandwidth =
        [Series { name: "write", value: |s| s.write }, Series { name: "read", value: |s| s.read }];
    plot(&mut page, "Bandwidth, MiB/s", &bandwidth, &summary.samples);
    let rate = [Series { name: "pings", value: |s| s.pings }];
    plot(&mut page, "Rate, pings per second", &rate, &summary.samples);
    let latency =
        [Series { name: "p50", value: |s| s.p50 }, Series { name: "p99", value: |s| s.p99 }];
    plot(&mut page, "Latency of pings under this load, microseconds", &latency, &summary.samples);
    page.finish()
}

fn plot(page: &mut Page, title: &str, series: &[Series], samples: &[Sample]) {
    let points = |s: &Series| samples.iter().map(|p| (p.at, Some((s.value)(p)))).collect();
    let lines: Vec<Line<'_>> =
        series.iter().map(|s| Line { name: s.name, points: points(s) }).collect();
    let end = samples.last().map_or(1.0, |s| s.at).max(1.0);
    let show = Plot::number;
    page.plot(&Plot { title, lines: &lines, bands: &[], end, scale: Scale::Linear, show });
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
        // The highest value, 300, is at the right edge and under the top of the plot, which is 500.
        assert!(text.contains("748.0,91.2"), "{text}");
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        let empty = Summary { title: String::new(), rows: Vec::new(), samples: Vec::new() };
        assert!(page(&empty).contains("points=\"\""));
    }
}
