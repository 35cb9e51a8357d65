//! A file system whose data are cached: what is written stays here under locks until it is wanted or is old.
//! Names, opens and attributes are those of a visit ([`Mount`]), which keeps no lock on them. What goes
//! where is decided by `lustre_client::visitor::FileCache`; this file hands operations to [`Objects`].

use core::future::{Future as _, poll_fn};
use core::ops::Deref;
use core::pin::pin;
use core::task::Poll;

use lustre_client::osc::OscError;
use lustre_client::visitor::{
    CacheWire, Changes, FileCache, LEAVE_MAX, ObjectAsk, ObjectEnd, OpenFile, Part, VisitError,
    Wire as _,
};
use lustre_wire::Fid;
use lustre_wire::fid::ObjectId;
use ptlrpc::{CallError, ImportConfig};

use crate::mount::{Mount, MountConfig, NodeWire, of_call};
use crate::node::{RpcError, RpcNode};
use crate::objects::{Object, Objects, ObjectsError};

/// A file system, for a program that reads and writes the data of its files behind a cache. All else is
/// [`Mount`]'s, which it stands for: a method here goes before that of the same name there. `truncate` is
/// that one alone: servers lock what they cut off, and call back what is cached here.
///
/// ```text
///  write_at   ends when the bytes are cached under a lock; a later reader, wherever it is, finds them
///  read       finds the last write of any client; what was read is not kept
///  fsync      what was written survives the servers
///  close      what was written survives the servers
/// ```
///
/// Locks that others want are given back on the node's thread, whatever the program does, once what is
/// dirty under them is written back. A target that hears nothing of this client while others wait for its
/// locks evicts it: what was cached is lost then, and the next fsync and the next close of the file each
/// say `EIO`, once. Data on metadata targets are not cached.
#[derive(Debug)]
pub struct CachedMount {
    mount: Mount,
    cache: FileCache<Objects>,
}

impl CachedMount {
    /// As [`Mount::begin`]. Object targets are connected when they are first needed.
    ///
    /// # Errors
    /// As [`Mount::begin`]; another program of the node serves callbacks.
    pub async fn begin(rpc: &RpcNode, config: MountConfig) -> Result<Self, VisitError> {
        let mount = Mount::begin(rpc, config).await?;
        match mount.cache() {
            Ok(cache) => Ok(Self { mount, cache }),
            Err(e) => {
                // Nothing was changed that could be lost.
                let _ = mount.end().await;
                Err(e)
            }
        }
    }

    /// Waits until all that was changed is committed, data of files that are open among it, and ends all
    /// connections in any case.
    ///
    /// # Errors
    /// [`VisitError::DataLost`] names the files that have lost data of which no fsync and no close has spoken;
    /// or as [`Mount::end`].
    pub async fn end(self) -> Result<(), VisitError> {
        let Self { mount, cache } = self;
        let kept = cache.end(&mount).await;
        let ended = mount.end().await;
        kept.and(ended)
    }

    /// Where a file ends, as those say that have written it.
    ///
    /// # Errors
    /// No answer.
    pub async fn size(&self, file: &OpenFile) -> Result<u64, VisitError> {
        self.cache.size(&self.mount, file).await
    }

