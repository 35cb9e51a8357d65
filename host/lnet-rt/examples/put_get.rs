//! Two nodes in one process, over two loopback addresses: PUT with ACK, its event, and GET.

use std::error::Error;

use lnet_rt::{AttachOptions, Buffer, InboxOptions, MatchEntry, Nid, NodeBuilder};

/// A portal and match bits that both sides know.
const PORTAL: u32 = 10;
const BITS: u64 = 0x17;

pub(crate) fn run(port: u16) -> Result<(), Box<dyn Error>> {
    let alice = NodeBuilder::new().tcp("127.0.0.2".parse()?, port).start()?;
    let bob = NodeBuilder::new().tcp("127.0.0.3".parse()?, port).start()?;
    let to_bob: Nid = "127.0.0.3@tcp".parse()?;

    let inbox = bob.inbox(PORTAL, MatchEntry::bits(BITS), InboxOptions::DEFAULT)?;
    let sent = alice.put(to_bob, PORTAL, BITS, "hello, bob").ack().blocking()?;
    println!("alice: bob took {} bytes", sent.mlength);
    let got = inbox.recv_blocking().ok_or("nothing came")?;
    println!("bob: {:?} from {}", str::from_utf8(&got)?, got.event.initiator);

    let entry = MatchEntry::bits(BITS + 1);
    let _shelf = bob.attach(PORTAL, entry, "a book on bob's shelf", AttachOptions::GET)?;
    let read = alice.get(to_bob, PORTAL, BITS + 1, Buffer::zeroed(64)).blocking()?;
    println!("alice: read {:?}", str::from_utf8(&read.buffer[..read.mlength as usize])?);
    Ok(())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    run(7988)
}
