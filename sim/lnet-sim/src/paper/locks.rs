//! Locks and evictions: `ulnet sim paper locks`. The profile is `documents`; ldlm_enqueue_min is 260 s
//! where nothing else is said, so that the callback timer is as long.

use core::time::Duration;

use ldlm::Mode;
use lnet::Profile;
use lnet_types::Instant;
use ptlrpc::{EvictReason, Part, Tunables};

use super::stage::{LockStage, TARGETS, Who};
use super::{Moment, PaperRow};

/// The holder, where there is one.
const HOLDER: Who = Who(1);
/// What is locked.
const NAME: &str = "jobs/42";
/// The timer, seconds.
const TIMER: f64 = 260.0;

fn documents() -> Tunables {
    Tunables { ldlm_enqueue_min: Duration::from_secs(260), ..Tunables::of(Profile::Documents) }
}

/// As on the paper's systems: a client is evicted after 450 s of silence, so that in an outage the
/// timer of its lock ends first (PA-013).
fn cray(at_min: u64, enqueue_min: u64) -> Tunables {
    let secs = Duration::from_secs;
    Tunables {
        obd_timeout: secs(300),
        ping_interval: secs(75),
        at_min: secs(at_min),
        ldlm_enqueue_min: secs(enqueue_min),
        ..documents()
    }
}

/// What came of a lock that was asked for.
#[derive(Default)]
struct Outcome {
    /// From the question to the grant.
    granted: Option<Duration>,
    /// From the question to the first eviction.
    evicted: Option<Duration>,
    evictions: usize,
    /// When callbacks have left, from the question on.
    called: Vec<Duration>,
}

impl Outcome {
    /// Distances of callbacks that were sent again.
    fn spacing(&self) -> impl Iterator<Item = Duration> {
        self.called.windows(2).map(|two| two[1].saturating_sub(two[0]))
    }

    /// What has happened, in order.
    fn moments(&self) -> Vec<Moment> {
        let moment = |at: Duration, what| Moment { at, what };
        let mut all = vec![moment(Duration::ZERO, "another client asks")];
        all.extend(self.called.iter().map(|at| moment(*at, "callback")));
        all.extend(self.evicted.map(|at| moment(at, "holder evicted")));
        all.extend(self.granted.map(|at| moment(at, "lock granted")));
        all.sort_by_key(|moment| moment.at);
        all
    }
}

/// Plays on for so many seconds, and tells what came of `hold`, asked for at `asked`.
fn outcome(
    stage: &mut LockStage,
    asked: Instant,
    hold: ldlm::client::HoldId,
    seconds: f64,
) -> Outcome {
    stage.pass(seconds);
    let asker = stage.asker();
    let evicted = stage.evicted();
    let called = stage.called();
    let called = called.into_iter().filter(|at| *at >= asked);
    Outcome {
        granted: stage.granted(asker, hold).map(|at| at.saturating_since(asked)),
        evicted: evicted.first().map(|e| e.at.saturating_since(asked)),
        evictions: evicted.len(),
        called: called.map(|at| at.saturating_since(asked)).collect(),
    }
}

/// A client holds a lock and gives it back when it is called back; another one asks for it, while the
/// server loses so many callbacks, or their replies.
fn lost(tunables: &Tunables, polite: bool, part: Part, count: u32) -> Option<Outcome> {
    let mut stage = LockStage::new(1, tunables, "")?;
    stage.polite(HOLDER, polite);
    stage.ask(HOLDER, 0, NAME, Mode::Ex)?;
    stage.pass(1.0);
    stage.lose(part, count)?;
    let asked = stage.now();
    let hold = stage.ask(stage.asker(), 0, NAME, Mode::Ex)?;
    Some(outcome(&mut stage, asked, hold, 1.2 * TIMER))
}

/// The same, every callback being lost for so many seconds.
fn lost_for(seconds: f64) -> Option<Outcome> {
    let mut stage = LockStage::new(1, &documents(), "")?;
    stage.ask(HOLDER, 0, NAME, Mode::Ex)?;
    stage.pass(1.0);
    let rule = stage.lose(Part::Request, u32::MAX)?;
    let asked = stage.now();
    let hold = stage.ask(stage.asker(), 0, NAME, Mode::Ex)?;
    stage.pass(seconds);
    stage.mend(rule);
    Some(outcome(&mut stage, asked, hold, 2.0 * TIMER))
}

