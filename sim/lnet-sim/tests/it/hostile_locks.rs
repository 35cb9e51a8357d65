//! Lock clients that take all they can get, never answer, or name locks that they don't have: other
//! clients of the target wait for their locks as long as without them. What becomes of each such request
//! is in the tests of `ldlm` (`hostile.rs`).

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use lnet::upper::{Below, Upper};
use lnet::{Event as LnetEvent, Report};
use lnet_scenario::parse;
use lnet_sim::{HostId, LockSeen, Messages, Observer, RpcSeen, Seen, Sim, View};
use lnet_types::{ByteOrder, Instant, Nid, Prng};
use lustre_target::lock::wire::resource_of;
use lustre_wire::connect::{ConnectData, ConnectFlags};
use lustre_wire::ldlm::{
    LockDesc, LockFlags, LockKind, LockMode, LockReply, LockRequest, Lvb, Policy,
};
use lustre_wire::{Buffers, ImportKind, Layout, Opcode};
use ptlrpc::{Call, Config, Event, ImportConfig, ImportId, Ptlrpc, Tunables};

/// What the hostile node does, from 5 s to 9 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Locks of 65,536 names, a thousand requests at a time, all of which it keeps.
    Takes,
    /// It has some hundred locks that three other clients want, and answers no callback.
    Silent,
    /// Cancels of four hundred locks each that it does not have.
    Cancels,
    /// Enqueues that give four hundred such locks back, of names that no other client uses.
    Enqueues,
}

const ATTACKS: [Attack; 4] = [Attack::Takes, Attack::Silent, Attack::Cancels, Attack::Enqueues];

/// Twenty clients of many names, then two that take turns with one, as the scenario numbers them.
const APART: core::ops::Range<u32> = 0..20;
const TURNS: core::ops::Range<u32> = 20..22;
const HOSTILE: HostId = HostId(22);

/// A target that takes 10 ms for a request, with its clients.
fn text(attack: Option<Attack>) -> String {
    let load = |from: &str, more: &str| {
        format!(
            "[[workload]]\nkind = \"lock\"\nfrom = {from}\nto = \"locks\"\nmodes = [\"PW\"]\n{more}\n"
        )
    };
    let few = "window = 1\nkeep = \"0%\"\nuntil = \"12s\"";
    let mut text = String::from(
        r#"
name = "hostile-locks"
duration = "30s"
[[net]]
name = "tcp"
latency = "100us"
bandwidth = "10Gbit/s"
"#,
    );
    for (name, count) in [("client", 20), ("turns", 2), ("hostile", 1), ("wants", 3), ("server", 1)]
    {
        text += &format!("[[node]]\nname = \"{name}\"\ncount = {count}\nrails = [\"tcp\"]\n");
    }
    text += "[[target]]\nname = \"locks\"\nkind = \"lock\"\non = \"server\"\n";
    text += "[[fault]]\nat = \"1s\"\nfor = \"20s\"\nkind = \"handler_delay\"\ntarget = \"locks\"\nby = \"10ms\"\n";
    for nodes in ["client", "turns", "wants"] {
        text += &format!("[[client]]\non = \"{nodes}\"\n");
    }
    text += &load("\"client\"", &format!("names = 65536\nthink = \"30ms\"\nhold = \"1ms\"\n{few}"));
    text += &load("\"turns\"", &format!("names = 1\nthink = \"1ms\"\nhold = \"20ms\"\n{few}"));
    let window = "window = 400\nkeep = \"100%\"\nuntil = \"9s\"";
    match attack {
        Some(Attack::Takes) => {
            text += "[[client]]\non = \"hostile\"\n";
            let all = "names = 65536\nwindow = 1000\nstart = \"5s\"\nuntil = \"9s\"";
            text += &load("\"hostile\"", all);
        }
        Some(Attack::Silent) => {
            text += "[[client]]\non = \"hostile\"\n";
            let names = "names = 400\nthink = \"100ms\"\nhold = \"3s\"";
            text += &load("[\"hostile\", \"wants\"]", &format!("{names}\n{window}"));
            // It has nearly all names when the others begin, and is silent from then on.
            for (nodes, at, span) in [("wants", "100ms", "4400ms"), ("hostile", "4500ms", "5s")] {
                text += &format!(
                    "[[fault]]\nat = \"{at}\"\nfor = \"{span}\"\nkind = \"pause\"\non = \"{nodes}\"\n"
                );
            }
        }
        _ => {}
    }
    text
}

/// A client with a thousand requests under way, each with four hundred handles of no lock.
struct Thrower {
    ptlrpc: Ptlrpc,
    opcode: Opcode,
    to: Nid,
    import: Option<ImportId>,
    due: Option<Instant>,
    /// Cancels that found no lock (-ESTALE), enqueues that were granted.
    ended: u64,
    prng: Prng,
}

impl Thrower {
    fn new(opcode: Opcode, to: Nid) -> Self {
        let (seed, wall) = (7, Duration::from_secs(1_795_000_000));
        Self {
            ptlrpc: Ptlrpc::new(Config { seed, wall, tunables: Tunables::default() }),
            opcode,
            to,
            import: None,
            // The clock of a node shows 1000 s when its world begins.
            due: Some(Instant::from_secs(1005)),
            ended: 0,
            prng: Prng::new(1),
        }
    }

