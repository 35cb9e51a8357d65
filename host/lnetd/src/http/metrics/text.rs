//! Families of metrics, and the two text formats that they are written in. The formats differ in the
//! names of counters' families (`_total` belongs to the family in the classic one, and to its samples
//! alone in OpenMetrics), in `# UNIT` and `# EOF`, and in what is escaped.

use core::fmt::{self, Write as _};

use crate::http::accept::Format;

/// Labels of a sample with their values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Whether a value can fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// Samples by class, their sum and their count.
    Histogram,
}

/// A sample.
#[derive(Debug)]
pub(super) struct Sample {
    /// What stands behind the name of its family.
    suffix: &'static str,
    labels: Labels,
    value: f64,
}

/// Metrics of one name.
#[derive(Debug)]
pub(super) struct Family {
    /// The whole name but for the unit and `_total`.
    pub(super) name: String,
    pub(super) help: String,
    /// The suffix of the name that is the unit.
    pub(super) unit: Option<&'static str>,
    pub(super) kind: Kind,
    pub(super) samples: Vec<Sample>,
}

impl Family {
    fn new(kind: Kind, name: String, help: impl Into<String>) -> Self {
        Self { name, help: help.into(), unit: None, kind, samples: Vec::new() }
    }

    /// A gauge `lnet_NAME`.
    pub(super) fn gauge(name: impl fmt::Display, help: impl Into<String>) -> Self {
        Self::new(Kind::Gauge, format!("lnet_{name}"), help)
    }

    /// A counter `lnet_NAME_total`.
    pub(super) fn counter(name: impl fmt::Display, help: impl Into<String>) -> Self {
        Self::new(Kind::Counter, format!("lnet_{name}"), help)
    }

    /// A family of the process, under the names that all programs use.
    pub(super) fn process(kind: Kind, name: &str, help: &str) -> Self {
        Self::new(kind, format!("process_{name}"), help)
    }

    pub(super) fn unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    pub(super) fn add(&mut self, labels: &[(&'static str, &str)], value: impl Into<f64>) {
        let labels = labels.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        self.samples.push(Sample { suffix, labels, value: value.into() });
    }

    /// A histogram `lnet_NAME`.
    pub(super) fn histogram(name: impl fmt::Display, help: impl Into<String>) -> Self {
        Self::new(Kind::Histogram, format!("lnet_{name}"), help)
    }

    /// Counts by class: each with its upper bound, without one for what is beyond; and the sum of all.
    pub(super) fn add_histogram(
        &mut self,
        labels: &[(&'static str, &str)],
        classes: impl Iterator<Item = (Option<f64>, u64)>,
        sum: f64,
    ) {
        let labels: Labels =
            labels.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        let mut count = 0;
        for (bound, more) in classes {
            count += more;
            let mut labels = labels.clone();
            labels.push(("le", bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string())));
            self.samples.push(Sample { suffix: "_bucket", labels, value: count as f64 });
        }
        self.samples.push(Sample { suffix: "_sum", labels: labels.clone(), value: sum });
        self.samples.push(Sample { suffix: "_count", labels, value: count as f64 });
    }

    pub(super) fn value(mut self, value: impl Into<f64>) -> Self {
        self.add(&[], value);
        self
    }
}

/// The text of families.
pub(super) fn encode(families: &[Family], format: Format) -> String {
    let mut text = String::new();
    // Infallible: writing to a String.
    for family in families {
        let _ = one(&mut text, family, format);
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn one(text: &mut String, family: &Family, format: Format) -> fmt::Result {
    let mut base = family.name.clone();
    if let Some(unit) = family.unit {
        write!(base, "_{unit}")?;
    }
    let (kind, suffix) = match family.kind {
        Kind::Counter => ("counter", "_total"),
        Kind::Gauge => ("gauge", ""),
        Kind::Histogram => ("histogram", ""),
    };
    let total = format!("{base}{suffix}");
    let name = match format {
        Format::Classic => &total,
        Format::OpenMetrics => &base,
    };
    write!(text, "# HELP {name} ")?;
    escape(text, &family.help, format == Format::OpenMetrics);
    write!(text, "\n# TYPE {name} {kind}\n")?;
    if let (Some(unit), Format::OpenMetrics) = (family.unit, format) {
        writeln!(text, "# UNIT {name} {unit}")?;
    }
    for Sample { suffix, labels, value } in &family.samples {
        write!(text, "{base}{suffix}")?;
        for (n, (key, value)) in labels.iter().enumerate() {
            write!(text, "{}{key}=\"", if n == 0 { '{' } else { ',' })?;
            escape(text, value, true);
            text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        writeln!(text, "{end} {value}")?;
    }
    Ok(())
}

fn escape(text: &mut String, value: &str, quotes: bool) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            c => text.push(c),
        }
    }
}
