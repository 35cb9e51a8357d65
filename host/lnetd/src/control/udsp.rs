//! `udsp`: the rules of the selection policy.

use lnet::{ParsePatternError, Pattern, Rule, RuleError};
use lnet_admin::{AdminError, Reply};
use lnet_config::{UdspAdd, UdspDel, UdspRule};
use lnet_types::Errno;

use super::Control;
use crate::views;

impl Control {
    pub(super) fn udsp_add(&self, add: &UdspAdd) -> Result<Reply, AdminError> {
        let rule = udsp_rule(&add.rule)?;
        let index = add.index.and_then(|i| usize::try_from(i).ok());
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            let added = stack.node_mut().udsp_add(now, rule, index);
            added.map(|_| Reply::Done).map_err(|e| refused(&e))
        })
    }

    pub(super) fn udsp_del(&self, del: UdspDel) -> Result<Reply, AdminError> {
        let about = match &del {
            UdspDel::About(rule) => Some(udsp_rule(rule)?),
            UdspDel::All | UdspDel::Index(_) => None,
        };
        self.on_node(Errno::ENETDOWN, move |stack, now| {
            let node = stack.node_mut();
            let index = match del {
                UdspDel::All => {
                    node.udsp_clear(now);
                    return Ok(Reply::Done);
                }
                UdspDel::Index(index) => usize::try_from(index).ok(),
                UdspDel::About(_) => node.udsp_rules().iter().position(|rule| {
                    about.as_ref().is_some_and(|about| {
                        (rule.src(), rule.dst(), rule.rte())
                            == (about.src(), about.dst(), about.rte())
                    })
                }),
            };
            let none = || AdminError::errno(Errno::ENOENT).because("no rule says that");
            node.udsp_del(now, index.ok_or_else(none)?)
                .map(|()| Reply::Done)
                .map_err(|e| refused(&e))
        })
    }

    pub(super) fn udsp_show(&self) -> Result<Reply, AdminError> {
        self.on_node(Errno::ENETDOWN, |stack, _| {
            Ok(Reply::Udsp(stack.node().udsp_rules().iter().map(views::udsp_rule).collect()))
        })
    }
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
