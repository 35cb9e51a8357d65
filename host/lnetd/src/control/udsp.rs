//! `udsp`: the rules of the selection policy.

use lnet::{Node, ParsePatternError, Pattern, Rule, RuleError};
use lnet_admin::{AdminError, Reply};
use lnet_config::{UdspAdd, UdspDel, UdspRule};
use lnet_types::{Errno, Instant};

use super::Control;
use crate::views;

impl Control {
    pub(super) fn udsp_add(&self, add: &UdspAdd) -> Result<Reply, AdminError> {
        let one = add.clone();
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            self::add(stack.node_mut(), now, &one).map(|()| Reply::Done)
        })
    }

    pub(super) fn udsp_del(&self, del: UdspDel) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            self::del(stack.node_mut(), now, &del).map(|()| Reply::Done)
        })
    }

    pub(super) fn udsp_show(&self) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, |stack, _| {
            Ok(Reply::Udsp(stack.node().udsp_rules().iter().map(views::udsp_rule).collect()))
        })
    }
}

/// C-udsp-1.
pub(super) fn add(node: &mut Node, now: Instant, add: &UdspAdd) -> Result<(), AdminError> {
    let rule = udsp_rule(&add.rule)?;
    let index = add.index.and_then(|i| usize::try_from(i).ok());
    node.udsp_add(now, rule, index).map(|_| ()).map_err(|e| refused(&e))
}

/// C-udsp-3.
pub(super) fn del(node: &mut Node, now: Instant, del: &UdspDel) -> Result<(), AdminError> {
    let index = match del {
        UdspDel::All => {
            node.udsp_clear(now);
            return Ok(());
        }
        UdspDel::Index(index) => usize::try_from(*index).ok(),
        UdspDel::About(rule) => {
            let about = udsp_rule(rule)?;
            node.udsp_rules().iter().position(|rule| {
                (rule.src(), rule.dst(), rule.rte()) == (about.src(), about.dst(), about.rte())
            })
        }
    };
    let none = || AdminError::errno(Errno::ENOENT).because("no rule says that");
    node.udsp_del(now, index.ok_or_else(none)?).map_err(|e| refused(&e))
}

/// A rule from its texts (C-udsp-1).
fn udsp_rule(rule: &UdspRule) -> Result<Rule, AdminError> {
    let pattern = |name: &str, text: &Option<String>| -> Result<Option<Pattern>, AdminError> {
        text.as_deref().map(str::parse).transpose().map_err(|e: ParsePatternError| {
            AdminError::new(Errno::EINVAL, format!("failed to parse {name} parameter")).because(e)
        })
    };
    let (src, dst) = (pattern("src", &rule.src)?, pattern("dst", &rule.dst)?);
    let rte = pattern("rte", &rule.rte)?;
    Rule::new(src, dst, rte, rule.priority, rule.messages).map_err(|e| refused(&e))
}

/// An invalid rule is refused with words, a rule that the node cannot apply with an errno.
fn refused(e: &RuleError) -> AdminError {
    match e.errno() {
        Errno::EINVAL => AdminError::new(Errno::EINVAL, e.to_string()),
        errno => AdminError::errno(errno).because(e),
    }
}

#[cfg(test)]
mod tests {
    use lnet::Pattern;
    use lnet_config::settled_pattern;

    #[test]
    fn patterns_are_compared_as_the_node_writes_them() {
        for text in [
            "tcp",
            "tcp0",
            "tcp[0-3]",
            "o2ib3",
            "10.0.0.*@tcp",
            "10.0.0.*@tcp0",
            "*@o2ib[1-2]",
            "[10-20].0.0.*@tcp",
            "[1-4]@gni1",
            "10.0.0.0/16@tcp1",
            "fd00::/64@tcp",
            "10.0.0.1@tcp7",
        ] {
            let pattern: Pattern = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(settled_pattern(text), pattern.to_string(), "{text}");
        }
        assert_eq!(settled_pattern("any"), "any");
    }
}
