//! Other layouts of what is shown: that of the 2.15 tools, and that of the samples in the requirement
//! documents (lnetctl.md 12). Both are the classic style with other keys; what a reader of those
//! does not know is left out.

use lnet_config::{Style, Tree};

/// How what is shown is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As the tools of today do.
    #[default]
    Today,
    /// As those of 2.15 did.
    V2_15,
    /// As the samples of the requirement documents have it.
    Documents,
}

/// The keys of `global show` in the documents, by today's names (D-1).
const DOCUMENTED: [&str; 7] = [
    "numa_range",
    "max_interfaces",
    "discovery",
    "retry_count",
    "transaction_timeout",
    "health_sensitivity",
    "recovery_interval",
];
/// Counters of the node that came after 2.15.
const RESENDS: [&str; 2] = ["failed_resends", "successful_resends"];
/// Counters of an interface that both know.
const COUNTS: [&str; 3] = ["send_count", "recv_count", "drop_count"];

/// What is made of the entries of each item of a list.
type Each<'a> = &'a dyn Fn(&[(String, Tree)]) -> Tree;

impl Format {
    /// The format of that name, as `--format` takes it.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "default" => Some(Self::Today),
            "2.15" => Some(Self::V2_15),
            "documents" => Some(Self::Documents),
            _ => None,
        }
    }

    /// The layout of a document that today has `style`.
    pub(crate) const fn style(self, style: Style) -> Style {
        match self {
            Self::Today => style,
            Self::V2_15 | Self::Documents => Style::Classic,
        }
    }

    /// The document with the keys of this format.
    pub(crate) fn adapt(self, document: &Tree) -> Tree {
        match (self, document) {
            (Self::Today, document) => document.clone(),
            (_, Tree::Map(entries)) => {
                let known = entries.iter().filter(|(key, _)| key != "ulnet");
                let adapted = known.map(|(key, value)| (key.clone(), self.block(key, value)));
                Tree::Map(adapted.collect())
            }
            (_, other) => other.clone(),
        }
    }

    /// The value of a top-level key.
    fn block(self, key: &str, value: &Tree) -> Tree {
        let items = |f: Each<'_>| match value {
            Tree::List(items) => Tree::List(
                items.iter().map(|item| entries(item).map_or_else(|| item.clone(), f)).collect(),
            ),
            other => other.clone(),
        };
        match (key, entries(value)) {
            ("net", _) => match value {
                Tree::List(nets) => Tree::List(
                    nets.iter()
                        .filter(|net| self != Self::Documents || !is_loopback(net))
                        .map(|net| self.net(net))
                        .collect(),
                ),
                other => other.clone(),
            },
            ("peer" | "ping" | "discover", _) => items(&|peer| self.peer(peer)),
            ("route", _) if self == Self::V2_15 => items(&route),
            ("udsp", _) if self == Self::V2_15 => items(&rule),
            ("statistics", Some(rows)) => keep(rows, |key| !RESENDS.contains(&key)),
            ("global", Some(rows)) => self.global(rows),
            _ => value.clone(),
        }
    }

    fn global(self, rows: &[(String, Tree)]) -> Tree {
        if self == Self::V2_15 {
            return keep(rows, |key| key != "max_recovery_ping_interval");
        }
        let value = |name: &str| rows.iter().find(|(key, _)| key == name).map(|(_, v)| v.clone());
        let renamed = |name| if name == "max_interfaces" { "max_intf" } else { name };
        Tree::map(DOCUMENTED.iter().filter_map(|name| Some((renamed(*name), value(name)?))))
    }

    fn net(self, net: &Tree) -> Tree {
        let loopback = is_loopback(net);
        let Some(rows) = entries(net) else { return net.clone() };
        let rows = rows.iter().map(|(key, value)| match (key.as_str(), value) {
            ("local NI(s)", Tree::List(nis)) => {
                let nis = nis.iter().map(|ni| self.ni(ni, loopback)).collect();
                (key.clone(), Tree::List(nis))
            }
            _ => (key.clone(), value.clone()),
        });
        Tree::Map(rows.collect())
    }

    fn ni(self, ni: &Tree, loopback: bool) -> Tree {
        let Some(rows) = entries(ni) else { return ni.clone() };
        let mut out: Vec<(String, Tree)> = Vec::new();
        for (key, value) in rows {
            match (key.as_str(), entries(value)) {
                ("lnd tunables", _) if self == Self::Documents => {}
                ("lnd tunables", Some(rows)) => {
                    out.push((key.clone(), keep(rows, |key| key == "conns_per_peer")));
                }
                ("dev cpt", _) => {
                    // 2.15 shows the key for loopback too, and nothing behind it (S-net-6).
                    if loopback && self == Self::V2_15 {
                        out.push(("lnd tunables".to_owned(), Tree::Map(Vec::new())));
                    }
                    let value = match loopback {
                        true => Tree::plain(0),
                        false => value.clone(),
                    };
                    out.push((key.clone(), value));
                    if self == Self::Documents {
                        out.push(("tcp bonding".to_owned(), Tree::plain(0)));
                    }
                }
                _ => out.extend(self.counters(key, value)),
            }
        }
        Tree::Map(out)
    }

    fn peer(self, rows: &[(String, Tree)]) -> Tree {
        let mut out = Vec::new();
        for (key, value) in rows {
            match (key.as_str(), value) {
                ("peer ni" | "peer_ni", Tree::List(nis)) => {
                    let ni = |ni: &Tree| match entries(ni) {
                        Some(rows) => Tree::Map(
                            rows.iter().filter_map(|(k, v)| self.counters(k, v)).collect(),
                        ),
                        None => ni.clone(),
                    };
                    out.push(("peer ni".to_owned(), Tree::List(nis.iter().map(ni).collect())));
                }
                _ => out.push((key.clone(), value.clone())),
            }
        }
        Tree::Map(out)
    }

    /// A key that local and peer NIs have in common; `None` if this format does not have it.
    fn counters(self, key: &str, value: &Tree) -> Option<(String, Tree)> {
        let value = match (key, entries(value)) {
            ("statistics", Some(rows)) => keep(rows, |key| COUNTS.contains(&key)),
            ("health stats", Some(rows)) if self == Self::Documents => {
                keep(rows, |key| !["fatal_error", "ping_count", "next_ping"].contains(&key))
            }
            _ => value.clone(),
        };
        Some((key.to_owned(), value))
    }
}

