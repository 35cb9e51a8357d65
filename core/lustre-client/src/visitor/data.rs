//! Bytes of a file: read, written, cut off, committed, under the locks of the servers (C-205 … C-231).
//! No request waits for a lock of this client, and none is left behind.

use lnet_types::Errno;
use lustre_wire::ConnectData;
use lustre_wire::fid::{ObjectId, Valid};
use lustre_wire::mds::{SetattrRecord, SetattrValid};
use lustre_wire::ost::Obdo;
use ptlrpc::{Call, CallError};

use super::file::{DATA_MODIFIED, OpenFile};
use super::join::join;
use super::remote::{Answer, Remote};
use super::runs::{Run, runs};
use super::stripes::{FileLayout, Spot};
use super::{IN_FLIGHT, LayoutError, Moved, VisitError, Visitor, Wire, mdc, ost, reint};
use crate::sabotage::Sabotage;

/// How often data is moved again that does not fit to its checksum, or could not be moved (L-93).
const RETRIES: u32 = 5;
/// No file ends behind this: offsets of programs are signed. A server may take fewer bytes.
const SIZE_MAX: u64 = i64::MAX as u64;

/// Bytes of a file: of a part that it has none for, zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// The first of them, the rest is zeros.
    pub bytes: Vec<u8>,
}

/// Whether data is moved again after an error.
fn passes(e: &VisitError) -> bool {
    let errno = match e {
        VisitError::Refused { errno, .. } => *errno,
        VisitError::Call { error: CallError::Bulk, .. } => Errno::EIO,
        _ => return false,
    };
    matches!(errno, Errno::EINPROGRESS | Errno::EIO | Errno::EROFS | Errno::ENOMEM | Errno::EAGAIN)
}

impl<W: Wire> Visitor<W> {
    pub(super) fn holder(
        &self,
        file: &OpenFile,
        mdt: &'_ Remote<W::Link>,
        at: Spot,
    ) -> Result<(ost::Object, u64), VisitError> {
        let payer = file.payer;
        let layout = file.layout.as_ref().map_err(|e| VisitError::Layout(*e))?;
        let component = |place: usize| layout.components.get(place);
        let info =
            |place| component(place).map(super::stripes::Component::info).unwrap_or_default();
        let fid = file.fid;
        let of = |id, stripe, layout| {
            let on_mdt = at == Spot::Mdt;
            ost::Object { id, file: fid, stripe, on_mdt, layout, payer }
        };
        match at {
            Spot::Mdt => Ok((of(ObjectId::of(fid), 0, info(0)), 0)),
            Spot::Object { component, stripe, object, offset } => {
                let stripe = u32::try_from(stripe).unwrap_or(u32::MAX);
                Ok((of(object.id, stripe, info(component)), offset))
            }
            Spot::Hole | Spot::Lost => Err(mdt.bad("expected a holder of data")),
        }
    }