/// A holder that was called back reads under its lock for three times the timer, then gives it back.
fn long_io() -> Option<Outcome> {
    let mut stage = LockStage::new(1, &documents(), "")?;
    stage.polite(HOLDER, false);
    let held = stage.ask(HOLDER, 0, NAME, Mode::Pw)?;
    stage.pass(1.0);
    let asked = stage.now();
    let hold = stage.ask(stage.asker(), 0, NAME, Mode::Ex)?;
    for _ in 0..8 {
        stage.pass(3.0 * TIMER / 8.0);
        stage.read(HOLDER, NAME);
    }
    stage.release(HOLDER, 0, held);
    Some(outcome(&mut stage, asked, hold, 10.0))
}

/// The holder's host is out of reach for so long, from just before it is called back.
fn outage(tunables: &Tunables, seconds: u32, also_lost: u32) -> Option<Outcome> {
    let fault = format!(
        "[[fault]]\nat = \"50s\"\nfor = \"{seconds}s\"\nkind = \"drop\"\non = \"holder-1\"\nshare = \"100%\"\n"
    );
    let mut stage = LockStage::new(1, tunables, &fault)?;
    stage.teach(HOLDER)?;
    stage.ask(HOLDER, 0, NAME, Mode::Ex)?;
    stage.until(50.1);
    let asked = stage.now();
    let hold = stage.ask(stage.asker(), 0, NAME, Mode::Ex)?;
    stage.until(50.0 + f64::from(seconds));
    if also_lost > 0 {
        stage.lose(Part::Request, also_lost)?;
    }
    Some(outcome(&mut stage, asked, hold, 2.0 * TIMER + 100.0))
}

/// A client with a lock of one target dies; another one wants the lock at once.
struct Death {
    /// Until the target with the lock has evicted it.
    contended: Option<Duration>,
    /// From its last request until the other target has.
    elsewhere: Option<Duration>,
    /// Until the other client has the lock.
    granted: Option<Duration>,
}

fn death() -> Option<Death> {
    let fault = "[[fault]]\nat = \"60s\"\nkind = \"kill\"\non = \"holder-1\"\n";
    let tunables = Tunables { ldlm_enqueue_min: Duration::from_secs(100), ..documents() };
    let mut stage = LockStage::new(1, &tunables, fault)?;
    stage.teach(HOLDER)?;
    stage.until(59.5);
    stage.ask(HOLDER, 0, NAME, Mode::Ex)?;
    // The last request to the other target.
    stage.ask(HOLDER, 1, NAME, Mode::Ex)?;
    let last = stage.now();
    stage.until(60.1);
    let asked = stage.now();
    let hold = stage.ask(stage.asker(), 0, NAME, Mode::Pr)?;
    stage.pass(200.0);
    let asker = stage.asker();
    let evicted = stage.evicted();
    // The two reasons to evict (PA-007): each target has its own.
    let of = |target: &str, since: Instant, silent: bool| {
        let found = evicted
            .iter()
            .find(|e| e.target == target && (e.reason == EvictReason::Silent) == silent);
        found.map(|e| e.at.saturating_since(since))
    };
    Some(Death {
        contended: of(TARGETS[0], asked, false),
        elsewhere: of(TARGETS[1], last, true),
        granted: stage.granted(asker, hold).map(|at| at.saturating_since(asked)),
    })
}

/// A client with a lock dies, and no evictor finds it before the timer: how long another one waits.
fn dead_holder(enqueue_min: u32) -> Option<Duration> {
    let fault = "[[fault]]\nat = \"60s\"\nkind = \"kill\"\non = \"holder-1\"\n";
    let mut stage = LockStage::new(1, &cray(5, enqueue_min.into()), fault)?;
    stage.teach(HOLDER)?;
    stage.until(59.5);
    stage.ask(HOLDER, 0, NAME, Mode::Ex)?;
    stage.until(60.1);
    let asked = stage.now();
    let hold = stage.ask(stage.asker(), 0, NAME, Mode::Ex)?;
    outcome(&mut stage, asked, hold, f64::from(enqueue_min) + 60.0).granted
}

/// So many clients with a lock each die; 100 s later another one takes all the locks, one after the
/// other: how long that takes, with the ping evictor or without.
fn dead_holders(count: u32, evictor: bool) -> Option<Duration> {
    let fault = "[[fault]]\nat = \"60s\"\nkind = \"kill\"\non = \"holder\"\n";
    let evict_factor = if evictor { 15 } else { 1000 };
    let tunables = Tunables { evict_factor, ..documents() };
    let mut stage = LockStage::new(count, &tunables, fault)?;
    let names: Vec<String> = (1..=count).map(|n| format!("jobs/{n}")).collect();
    for (n, name) in (1..).zip(&names) {
        stage.ask(Who(n), 0, name, Mode::Ex)?;
    }
    stage.until(160.0);
    let (asked, asker) = (stage.now(), stage.asker());
    for name in &names {
        let hold = stage.ask(asker, 0, name, Mode::Ex)?;
        let limit = stage.now() + Duration::from_secs(1000);
        while stage.granted(asker, hold).is_none() {
            if stage.now() > limit {
                return None;
            }
            stage.pass(0.5);
        }
    }
    Some(stage.now().saturating_since(asked))
}

