//! Data of files behind caches: each object target by a client that has dirty data under locks
//! ([`crate::osc`]). Names, opens, layouts and data on metadata targets stay the visitor's; what it asks of
//! objects (sizes, cuts) goes to the same objects as the request of another client, and is answered by what
//! is cached here.

use core::future::Future;
use core::ops::Range;
use std::collections::BTreeMap;

use lnet_types::Errno;
use lustre_wire::fid::ObjectId;
use lustre_wire::{Fid, ImportKind};
use ptlrpc::{CallError, ImportConfig};

use super::join::join;
use super::runs::{Run, runs};
use super::stripes::{FileLayout, FileObject, Spot};
use super::{Changes, IN_FLIGHT, LayoutError, OpenFile, Part, VisitError, Visitor, Wire, ost};
use crate::osc::{FilePart, Writer, wanted};

/// What the uuid of a caching client has behind that of its visit.
pub const CACHING: &str = "+c";

/// An operation on an object.
#[derive(Clone, Debug)]
pub enum ObjectAsk {
    /// It ends when the bytes are cached, or are on the target.
    Write {
        /// Who writes.
        writer: Writer,
        /// What the object is part of.
        part: FilePart,
        /// The first byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// When they were changed, seconds since 1970; now if not given.
        mtime: Option<i64>,
    },
    /// Fewer come where the object ends.
    Read {
        /// The first byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// Where the object ends.
    Size,
    /// What was written survives the target, or was lost.
    Fsync(Writer),
    /// What was written is on the target, or was lost.
    Close(Writer),
}

/// How it has ended.
#[derive(Clone, Debug)]
pub struct ObjectEnd {
    /// How many bytes, or the size.
    pub result: Result<u64, CallError>,
    /// What was read.
    pub bytes: Vec<u8>,
}

impl From<CallError> for ObjectEnd {
    fn from(error: CallError) -> Self {
        Self { result: Err(error), bytes: Vec::new() }
    }
}

/// What a visit with caches stands on besides its calls.
pub trait CacheWire: Wire {
    /// A caching client of one object target.
    type Cache: Send + Sync;

    /// A client of an object target, which connects with its first operation.
    ///
    /// # Errors
    /// As [`Wire::link`].
    fn cache(&self, config: ImportConfig) -> Result<Self::Cache, CallError>;

    /// An operation on an object. It ends within a bound that the host knows.
    fn object(
        &self,
        cache: &Self::Cache,
        id: ObjectId,
        ask: ObjectAsk,
    ) -> impl Future<Output = ObjectEnd> + Send;

    /// Objects with data that their target does not have, may still lose, or has lost without a word so far,
    /// each with its file ([`crate::osc::Osc::unsettled`]).
    fn unsettled(&self, cache: &Self::Cache) -> impl Future<Output = Vec<(ObjectId, Fid)>> + Send;

    /// Ends its connection.
    fn end_cache(&self, cache: &Self::Cache) -> impl Future<Output = ()> + Send;
}

/// Caches of data, one for each object target. Other clients find what is in them, whatever the program
/// does; what a target has not got when it evicts this client is lost, and the next fsync and the close of each
/// open file that has written say so, once.
///
/// ```text
///  write ends when the bytes are cached     fsync, close when they survive servers
/// ```
#[derive(Debug)]
pub struct FileCache<C>(BTreeMap<u32, Target<C>>);

#[derive(Debug)]
struct Target<C> {
    uuid: String,
    cache: C,
}

impl<W: CacheWire> Visitor<W> {
    /// Caches for the data of this visit's files. All of a file's data go by them, or none.
    ///
    /// # Errors
    /// A uuid that is too long, a node that has stopped.
    pub fn cache(&self) -> Result<FileCache<W::Cache>, VisitError> {
        let active = self.osts.iter().filter(|(_, remote)| remote.link.is_some());
        let one = |(index, remote): (&u32, &super::Remote<W::Link>)| {
            let config = ImportConfig {
                kind: ImportKind::Osc,
                target: remote.uuid.clone(),
                client: format!("{}{CACHING}", self.client),
                nids: remote.nids.clone(),
                wanted: wanted(),
            };
            let uuid = remote.uuid.clone();
            match self.wire.cache(config) {
                Ok(cache) => Ok((*index, Target { uuid, cache })),
                Err(error) => Err(VisitError::Call { target: uuid, error }),
            }
        };
        Ok(FileCache(active.map(one).collect::<Result<_, _>>()?))
    }
}

/// The layout that a metadata target shows, or why it is of no use.
type Shown = Result<FileLayout, LayoutError>;

fn layout(file: &OpenFile) -> Result<&FileLayout, VisitError> {
    file.layout().map_err(|e| VisitError::Layout(*e))
}

impl<C: Send + Sync> FileCache<C> {
    async fn ask<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        object: FileObject,
        ask: ObjectAsk,
    ) -> Result<(u64, Vec<u8>), VisitError> {
        let index = object.ost;
        let target = self.0.get(&index).ok_or(VisitError::NoTarget { kind: "OST", index })?;
        let ObjectEnd { result, bytes } = visitor.wire.object(&target.cache, object.id, ask).await;
        let uuid = || target.uuid.clone();
        match result {
            Ok(count) => Ok((count, bytes)),
            Err(CallError::Refused(errno)) => Err(VisitError::Refused { target: uuid(), errno }),
            Err(error) => Err(VisitError::Call { target: uuid(), error }),
        }
    }

