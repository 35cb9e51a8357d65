//! Data of files behind a cache: each object by a client that has dirty data under locks
//! (`lustre_client::osc`), which is what `lustre_rt::Objects` runs on a real node. Names, opens and layouts
//! are a visitor's; its requests for data and sizes go to the same objects as those of another client.

use core::future::Future;
use std::collections::BTreeMap;

use ldlm::client::{LockClient, LockEvent};
use lnet::upper::Below;
use lnet_types::{Errno, Instant, IoVec, Nid, Span};
use lustre_client::osc::{Cx, OpId, Osc, OscConfig, OscEvent, wanted};
use lustre_client::visitor::stripes::{FileLayout, FileObject, Spot};
use lustre_client::visitor::{OpenFile, VisitError, Wire, join};
use lustre_wire::ImportKind;
use lustre_wire::fid::ObjectId;
use ptlrpc::{Event, ImportConfig, ImportId, Ptlrpc};

use super::super::host::Buffers;
use super::visits::VisitNo;

/// What the uuid of a caching client has behind that of the visitor of its program.
pub(super) const CACHING: &str = "+c";

/// The least memory that is lent; more is lent in powers of two.
const PIECE: u32 = 4096;
/// Objects of a file that are asked at a time.
const AT_A_TIME: usize = 8;

/// An operation on an object.
pub(super) enum ObjectAsk {
    Write { offset: u64, bytes: Vec<u8> },
    Read { offset: u64, len: u32 },
    Size,
    Fsync,
    Close,
}

/// Its end: how many bytes, or the size; what was read.
pub(super) struct ObjectEnd {
    pub(super) result: Result<u64, Errno>,
    pub(super) bytes: Vec<u8>,
}

impl From<Errno> for ObjectEnd {
    fn from(errno: Errno) -> Self {
        Self { result: Err(errno), bytes: Vec::new() }
    }
}

/// What a program with a cache stands on, besides the calls of its visit.
pub(super) trait ObjectWire: Wire<Link = u64> {
    /// A connection with a cache, to an object target.
    fn cache(&self, config: ImportConfig) -> u64;

    /// An operation on an object, over such a connection.
    fn object(
        &self,
        link: u64,
        id: ObjectId,
        ask: ObjectAsk,
    ) -> impl Future<Output = ObjectEnd> + Send;
}

/// The caches of a program, one for each object target, by its index.
pub(super) struct Cache<W> {
    wire: W,
    links: BTreeMap<u32, u64>,
}

fn failed(errno: Errno) -> VisitError {
    VisitError::Path { path: b"cached data".to_vec(), errno }
}

impl<W: ObjectWire> Cache<W> {
    /// Nothing connects before it is used.
    pub(super) fn new(wire: W, client: &str, targets: Vec<(u32, String, Vec<Nid>)>) -> Self {
        let link = |(index, target, nids)| {
            let client = format!("{client}{CACHING}");
            let (kind, wanted) = (ImportKind::Osc, wanted());
            (index, wire.cache(ImportConfig { kind, target, client, nids, wanted }))
        };
        Self { links: targets.into_iter().map(link).collect(), wire }
    }

    async fn ask(&self, object: FileObject, ask: ObjectAsk) -> Result<(u64, Vec<u8>), VisitError> {
        let link = self.links.get(&object.ost).ok_or_else(|| failed(Errno::ENXIO))?;
        let ObjectEnd { result, bytes } = self.wire.object(*link, object.id, ask).await;
        Ok((result.map_err(failed)?, bytes))
    }

    fn layout(file: &OpenFile) -> Result<&FileLayout, VisitError> {
        file.layout().map_err(|e| VisitError::Layout(*e))
    }

    /// Where a file ends, as those say that have written it.
    async fn size(&self, file: &OpenFile) -> Result<u64, VisitError> {
        let layout = Self::layout(file)?;
        let one = |(component, stripe, object): (usize, usize, Option<FileObject>)| async move {
            let object = object.ok_or_else(|| failed(Errno::ENXIO))?;
            let (size, _) = self.ask(object, ObjectAsk::Size).await?;
            let of = layout.components.get(component);
            Ok::<_, VisitError>(of.map_or(0, |component| component.size_of(stripe, size)))
        };
        let mut end = 0;
        for size in join(layout.objects().map(one), AT_A_TIME).await {
            end = end.max(size?);
        }
        Ok(end)
    }

