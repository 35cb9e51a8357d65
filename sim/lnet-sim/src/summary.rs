//! A run in figures, and whether the scenario's bars hold.

use core::fmt;
use core::time::Duration;

use lnet_scenario::{Bars, Scenario, Share};
use serde::Serialize;

use crate::rpc::RpcFigures;
use crate::selftest::SelftestFigures;
use crate::tally::Tally;

/// What came of a run. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The scenario.
    pub scenario: String,
    /// The seed: the same one gives the same run.
    pub seed: u64,
    /// Hash over the whole trace, in hexadecimal.
    pub trace_hash: String,
    /// Messages that nodes handed to drivers.
    pub messages: u64,
    /// Their payload, bytes.
    pub bytes: u64,
    /// Exchanges that ended well.
    pub completed: u64,
    /// Exchanges that failed.
    pub errors: u64,
    /// Attempts of programs beyond the first of an exchange.
    pub retries: u64,
    /// Messages that reached a program twice.
    pub duplicates: u64,
    /// Messages that arrived with other bytes than were sent.
    pub damaged: u64,
    /// Messages that nodes sent again.
    pub resends: u64,
    /// Responses that nodes missed.
    pub response_timeouts: u64,
    /// Times of exchanges: half of them took at most so long.
    pub stall_p50: u64,
    /// 99 of 100.
    pub stall_p99: u64,
    /// All.
    pub stall_max: u64,
    /// Longest time in which a flow with something under way finished nothing.
    pub gap_max: u64,
    /// Messages that nodes dropped, by reason.
    pub drops: Vec<(String, u64)>,
    /// Pings, pushes and answers: part of all messages, in millionths.
    pub control_share: u32,
    /// Most of these that one node sent in one second.
    pub control_rate: u64,
    /// Targets, clients and calls above LNet, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc: Option<RpcFigures>,
    /// LNet selftest, where there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selftest: Option<SelftestFigures>,
    /// Faults, and when a node noticed them.
    pub faults: Vec<FaultSummary>,
    /// Time from the end of the last fault until all interfaces were healthy; none: one is
    /// degraded.
    pub recovery: Option<u64>,
    /// What could not be done as the scenario asks.
    pub complaints: Vec<String>,
    /// The bars that hold, by name.
    pub held: Vec<String>,
    /// What does not hold.
    pub missed: Vec<String>,
}

/// A fault in the summary.
#[derive(Clone, Debug, Serialize)]
pub struct FaultSummary {
    /// Its kind.
    pub kind: String,
    /// Its line in the scenario.
    pub line: u32,
    /// When it began, since the scenario's beginning.
    pub at: u64,
    /// Whether it ended.
    pub ended: bool,
    /// After which time it was noticed.
    pub noticed_after: Option<u64>,
    /// The node that noticed it, and how.
    pub noticed_by: Option<String>,
}

fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Summary {
    /// The figures of a run.
    pub fn new(scenario: &Scenario, seed: u64, tally: &Tally, trace_hash: u64) -> Self {
        let faults = tally.faults.iter().filter_map(|f| {
            let fault = scenario.faults.get(f.index)?;
            let by = f.noticed.as_ref().map(|(_, host, what)| {
                format!("{}: {what}", scenario.world.name(lnet_scenario::NodeId(host.0)))
            });
            Some(FaultSummary {
                kind: fault.kind.name().to_owned(),
                line: fault.line,
                at: f.began.as_nanos().saturating_sub(ns(scenario.warm_up)),
                ended: f.ended.is_some(),
                noticed_after: f.noticed.as_ref().map(|n| ns(n.0)),
                noticed_by: by,
            })
        });
        let exchanges = tally.completed + tally.errors;
        let mut summary = Self {
            scenario: scenario.name.clone(),
            seed,
            trace_hash: format!("{trace_hash:016x}"),
            messages: tally.messages,
            bytes: tally.bytes,
            completed: tally.completed,
            errors: tally.errors,
            retries: tally.attempts.saturating_sub(exchanges),
            duplicates: tally.duplicates,
            damaged: tally.damaged,
            resends: tally.resends,
            response_timeouts: tally.response_timeouts,
            stall_p50: tally.stalls.value_at_quantile(0.5),
            stall_p99: tally.stalls.value_at_quantile(0.99),
            stall_max: tally.stalls.max(),
            gap_max: ns(tally.gap_max),
            drops: tally.drops.iter().map(|(r, n)| (format!("{r:?}"), *n)).collect(),
            control_share: Share::of(tally.control, tally.messages).0,
            control_rate: tally.control_rate_max.0,
            rpc: tally.rpc.figures(),
            selftest: tally.selftest,
            faults: faults.collect(),
            recovery: tally.recovery().map(ns),
            complaints: tally.complaints.clone(),
            held: Vec::new(),
            missed: Vec::new(),
        };
        (summary.held, summary.missed) = summary.judge(&scenario.bars);
        summary
    }

    /// The names of the bars that hold, and what does not.
    fn judge(&self, bars: &Bars) -> (Vec<String>, Vec<String>) {
        let mut verdict = Verdict::default();
        let mut most = |name: &str, got: u64, bar: Option<u64>| {
            let Some(bar) = bar else { return };
            verdict.note(name, got <= bar, || format!("{got}, at most {bar} expected"));
        };
        most("errors", self.errors, bars.errors);
        most("duplicates", self.duplicates, bars.duplicates);
        most("resends", self.resends, bars.resends);
        most("retries", self.retries, bars.retries);
        most("control_rate", self.control_rate, bars.control_rate);
        if let Some(rpc) = &self.rpc {
            most("executed_twice", rpc.executed_twice, bars.executed_twice);
            most("lost_writes", rpc.lost_writes, bars.lost_writes);
            most("evictions", rpc.evictions, bars.evictions);
        }
        let mut longest = |name: &str, got: Option<u64>, bar: Option<Duration>| {
            let Some(bar) = bar else { return };
            verdict.note(name, got.is_some_and(|got| got <= ns(bar)), || match got {
                Some(got) => format!("{:?}, at most {bar:?} expected", Duration::from_nanos(got)),
                None => format!("never, {bar:?} expected"),
            });
        };
        longest("stall_max", Some(self.stall_max), bars.stall_max);
        longest("stall_p99", Some(self.stall_p99), bars.stall_p99);
        longest("gap_max", Some(self.gap_max), bars.gap_max);
        longest("rpc_longest_max", self.rpc.as_ref().map(|rpc| rpc.longest), bars.rpc_longest_max);
        longest("recovery_max", self.recovery, bars.recovery_max);
        for f in &self.faults {
            longest("detection_max", f.noticed_after, bars.detection_max);
        }
        if let Some(bar) = bars.completed {
            let got = self.completed;
            verdict.note("completed", got >= bar, || format!("{got}, at least {bar} expected"));
        }
        if let Some(bar) = bars.control_share {
            let got = Share(self.control_share);
            verdict
                .note("control_share", got.0 <= bar.0, || format!("{got}, at most {bar} expected"));
        }
        verdict.sorted()
    }

    /// Whether all bars hold.
    pub fn holds(&self) -> bool {
        self.missed.is_empty()
    }
}

/// What was found of each bar, in the order in which they are looked at.
#[derive(Default)]
struct Verdict {
    /// Their names, and what does not hold.
    found: Vec<(String, Option<String>)>,
}

impl Verdict {
    fn note(&mut self, name: &str, holds: bool, why: impl FnOnce() -> String) {
        self.found.push((name.to_owned(), (!holds).then(|| format!("{name}: {}", why()))));
    }

