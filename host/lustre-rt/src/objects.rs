//! Objects of a target for programs that cache: what is written stays here under locks until another
//! client wants it. What is decided about data stands in `lustre_client::osc`; here are its operations
//! as values to be waited for. What runs on the node's thread is in `seats.rs`.

use core::fmt;
use core::future::{Future, IntoFuture};
use core::pin::Pin;
use core::time::Duration;
use std::sync::PoisonError;
use std::time::{SystemTime, UNIX_EPOCH};

use async_channel::{Receiver, bounded};
use lnet_rt::{Buffer, Errno, Nid, OpError, RegionId, Stack};
use lnet_types::IoVec;
use lustre_client::osc::{
    Cx, FilePart, LockWaits, OpId, Osc, OscConfig, OscError, OscStats, Writer, wanted,
};
use lustre_wire::fid::ObjectId;
use lustre_wire::{Fid, ImportKind};
use ptlrpc::ImportConfig;

use crate::host::Host;
use crate::node::{Import, RpcError, RpcNode};
use crate::obj::{ObjClient, ObjError};
use crate::seats::{Ended, Waiting};

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectsError {
    /// The node has stopped, or has too much to do.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// It can't begin.
    #[error(transparent)]
    Begin(#[from] OscError),
    /// It ended with this error. `EIO` of fsync and close: data was lost.
    #[error("{0}")]
    Failed(Errno),
    /// It did not end within the limit. It goes on: a write may still happen.
    #[error("not done within the limit")]
    LimitPassed,
}

impl From<OpError> for ObjectsError {
    fn from(e: OpError) -> Self {
        Self::Rpc(e.into())
    }
}

/// The client of one object target. Clones are the same one: they share its cache.
///
/// ```text
///  write_at   ends when the bytes are cached under a lock; a later reader, wherever it is, finds them
///  read_at    finds the last write of any client
///  fsync      what was written survives the target; close says as well if something was lost
/// ```
///
/// A target that hears nothing of this client while others wait for its locks evicts it. What was cached
/// is lost then, and the next [`Object::fsync`] and the next [`Object::close`] of the object each say
/// `EIO`, once. Callbacks are answered on the node's thread, whatever the program does meanwhile.
#[derive(Clone, Debug)]
pub struct Objects {
    node: RpcNode,
    import: Import,
    limit: Option<Duration>,
}

/// An object. It is not asked for before the first operation. What is cached of it when it is dropped
/// without [`Object::close`] goes to the target in time, and no error is reported.
#[derive(Clone, Debug)]
pub struct Object {
    objects: Objects,
    id: ObjectId,
}

impl Objects {
    /// The client of `target`, which one of `nids` serves. It connects with its first operation. No
    /// other client has the same `uuid`.
    ///
    /// # Errors
    /// A uuid that is empty or too long, no NID; another program of the node serves callbacks.
    pub fn new(rpc: &RpcNode, target: &str, uuid: &str, nids: Vec<Nid>) -> Result<Self, RpcError> {
        Self::with_config(rpc, target, uuid, nids, OscConfig::default())
    }

    /// The same with limits of its own.
    ///
    /// # Errors
    /// As [`Objects::new`].
    pub fn with_config(
        rpc: &RpcNode,
        target: &str,
        uuid: &str,
        nids: Vec<Nid>,
        config: OscConfig,
    ) -> Result<Self, RpcError> {
        let import = rpc.import(ImportConfig {
            kind: ImportKind::Osc,
            target: target.to_owned(),
            client: uuid.to_owned(),
            nids,
            wanted: wanted(),
        })?;
        let id = import.id();
        let opened = rpc.run(move |host, below| {
            host.locks.open(id, &mut host.ptlrpc.rpc(below))?;
            host.seats.open(Osc::new(id, config));
            Ok(())
        })?;
        let what = "service of callbacks".to_owned();
        opened.map_err(|errno| RpcError::Start { what, errno })?;
        Ok(Self { node: rpc.clone(), import, limit: None })
    }

    /// The same client, whose operations fail with [`ObjectsError::LimitPassed`] when they have not
    /// ended after so long.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The connection.
    pub const fn import(&self) -> &Import {
        &self.import
    }

    /// Makes one more object on the target, and waits for it.
    ///
    /// # Errors
    /// Why there is no answer, or the target's refusal.
    pub fn create(&self) -> Result<ObjectId, ObjError> {
        ObjClient::over(self.import.clone(), self.limit).create()
    }

    /// An object, to be worked on.
    pub fn open(&self, id: ObjectId) -> Object {
        Object { objects: self.clone(), id }
    }

    /// What was counted, how long locks were waited for, and how many bytes are dirty.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn stats(&self) -> Result<(OscStats, LockWaits, u64), OpError> {
        let id = self.import.id();
        let of = |osc: &Osc| (osc.stats(), osc.lock_waits().clone(), osc.dirty());
        Ok(self.node.run(move |host, _| host.seats.osc(id).map(of))?.unwrap_or_default())
    }

    /// Objects with data that their target does not have, may still lose, or has lost without a word so far.
    pub(crate) async fn unsettled(&self) -> Option<Vec<(ObjectId, Fid)>> {
        let id = self.import.id();
        self.node.ask(move |host| host.seats.osc(id).map(Osc::unsettled)).await.flatten()
    }

    /// Ends the connection. What is still cached is lost: so many bytes. What was written and not synced the
    /// target may still lose.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn disconnect(self) -> Result<u64, OpError> {
        let dirty = self.stats()?.2;
        self.import.disconnect()?;
        Ok(dirty)
    }

    /// Begins an operation, on the node's thread. `buffer` is lent until it is not needed any more.
    fn begin(
        &self,
        buffer: Option<Buffer>,
        reads: bool,
        f: impl FnOnce(&mut Osc, IoVec, &mut Cx<'_, '_, '_>) -> Result<OpId, OscError> + Send + 'static,
    ) -> Begun {
        self.begin_heard(None, buffer, reads, f)
    }

    /// The same of an operation that says what was lost of an object: if its program has gone away, the next
    /// one says it.
    fn begin_heard(
        &self,
        hears: Option<(Writer, ObjectId)>,
        buffer: Option<Buffer>,
        reads: bool,
        f: impl FnOnce(&mut Osc, IoVec, &mut Cx<'_, '_, '_>) -> Result<OpId, OscError> + Send + 'static,
    ) -> Begun {
        let (tx, end) = bounded(1);
        let (import, limit, upper) = (self.import.id(), self.limit, self.node.upper);
        let freed = self.node.freed.clone();
        let began = self.node.handle.call(move |stack: &mut Stack, _| {
            freed.reclaim(stack);
            let (mut region, mut memory) = (None, IoVec::new());
            if let Some(buffer) = buffer {
                let Ok(lent) = stack.lend(buffer) else {
                    // A program that has gone away wants nothing any more.
                    let _ = tx.try_send(Ended::refused(RpcError::Full("memory").into()));
                    return;
                };
                (memory, region) = (stack.region(lent), Some(lent));
            }
            stack.with_upper(upper, |host: &mut Host, below| {
                let due = limit.map(|limit| below.now() + limit);
                let region_read = region.filter(|_| reads);
                let waiting = Waiting { end: tx, region: region_read, due, hears };
                let Host { ptlrpc, locks, seats, .. } = host;
                let mut rpc = ptlrpc.rpc(below);
                let cx = &mut Cx { locks, rpc: &mut rpc };
                if !seats.begin(import, waiting, cx, |osc, cx| f(osc, memory, cx)) {
                    freed.extend(region);
                }
                host.drain(below);
            });
            freed.reclaim(stack);
        });
        Begun { node: self.node.clone(), began, end }
    }
}

/// Seconds since 1970.
fn now() -> Option<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

impl Object {
    /// Its name.
    pub const fn id(&self) -> ObjectId {
        self.id
    }

    /// Writes bytes from `offset` on. It ends, with their number, when they are cached, or, where the
    /// target has promised no space for them, when the target has them. The bytes are not copied.
    pub fn write_at(&self, offset: u64, bytes: impl Into<Buffer>) -> ObjectOp {
        let (id, mtime) = (self.id, now());
        ObjectOp(self.objects.begin(Some(bytes.into()), false, move |osc, memory, cx| {
            osc.write(id, offset, memory, mtime, cx)
        }))
    }

    /// The same to an object that is part of a file, which the target is to know.
    pub(crate) fn write_part_at(
        &self,
        (writer, part): (Writer, FilePart),
        offset: u64,
        bytes: impl Into<Buffer>,
        mtime: Option<i64>,
    ) -> ObjectOp {
        let (id, mtime) = (self.id, mtime.or_else(now));
        ObjectOp(self.objects.begin(Some(bytes.into()), false, move |osc, memory, cx| {
            osc.write_part(writer, (id, part), offset, memory, mtime, cx)
        }))
    }

    /// Reads bytes from `offset` on into `buffer`, as many as it holds. Fewer come back where the object
    /// ends.
    pub fn read_at(&self, offset: u64, buffer: impl Into<Buffer>) -> ObjectRead {
        let id = self.id;
        ObjectRead(self.objects.begin(Some(buffer.into()), true, move |osc, memory, cx| {
            osc.read(id, offset, memory, cx)
        }))
    }

    /// Where the object ends, which clients that have cached data know better than the target.
    pub fn size(&self) -> ObjectOp {
        let id = self.id;
        ObjectOp(self.objects.begin(None, false, move |osc, _, cx| osc.size(id, cx)))
    }

    /// Cuts the object off at `size`, or extends it with zeros.
    pub fn truncate(&self, size: u64) -> ObjectOp {
        let id = self.id;
        ObjectOp(self.objects.begin(None, false, move |osc, _, cx| osc.punch(id, size, cx)))
    }

    /// Waits until what was written before survives the target. Fails with `EIO`, once, if data was lost
    /// since the last time.
    pub fn fsync(&self) -> ObjectOp {
        self.fsync_by(Writer::Program)
    }

    pub(crate) fn fsync_by(&self, writer: Writer) -> ObjectOp {
        let id = self.id;
        ObjectOp(self.objects.begin_heard(Some((writer, id)), None, false, move |osc, _, cx| {
            osc.fsync_by(writer, id, cx)
        }))
    }

    /// The program is done with the object: waits until the target has what was written. Fails with
    /// `EIO`, once, if data was lost since the last time.
    pub fn close(self) -> ObjectOp {
        self.close_by(Writer::Program)
    }

    pub(crate) fn close_by(self, writer: Writer) -> ObjectOp {
        let id = self.id;
        ObjectOp(self.objects.begin_heard(Some((writer, id)), None, false, move |osc, _, cx| {
            osc.close_by(writer, id, cx)
        }))
    }
}

/// An operation under way. It goes on if this is dropped.
struct Begun {
    node: RpcNode,
    /// Its way to the node's thread.
    began: lnet_rt::Call<()>,
    end: Receiver<Ended>,
}

impl Begun {
    fn blocking(self) -> Ended {
        if self.node.is_here() {
            return Ended::refused(OpError::WouldDeadlock.into());
        }
        let Self { began, end, .. } = self;
        end.recv_blocking().unwrap_or_else(|_| {
            let never = began.blocking().err().unwrap_or(OpError::Stopped);
            Ended::refused(never.into())
        })
    }

    async fn wait(self) -> Ended {
        let Self { began, end, .. } = self;
        match end.recv().await {
            Ok(ended) => ended,
            Err(_) => Ended::refused(began.await.err().unwrap_or(OpError::Stopped).into()),
        }
    }
}

/// An operation under way: await it, or wait for it with [`ObjectOp::blocking`]. A write says how many
/// bytes, a query of the size the size, the others 0. It goes on if this is dropped.
#[must_use = "how an operation ends is only seen when it is awaited or waited for"]
pub struct ObjectOp(Begun);

impl fmt::Debug for ObjectOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectOp").finish_non_exhaustive()
    }
}