/// `health_sensitivity` stands behind `priority` where everything is shown (S-route-1).
fn route(rows: &[(String, Tree)]) -> Tree {
    let mut out = Vec::new();
    let whole = rows.iter().any(|(key, _)| key == "state");
    for (key, value) in rows {
        out.push((key.clone(), value.clone()));
        if key == "priority" && whole {
            out.push(("health_sensitivity".to_owned(), Tree::plain(1)));
        }
    }
    Tree::Map(out)
}

/// Criteria that were not given are `NA` (S-udsp-1).
fn rule(rows: &[(String, Tree)]) -> Tree {
    let value = |name: &str| rows.iter().find(|(key, _)| key == name).map(|(_, v)| v.clone());
    let mut out = Vec::new();
    out.extend(value("idx").map(|v| ("idx".to_owned(), v)));
    for name in ["src", "dst", "rte"] {
        out.push((name.to_owned(), value(name).unwrap_or_else(|| Tree::plain("NA"))));
    }
    out.extend(value("action").map(|v| ("action".to_owned(), v)));
    Tree::Map(out)
}

fn entries(tree: &Tree) -> Option<&[(String, Tree)]> {
    match tree {
        Tree::Map(entries) => Some(entries),
        _ => None,
    }
}

fn keep(rows: &[(String, Tree)], wanted: impl Fn(&str) -> bool) -> Tree {
    Tree::Map(rows.iter().filter(|(key, _)| wanted(key)).cloned().collect())
}

fn is_loopback(net: &Tree) -> bool {
    let name = entries(net).into_iter().flatten().find(|(key, _)| key == "net type");
    name.is_some_and(|(_, value)| *value == Tree::plain("lo"))
}
