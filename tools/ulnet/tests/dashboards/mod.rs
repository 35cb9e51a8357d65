//! The dashboard and the alert rules of `packaging/`, held against the metrics of a running node: each
//! name, each label and each value of a label in them is one that the node exposes.

mod promql;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lnet_config::yaml::{self, Value};

use super::{Daemon, get};

/// Labels that Prometheus adds to what it scrapes.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];

/// An expression, and the labels that the texts around it show.
struct Shown {
    title: String,
    expression: String,
    labels: BTreeSet<String>,
}

/// Metrics of a node: by name, the values of each label.
type Exposed = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn exposed(metrics: &str) -> Exposed {
    let mut all = Exposed::new();
    for line in metrics.lines() {
        if let Some(meta) = line.strip_prefix("# TYPE ") {
            all.entry(meta.split(' ').next().unwrap().to_owned()).or_default();
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let part = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
        let of_histogram = part.is_some_and(|family| all.contains_key(family));
        assert!(of_histogram || all.contains_key(name), "a sample without type: {line}");
        let family = all.entry(name.to_owned()).or_default();
        for pair in labels.trim_end_matches('}').split("\",").filter(|pair| !pair.is_empty()) {
            let (label, value) = pair.split_once("=\"").unwrap();
            let value = value.trim_end_matches('"').to_owned();
            family.entry(label.to_owned()).or_default().insert(value);
        }
    }
    all
}

fn packaged(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path);
    std::fs::read_to_string(path).unwrap()
}

/// Labels between `{{` and `}}`.
fn templates(text: &str, before: &str) -> BTreeSet<String> {
    let parts = text.split("{{").skip(1).map(|part| part.split_once("}}").unwrap().0.trim());
    let labels = parts.filter(|part| *part != "$value");
    labels
        .map(|part| part.strip_prefix(before).unwrap_or_else(|| panic!("{text}")).into())
        .collect()
}

fn of_dashboard() -> Vec<Shown> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&packaged("grafana/ulnet.json")).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let mut all = Vec::new();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if variable["type"] == "query" {
            let (title, expression) = (text(&variable["name"]), text(&variable["query"]));
            all.push(Shown { title, expression, labels: BTreeSet::new() });
        }
    }
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "panels have an id each");
        if panel["type"] == "row" {
            continue;
        }
        for target in panel["targets"].as_array().unwrap() {
            let labels = templates(target["legendFormat"].as_str().unwrap(), "");
            let (title, expression) = (text(&panel["title"]), text(&target["expr"]));
            all.push(Shown { title, expression, labels });
        }
    }
    all
}

fn field<'a>(node: &'a yaml::Node, key: &str) -> Option<&'a yaml::Node> {
    let Value::Map(map) = &node.value else { panic!("no map at {}", node.pos) };
    map.iter().find(|(k, _)| k.text == key).map(|(_, value)| value)
}

fn list(node: &yaml::Node) -> &[yaml::Node] {
    let Value::List(list) = &node.value else { panic!("no list at {}", node.pos) };
    list
}

fn words(node: &yaml::Node) -> &str {
    let Value::Text(text) = &node.value else { panic!("no text at {}", node.pos) };
    text
}

fn of_rules() -> Vec<Shown> {
    let documents = yaml::parse(&packaged("prometheus/ulnet.rules.yml")).unwrap();
    let groups = list(field(&documents[0], "groups").unwrap());
    let rules = groups.iter().flat_map(|group| list(field(group, "rules").unwrap()));
    let shown = |rule: &yaml::Node| {
        let notes = field(rule, "annotations").unwrap();
        let severity = words(field(field(rule, "labels").unwrap(), "severity").unwrap());
        assert!(["critical", "warning", "info"].contains(&severity));
        let both = ["summary", "description"].map(|key| words(field(notes, key).unwrap()));
        Shown {
            title: words(field(rule, "alert").unwrap()).to_owned(),
            expression: words(field(rule, "expr").unwrap()).to_owned(),
            labels: templates(&both.concat(), "$labels."),
        }
    };
    rules.map(shown).collect()
}

