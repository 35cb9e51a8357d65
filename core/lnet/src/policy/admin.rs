//! The administrator's changes of the selection policy, and its effect on everything that has a
//! grade. What rules say is in `mod.rs`.

use lnet_types::{Instant, Nid};

use super::rule::{Rule, RuleError, RuleKind};
use crate::Node;
use crate::policy::RULES_MAX;
use crate::record::Input;

impl Node {
    /// The rules of the selection policy, in order.
    pub fn udsp_rules(&self) -> &[Rule] {
        &self.peers.policy.rules
    }

    /// Adds a rule at `index`, or at the end if that is `None` or beyond it (U-10), and applies the
    /// policy to everything. A rule about the same as one that is there changes the numbers of that
    /// one, at its place (U-11). Returns the index of the rule.
    ///
    /// # Errors
    /// It would change nothing, or the policy is full.
    pub fn udsp_add(
        &mut self,
        now: Instant,
        rule: Rule,
        index: Option<usize>,
    ) -> Result<usize, RuleError> {
        self.note(|| Input::UdspAdd { now, rule: Box::new(rule.clone()), index });
        let _ = self.clock(now);
        let rules = &mut self.peers.policy.rules;
        let at = match rules.iter().position(|r| r.about_the_same(&rule)) {
            Some(i) => {
                if !rules[i].update(&rule) {
                    return Err(RuleError::Exists(i));
                }
                i
            }
            None if rules.len() >= RULES_MAX => return Err(RuleError::NoSpace(RULES_MAX)),
            None => {
                let at = index.unwrap_or(usize::MAX).min(rules.len());
                if rule.kind() == RuleKind::Idle {
                    tracing::warn!(%rule, "a rule about rte alone has no effect");
                }
                rules.insert(at, rule);
                at
            }
        };
        self.apply_policy();
        Ok(at)
    }

    /// Removes the rule at `index`; those behind it move up (U-12). What remains is applied anew.
    ///
    /// # Errors
    /// There is none.
    pub fn udsp_del(&mut self, now: Instant, index: usize) -> Result<(), RuleError> {
        self.note(|| Input::UdspDel { now, index });
        let _ = self.clock(now);
        if index >= self.peers.policy.rules.len() {
            return Err(RuleError::NoRule(index));
        }
        self.peers.policy.rules.remove(index);
        self.apply_policy();
        Ok(())
    }

    /// Removes all rules.
    pub fn udsp_clear(&mut self, now: Instant) {
        self.note(|| Input::UdspClear { now });
        let _ = self.clock(now);
        self.peers.policy.rules.clear();
        self.apply_policy();
    }

    /// Own interfaces have come or gone (U-21).
    pub(crate) fn policy_nis_changed(&mut self) {
        self.peers.policy.locals =
            self.nis.listed().filter(|ni| !ni.is_loopback()).map(|ni| ni.nid).collect();
        if !self.peers.policy.rules.is_empty() {
            self.apply_policy();
        }
    }

    /// The primary NIDs of all gateways, after routes or those NIDs have changed (U-25).
    pub(crate) fn policy_gateways_changed(&mut self, gateways: Vec<Nid>) {
        if self.peers.policy.gateways != gateways {
            self.peers.policy.gateways = gateways;
            if !self.peers.policy.rules.is_empty() {
                self.apply_policy();
            }
        }
    }

    /// Works out anew what the rules say of everything (U-20).
    fn apply_policy(&mut self) {
        self.peers.policy.index_changed();
        let policy = &self.peers.policy;
        let forget = !policy.counted;
        self.nis.regrade(|net| policy.net(net), |nid| policy.ni(nid), forget);
        self.peers.apply_policy();
    }

    /// The message that goes from `own` to `to` takes the turn of every rule that led it there.
    pub(crate) fn take_turns(&mut self, own: Nid, to: Nid) {
        let seq = self.nis.take_turns(own);
        self.peers.take_turns(own, to, seq);
    }
}
