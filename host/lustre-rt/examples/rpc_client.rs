//! Stores and fetches blocks of 1 MiB at `rpc_server.rs`, which may be killed and started again
//! meanwhile: each call is answered, and each block is stored once.

use lnet_rt::{Nid, NodeBuilder};
use lustre_rt::*;

const STORE: Opcode = Opcode(20_000);
const FETCH: Opcode = Opcode(20_001);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, ip, port, server, blocks] = args.as_slice() else {
        return Err("expected IP PORT SERVER-NID BLOCKS".into());
    };
    let node = NodeBuilder::new().tcp(ip.parse()?, port.parse()?).start()?;
    let flags = ConnectFlags::VERSION | ConnectFlags::AT | ConnectFlags::FULL20;
    let import = RpcNode::start(&node, Default::default())?.import(ImportConfig {
        kind: ImportKind::Osc,
        target: "shelf".into(),
        client: format!("client-{ip}-{}", std::process::id()),
        nids: vec![server.parse::<Nid>()?],
        wanted: ConnectData {
            flags: flags | ConnectFlags::BULK_MBITS | ConnectFlags::FLAGS2,
            flags2: ConnectFlags2::REP_MBITS,
            ..ConnectData::default()
        },
    })?;
    for n in 0..blocks.parse::<u64>()? {
        let number = n.to_le_bytes().to_vec();
        let block: Vec<u8> = (0..1 << 20).map(|i: u64| (i % 251 + n) as u8).collect();
        let call = Call::new(STORE, Buffers::from([&number])).answered_by(&[8]);
        let (end, _) = import.call_with(call, Direction::Write, block.clone())?.blocking();
        assert_eq!(end?.msg()?.get::<u64>(1)?, 1, "block {n} is stored once");
        let call = Call::new(FETCH, Buffers::from([number]));
        let (end, back) = import.call_with(call, Direction::Read, vec![0; 1 << 20])?.blocking();
        end?;
        assert!(back.is_some_and(|back| back[..] == block[..]), "block {n} comes back");
        println!("block {n}");
    }
    import.disconnect()?;
    Ok(())
}
