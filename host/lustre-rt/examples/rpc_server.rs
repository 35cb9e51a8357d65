//! A service with two operations of its own: blocks of 1 MiB are stored and fetched by number. What it
//! has answered survives its end by SIGKILL. `rpc_client.rs` is its client.

use std::collections::BTreeMap;

use lnet_rt::{Errno, IoVec, NodeBuilder};
use lustre_rt::store::{Disk, DiskConfig};
use lustre_rt::*;

const STORE: Opcode = Opcode(20_000);
const FETCH: Opcode = Opcode(20_001);

/// Requests under way, by token: the request, and its memory.
#[derive(Default)]
struct Shelf(BTreeMap<u64, (Served, IoVec)>);

impl Kind for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        let Some(span) = cx.below().alloc(1 << 20) else { return cx.rpc.decline(served.id) };
        let (id, memory) = (served.id, IoVec::from([span]));
        if served.opcode == FETCH {
            cx.order(StoreOrder::Read { token: id.into(), from: number(&served) });
        } else if let Err(errno) = cx.rpc.bulk(id, Direction::Write, &memory) {
            cx.below().free(span);
            return cx.rpc.refuse(id, errno);
        }
        self.0.insert(id.into(), (served, memory));
    }

    fn bulk_done(
        &mut self,
        id: ServedId,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        let token = id.into();
        let Some((served, _)) = self.0.get(&token) else { return false };
        if result.is_ok() && served.opcode == STORE {
            cx.order(StoreOrder::Read { token, from: number(served) });
            return true;
        }
        if result.is_ok() {
            cx.rpc.reply(id, Answer::default());
        }
        self.end(token, cx);
        true
    }

    /// Data is read (`Done`), or the record of a block's number is there: how often it was stored, and
    /// where.
    fn stored(
        &mut self,
        token: u64,
        outcome: Result<Outcome, StoreError>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some((served, memory)) = self.0.get(&token) else { return };
        match (served.opcode, outcome) {
            (STORE, Ok(Outcome::Record(old))) => {
                let Source::Record(space, key) = number(served) else { return };
                let Some((served, bytes)) = self.0.remove(&token) else { return };
                let (data, offset) = (cx.new_data(), 0);
                let times = old.as_ref().map_or(0, |old| u64_at(old, 0)) + 1;
                let record = [times.to_le_bytes(), data.0.to_le_bytes()].concat();
                let write = Change::Write { data, offset, bytes: bytes.clone() };
                let mut changes = vec![write, Change::Put(space, key, record)];
                if let Some(old) = old {
                    changes.push(Change::Cut { data: DataId(u64_at(&old, 8)), from: 0 });
                }
                let buffers = Buffers::from([times.to_le_bytes()]);
                let answer = Answer { buffers, ..Default::default() };
                cx.commit_data(&served, answer, changes, bytes, When::Committed);
                return;
            }
            (_, Ok(Outcome::Record(Some(record)))) => {
                let data = DataId(u64_at(&record, 8));
                let from = Source::Data { data, offset: 0, into: memory.clone() };
                return cx.order(StoreOrder::Read { token, from });
            }
            (_, Ok(Outcome::Done)) => {
                if cx.rpc.bulk(served.id, Direction::Read, memory).is_ok() {
                    return;
                }
            }
            (_, Ok(_)) => cx.rpc.refuse(served.id, Errno::ENOENT),
            (_, Err(e)) => cx.rpc.refuse(served.id, e.errno()),
        }
        self.end(token, cx);
    }
}

impl Shelf {
    fn end(&mut self, token: u64, cx: &mut Cx<'_, '_, '_>) {
        for span in self.0.remove(&token).map(|(_, memory)| memory).unwrap_or_default() {
            cx.below().free(span);
        }
    }
}

/// The record of the block that is asked for.
fn number(served: &Served) -> Source {
    let key = served.msg().ok().and_then(|msg| msg.buffer(1).map(<[u8]>::to_vec));
    Source::Record(Space::Objects, key.unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, ip, port, dir] = args.as_slice() else { return Err("expected IP PORT DIR".into()) };
    let node = NodeBuilder::new().tcp(ip.parse()?, port.parse()?).start()?;
    let rpc = RpcNode::start(&node, Default::default())?;
    rpc.log(|target, line| println!("{target}: {line}"))?;
    rpc.add_target("shelf", Shelf::default(), Disk::open(DiskConfig::new(dir))?)?;
    rpc.serve_targets()?;
    println!("serving");
    loop {
        std::thread::park();
    }
}
