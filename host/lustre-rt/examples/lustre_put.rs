//! Writes standard input to a new file of a Lustre file system, by way of a cache, and waits until it is on
//! stable storage with its name: `cargo run --example lustre_put 127.0.0.9 10.0.0.1@tcp:/lfs/data/f1 [PORT] < f1`.

use std::io::Read as _;
use std::time::Duration;

use lnet_rt::NodeBuilder;
use lustre_rt::visitor::{Access, Create, Identity, OpenHow, Place};
use lustre_rt::{CachedMount, MountConfig, RpcNode, wait};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [source, place, rest @ ..] = words.as_slice() else { return Err("SOURCE PLACE".into()) };
    let (place, port): (Place, u16) =
        (place.parse()?, rest.first().map_or(Ok(988), |p| p.parse())?);
    let mut names = place.path.rsplitn(2, |byte| *byte == b'/');
    let name = names.next().unwrap_or_default();
    let dir = names.next().ok_or("a path below the root")?;
    let node = NodeBuilder::new().tcp(source.parse()?, port).start()?;
    let rpc = RpcNode::start(&node, Default::default())?;
    let config = MountConfig {
        mgs: place.nids(),
        fsname: place.fsname.clone(),
        client: format!("put-{}", std::process::id()),
        who: Identity { umask: 0o22, ..Identity::default() },
        access: Access::Change,
        limit: Duration::from_secs(60),
        interrupt: Default::default(),
        pace: Default::default(),
    };
    wait(async {
        let mount = CachedMount::begin(&rpc, config).await?;
        let dir = mount.find(dir, true).await?;
        let create = Create { mode: 0o666, exclusive: true, ..Create::default() };
        let mut file = mount.create(&dir, name, OpenHow::WRITE, &create).await?;
        let mut input = std::io::stdin().lock();
        loop {
            // The cache takes them without a copy, and writes them back while more is read.
            let mut bytes = Vec::new();
            if input.by_ref().take(4 << 20).read_to_end(&mut bytes)? == 0 {
                break;
            }
            let end = file.size();
            mount.write_at(&mut file, end, bytes).await?;
        }
        mount.fsync(&file).await?;
        mount.close(file).await?;
        mount.end().await?;
        Ok(())
    })
}