    /// All bytes of a file.
    pub(super) async fn read(&self, file: &OpenFile) -> Result<Vec<u8>, VisitError> {
        let mut bytes = Vec::new();
        let size = self.size(file).await?;
        for piece in Self::layout(file)?.pieces(0, size, u64::from(u32::MAX)) {
            let Spot::Object { object, offset, .. } = piece.at else {
                return Err(failed(Errno::EOPNOTSUPP));
            };
            let len = u32::try_from(piece.len).unwrap_or(u32::MAX);
            let (_, read) = self.ask(object, ObjectAsk::Read { offset, len }).await?;
            bytes.extend(read);
            // Where an object ends, a hole of the file begins.
            bytes.resize(usize::try_from(piece.offset + piece.len).unwrap_or(usize::MAX), 0);
        }
        Ok(bytes)
    }

    pub(super) async fn write(
        &self,
        file: &OpenFile,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), VisitError> {
        let mut rest = bytes;
        for piece in Self::layout(file)?.pieces(offset, bytes.len() as u64, u64::from(u32::MAX)) {
            let Spot::Object { object, offset, .. } = piece.at else {
                return Err(failed(Errno::EOPNOTSUPP));
            };
            let len = usize::try_from(piece.len).unwrap_or(usize::MAX).min(rest.len());
            let (here, behind) = rest.split_at(len);
            self.ask(object, ObjectAsk::Write { offset, bytes: here.to_vec() }).await?;
            rest = behind;
        }
        Ok(())
    }

    async fn each(&self, file: &OpenFile, ask: impl Fn() -> ObjectAsk) -> Result<(), VisitError> {
        let objects = Self::layout(file)?.objects().filter_map(|(.., object)| object);
        let ended = join(objects.map(|object| self.ask(object, ask())), AT_A_TIME).await;
        ended.into_iter().try_for_each(|end| end.map(|_| ()))
    }

    /// What was written survives all targets, or the program hears that it does not.
    pub(super) async fn fsync(&self, file: &OpenFile) -> Result<(), VisitError> {
        self.each(file, || ObjectAsk::Fsync).await
    }

    /// What was written goes to the targets, or the program hears that it does not.
    pub(super) async fn close(&self, file: &OpenFile) -> Result<(), VisitError> {
        self.each(file, || ObjectAsk::Close).await
    }

    pub(super) async fn end(self) {
        for link in self.links.values() {
            self.wire.close(link).await;
        }
    }
}

/// An operation under way.
struct Waiting {
    visit: VisitNo,
    order: u64,
    /// Where bytes are read to.
    memory: Option<Span>,
}

/// The caching clients of a node.
#[derive(Default)]
pub(super) struct Caches {
    all: BTreeMap<ImportId, Osc>,
    waiting: BTreeMap<(ImportId, OpId), Waiting>,
    /// What has ended, and for which visit and order.
    ended: Vec<(VisitNo, u64, ObjectEnd)>,
}

impl Caches {
    pub(super) fn open(&mut self, import: ImportId) {
        self.all.insert(import, Osc::new(import, OscConfig::default()));
    }

    /// Begins an operation.
    pub(super) fn begin(
        &mut self,
        (visit, order): (VisitNo, u64),
        import: ImportId,
        (id, ask): (ObjectId, ObjectAsk),
        parts: &mut Parts<'_, '_>,
    ) {
        let Some(osc) = self.all.get_mut(&import) else {
            return self.ended.push((visit, order, Errno::ENOTCONN.into()));
        };
        let mut memory = None;
        let len = match &ask {
            ObjectAsk::Write { bytes, .. } => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            ObjectAsk::Read { len, .. } => *len,
            _ => 0,
        };
        if len > 0 {
            let lent = parts.buffers.take(parts.below, len.max(PIECE).next_power_of_two());
            let Some(lent) = lent else {
                return self.ended.push((visit, order, Errno::ENOMEM.into()));
            };
            let span = Span { len, ..lent };
            match &ask {
                ObjectAsk::Write { bytes, .. } => {
                    parts.below.bytes_mut(span).copy_from_slice(bytes);
                }
                _ => parts.below.bytes_mut(span).fill(0),
            }
            memory = Some(span);
        }
        let vector = || IoVec::from_iter(memory);
        let rpc = &mut parts.ptlrpc.rpc(parts.below);
        let cx = &mut Cx { locks: parts.locks, rpc };
        let writes = matches!(ask, ObjectAsk::Write { .. });
        let begun = match ask {
            ObjectAsk::Write { offset, .. } => osc.write(id, offset, vector(), None, cx),
            ObjectAsk::Read { offset, .. } => osc.read(id, offset, vector(), cx),
            ObjectAsk::Size => osc.size(id, cx),
            ObjectAsk::Fsync => osc.fsync(id, cx),
            ObjectAsk::Close => osc.close(id, cx),
        };
        match begun {
            Ok(op) => {
                let memory = memory.filter(|_| !writes);
                self.waiting.insert((import, op), Waiting { visit, order, memory });
            }
            Err(_) => {
                memory.into_iter().for_each(|span| give(parts.buffers, span));
                self.ended.push((visit, order, Errno::EIO.into()));
            }
        }
    }