    /// Reads bytes, up to the end of the file as this client knows it: parts in order, without gap.
    ///
    /// # Errors
    /// Bytes that are lost or damaged, no answer.
    pub async fn read(
        &self,
        file: &OpenFile,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Part>, VisitError> {
        let layout = file.layout.as_ref().map_err(|e| VisitError::Layout(*e))?;
        let len = len.min(file.size().saturating_sub(offset));
        if layout.others.is_empty() {
            return self.read_whole(file, layout, offset, len).await;
        }
        // Another client may have written to another mirror since, and this one is out of date (C-190).
        let present = self.laid_out(file.fid).await?.1?;
        self.read_whole(file, &present, offset, len).await
    }

    /// A range of a file, all of it, by a layout that it has had: where the file has ended, zeros.
    pub(super) async fn read_whole(
        &self,
        file: &OpenFile,
        layout: &FileLayout,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Part>, VisitError> {
        let mut moved: Option<FileLayout> = None;
        for _ in 0..RETRIES {
            let layout = moved.as_ref().unwrap_or(layout);
            let failed = match self.read_any(file, layout, offset, len).await {
                Err(e @ VisitError::Refused { errno: Errno::ENOENT, .. }) => e,
                end => return end,
            };
            // The data was moved to other objects, or the file is gone (C-228).
            let found = self.laid_out(file.fid).await?.1?;
            if found == *layout {
                return self.why_gone(file, Err(failed)).await;
            }
            moved = Some(found);
        }
        Err(VisitError::Path { path: file.fid.to_string().into(), errno: Errno::ESTALE })
    }

    /// By another mirror, if a target of the first one does not give the data (C-190).
    async fn read_any(
        &self,
        file: &OpenFile,
        layout: &FileLayout,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Part>, VisitError> {
        let first = self.read_by(file, layout, offset, len).await;
        if first.as_ref().is_err_and(VisitError::is_of_a_target) {
            for other in &layout.others {
                if let Ok(parts) = self.read_by(file, other, offset, len).await {
                    return Ok(parts);
                }
            }
        }
        first
    }

    async fn read_by(
        &self,
        file: &OpenFile,
        layout: &FileLayout,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Part>, VisitError> {
        let all = runs(layout, offset, len, ost::DATA_MAX.into());
        let read = join(all.into_iter().map(|run| self.read_run(file, run)), IN_FLIGHT).await;
        let parts = read.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut parts: Vec<Part> = parts.into_iter().flatten().collect();
        parts.sort_by_key(|part| part.offset);
        Ok(parts)
    }

    pub(super) async fn read_run(
        &self,
        file: &OpenFile,
        run: Run,
    ) -> Result<Vec<Part>, VisitError> {
        let (len, first) = (run.len, run.first());
        let bytes = match run.at {
            Spot::Hole => Vec::new(),
            Spot::Lost => return Err(VisitError::Lost { offset: first }),
            Spot::Mdt => {
                let mdt = self.mdt_of(file.fid).await?;
                self.read_range(mdt, ObjectId::of(file.fid), first, len).await?
            }
            Spot::Object { object, offset, .. } => {
                self.read_range(self.ost(object.ost)?, object.id, offset, len).await?
            }
        };
        Ok(run.parts(bytes))
    }

    /// A range of an object; less where the object ends: what follows is a hole of the file (C-216).
    async fn read_range(
        &self,
        remote: &Remote<W::Link>,
        id: ObjectId,
        from: u64,
        len: u64,
    ) -> Result<Vec<u8>, VisitError> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < len {
            let at = from.saturating_add(bytes.len() as u64);
            let left = len - bytes.len() as u64;
            let (part, room) = self.fetch_data(remote, id, at, left).await?;
            let ends = part.len() < room as usize;
            if bytes.is_empty() {
                bytes = part;
            } else {
                bytes.extend(part);
            }
            if ends {
                break;
            }
        }
        Ok(bytes)
    }

    /// What a target has granted; one that was not connected is asked something before.
    pub(super) async fn terms_of(
        &self,
        remote: &Remote<W::Link>,
    ) -> Result<ConnectData, VisitError> {
        let granted = remote.terms(&self.wire).await;
        if granted != ConnectData::default() {
            return Ok(granted);
        }
        remote.ask(&self.wire, ost::ping()).await?;
        Ok(remote.terms(&self.wire).await)
    }

    /// What a target has agreed to of data. No data go without a checksum, or in pieces, because it was
    /// not known.
    async fn data_terms(&self, remote: &Remote<W::Link>) -> Result<ost::Terms, VisitError> {
        let mut terms = ost::Terms::of(&self.terms_of(remote).await?);
        terms.privileged = self.who.is_root();
        Ok(terms)
    }

    /// One request's bytes of an object, and how many were asked for.
    async fn fetch_data(
        &self,
        remote: &Remote<W::Link>,
        id: ObjectId,
        offset: u64,
        len: u64,
    ) -> Result<(Vec<u8>, u32), VisitError> {
        let mut again = 0;
        loop {
            let terms = self.data_terms(remote).await?;
            let room = u32::try_from(len).unwrap_or(u32::MAX).min(terms.most_at(offset));
            let call = ost::read(id, (offset, room), &terms, again > 0);
            let read = self.fetch_once(remote, call, room, &terms).await;
            again += 1;
            match read {
                Err(e) if again <= RETRIES && (passes(&e) || is_damaged(&e)) => {
                    self.wire.pause(again).await;
                }
                Err(e) => return Err(e),
                Ok(bytes) => return Ok((bytes, room)),
            }
        }
    }

    async fn fetch_once(
        &self,
        remote: &Remote<W::Link>,
        call: Call,
        room: u32,
        terms: &ost::Terms,
    ) -> Result<Vec<u8>, VisitError> {
        let inline = terms.inlines(room);
        let moved = if inline { Moved::Nothing } else { Moved::Read(room) };
        let answer = remote.ask_with(&self.wire, call, moved).await.map_err(|(e, _)| e)?;
        let body: Option<Obdo> = answer.get(1);
        let body = body.ok_or_else(|| remote.bad("expected attributes of an object"))?;
        let Answer { reply, mut bytes, .. } = answer;
        if inline {
            let msg = reply.msg().map_err(|_| remote.bad("expected a message"))?;
            bytes = msg.buffer(2).unwrap_or_default().to_vec();
        }
        let moved = usize::try_from(reply.status).ok().filter(|moved| *moved <= bytes.len());
        bytes.truncate(moved.ok_or_else(|| remote.bad("expected no more than was asked for"))?);
        let said = body.valid.contains(Valid::CKSUM | Valid::FLAGS);
        let same = |k: &lustre_wire::Checksum| said && body.flags.checksum() == k.number();
        let Some(kind) = terms.checksum.filter(same) else { return Ok(bytes) };
        let (have, expected) = (kind.of(&bytes), body.nlink);
        if have != expected {
            return Err(VisitError::Checksum { target: remote.uuid.clone(), have, expected });
        }
        Ok(bytes)
    }

    /// Writes bytes of a range that has objects ([`Visitor::prepare`]). They are committed when it has
    /// ended, unless they are all of a file that was made as a [`Whole`](super::Whole).
    ///
    /// # Errors
    /// No space, a file that is not open for writing, bytes that are damaged on their way, no answer: a
    /// part of the bytes may be there then.
    pub async fn write(
        &self,
        file: &OpenFile,
        offset: u64,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), VisitError> {
        self.why_gone(file, self.write_present(file, offset, bytes).await).await
    }

    /// The same. `ENOENT`: objects are not there any more.
    async fn write_present(
        &self,
        file: &OpenFile,
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
        let layout = file.layout.as_ref().map_err(|e| VisitError::Layout(*e))?;
        // A part of it may be there although the whole fails.
        file.wrote(0, false);
        let all = self.cut_up(bytes, offset, runs(layout, offset, len, ost::DATA_MAX.into()));
        let later = all.len() == 1 && file.is_whole(offset, len);
        let write = |(run, bytes)| self.write_run(file, run, bytes, later);
        let mut written = join(all.into_iter().map(write), IN_FLIGHT).await;
        if self.breaks(Sabotage::ErrorLost) {
            written.clear();
        }
        written.into_iter().collect::<Result<(), _>>()?;
        file.wrote(end, false);
        Ok(())
    }

    /// The bytes of each run of a range that begins at `offset`. What is in one place stays as it is.
    pub(super) fn cut_up(
        &self,
        mut bytes: Vec<u8>,
        offset: u64,
        runs: Vec<Run>,
    ) -> Vec<(Run, Vec<u8>)> {
        let whole = |run: &Run| run.pieces.len() == 1 && run.len == bytes.len() as u64;
        if runs.first().is_some_and(whole) {
            return runs.into_iter().map(|run| (run, core::mem::take(&mut bytes))).collect();
        }
        let one = |run: Run| {
            let mut data = self.wire.buffer(usize::try_from(run.len).unwrap_or(0));
            data.clear();
            for (at, len) in &run.pieces {
                let from = usize::try_from(at.saturating_sub(offset)).unwrap_or(usize::MAX);
                let to = from.saturating_add(usize::try_from(*len).unwrap_or(usize::MAX));
                data.extend_from_slice(bytes.get(from..to).unwrap_or_default());
            }
            (run, data)
        };
        let parts = runs.into_iter().map(one).collect();
        self.wire.recycle(bytes);
        parts
    }

    pub(super) async fn write_run(
        &self,
        file: &OpenFile,
        run: Run,
        mut data: Vec<u8>,
        later: bool,
    ) -> Result<(), VisitError> {
        let first = run.first();
        let mdt = self.mdt_of(file.fid).await?;
        let remote = match run.at {
            Spot::Hole => return Err(LayoutError::NotMade(first).into()),
            Spot::Lost => return Err(VisitError::Lost { offset: first }),
            Spot::Mdt => mdt,
            Spot::Object { object, .. } => self.ost(object.ost)?,
        };
        let (object, inside) = self.holder(file, mdt, run.at)?;
        let mut at = if run.at == Spot::Mdt { first } else { inside };
        loop {
            let terms = self.data_terms(remote).await?;
            let mut most = terms.most_at(at) as usize;
            if later && at == inside && self.breaks(Sabotage::WholeInParts) {
                most = data.len().div_ceil(2);
            }
            let Some(here) = data.get(..most).filter(|here| here.len() < data.len()) else {
                return self.store(file, remote, &object, at, data, later).await;
            };
            let mut part = self.wire.buffer(most);
            part.clear();
            part.extend_from_slice(here);
            data.drain(..most);
            self.store(file, remote, &object, at, part, false).await?;
            at = at.saturating_add(most as u64);
        }
    }

    /// One request's bytes to an object; `later`: they may be answered before they are committed.
    async fn store(
        &self,
        file: &OpenFile,
        remote: &Remote<W::Link>,
        object: &ost::Object,
        at: u64,
        mut data: Vec<u8>,
        later: bool,
    ) -> Result<(), VisitError> {
        let mut again = 0;
        loop {
            let mut terms = self.data_terms(remote).await?;
            terms.later = later;
            let (failed, back) =
                match self.store_once(file, remote, object, at, data, &terms, again).await {
                    Ok(back) => {
                        self.wire.recycle(back);
                        return Ok(());
                    }
                    Err(failed) => failed,
                };
            again += 1;
            if again > RETRIES || !(passes(&failed) || is_damaged(&failed)) || back.is_empty() {
                return Err(failed);
            }
            data = back;
            self.wire.pause(again).await;
        }
    }

    #[allow(clippy::too_many_arguments, reason = "what one data request is made of")]
    async fn store_once(
        &self,
        file: &OpenFile,
        remote: &Remote<W::Link>,
        object: &ost::Object,
        at: u64,
        data: Vec<u8>,
        terms: &ost::Terms,
        again: u32,
    ) -> Result<Vec<u8>, (VisitError, Vec<u8>)> {
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let sum = terms.checksum.map_or(0, |kind| kind.of(&data));
        let now = self.wire.now();
        let times = (file.mtime.unwrap_or(now), now);
        let mut call = ost::write(object, (at, len), terms, sum, again > 0, times);
        let (moved, mut kept) = match terms.inlines(len) {
            true => {
                call.buffers.replace_last(&data);
                (Moved::Nothing, data)
            }
            false => (Moved::Write(data), Vec::new()),
        };
        let answer = match remote.ask_with(&self.wire, call, moved).await {
            Ok(answer) => answer,
            Err((e, back)) => return Err((e, if kept.is_empty() { back } else { kept })),
        };
        let (body, result) = (answer.get::<Obdo>(1), answer.get::<i32>(2));
        if kept.is_empty() {
            kept = answer.bytes;
        }
        let bad = |what| remote.bad(what);
        let Some(body) = body else {
            return Err((bad("expected attributes of an object"), kept));
        };
        match result {
            None => return Err((bad("expected the result of a range"), kept)),
            Some(errno) if errno < 0 => {
                let errno = Errno(errno.saturating_neg());
                return Err((VisitError::Refused { target: remote.uuid.clone(), errno }, kept));
            }
            Some(_) => {}
        }
        let said = body.valid.contains(Valid::CKSUM | Valid::FLAGS);
        let same = |k: &lustre_wire::Checksum| said && body.flags.checksum() == k.number();
        if terms.checksum.filter(same).is_some() && body.nlink != sum {
            let target = remote.uuid.clone();
            return Err((VisitError::Checksum { target, have: sum, expected: body.nlink }, kept));
        }
        file.heard(object.id, &body);
        Ok(kept)
    }

    /// Memory for so many bytes to be written; what is in it does not matter.
    pub fn buffer(&self, len: usize) -> Vec<u8> {
        self.wire.buffer(len)
    }

    /// Takes memory that came with bytes that were read, or from [`Visitor::buffer`], and is not needed
    /// any more.
    pub fn recycle(&self, bytes: Vec<u8>) {
        self.wire.recycle(bytes);
    }

    /// Writes bytes, objects for them made before where there are none.
    ///
    /// # Errors
    /// As [`Visitor::prepare`] and [`Visitor::write`].
    pub async fn write_at(
        &self,
        file: &mut OpenFile,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), VisitError> {
        let end = offset.saturating_add(bytes.len() as u64);
        let written = file.is_written();
        for _ in 0..RETRIES {
            self.prepare(file, offset, end).await?;
            let failed = match self.write_present(file, offset, bytes).await {
                Err(e @ VisitError::Refused { errno: Errno::ENOENT, .. }) => e,
                end => return end,
            };
            // The data was moved to other objects, or the file is gone (C-228).
            let (_, layout) = self.laid_out(file.fid).await?;
            if file.layout == layout {
                return self.why_gone(file, Err(failed)).await;
            }
            file.follow(layout, written);
        }
        Err(VisitError::Path { path: file.fid.to_string().into(), errno: Errno::ESTALE })
    }

    /// Writes bytes behind the end of a file, and says where that was. Another client that appends at the
    /// same time may write there too: a visitor holds no lock (C-219).
    ///
    /// # Errors
    /// As [`Visitor::write_at`].
    pub async fn append(&self, file: &mut OpenFile, bytes: &[u8]) -> Result<u64, VisitError> {
        let node = self.node_of(file.fid).await?;
        let end = self.attributes(&node).await?.size;
        self.write_at(file, end, bytes).await?;
        Ok(end)
    }

    /// A file ends there from now on: what was behind is gone, what is missing is zeros (C-119).
    ///
    /// # Errors
    /// A file that is not open for writing, no space, no answer.
    pub async fn truncate(&self, file: &mut OpenFile, size: u64) -> Result<(), VisitError> {
        self.cut(file, size, false).await
    }

    pub(super) async fn cut(
        &self,
        file: &mut OpenFile,
        size: u64,
        by_open: bool,
    ) -> Result<(), VisitError> {
        if !file.how.write {
            return Err(VisitError::Path {
                path: file.fid.to_string().into(),
                errno: Errno::EBADF,
            });
        }
        if size > SIZE_MAX {
            return Err(too_large(file));
        }
        self.keep_open(file).await?;
        // Objects that a write of another client has made since are cut too (C-223). The layout that came
        // with an open which cuts the file names them.
        if !by_open && file.layout.as_ref().is_ok_and(FileLayout::may_grow) {
            let (_, layout) = self.laid_out(file.fid).await?;
            let written = file.is_written();
            file.follow(layout, written);
        }
        // Of what was written before, nothing is wanted any more.
        file.relaid &= size != 0;
        // Its objects learn another time.
        file.mtime = None;
        if let Some(last) = size.checked_sub(1) {
            // Where it will end there is something that has the end (C-188).
            self.prepare(file, last, size).await?;
        }
        let now = self.wire.now();
        let from_open = if by_open { SetattrValid::FROM_OPEN } else { SetattrValid::empty() };
        let record = SetattrRecord {
            fid: file.fid,
            valid: SetattrValid::SIZE
                | SetattrValid::MTIME
                | SetattrValid::CTIME
                | SetattrValid::MTIME_SET
                | SetattrValid::CTIME_SET
                | SetattrValid::OVERRIDE
                | from_open,
            size,
            mtime: now,
            atime: now,
            ctime: now,
            bias: if by_open { DATA_MODIFIED } else { 0 },
            ..SetattrRecord::default()
        };
        let mdt = self.mdt_of(file.fid).await?;
        mdt.ask(&self.wire, reint::setattr(&self.who, file.attributes.gid, record)).await?;
        let layout = file.layout.as_ref().map_err(|e| VisitError::Layout(*e))?;
        let cuts = cuts(layout, size)?;
        let one = |(at, end): (Spot, u64)| {
            let file = &*file;
            async move {
                let remote = match at {
                    Spot::Object { object, .. } => self.ost(object.ost)?,
                    _ => mdt,
                };
                let (object, _) = self.holder(file, mdt, at)?;
                let answer = remote.ask(&self.wire, ost::punch(&object, end, now)).await?;
                if let Some(body) = answer.get::<Obdo>(1) {
                    file.heard(object.id, &body);
                }
                Ok(())
            }
        };
        let done = join(cuts.into_iter().map(one), IN_FLIGHT).await;
        self.why_gone(file, done.into_iter().collect::<Result<(), VisitError>>()).await?;
        file.wrote(size, true);
        Ok(())
    }

    /// Waits until all of a file is committed on its targets, its name too (C-230).
    ///
    /// # Errors
    /// [`VisitError::ChangesLost`], once, if the file was changed; [`VisitError::Relaid`]; no answer, or a
    /// refusal.
    pub async fn fsync(&self, file: &OpenFile) -> Result<(), VisitError> {
        let mdt = self.mdt_of(file.fid).await?;
        mdt.ask(&self.wire, mdc::sync(&self.who, file.fid)).await?;
        let layout = file.layout.as_ref().map_err(|e| VisitError::Layout(*e))?;
        let mut all: Vec<Spot> = spots(layout).collect();
        if layout.on_mdt().is_some() {
            all.push(Spot::Mdt);
        }
        let one = |at: Spot| async move {
            let remote = match at {
                Spot::Object { object, .. } => self.ost(object.ost)?,
                _ => mdt,
            };
            let (object, _) = self.holder(file, mdt, at)?;
            remote.ask(&self.wire, ost::sync(&object)).await.map(|_| ())
        };
        let done = join(all.into_iter().map(one), IN_FLIGHT).await;
        self.why_gone(file, done.into_iter().collect::<Result<(), _>>()).await?;
        self.check_objects_of(file).await?;
        self.check_losses_of(file)
    }

    /// Why an object is gone is known to the metadata target: its file was removed, or was lost in a crash
    /// that this client has not heard of (C-228).
    pub(super) async fn why_gone<T>(
        &self,
        file: &OpenFile,
        result: Result<T, VisitError>,
    ) -> Result<T, VisitError> {
        match result {
            Err(VisitError::Refused { target, errno: Errno::ENOENT }) => {
                Box::pin(self.node_of(file.fid)).await?;
                Err(VisitError::Refused { target, errno: Errno::EIO })
            }
            result => result,
        }
    }
}

impl OpenFile {
    /// Where a write ends.
    ///
    /// # Errors
    /// The file is not open for writing, or would end behind [`SIZE_MAX`].
    pub(super) fn write_end(&self, offset: u64, len: u64) -> Result<u64, VisitError> {
        if !self.how.write {
            let path = self.fid.to_string().into();
            return Err(VisitError::Path { path, errno: Errno::EBADF });
        }
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX);
        end.ok_or_else(|| too_large(self))
    }
}

/// A file would end behind [`SIZE_MAX`].
fn too_large(file: &OpenFile) -> VisitError {
    VisitError::Path { path: file.fid.to_string().into(), errno: Errno::EFBIG }
}

const fn is_damaged(e: &VisitError) -> bool {
    matches!(e, VisitError::Checksum { .. })
}

/// The objects of a file.
pub(super) fn spots(layout: &FileLayout) -> impl Iterator<Item = Spot> {
    layout.objects().filter_map(|(component, stripe, object)| {
        Some(Spot::Object { component, stripe, object: object?, offset: 0 })
    })
}

/// Where each holder of data ends if the file ends at `size`; those that stay as they are not named.
fn cuts(layout: &FileLayout, size: u64) -> Result<Vec<(Spot, u64)>, VisitError> {
    let mut cuts = Vec::new();
    if let Some(component) = layout.on_mdt()
        && size <= component.end
    {
        cuts.push((Spot::Mdt, size));
    }
    for (place, stripe, object) in layout.objects() {
        let Some(component) = layout.components.get(place) else { continue };
        let Some(end) = component.cut(stripe, size) else { continue };
        let Some(object) = object else {
            return Err(VisitError::Lost { offset: component.start });
        };
        cuts.push((Spot::Object { component: place, stripe, object, offset: 0 }, end));
    }
    Ok(cuts)
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use core::task::{Context, Poll, Waker};
    use std::collections::BTreeMap;

    use lustre_wire::Opcode;
    use ptlrpc::{CallId, ImportConfig, Reply};

    use super::super::fids::Fids;
    use super::super::places::Places;
    use super::super::{End, Identity};
    use super::*;

    /// A target that grants what a visitor wants, once it has answered.
    #[derive(Debug, Default)]
    struct Late {
        pings: AtomicU32,
        others: AtomicU32,
    }

    impl Wire for Late {
        type Link = ();

        fn link(&self, _: ImportConfig) -> Result<(), CallError> {
            Ok(())
        }

        fn connect(&self, (): &()) {}

        async fn call(&self, (): &(), call: Call, _: Moved) -> End {
            let ping = call.opcode == Opcode::OBD_PING;
            let count = if ping { &self.pings } else { &self.others };
            count.fetch_add(1, Ordering::Relaxed);
            let reply = Reply { status: 0, transno: 0, message: Vec::new() };
            End { result: Ok(reply), bytes: Vec::new(), call: None }
        }

        async fn handle(&self, (): &(), _: CallId) -> Option<u64> {
            None
        }

        async fn terms(&self, (): &()) -> ConnectData {
            let asked = self.pings.load(Ordering::Relaxed) > 0;
            if asked { ost::wanted() } else { ConnectData::default() }
        }

        async fn close(&self, (): &()) {}

        async fn pause(&self, _: u32) {}

        fn now(&self) -> i64 {
            0
        }
    }

    #[test]
    fn no_data_go_to_a_target_before_it_has_said_how_they_sum_up() {
        let visitor = Visitor {
            wire: Late::default(),
            client: String::new(),
            who: Identity::default(),
            mdts: BTreeMap::new(),
            osts: BTreeMap::new(),
            root: Default::default(),
            places: Places::default(),
            balance: Default::default(),
            root_default: Default::default(),
            cookies: AtomicU64::new(1),
            said_losses: AtomicU64::new(0),
            #[cfg(feature = "sabotage")]
            sabotage: None,
        };
        let remote =
            Remote::new("lfs-OST0000_UUID".to_owned(), Vec::new(), Some(()), Fids::default());
        for _ in 0..2 {
            let mut terms = pin!(visitor.data_terms(&remote));
            let Poll::Ready(Ok(terms)) =
                terms.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            else {
                panic!("the target has answered");
            };
            assert_eq!((terms.max, terms.checksum.is_some()), (ost::DATA_MAX, true));
        }
        let Late { pings, others } = visitor.wire;
        assert_eq!((pings.into_inner(), others.into_inner()), (1, 0));
    }
}