    fn begin(&mut self, below: &mut Below<'_>) {
        let flags = ConnectFlags::VERSION | ConnectFlags::AT | ConnectFlags::FULL20;
        let config = ImportConfig {
            kind: ImportKind::Osc,
            target: "locks".to_owned(),
            client: "thrower".to_owned(),
            nids: vec![self.to],
            wanted: ConnectData { flags, ..ConnectData::default() },
        };
        self.import = Some(self.ptlrpc.rpc(below).import(config).unwrap());
        (0..1000).for_each(|_| self.throw(below));
    }

    fn throw(&mut self, below: &mut Below<'_>) {
        let handles: Vec<u64> = (0..400).map(|_| self.prng.next_u64()).collect();
        let name = format!("thrower-{}", self.prng.next_u64());
        let desc = LockDesc {
            kind: LockKind::EXTENT,
            resource: resource_of(&name).unwrap(),
            requested: LockMode::PW,
            granted: LockMode::NONE,
            policy: Policy::Extent { start: 0, end: u64::MAX, gid: 0 }.words(),
        };
        let request = LockRequest::new(LockFlags::empty(), 400, desc, &handles);
        let buffers = Buffers::from([request.to_bytes(ByteOrder::Little), name.into_bytes()]);
        let mut call =
            Call::new(self.opcode, buffers).answered_by(&[LockReply::LEN as u32, Lvb::LEN as u32]);
        (call.modifies, call.resend) = (false, false);
        self.ptlrpc.rpc(below).call(self.import.unwrap(), call).unwrap();
    }

    fn drain(&mut self, below: &mut Below<'_>) {
        while let Some(event) = self.ptlrpc.poll_event() {
            if let Event::Ended { result, .. } = event {
                let status = result.map(|reply| reply.status);
                let expected = if self.opcode == Opcode::LDLM_CANCEL { 116 } else { 0 };
                assert_eq!(status, Ok(expected));
                self.ended += 1;
                self.throw(below);
            }
        }
    }
}

impl Upper for Thrower {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.drain(below);
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        if self.due.take_if(|due| *due <= below.now()).is_some() {
            self.begin(below);
        }
        self.ptlrpc.handle_timeout(below);
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.ptlrpc.poll_timeout(), self.due].into_iter().flatten().min()
    }
}

/// How long clients waited for locks that they asked for while the attack goes on.
#[derive(Clone, Default)]
struct Waits(Rc<RefCell<[Vec<Duration>; 3]>>);

impl Waits {
    /// Of the clients of many names, and of those that take turns: 99 of 100 waited at most so long.
    fn p99(&self) -> [Duration; 2] {
        [0, 1].map(|group| {
            let mut times = core::mem::take(&mut self.0.borrow_mut()[group]);
            times.sort_unstable();
            assert!(times.len() > 100, "{}", times.len());
            times[times.len() * 99 / 100]
        })
    }

    /// Locks that other clients asked for.
    fn others(&self) -> usize {
        self.0.borrow()[2].len()
    }
}

impl Observer for Waits {
    fn name(&self) -> &'static str {
        "waits"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let Seen::Rpc { host, seen: RpcSeen::Lock { seen, .. } } = seen else { return Ok(()) };
        let group = [APART, TURNS].iter().position(|hosts| hosts.contains(&host.0)).unwrap_or(2);
        match *seen {
            LockSeen::Asked { .. } if group == 2 && view.now >= Instant::from_secs(4) => {
                self.0.borrow_mut()[2].push(Duration::ZERO);
            }
            LockSeen::Granted { took, .. }
                if group < 2 && view.now >= Instant::from_secs(5) + took =>
            {
                self.0.borrow_mut()[group].push(took);
            }
            LockSeen::Refused { error, .. } if group < 2 => return Err(error.to_string()),
            LockSeen::Lost { ask } if group < 2 => return Err(format!("lock {ask} is lost")),
            _ => {}
        }
        Ok(())
    }
}

/// The waits beside an attack; how many requests were made for it.
fn waits(attack: Option<Attack>) -> ([Duration; 2], u64) {
    let scenario = parse("hostile-locks.toml", &text(attack)).unwrap_or_else(|e| panic!("{e}"));
    let server = scenario.world.nodes.last().unwrap().rails[0].nid;
    let mut sim = Sim::new(Arc::new(scenario), None, Messages::new());
    let opcode = match attack {
        Some(Attack::Cancels) => Some(Opcode::LDLM_CANCEL),
        Some(Attack::Enqueues) => Some(Opcode::LDLM_ENQUEUE),
        _ => None,
    };
    let thrower = opcode.map(|opcode| {
        let make = move |_| -> Box<dyn Upper> { Box::new(Thrower::new(opcode, server)) };
        sim.stand(HOSTILE, Box::new(make)).unwrap()
    });
    let waits = Waits::default();
    sim.observe(Box::new(waits.clone()));
    sim.run_until(Instant::from_secs(9)).unwrap_or_else(|v| panic!("{attack:?}: {v}"));
    let ended = thrower.map(|id| sim.with_upper(HOSTILE, id, |t: &mut Thrower, _| t.ended));
    let done = ended.flatten().unwrap_or(0) + waits.others() as u64;
    (waits.p99(), done)
}

#[test]
fn clients_beside_a_hostile_lock_client_wait_for_locks_as_long_as_without_it() {
    let (alone, _) = waits(None);
    for attack in ATTACKS {
        let (beside, done) = waits(Some(attack));
        println!("{attack:?}: p99 {beside:?}, alone {alone:?}, {done} requests");
        assert!(done > 1000, "{attack:?}: {done}");
        for (beside, alone) in beside.into_iter().zip(alone) {
            assert!(beside <= alone * 6 / 5, "{attack:?}: {beside:?} against {alone:?}");
        }
    }
}