    /// The names of those that hold, for each fault if they are about faults, and what does not.
    fn sorted(self) -> (Vec<String>, Vec<String>) {
        let missed = |name: &String| self.found.iter().any(|(n, why)| n == name && why.is_some());
        let mut held: Vec<String> =
            self.found.iter().map(|(name, _)| name.clone()).filter(|name| !missed(name)).collect();
        held.dedup();
        (held, self.found.into_iter().filter_map(|(_, why)| why).collect())
    }
}

/// A time in the unit that suits it.
fn show(n: u64) -> String {
    match n {
        0 => "0".to_owned(),
        1..1_000 => format!("{n} ns"),
        1_000..1_000_000 => format!("{:.1} µs", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", n as f64 / 1e6),
        _ => format!("{:.3} s", n as f64 / 1e9),
    }
}

impl fmt::Display for RpcFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = match self.open {
            0 => String::new(),
            open => format!(", {open} without an end"),
        };
        writeln!(
            f,
            "calls        {} answered, {} failed{open}; p50 {}, p99 {}, longest {}",
            self.answered,
            self.failed,
            show(self.p50),
            show(self.p99),
            show(self.longest)
        )?;
        writeln!(
            f,
            "changes      {} carried out, {} twice, {} answered and lost",
            self.executed, self.executed_twice, self.lost_writes
        )?;
        writeln!(
            f,
            "connections  {} made again, {} evictions that a client noticed, {} clients evicted",
            self.reconnects, self.evictions, self.evicted
        )?;
        writeln!(
            f,
            "servers      {} copies of requests recognised, {} early replies, bulk data lost {} times",
            self.copies, self.early_replies, self.bulk_failed
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "scenario     {} (seed {}, trace {})",
            self.scenario, self.seed, self.trace_hash
        )?;
        if let Some(rpc) = &self.rpc {
            rpc.fmt(f)?;
        }
        if let Some(selftest) = &self.selftest {
            let SelftestFigures { rpcs, bulk, errors, .. } = selftest;
            writeln!(f, "selftest     {rpcs} RPCs, {bulk} bytes of bulk data, {errors} errors")?;
        }
        writeln!(
            f,
            "exchanges    {} succeeded, {} failed, {} retried by programs",
            self.completed, self.errors, self.retries
        )?;
        writeln!(
            f,
            "stalls       p50 {}, p99 {}, max {}; longest gap {}",
            show(self.stall_p50),
            show(self.stall_p99),
            show(self.stall_max),
            show(self.gap_max)
        )?;
        writeln!(
            f,
            "messages     {} ({} bytes), {} sent again, {} responses missed, {} twice, {} damaged",
            self.messages,
            self.bytes,
            self.resends,
            self.response_timeouts,
            self.duplicates,
            self.damaged
        )?;
        let drops: Vec<String> = self.drops.iter().map(|(r, n)| format!("{r} {n}")).collect();
        let drops = if drops.is_empty() { "none".to_owned() } else { drops.join(", ") };
        writeln!(f, "drops        {drops}")?;
        writeln!(
            f,
            "control      {} of all messages, at most {} of one node in a second",
            Share(self.control_share),
            self.control_rate
        )?;
        for fault in &self.faults {
            let noticed = match (&fault.noticed_after, &fault.noticed_by) {
                (Some(after), Some(by)) => format!("noticed after {} ({by})", show(*after)),
                _ => "not noticed by health or routes of any node".to_owned(),
            };
            writeln!(f, "fault        {} at {}: {noticed}", fault.kind, show(fault.at))?;
        }
        match self.recovery {
            Some(after) if !self.faults.is_empty() => {
                writeln!(f, "recovery     all healthy {} after the last fault", show(after))?;
            }
            Some(_) => {}
            None => writeln!(f, "recovery     an interface is still degraded at the end")?,
        }
        for complaint in &self.complaints {
            writeln!(f, "note         {complaint}")?;
        }
        if !self.held.is_empty() {
            writeln!(f, "bars held    {}", self.held.join(", "))?;
        }
        for missed in &self.missed {
            writeln!(f, "MISSED       {missed}")?;
        }
        Ok(())
    }
}
