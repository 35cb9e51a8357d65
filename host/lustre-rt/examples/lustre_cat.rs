//! Writes a file of a Lustre file system to standard output:
//! `cargo run --example lustre_cat 127.0.0.9 10.0.0.1@tcp:/lfs/data/f1 [PORT]`.

use std::io::Write as _;
use std::time::Duration;

use lnet_rt::NodeBuilder;
use lustre_rt::visitor::{Access, Identity, Place};
use lustre_rt::{Mount, MountConfig, RpcNode, wait};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [source, place, rest @ ..] = words.as_slice() else { return Err("SOURCE PLACE".into()) };
    let (place, port): (Place, u16) =
        (place.parse()?, rest.first().map_or(Ok(988), |p| p.parse())?);
    let node = NodeBuilder::new().tcp(source.parse()?, port).start()?;
    let rpc = RpcNode::start(&node, Default::default())?;
    let config = MountConfig {
        mgs: place.nids(),
        fsname: place.fsname.clone(),
        client: format!("cat-{}", std::process::id()),
        who: Identity::default(),
        access: Access::Read,
        limit: Duration::from_secs(60),
        interrupt: Default::default(),
        pace: Default::default(),
    };
    wait(async {
        let mount = Mount::begin(&rpc, config).await?;
        let file = mount.open_file(&mount.find(&place.path, true).await?).await?;
        for at in (0..file.size()).step_by(4 << 20) {
            for part in mount.read(&file, at, 4 << 20).await? {
                let hole = vec![0; part.len as usize - part.bytes.len()];
                std::io::stdout().write_all(&[part.bytes, hole].concat())?;
            }
        }
        mount.close(file).await?;
        mount.end().await?;
        Ok(())
    })
}
