//! The tunables of a role as files that nodes read: options of kernel modules, which `lnetd --modprobe`
//! takes as well, and YAML for `lnetctl import`. Reasons stand in them as comments.

use core::fmt::Write as _;

use crate::advise::{Advice, SET_PARAM};

/// Tunables of LNet that YAML has, in a block of `ulnet` nodes alone. Those of the request layer are
/// parameters (`lctl set_param`), those of drivers belong to their networks.
const LNET: &str = "lnet";
const REQUESTS: &str = "ptlrpc";

/// A modprobe file: one option a line, its reason above it. The command for what no module has stands
/// in a comment.
pub fn modprobe<'a>(advice: impl IntoIterator<Item = &'a Advice>) -> String {
    advice.into_iter().fold(String::new(), |mut out, one| {
        let before = if one.module == SET_PARAM { "# lctl" } else { "options" };
        let _ = writeln!(out, "# {}\n{before} {one}", one.why);
        out
    })
}

/// The same for `lnetctl import`. What YAML can't say stands in comments: commands for the parameters
/// of the request layer, and options of drivers.
pub fn yaml<'a>(advice: impl IntoIterator<Item = &'a Advice>) -> String {
    let (mut block, mut beside) = (String::new(), String::new());
    for one in advice {
        let Advice { module, name, value, why, .. } = one;
        let _ = match *module {
            LNET => writeln!(block, "    # {why}\n    {name}: {value}"),
            REQUESTS | SET_PARAM => writeln!(beside, "# {why}\n# lctl set_param {name}={value}"),
            _ => writeln!(beside, "# {why}\n# options {one}"),
        };
    }
    if !block.is_empty() {
        block.insert_str(0, "ulnet:\n");
    }
    beside + &block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::{Load, NetKind, Role, Site, advise};

    fn sites() -> impl Iterator<Item = Site> {
        let nets = [NetKind::Tcp, NetKind::O2ib, NetKind::Gni];
        nets.into_iter().flat_map(|net| {
            [false, true].map(|routed| Site {
                routed,
                clients: Some(12_000),
                targets: Some(40),
                quiesce: None,
                load: Some(Load::Heavy),
                net,
            })
        })
    }

    #[test]
    fn a_modprobe_file_of_each_role_is_read_back_with_all_its_settings() {
        for site in sites() {
            let all = advise(&site).unwrap();
            for role in Role::ALL {
                let mine: Vec<&Advice> = all.iter().filter(|a| a.role == role).collect();
                let text = modprobe(mine.iter().copied());
                let read = lnet_config::ModuleParameters::from_modprobe(&text).unwrap();
                let notes: Vec<&str> = read.notes.iter().map(|n| n.text.as_str()).collect();
                let of_modules = mine.iter().filter(|a| a.module != SET_PARAM);
                let wanted: Vec<String> = of_modules.map(ToString::to_string).collect();
                let commands = mine.len() - wanted.len();
                assert_eq!(text.matches("\n# lctl set_param ").count(), commands, "{text}");
                assert_eq!(notes, wanted, "{site:?}");
                for note in &read.notes {
                    // There is no driver for that network here.
                    let foreign = note.text.starts_with("kgnilnd");
                    assert_eq!(note.ignored.is_some(), foreign, "{note:?}");
                }
            }
        }
    }

    #[test]
    fn yaml_of_each_role_is_a_configuration() {
        for site in sites() {
            let all = advise(&site).unwrap();
            for role in Role::ALL {
                let mine: Vec<&Advice> = all.iter().filter(|a| a.role == role).collect();
                let text = yaml(mine.iter().copied());
                let config = lnet_config::Config::from_yaml(&text).unwrap();
                let settings = config.blocks.iter().flat_map(|(_, block)| match block {
                    lnet_config::Block::Own(settings) => settings.clone(),
                    other => panic!("{other:?}"),
                });
                let settings: Vec<String> =
                    settings.map(|s| format!("lnet {}={}", s.name, s.value)).collect();
                let lnet = mine.iter().filter(|a| a.module == LNET).map(ToString::to_string);
                assert_eq!(settings, lnet.collect::<Vec<_>>(), "{text}");
                for one in mine {
                    assert!(text.contains(&one.why), "{text}");
                }
            }
        }
    }
}