    /// Reads bytes, up to the end of the file: parts in order, without gap.
    ///
    /// # Errors
    /// Bytes that are lost or damaged, no answer.
    pub async fn read(
        &self,
        file: &OpenFile,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Part>, VisitError> {
        self.cache.read(&self.mount, file, offset, len).await
    }

    /// Writes bytes, objects for them made before where there are none. It ends when they are cached, or,
    /// where a target has promised no space for them, when the target has them.
    ///
    /// # Errors
    /// No space, a file that is not open for writing, no answer: a part of the bytes may be there then.
    pub async fn write_at(
        &self,
        file: &mut OpenFile,
        offset: u64,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), VisitError> {
        self.cache.write(&self.mount, file, offset, bytes).await
    }

    /// Writes bytes behind the end of a file, and says where that was. Another client that appends at the
    /// same time may write there too.
    ///
    /// # Errors
    /// As [`CachedMount::write_at`].
    pub async fn append(
        &self,
        file: &mut OpenFile,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<u64, VisitError> {
        self.cache.append(&self.mount, file, bytes).await
    }

    /// Waits until what was written survives all targets, its name too.
    ///
    /// # Errors
    /// `EIO`, once, if something was lost; [`VisitError::Relaid`]; no answer, or a refusal.
    pub async fn fsync(&self, file: &OpenFile) -> Result<(), VisitError> {
        self.cache.fsync(&self.mount, file).await
    }

    /// Waits until what was written survives the targets, and closes the file in any case.
    ///
    /// # Errors
    /// `EIO`, once, if something was lost; [`VisitError::Relaid`]; no answer, or a refusal.
    pub async fn close(&self, file: OpenFile) -> Result<(), VisitError> {
        self.cache.close(&self.mount, file).await
    }

    /// The same, and changes its attributes: a close says newer times than a user may want.
    ///
    /// # Errors
    /// As [`CachedMount::close`], and a refusal.
    pub async fn close_with_changes(
        &self,
        file: OpenFile,
        changes: &Changes,
    ) -> Result<(), VisitError> {
        self.cache.close_with_changes(&self.mount, file, changes).await
    }
}

impl Deref for CachedMount {
    type Target = Mount;

    fn deref(&self) -> &Mount {
        &self.mount
    }
}

fn of_object(e: ObjectsError) -> CallError {
    match e {
        ObjectsError::Rpc(e) => of_call(e),
        ObjectsError::Begin(OscError::Call(e)) => e,
        ObjectsError::Begin(OscError::Range { .. }) => CallError::Refused(lnet_rt::Errno::EFBIG),
        ObjectsError::Begin(_) => CallError::Refused(lnet_rt::Errno::EAGAIN),
        ObjectsError::Failed(errno) => CallError::Refused(errno),
        ObjectsError::LimitPassed => CallError::LimitPassed,
    }
}

impl NodeWire {
    async fn carried_out(&self, object: Object, ask: ObjectAsk) -> ObjectEnd {
        let ended = match ask {
            ObjectAsk::Write { writer, part, offset, bytes, mtime } => {
                object.write_part_at((writer, part), offset, bytes, mtime).await
            }
            ObjectAsk::Read { offset, len } => {
                let mut buffer = self.buffer(len as usize);
                // Bytes that do not come are not those of another file.
                buffer.fill(0);
                return match object.read_at(offset, buffer).await {
                    Ok((buffer, read)) => {
                        let mut bytes = buffer.into_vec();
                        bytes.truncate(read);
                        ObjectEnd { result: Ok(read as u64), bytes }
                    }
                    Err(e) => of_object(e).into(),
                };
            }
            ObjectAsk::Size => object.size().await,
            ObjectAsk::Fsync(writer) => object.fsync_by(writer).await,
            ObjectAsk::Close(writer) => object.close_by(writer).await,
        };
        ObjectEnd { result: ended.map_err(of_object), bytes: Vec::new() }
    }
}

impl CacheWire for NodeWire {
    type Cache = Objects;

    fn cache(&self, config: ImportConfig) -> Result<Objects, CallError> {
        let ImportConfig { target, client, nids, .. } = config;
        let objects = Objects::new(self.rpc(), &target, &client, nids);
        match objects {
            Err(RpcError::Start { errno, .. }) => Err(CallError::NoDescriptor(errno)),
            made => made.map_err(of_call),
        }
    }

    async fn object(&self, cache: &Objects, id: ObjectId, ask: ObjectAsk) -> ObjectEnd {
        let limit = self.interrupt().limit(self.limit());
        let object = cache.clone().with_limit(limit).open(id);
        // Operations that begin after it are those by which the program lets go of what it has.
        let waits = !self.interrupt().is_raised();
        let (mut ended, mut raised) =
            (pin!(self.carried_out(object, ask)), pin!(self.interrupt().raised()));
        poll_fn(|cx| match ended.as_mut().poll(cx) {
            Poll::Pending if waits && raised.as_mut().poll(cx).is_ready() => {
                Poll::Ready(CallError::Cancelled.into())
            }
            ended => ended,
        })
        .await
    }

    async fn unsettled(&self, cache: &Objects) -> Vec<(ObjectId, Fid)> {
        // What a node has that has stopped is lost, and known to be.
        cache.unsettled().await.unwrap_or_default()
    }

    async fn end_cache(&self, cache: &Objects) {
        // A node that has stopped has no connection left.
        let _ = cache.import().end(self.limit().min(LEAVE_MAX)).await;
    }
}
