//! A server that sends back what it gets, and a client that asks it: async, on any executor.

use std::error::Error;

use lnet_rt::{Inbox, InboxOptions, MatchEntry, Nid, NodeBuilder, NodeHandle, OpFailed, block_on};

const REQUESTS: u32 = 11;
const REPLIES: u32 = 12;

/// Answers `count` requests. The reply's match bits are those that the request's header data ask for.
async fn serve(node: NodeHandle, inbox: Inbox, count: usize) -> Result<(), OpFailed> {
    for _ in 0..count {
        let Some(request) = inbox.recv().await else { break };
        println!("server: {} bytes from {}", request.len(), request.event.initiator);
        node.put(request.event.initiator, REPLIES, request.event.hdr_data, &request[..]).await?;
    }
    Ok(())
}

pub(crate) fn run(port: u16) -> Result<(), Box<dyn Error>> {
    let server = NodeBuilder::new().tcp("127.0.0.4".parse()?, port).start()?;
    let client = NodeBuilder::new().tcp("127.0.0.5".parse()?, port).start()?;
    // Posted before the first request: what matches nothing is dropped.
    let inbox = server.inbox(REQUESTS, MatchEntry::bits(1), InboxOptions::DEFAULT)?;
    let serving = std::thread::spawn(move || block_on(serve(server, inbox, 3)));
    let to_server: Nid = "127.0.0.4@tcp".parse()?;
    block_on(async {
        let small = InboxOptions { buffer_bytes: 4096, ..InboxOptions::DEFAULT };
        let replies = client.inbox_async(REPLIES, MatchEntry::bits(7), small).await?;
        for text in ["one", "two", "three"] {
            client.put(to_server, REQUESTS, 1, text).hdr_data(7).await?;
            let reply = replies.recv().await.ok_or("the server is gone")?;
            println!("client: {text:?} came back as {:?}", str::from_utf8(&reply)?);
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    Ok(serving.join().map_err(|_| "the server died")??)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    run(7988)
}
