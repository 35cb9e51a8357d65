//! From what is written for kernel modules to YAML, as the converter of kernel nodes does it (N-15):
//! texts in any of the forms that sites keep them in, and networks called as their authors call them.

use super::modprobe::{ModuleOption, OptionProblem, parse_modprobe, unquoted};
use super::routes::parse_entries;
use super::{LegacyError, ModuleParameters, networks, rules};
use crate::Tree;

const NETWORKS: &str = "networks";
const IP2NETS: &str = "ip2nets";
const ROUTES: &str = "routes";
/// The parameters that a text may be the value of.
const PARAMETERS: [&str; 3] = [NETWORKS, IP2NETS, ROUTES];

/// The names of networks and gateways as a text has them, in the order of [`ModuleParameters`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    networks: Vec<String>,
    ip2nets: Vec<String>,
    routes: Vec<[String; 2]>,
}

/// The options in a text: lines of a modprobe file, `NAME=TEXT`, or the text of a parameter alone,
/// which is that of `name`, or without one of the parameter that it looks like.
pub fn legacy_options(
    text: &str,
    name: Option<&'static str>,
) -> (Vec<ModuleOption>, Vec<OptionProblem>) {
    let is_file = |line: &str| line.split_whitespace().next() == Some("options");
    if text.lines().any(is_file) {
        return parse_modprobe(text);
    }
    let text = unquoted(text.trim());
    if text.is_empty() {
        return Default::default();
    }
    let named = text.split_once('=').and_then(|(name, value)| {
        let name = PARAMETERS.into_iter().find(|known| *known == name.trim())?;
        Some((name, unquoted(value.trim())))
    });
    let (name, value) = named.unwrap_or_else(|| (name.unwrap_or_else(|| looks_like(text)), text));
    let (module, name) = ("lnet".to_owned(), name.to_owned());
    (vec![ModuleOption { line: 1, module, name, value: value.to_owned() }], Vec::new())
}

/// Routes have gateways, rules have address patterns behind their networks, and networks stand alone.
fn looks_like(text: &str) -> &'static str {
    let first = rules(text).next().unwrap_or_default();
    if first.contains('@') {
        return ROUTES;
    }
    match first.split_whitespace().skip(1).any(|word| word.contains(['.', ':', '*'])) {
        true => IP2NETS,
        false => NETWORKS,
    }
}

/// One option for each of `ip2nets` and `routes` in place of several, which add up in a conversion:
/// sites write one line for each rule.
pub fn merge_legacy(options: &mut Vec<ModuleOption>) {
    for name in [IP2NETS, ROUTES] {
        let is_one = |o: &ModuleOption| o.module == "lnet" && o.name == name;
        let values: Vec<String> =
            options.iter().filter(|o| is_one(o)).map(|o| o.value.clone()).collect();
        if values.len() < 2 {
            continue;
        }
        let mut merged = Some(values.join("\n"));
        options.retain_mut(|option| {
            if !is_one(option) {
                return true;
            }
            // The first one says it all.
            merged.take().map(|all| option.value = all).is_some()
        });
    }
}

impl ModuleParameters {
    /// The configuration in YAML that says the same, networks being called as in `options`.
    ///
    /// # Errors
    /// Those of [`Self::from_options`], which has read the same options.
    pub fn to_legacy_yaml(&self, options: &[ModuleOption]) -> Result<String, LegacyError> {
        let names = Names::of(options)?;
        let mut out = String::new();
        for mut part in self.to_config().parts() {
            names.apply(&mut part.tree);
            if part.begins {
                out.push_str("---\n");
            }
            out.push_str(&part.tree.render(part.style));
        }
        Ok(out)
    }
}

impl Names {
    fn of(options: &[ModuleOption]) -> Result<Self, LegacyError> {
        let mut names = Self::default();
        for option in options.iter().filter(|option| option.module == "lnet") {
            let value = option.value.as_str();
            match option.name.as_str() {
                NETWORKS => names.networks = networks::names(value),
                IP2NETS => {
                    let spec = |rule| str::split_whitespace(rule).next().unwrap_or_default();
                    names.ip2nets = rules(value).flat_map(|r| networks::names(spec(r))).collect();
                }
                ROUTES => {
                    let entries = parse_entries(value)?;
                    names.routes = entries.into_iter().map(|e| [e.net, e.gateway]).collect();
                }
                _ => {}
            }
        }
        Ok(names)
    }

