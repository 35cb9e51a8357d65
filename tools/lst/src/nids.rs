//! Lists of nodes on command lines (L-4): `ADDR@NET` with bracket ranges, commas between several.

use lnet_config::near_nids;
use lnet_types::{Nid, NidList};

use crate::Lst;

/// Nodes that one operand may name.
const NODES_MAX: usize = 4096;

/// A list that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadList {
    /// What is wrong, in the words of the original.
    text: String,
}

/// The nodes that `list` names, in order.
pub(crate) fn parse(list: &str) -> Result<Vec<Nid>, BadList> {
    let mut nids = Vec::new();
    for part in split(list) {
        let all: NidList = match part.parse() {
            Ok(all) => all,
            Err(_) if part.contains('@') && part.contains(['[', ']', '*']) => {
                return Err(BadList { text: format!("Syntax error in \"{part}\"") });
            }
            Err(_) => return Err(BadList { text: format!("Invalid nid: {part}") }),
        };
        let expanded =
            all.expand(NODES_MAX).map_err(|e| BadList { text: format!("{part}: {e}") })?;
        for nid in expanded {
            if !nids.contains(&nid) {
                nids.push(nid);
            }
        }
    }
    if nids.is_empty() || nids.len() > NODES_MAX {
        return Err(BadList { text: format!("Invalid nid: {list}") });
    }
    Ok(nids)
}

/// At the commas that are not in brackets.
fn split(list: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let at_comma = |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    };
    list.split(at_comma).filter(|part| !part.is_empty()).collect()
}

impl Lst<'_> {
    /// The nodes of an operand; an invalid list is reported and left out.
    pub(crate) fn nids(&mut self, list: &str) -> Option<Vec<Nid>> {
        match parse(list) {
            Ok(nids) => Some(nids),
            Err(bad) => {
                self.complain(bad.text);
                self.complain(format_args!("Ignore invalid id list {list}"));
                if let Some(meant) = near_nids(list) {
                    self.complain(format_args!("# did you mean '{meant}'?"));
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_expanded_and_commas_separate() {
        let texts = |list: &str| -> Vec<String> {
            parse(list).expect(list).iter().map(ToString::to_string).collect()
        };
        assert_eq!(texts("10.0.0.1@tcp"), ["10.0.0.1@tcp"]);
        assert_eq!(
            texts("10.0.0.[1-3/2,7]@tcp1,10.0.1.1@tcp"),
            ["10.0.0.1@tcp1", "10.0.0.3@tcp1", "10.0.0.7@tcp1", "10.0.1.1@tcp"]
        );
        assert_eq!(texts("10.0.0.1@tcp,10.0.0.1@tcp").len(), 1);
    }

    #[test]
    fn invalid_nid_lists_are_named() {
        let text = |list: &str| parse(list).expect_err(list).text;
        assert_eq!(text("foo"), "Invalid nid: foo");
        assert_eq!(text("10.0.0.[1-@tcp"), "Syntax error in \"10.0.0.[1-@tcp\"");
        assert!(text("10.[0-255].[0-255].1@tcp").contains("more than 4096"));
        assert_eq!(text(","), "Invalid nid: ,");
    }
}