/// When the holder was evicted, and what led there.
fn evicted(what: &'static str, paper: &'static str, all: Option<Outcome>) -> PaperRow {
    let all = all.unwrap_or_default();
    PaperRow::time(what, paper, all.evicted).along(all.moments())
}

/// How many were evicted; without the lock in the end nothing was shown.
fn evictions(what: &'static str, paper: &'static str, all: Option<Outcome>) -> PaperRow {
    let all = all.unwrap_or_default();
    let n = if all.granted.is_some() { all.evictions } else { usize::MAX };
    PaperRow::evictions(what, paper, n).along(all.moments())
}

/// No client was.
fn none(what: &'static str, all: Option<Outcome>) -> PaperRow {
    evictions(what, "0 evicted", all).within(0.0, 0.0)
}

/// The table.
pub fn paper_locks() -> Vec<PaperRow> {
    let before = Tunables { ast_resend: false, ..documents() };
    let row = PaperRow::time;
    let resent = lost(&documents(), true, Part::Request, 3);
    let spacing = resent.as_ref().and_then(|all| all.spacing().max());
    let late = lost_for(200.0);
    let late_granted = late.as_ref().and_then(|all| all.granted);
    let dead = death();
    let of = |f: fn(&Death) -> Option<Duration>| dead.as_ref().and_then(f);
    let wait = |n, evictor| dead_holders(n, evictor);
    let one = |what, paper, all| evictions(what, paper, all).within(1.0, 1.0);
    vec![
        evicted("lost AST, ast_resend 0: evicted after", "timer", {
            lost(&before, true, Part::Request, 1)
        })
        .within(1.0, TIMER + 1.0)
        .because("at the end of its one sending: L-55.5"),
        evicted("lost AST reply, ast_resend 0: evicted after", "timer", {
            lost(&before, false, Part::Reply, 1)
        })
        .within(1.0, TIMER + 1.0)
        .because("a holder that is not done within one sending"),
        none("lost AST, resent", resent),
        none("lost AST reply, resent", lost(&documents(), true, Part::Reply, 1)),
        row("resends of an AST are apart", "its deadline", spacing)
            .near(10.0)
            .because("5 s for the service, 5 s for the net: DEC-38"),
        none("every AST lost for 200 s of 260", late),
        row("the same: the lock is granted after", "> 200 s", late_granted).within(200.0, TIMER),
        none("reads for three times the timer under a called-back lock", long_io()),
        row(
            "dead holder: evicted by the contended target after",
            "timer 100 s",
            of(|d| d.contended),
        )
        .within(99.0, 102.0)
        .because("a copy may still be under way: DEC-39"),
        row("dead holder: evicted elsewhere after", "150 s", of(|d| d.elsewhere))
            .within(150.0, 151.0),
        row("dead holder: a reader has its lock after", "105 s", of(|d| d.granted))
            .within(99.0, 105.0),
        row("ten dead holders, evictor on: all locks are had after", "< timer", wait(10, true))
            .within(0.0, TIMER),
        row("one dead holder, evictor off", "1 timer", wait(1, false))
            .within(TIMER - 1.0, TIMER + 12.0),
        row("ten dead holders, evictor off", "10 timers", wait(10, false))
            .within(10.0 * TIMER - 10.0, 10.0 * TIMER + 120.0),
        one("outage of 150 s, timer 50", "evicted", outage(&cray(5, 50), 150, 0)),
        row("the same timer: a dead holder's lock is had after", "timer", dead_holder(50))
            .within(49.0, 61.0),
        one("outage of 150 s, timer 100", "evicted", outage(&cray(5, 100), 150, 0)),
        row("the same timer: a dead holder's lock is had after", "timer", dead_holder(100))
            .within(99.0, 111.0),
        none("outage of 150 s, timer 260", outage(&cray(5, 260), 150, 0)),
        row("the same timer: a dead holder's lock is had after", "timer", dead_holder(260))
            .within(259.0, 271.0),
        none("outage of 15 s, timer 260", outage(&cray(5, 260), 15, 0)),
        one("outage of 300 s, timer 260", "1 evicted", outage(&cray(5, 260), 300, 0)),
        none(
            "outage of 140 s and a loss after it, timer 260, at_min 40",
            outage(&cray(40, 260), 140, 1),
        ),
        one("the same, timer 100", "1 evicted", outage(&cray(40, 100), 140, 1)),
    ]
}