impl ObjectOp {
    /// Waits for the end on this thread.
    ///
    /// # Errors
    /// [`ObjectsError`]; [`OpError::WouldDeadlock`] on the node's own thread.
    pub fn blocking(self) -> Result<u64, ObjectsError> {
        self.0.blocking().result
    }
}

impl IntoFuture for ObjectOp {
    type Output = Result<u64, ObjectsError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.0.wait().await.result })
    }
}

/// A read under way: await it, or wait for it with [`ObjectRead::blocking`]. The buffer comes back with
/// the number of bytes that were read.
#[must_use = "what was read is only seen when it is awaited or waited for"]
pub struct ObjectRead(Begun);

impl fmt::Debug for ObjectRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectRead").finish_non_exhaustive()
    }
}

/// The memory of a read that has ended is the program's again.
fn take_back(node: &RpcNode, region: Option<RegionId>) -> Option<lnet_rt::Call<Option<Buffer>>> {
    region.map(|region| node.handle.call(move |stack, _| stack.take_back(region).ok()))
}

/// What the program of a read gets.
fn of_read(
    result: Result<u64, ObjectsError>,
    buffer: Option<Buffer>,
) -> <ObjectRead as IntoFuture>::Output {
    let (read, buffer) = (result?, buffer.ok_or(OpError::Stopped)?);
    // As many as there is room for at most.
    Ok((buffer, usize::try_from(read).unwrap_or(usize::MAX)))
}