    /// Takes an event of the request layer; it comes back if it is for others too.
    pub(super) fn event(&mut self, mut event: Event, parts: &mut Parts<'_, '_>) -> Option<Event> {
        let rpc = &mut parts.ptlrpc.rpc(parts.below);
        if let Event::Import { import, .. } = event {
            return match self.all.get_mut(&import) {
                Some(osc) => osc.event(event, &mut Cx { locks: parts.locks, rpc }),
                None => Some(event),
            };
        }
        for osc in self.all.values_mut() {
            event = osc.event(event, &mut Cx { locks: parts.locks, rpc })?;
        }
        Some(event)
    }

    /// Takes what the locks of the node have to say. Locks of visitors have none that concerns them.
    pub(super) fn lock_event(
        &mut self,
        import: ImportId,
        event: LockEvent,
        parts: &mut Parts<'_, '_>,
    ) {
        if let Some(osc) = self.all.get_mut(&import) {
            let rpc = &mut parts.ptlrpc.rpc(parts.below);
            osc.lock_event(event, &mut Cx { locks: parts.locks, rpc });
        }
    }

    /// Takes what the clients have to say to where it belongs. Whether there was something.
    pub(super) fn drain(&mut self, parts: &mut Parts<'_, '_>) -> bool {
        let mut any = false;
        for (import, osc) in &mut self.all {
            while let Some(event) = osc.poll_event() {
                any = true;
                match event {
                    OscEvent::Done { op, result } => {
                        let Some(waiting) = self.waiting.remove(&(*import, op)) else { continue };
                        let Waiting { visit, order, memory } = waiting;
                        let mut bytes = Vec::new();
                        if let Some(span) = memory {
                            let len = result.map_or(0, |len| usize::try_from(len).unwrap_or(0));
                            let read = parts.below.bytes(span);
                            bytes = read.get(..len).unwrap_or(read).to_vec();
                            give(parts.buffers, span);
                        }
                        self.ended.push((visit, order, ObjectEnd { result, bytes }));
                    }
                    OscEvent::Free(memory) => {
                        memory.iter().for_each(|span| give(parts.buffers, *span));
                    }
                    OscEvent::Sum { id, kind, memory } => {
                        let rpc = &mut parts.ptlrpc.rpc(parts.below);
                        let mut sum = kind.begin();
                        for span in &memory {
                            sum.update(rpc.below().bytes(*span));
                        }
                        osc.summed(id, sum.value(), &mut Cx { locks: parts.locks, rpc });
                    }
                }
            }
        }
        any
    }

    /// Takes the next operation that has ended.
    pub(super) fn take(&mut self) -> Option<(VisitNo, u64, ObjectEnd)> {
        self.ended.pop()
    }

    /// A connection is closed: what was under way over it has failed.
    pub(super) fn closed(&mut self, import: ImportId) {
        if self.all.remove(&import).is_none() {
            return;
        }
        let Self { waiting, ended, .. } = self;
        waiting.retain(|(of, _), waiting| {
            let stays = *of != import;
            if !stays {
                ended.push((waiting.visit, waiting.order, Errno::ENOTCONN.into()));
            }
            stays
        });
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.all.values().filter_map(Osc::poll_timeout).min()
    }

    pub(super) fn handle_timeout(&mut self, parts: &mut Parts<'_, '_>) {
        let rpc = &mut parts.ptlrpc.rpc(parts.below);
        let now = rpc.now();
        for osc in self.all.values_mut() {
            if osc.poll_timeout().is_some_and(|at| at <= now) {
                osc.handle_timeout(&mut Cx { locks: parts.locks, rpc });
            }
        }
    }
}

/// The other parts of the node, for the length of one call.
pub(super) struct Parts<'a, 'b> {
    pub(super) locks: &'a mut LockClient,
    pub(super) buffers: &'a mut Buffers,
    pub(super) ptlrpc: &'a mut Ptlrpc,
    pub(super) below: &'a mut Below<'b>,
}

/// Memory is free again, all of what was lent.
fn give(buffers: &mut Buffers, span: Span) {
    buffers.give(Span { len: span.len.max(PIECE).next_power_of_two(), ..span });
}
