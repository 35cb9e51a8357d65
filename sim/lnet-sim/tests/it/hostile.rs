//! A node that throws anything at a server, ten thousand messages a second: the calls of others take as
//! long as without it. What becomes of each message is in the tests of `ptlrpc` (`hostile.rs`).

use core::time::Duration;
use std::sync::Arc;

use lnet::upper::{Below, Upper};
use lnet::{Event, MdSpec, Put, Report, Unlink};
use lnet_scenario::Scenario;
use lnet_sim::{Messages, Sim};
use lnet_types::{ByteOrder, Instant, IoVec, Nid, Prng, ProcessId};
use lustre_wire::{
    Body, ConnectData, ConnectFlags, Header, HeaderFlags, ImportKind, Layout, MsgBuilder, MsgKind,
    OpFlags, Opcode,
};

use crate::rpc::{Beside, FLOODS, scenario};

/// What is thrown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Connects under new uuids.
    Connects,
    /// The same connect, whose answer no buffer takes.
    SameConnect,
    /// Bytes without a meaning.
    Garbage,
    /// Requests of a client that the server does not know.
    UnknownHandle,
}

const ATTACKS: [Attack; 4] =
    [Attack::Connects, Attack::SameConnect, Attack::Garbage, Attack::UnknownHandle];

const EVERY: Duration = Duration::from_millis(1);
const AT_ONCE: usize = 10;

/// Throws messages at a server for four seconds.
struct Thrower {
    attack: Attack,
    to: Nid,
    due: Instant,
    thrown: u64,
    prng: Prng,
}

impl Thrower {
    fn message(&mut self) -> Vec<u8> {
        let number = self.prng.next_u64();
        match self.attack {
            Attack::Connects => connect(&format!("thrower-{number:x}")),
            Attack::SameConnect => connect("thrower"),
            Attack::Garbage => {
                let len = 1 + self.prng.below(600);
                (0..len).map(|_| self.prng.next_u64() as u8).collect()
            }
            Attack::UnknownHandle => {
                let body = Body { handle: number, opcode: Opcode(20_000), ..body(0x3_0003) };
                MsgBuilder::new(header(), &body).bytes(b"anything").build().unwrap()
            }
        }
    }

    fn throw(&mut self, below: &mut Below<'_>) {
        let bytes = self.message();
        let Some(span) = below.alloc(bytes.len() as u32) else { return };
        below.bytes_mut(span).copy_from_slice(&bytes);
        let spec = MdSpec::new(IoVec::from([span]), 1);
        let md = below.bind(MdSpec { threshold: Some(1), unlink: Unlink::Auto, ..spec }).unwrap();
        self.thrown += 1;
        let put = Put {
            md,
            ack: false,
            src: None,
            target: ProcessId::lustre(self.to),
            portal: ImportKind::Osc.portals().0.0,
            match_bits: self.thrown * 128,
            offset: 0,
            hdr_data: 0,
            timeout: None,
        };
        below.put(put).unwrap();
    }
}

impl Upper for Thrower {
    fn event(&mut self, event: &Event, below: &mut Below<'_>) {
        if event.unlinked {
            below.payload(event).iter().for_each(|span| below.free(*span));
        }
    }

    fn spent(&mut self, _: u64) {}

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        (0..AT_ONCE).for_each(|_| self.throw(below));
        self.due = below.now() + EVERY;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.due)
    }
}

fn header() -> Header {
    Header { flags: HeaderFlags::AT_SUPPORT, ..Header::default() }
}

fn body(version: u32) -> Body {
    Body { kind: MsgKind::REQUEST, version, timeout: 11, conn_cnt: 1, ..Body::default() }
}

fn connect(client: &str) -> Vec<u8> {
    let opcode = Opcode::OST_CONNECT;
    let body = Body { opcode, op_flags: OpFlags::INITIAL, ..body(0x1_0003) };
    let flags = ConnectFlags::VERSION | ConnectFlags::AT | ConnectFlags::FULL20;
    let data = ConnectData { flags, ..ConnectData::default() };
    MsgBuilder::new(header(), &body)
        .bytes(b"list-1\0")
        .bytes(format!("{client}\0").as_bytes())
        .layout(&7u64)
        .bytes(&data.to_bytes(ByteOrder::Little))
        .build()
        .unwrap()
}

/// The world of `rpc-flood`, whose flooding client does nothing.
fn calm() -> Scenario {
    let mut scenario = scenario("rpc-flood");
    scenario.rpc.loads.retain(|load| load.window < 1000);
    scenario
}

/// Of the calls of others while this goes on: 99 of 100 took at most so long.
fn p99(attack: Option<Attack>) -> Duration {
    let scenario = Arc::new(calm());
    let server = scenario.world.nodes.last().unwrap().rails[0].nid;
    let mut sim = Sim::new(scenario, None, Messages::new());
    let thrower = attack.map(|attack| {
        let make = move |_| -> Box<dyn Upper> {
            // The clock of a node shows 1000 s when its world begins.
            let (due, prng) = (Instant::from_secs(1005), Prng::new(1));
            Box::new(Thrower { attack, to: server, due, thrown: 0, prng })
        };
        sim.stand(FLOODS, Box::new(make)).unwrap()
    });
    let beside = Beside::default();
    sim.observe(Box::new(beside.clone()));
    sim.run_until(Instant::from_secs(9)).unwrap_or_else(|v| panic!("{attack:?}: {v}"));
    if let Some(id) = thrower {
        let thrown = sim.with_upper(FLOODS, id, |t: &mut Thrower, _| t.thrown).unwrap();
        assert!((30_000..=40_010).contains(&thrown), "{attack:?}: {thrown}");
    }
    beside.p99()
}

#[test]
fn calls_beside_a_node_that_throws_anything_at_a_server_take_as_long_as_without_it() {
    let alone = p99(None);
    for attack in ATTACKS {
        let beside = p99(Some(attack));
        println!("{attack:?}: p99 {beside:?}, alone {alone:?}");
        assert!(beside <= alone * 6 / 5, "{attack:?}: {beside:?} against {alone:?}");
    }
}