impl ObjectRead {
    /// Waits for the end on this thread.
    ///
    /// # Errors
    /// [`ObjectsError`]; [`OpError::WouldDeadlock`] on the node's own thread.
    pub fn blocking(self) -> Result<(Buffer, usize), ObjectsError> {
        let node = self.0.node.clone();
        let Ended { result, region } = self.0.blocking();
        let buffer = take_back(&node, region).and_then(|taken| taken.blocking().ok().flatten());
        of_read(result, buffer)
    }
}

impl IntoFuture for ObjectRead {
    type Output = Result<(Buffer, usize), ObjectsError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let node = self.0.node.clone();
            let Ended { result, region } = self.0.wait().await;
            let buffer = match take_back(&node, region) {
                Some(taken) => taken.await.ok().flatten(),
                None => None,
            };
            of_read(result, buffer)
        })
    }
}

/// Memory of a caller that the node has. A caller that has gone away takes nothing back: it is freed then.
#[derive(Debug)]
pub(crate) struct Lent {
    region: Option<RegionId>,
    freed: Freed,
}

impl Lent {
    pub(crate) const fn new(region: RegionId, freed: Freed) -> Self {
        Self { region: Some(region), freed }
    }

    /// The memory, for its caller.
    pub(crate) fn take_back(mut self, stack: &mut Stack) -> Option<Buffer> {
        stack.take_back(self.region.take()?).ok()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(region) = self.region {
            self.freed.extend([region]);
        }
    }
}

/// Regions whose bytes no operation needs any more. A node that has too much to do takes them back when
/// it has less.
#[derive(Clone, Debug, Default)]
pub(crate) struct Freed(std::sync::Arc<std::sync::Mutex<Vec<RegionId>>>);

impl Freed {
    pub(crate) fn extend(&self, regions: impl IntoIterator<Item = RegionId>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(regions);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Gives them back to the host.
    pub(crate) fn reclaim(&self, stack: &mut Stack) {
        let regions = core::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for region in regions {
            // No descriptor stands on it: the operations that used it have ended.
            drop(stack.take_back(region));
        }
    }
}