    /// Where a file ends, as those say that have written it.
    ///
    /// # Errors
    /// No answer.
    pub async fn size<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &OpenFile,
    ) -> Result<u64, VisitError> {
        Ok(self.measured(visitor, file).await?.0)
    }

    /// Where a file ends, and the layout by which it does, unless that is the one of its open.
    async fn measured<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &OpenFile,
    ) -> Result<(u64, Option<Shown>), VisitError> {
        match self.measured_for(visitor, file, 0..u64::MAX).await {
            // Its objects, or one of its mirrors, are not there any more.
            Err(e) if e.is_of_a_target() => {
                let (node, shown) = visitor.laid_out(file.fid).await?;
                let all = visitor.why_gone(file, visitor.attributes(&node).await).await?;
                Ok((all.size, Some(shown)))
            }
            end => end.map(|(size, layout)| (size, layout.map(Ok))),
        }
    }

    /// The same for a range that is to be read: one by objects that are there, before the end that these
    /// prove, needs no other layout. What another client has made objects for since is not in that of the
    /// open, and would be taken for a hole (C-195).
    async fn measured_for<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &OpenFile,
        range: Range<u64>,
    ) -> Result<(u64, Option<FileLayout>), VisitError> {
        let known = layout(file)?;
        let grows = known.may_grow();
        let in_hole = grows && known.is_to_be_made(range.start, range.end);
        if known.on_mdt().is_none() && !in_hole {
            let size = self.size_by(visitor, known).await?;
            // Of mirrors another one may have what was written since (C-190).
            if known.others.is_empty() && (!grows || range.end <= size) {
                return Ok((size, None));
            }
        }
        let (node, shown) = visitor.laid_out(file.fid).await?;
        let layout = shown?;
        let size = match layout.on_mdt() {
            Some(_) => visitor.attributes(&node).await?.size,
            None => self.size_by(visitor, &layout).await?,
        };
        Ok((size, Some(layout)))
    }

    /// Where the objects of a layout say that a file ends.
    async fn size_by<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        layout: &FileLayout,
    ) -> Result<u64, VisitError> {
        let one = |(component, stripe, object): (usize, usize, Option<FileObject>)| async move {
            let component = layout.components.get(component);
            let start = component.map_or(0, |component| component.start);
            let object = object.ok_or(VisitError::Lost { offset: start })?;
            let (size, _) = self.ask(visitor, object, ObjectAsk::Size).await?;
            Ok::<_, VisitError>(component.map_or(0, |component| component.size_of(stripe, size)))
        };
        let sizes = join(layout.objects().map(one), IN_FLIGHT).await;
        let sizes = sizes.into_iter().collect::<Result<Vec<u64>, _>>()?;
        Ok(sizes.into_iter().max().unwrap_or(0))
    }

    /// Reads bytes, up to the end of the file: parts in order, without gap. Where the objects are gone, or
    /// another mirror may have the data, as a visitor does: its requests are those of another client, and
    /// what is cached here is written back before.
    ///
    /// # Errors
    /// As [`Visitor::read`].
    pub async fn read<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &OpenFile,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Part>, VisitError> {
        let failed = match self.read_cached(visitor, file, offset, len).await {
            Err(e) if e.is_of_a_target() => e,
            end => return end,
        };
        let gone = matches!(failed, VisitError::Refused { errno: Errno::ENOENT, .. });
        if !gone && layout(file)?.others.is_empty() {
            return Err(failed);
        }
        let (node, shown) = visitor.laid_out(file.fid).await?;
        let size = visitor.attributes(&node).await?.size;
        visitor.read_whole(file, &shown?, offset, len.min(size.saturating_sub(offset))).await
    }

    async fn read_cached<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &OpenFile,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Part>, VisitError> {
        let range = offset..offset.saturating_add(len);
        let (size, newer) = self.measured_for(visitor, file, range).await?;
        let by = newer.as_ref().map_or_else(|| layout(file), Ok)?;
        let len = len.min(size.saturating_sub(offset));
        let all = runs(by, offset, len, ost::DATA_MAX.into());
        let one = |run| self.read_run(visitor, file, run);
        let read = join(all.into_iter().map(one), IN_FLIGHT).await;
        let read = read.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut parts: Vec<Part> = read.into_iter().flatten().collect();
        parts.sort_by_key(|part| part.offset);
        Ok(parts)
    }

    async fn read_run<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &OpenFile,
        run: Run,
    ) -> Result<Vec<Part>, VisitError> {
        let Spot::Object { object, offset, .. } = run.at else {
            return visitor.read_run(file, run).await;
        };
        // A run is no longer than a request.
        let len = u32::try_from(run.len).unwrap_or(u32::MAX);
        let (_, bytes) = self.ask(visitor, object, ObjectAsk::Read { offset, len }).await?;
        Ok(run.parts(bytes))
    }

    /// Writes bytes, objects for them made before where there are none.
    ///
    /// # Errors
    /// As [`Visitor::write_at`].
    pub async fn write<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &mut OpenFile,
        offset: u64,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), VisitError> {
        let bytes = bytes.into();
        let len = bytes.len() as u64;
        let end = file.write_end(offset, len)?;
        // No bytes: the file stays as long as it is.
        if len == 0 {
            return Ok(());
        }
        visitor.prepare(file, offset, end).await?;
        let file = &*file;
        // A part of it may be there although the whole fails.
        file.wrote(0, false);
        let all = runs(layout(file)?, offset, len, ost::DATA_MAX.into());
        let all = visitor.cut_up(bytes, offset, all);
        let one = |(run, bytes)| self.write_run(visitor, file, run, bytes);
        let written = join(all.into_iter().map(one), IN_FLIGHT).await;
        visitor.why_gone(file, written.into_iter().collect::<Result<(), _>>()).await?;
        file.wrote(end, false);
        Ok(())
    }

    async fn write_run<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &OpenFile,
        run: Run,
        bytes: Vec<u8>,
    ) -> Result<(), VisitError> {
        let Spot::Object { object, .. } = run.at else {
            return visitor.write_run(file, run, bytes, false).await;
        };
        let mdt = visitor.mdt_of(file.fid).await?;
        let (of, offset) = visitor.holder(file, mdt, run.at)?;
        let part = FilePart {
            file: of.file,
            stripe: of.stripe,
            layout: of.layout,
            payer: of.payer,
            privileged: visitor.who.is_root(),
        };
        let (writer, mtime) = (Writer::File(file.handle), file.mtime);
        let ask = ObjectAsk::Write { writer, part, offset, bytes, mtime };
        self.ask(visitor, object, ask).await.map(|_| ())
    }

    /// Ends an operation of all objects of a file.
    async fn each<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &OpenFile,
        ask: &ObjectAsk,
    ) -> Result<(), VisitError> {
        let objects = layout(file)?.objects().filter_map(|(.., object)| object);
        let one = |object| async move { self.ask(visitor, object, ask.clone()).await.map(|_| ()) };
        // All of them, and the first error: each says only once what was lost.
        let ended = join(objects.map(one), IN_FLIGHT).await;
        visitor.why_gone(file, ended.into_iter().collect::<Result<(), _>>()).await
    }

    /// Writes bytes behind the end of a file, and says where that was. Another client that appends at the
    /// same time may write there too.
    ///
    /// # Errors
    /// As [`FileCache::write`].
    pub async fn append<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &mut OpenFile,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<u64, VisitError> {
        let (end, shown) = self.measured(visitor, file).await?;
        // The write goes by the layout that this end was found by.
        if let Some(shown) = shown {
            let written = file.is_written();
            file.follow(shown, written);
        }
        self.write(visitor, file, end, bytes).await?;
        Ok(end)
    }

    /// Waits until what was written survives all targets, its name too.
    ///
    /// # Errors
    /// `EIO`, once, if something was lost; [`VisitError::Relaid`]; no answer, or a refusal.
    pub async fn fsync<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: &OpenFile,
    ) -> Result<(), VisitError> {
        self.each(visitor, file, &ObjectAsk::Fsync(Writer::File(file.handle))).await?;
        visitor.fsync(file).await
    }

    /// Waits until what was written survives the targets, and closes the file in any case.
    ///
    /// # Errors
    /// `EIO`, once, if something was lost; [`VisitError::Relaid`]; no answer, or a refusal.
    pub async fn close<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: OpenFile,
    ) -> Result<(), VisitError> {
        let flushed = self.each(visitor, &file, &ObjectAsk::Close(Writer::File(file.handle))).await;
        let closed = visitor.close(file).await;
        flushed.and(closed)
    }

    /// The same, and changes its attributes.
    ///
    /// # Errors
    /// As [`FileCache::close`] and [`Visitor::change`].
    pub async fn close_with_changes<W: CacheWire<Cache = C>>(
        &self,
        visitor: &Visitor<W>,
        file: OpenFile,
        changes: &Changes,
    ) -> Result<(), VisitError> {
        let flushed = self.each(visitor, &file, &ObjectAsk::Close(Writer::File(file.handle))).await;
        let closed = visitor.close_with_changes(file, changes).await;
        flushed.and(closed)
    }

    /// Waits until what was written survives all targets, also of files that were not closed, and ends all
    /// connections in any case.
    ///
    /// # Errors
    /// [`VisitError::DataLost`]: files of which something was lost that no fsync and no close has said.
    pub async fn end<W: CacheWire<Cache = C>>(
        self,
        visitor: &Visitor<W>,
    ) -> Result<(), VisitError> {
        let all: Vec<_> = self.0.values().map(|t| Self::settle(visitor, t)).collect();
        let settled = join(all, usize::MAX).await;
        let mut files: Vec<(Fid, Errno)> = settled.into_iter().flatten().collect();
        files.sort_by_key(|(Fid { seq, oid, .. }, _)| (*seq, *oid));
        files.dedup_by_key(|(file, _)| *file);
        let all: Vec<_> = self.0.values().map(|t| visitor.wire.end_cache(&t.cache)).collect();
        join(all, usize::MAX).await;
        match files.is_empty() {
            true => Ok(()),
            false => Err(VisitError::DataLost { files }),
        }
    }

    /// Brings all data to a target: the files of which it could not.
    async fn settle<W: CacheWire<Cache = C>>(
        visitor: &Visitor<W>,
        target: &Target<C>,
    ) -> Vec<(Fid, Errno)> {
        let one = |(id, file): (ObjectId, Fid)| async move {
            let end = visitor.wire.object(&target.cache, id, ObjectAsk::Fsync(Writer::Every)).await;
            match end.result {
                Ok(_) => None,
                // An object goes with its file, and nothing is lost then.
                Err(e) if e.errno() == Errno::ENOENT => {
                    visitor.node_of(file).await.ok().map(|_| (file, Errno::EIO))
                }
                Err(e) => Some((file, e.errno())),
            }
        };
        let first = visitor.wire.unsettled(&target.cache).await.into_iter().next();
        let Some(first) = first else { return Vec::new() };
        let first = one(first).await;
        // Most targets have committed with the one what was written to others before.
        let rest = visitor.wire.unsettled(&target.cache).await;
        let rest: Vec<_> = rest.into_iter().map(one).collect();
        let rest = join(rest, IN_FLIGHT).await;
        first.into_iter().chain(rest.into_iter().flatten()).collect()
    }
}