    fn apply(&self, tree: &mut Tree) {
        let Tree::Map(entries) = tree else { return };
        for (key, value) in entries {
            let Tree::List(items) = value else { continue };
            match key.as_str() {
                "net" => rename(items, &["net type"], self.networks.iter().map(|n| vec![n])),
                IP2NETS => rename(items, &["net-spec"], self.ip2nets.iter().map(|n| vec![n])),
                "route" => {
                    let names = self.routes.iter().map(|names| names.iter().collect());
                    rename(items, &["net", "gateway"], names);
                }
                _ => {}
            }
        }
    }
}

/// Gives the values of `keys` in each item the names that belong to it.
fn rename<'a>(items: &mut [Tree], keys: &[&str], names: impl Iterator<Item = Vec<&'a String>>) {
    for (item, names) in items.iter_mut().zip(names) {
        let Tree::Map(entries) = item else { continue };
        for (key, name) in keys.iter().zip(names) {
            if let Some((_, value)) = entries.iter_mut().find(|(k, _)| k == key) {
                *value = Tree::plain(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(texts: &[&str]) -> String {
        let mut options: Vec<ModuleOption> = Vec::new();
        for text in texts {
            let (more, problems) = legacy_options(text, None);
            assert_eq!(problems, [], "{text}");
            options.extend(more);
        }
        merge_legacy(&mut options);
        let parameters = ModuleParameters::from_options(&options).unwrap();
        parameters.to_legacy_yaml(&options).unwrap()
    }

    #[test]
    fn a_networks_parameter_is_read_in_every_form_that_sites_keep_it_in() {
        let wanted = yaml(&["networks=tcp0(eth0)"]);
        assert!(wanted.contains("net type: tcp0\n"), "{wanted}");
        for text in [
            "tcp0(eth0)",
            "\"tcp0(eth0)\"",
            "networks=\"tcp0(eth0)\"",
            "options lnet networks=tcp0(eth0)",
            "options lnet networks=\"tcp0(eth0)\"",
            "options lnet 'networks=\"tcp0(eth0)\"'",
            "# of this node\noptions lnet 'networks=tcp0(eth0)'\n",
        ] {
            assert_eq!(yaml(&[text]), wanted, "{text}");
        }
    }

    #[test]
    fn a_text_without_a_name_is_assigned_to_a_parameter_by_its_form() {
        for (text, name) in [
            ("tcp", NETWORKS),
            ("tcp0(eth0, eth1), o2ib0(ib0)", NETWORKS),
            ("tcp(eth0:1)", NETWORKS),
            ("tcp0(eth0) 192.168.0.*; o2ib0 132.6.[1-3].[2-8/2]", IP2NETS),
            ("tcp *.*.*.*", IP2NETS),
            ("o2ib 10.9.1.[2-6]@tcp", ROUTES),
            ("o2ib0 2 10.9.1.2@tcp0:3", ROUTES),
        ] {
            let (options, _) = legacy_options(text, None);
            assert_eq!(options[0].name, name, "{text}");
            assert_eq!(legacy_options(text, Some(ROUTES)).0[0].name, ROUTES, "{text}");
        }
    }

    #[test]
    fn rules_and_routes_of_several_lines_add_up_and_keep_their_names() {
        let all = yaml(&[
            "options lnet ip2nets=\"tcp0(eth0) 192.168.0.*\"\noptions lnet ip2nets=\"o2ib0(ib0) 10.0.*.*\"",
            "routes=tcp0 10.0.0.1@o2ib0",
            "routes=gni0 10.0.0.[2-3]@o2ib0",
        ]);
        for line in [
            "net-spec: tcp0\n",
            "net-spec: o2ib0\n",
            "net: tcp0\n",
            "net: gni0\n",
            "gateway: 10.0.0.1@o2ib0\n",
            "gateway: 10.0.0.2@o2ib0\n",
            "gateway: 10.0.0.3@o2ib0\n",
        ] {
            assert!(all.contains(line), "{line}{all}");
        }
        let config = crate::Config::from_yaml(&all).unwrap();
        assert_eq!(config.blocks.len(), 1 + 3);
    }
}