/// What in an expression is not exposed; empty if all is.
fn missing(shown: &Shown, exposed: &Exposed) -> Vec<String> {
    let names = promql::names(&shown.expression);
    let mut missing = Vec::new();
    let none = BTreeMap::new();
    let mut labels: BTreeSet<&str> = OF_PROMETHEUS.into();
    for (name, matchers) in &names.metrics {
        let of_metric = match exposed.get(name) {
            Some(labels) => labels,
            // What Prometheus itself records of a target.
            None if name == "up" => &none,
            None => {
                missing.push(format!("metric {name}"));
                continue;
            }
        };
        labels.extend(of_metric.keys().map(String::as_str));
        for (label, operator, value) in matchers {
            if OF_PROMETHEUS.contains(&label.as_str()) {
                continue;
            }
            let values = of_metric.get(label);
            if operator.contains('~') {
                let unknown = |v: &&str| values.is_none_or(|values| !values.contains(*v));
                missing.extend(
                    value.split('|').filter(unknown).map(|v| format!("{name} {label} {v}")),
                );
            } else if values.is_none_or(|values| !values.contains(value)) {
                missing.push(format!("{name}: {label} {value}"));
            }
        }
    }
    let used = names.groups.iter().chain(&shown.labels).filter(|l| !labels.contains(l.as_str()));
    missing.extend(used.map(|label| format!("label {label}")));
    missing
}

#[test]
fn dashboard_and_alert_rules_name_only_what_a_running_node_exposes() {
    let d = Daemon::start("dashboards");
    d.ctl("lnet configure");
    d.ctl("net add --net tcp --if lo");
    d.ctl("set routing 1");
    d.ctl("ping 127.0.0.1@tcp");
    d.ctl("route add --net tcp9 --gateway 127.0.0.2@tcp");
    let store = fresh::path("dashboards");
    d.ctl(&format!("target add kv-1=kv:{}", store.display()));
    let (_, metrics) = get(d.http, "/metrics");
    let exposed = exposed(&metrics);
    d.ctl("target del kv-1");
    let _ = std::fs::remove_dir_all(&store);
    for name in exposed.keys() {
        let part = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
        let has_help = |name: &str| metrics.contains(&format!("# HELP {name} "));
        assert!(has_help(name) || part.is_some_and(has_help), "{name} has no help");
    }
    let (dashboard, rules) = (of_dashboard(), of_rules());
    assert!(dashboard.len() > 30 && rules.len() >= 8, "{} {}", dashboard.len(), rules.len());
    for shown in dashboard.iter().chain(&rules) {
        let missing = missing(shown, &exposed);
        assert!(missing.is_empty(), "{}: {missing:?} in {}", shown.title, shown.expression);
    }
    // What is wrong is found.
    for (expression, label, lacks) in [
        ("lnet_ni_helth < 1000", "nid", "metric lnet_ni_helth"),
        ("lnet_ni_health{nett=\"lo\"}", "nid", "lnet_ni_health: nett lo"),
        ("rate(lnet_ni_payload_bytes_total{direction=\"out\"}[5m])", "nid", "direction out"),
        ("rate(lnet_ni_messages_total{direction=~\"sent|in\"}[5m])", "nid", "direction in"),
        ("sum by (peer) (lnet_ni_health)", "nid", "label peer"),
        ("lnet_ni_health", "device", "label device"),
        ("rate(lnet_send[5m])", "instance", "metric lnet_send"),
    ] {
        let labels = [label.to_owned()].into();
        let shown = Shown { title: String::new(), expression: expression.into(), labels };
        let missing = missing(&shown, &exposed).join(", ");
        assert!(missing.contains(lacks), "{expression}: {missing}");
    }
}
