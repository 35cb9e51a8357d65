//! A file on one object or spread over several: options, connections, operations that are begun and
//! waited for later. Where its bytes lie is said by `lustre_rt::raid0`.

use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Args;
use lnet_types::Errno;
use lustre_rt::{
    CallError, Fid, Import, ObjClient, ObjError, Object, ObjectId, Objects, ObjectsError, Raid0,
    RpcError,
};

use crate::client::{self, Target, Way, target};
use crate::ping::client_uuid;
use crate::stop::Stop;

/// Where a file lies.
#[derive(Clone, Debug, Args)]
pub(super) struct Spread {
    /// Target, and the nodes that may serve it, the likeliest first; may be given again: the targets
    /// are used in turn
    #[arg(long = "target", value_name = "NAME@NID[,NID]", value_parser = target, required = true)]
    targets: Vec<Target>,
    /// Objects that the file is spread over; as many as there are targets if not given. Behind the last
    /// target the next object of the first follows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(lustre_rt::raid0::OBJECTS_MAX)))]
    stripe: Option<u32>,
    /// Bytes that lie in one object before the next follows, a multiple of 65536
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    stripe_size: u64,
    /// Cache nothing, and let the servers take the locks, as echo targets need it
    #[arg(long)]
    uncached: bool,
    #[command(flatten)]
    pub(super) way: Way,
}

/// The client of one target.
enum Client {
    Cached(Objects),
    Plain(ObjClient),
}

/// An object of the file.
enum Handle {
    Cached(Object),
    Plain(ObjClient, ObjectId),
}

struct Stripe<'a> {
    target: &'a Target,
    id: ObjectId,
    import: Import,
    handle: Handle,
}

/// A file, for as long as a command works on it.
pub(super) struct StripedFile<'a> {
    way: &'a Way,
    pub(super) raid: Raid0,
    stripes: Vec<Stripe<'a>>,
}

/// An operation under way: its end.
pub(super) type Pending<'a, T> = Box<dyn FnOnce() -> Result<T> + 'a>;

/// Why an operation failed, whichever client it went through.
enum Failure {
    Rpc(RpcError),
    Errno(Errno),
    Other(String),
}

impl From<ObjError> for Failure {
    fn from(e: ObjError) -> Self {
        match e {
            ObjError::Rpc(e) => Self::Rpc(e),
            e => Self::Other(e.to_string()),
        }
    }
}

impl From<ObjectsError> for Failure {
    fn from(e: ObjectsError) -> Self {
        match e {
            ObjectsError::Rpc(e) => Self::Rpc(e),
            ObjectsError::LimitPassed => Self::Rpc(RpcError::Call(CallError::LimitPassed)),
            ObjectsError::Failed(errno) => Self::Errno(errno),
            e => Self::Other(e.to_string()),
        }
    }
}

impl Client {
    fn import(&self) -> &Import {
        match self {
            Self::Cached(objects) => objects.import(),
            Self::Plain(obj) => obj.import(),
        }
    }
}

impl Stripe<'_> {
    fn explain(&self, way: &Way, failure: impl Into<Failure>) -> anyhow::Error {
        let name = &self.target.name;
        let why = match failure.into() {
            Failure::Rpc(e) => client::explain(&self.import, self.target, way, &e),
            Failure::Errno(errno @ Errno::EOPNOTSUPP) => {
                anyhow!("{name}: {errno} (a target without locks? see --uncached)")
            }
            Failure::Errno(errno) => anyhow!("{name}: {errno}"),
            Failure::Other(text) => anyhow!("{name}: {text}"),
        };
        why.context(super::about(self.id))
    }
}

/// The object so many behind `id` on the same target.
fn behind(id: ObjectId, steps: u32) -> Result<ObjectId> {
    let none = || anyhow!("object {}: no room for {steps} more behind it", super::name(id));
    match id.fid() {
        Some(fid) => {
            let oid = fid.oid.checked_add(steps).ok_or_else(none)?;
            Ok(ObjectId::of(Fid { oid, ..fid }))
        }
        None => Ok(ObjectId::old(id.first.checked_add(steps.into()).ok_or_else(none)?)),
    }
}

/// Runs `f` on the file whose first object is `id`.
///
/// # Errors
/// No way to a target, no such layout, and those of `f`.
pub(super) fn with<R>(
    options: &Spread,
    id: ObjectId,
    f: impl FnOnce(&StripedFile<'_>) -> Result<R>,
) -> Result<R> {
    let Spread { targets, stripe, stripe_size, uncached, way } = options;
    let first = targets.first().ok_or_else(|| anyhow!("expected --target"))?;
    let several = u32::try_from(targets.len())?;
    let raid = Raid0::new(*stripe_size, stripe.unwrap_or(several))?;
    let (node, rpc) = client::node(first, way)?;
    let stop = Stop::of(&rpc)?;
    let limit = Duration::from_secs(way.timeout);
    let connect = |(n, target): (usize, &Target)| -> Result<Client> {
        let uuid = format!("{}-{n}", client_uuid());
        let (name, nids) = (&target.name, target.nids.clone());
        Ok(match uncached {
            true => Client::Plain(ObjClient::new(&rpc, name, &uuid, nids)?.with_limit(limit)),
            false => Client::Cached(Objects::new(&rpc, name, &uuid, nids)?.with_limit(limit)),
        })
    };
    let clients = targets.iter().enumerate().map(connect).collect::<Result<Vec<_>>>()?;
    let places = (0..raid.objects()).zip(targets.iter().zip(&clients).cycle());
    let stripes = places.map(|(n, (target, client))| {
        let id = behind(id, n / several)?;
        let handle = match client {
            Client::Cached(objects) => Handle::Cached(objects.open(id)),
            Client::Plain(obj) => Handle::Plain(obj.clone(), id),
        };
        Ok(Stripe { target, id, import: client.import().clone(), handle })
    });
    let stripes = stripes.collect::<Result<Vec<_>>>();
    let result = stripes.and_then(|stripes| f(&StripedFile { way, raid, stripes }));
    for client in clients {
        match client {
            Client::Cached(objects) => objects.disconnect().map(|_| ())?,
            Client::Plain(obj) => obj.disconnect()?,
        }
    }
    node.stop(Duration::from_secs(1)).blocking();
    result.map_err(|e| stop.explain(e))
}

impl StripedFile<'_> {
    fn stripe(&self, object: u32) -> Result<&Stripe<'_>> {
        self.stripes
            .get(object as usize)
            .ok_or_else(|| anyhow!("object {object}: none in the file"))
    }

    /// Begins to write bytes to an object.
    ///
    /// # Errors
    /// There is no such object.
    pub(super) fn write(
        &self,
        object: u32,
        offset: u64,
        bytes: Vec<u8>,
    ) -> Result<Pending<'_, ()>> {
        let (stripe, way) = (self.stripe(object)?, self.way);
        Ok(match &stripe.handle {
            Handle::Cached(object) => {
                let op = object.write_at(offset, bytes);
                Box::new(move || op.blocking().map(drop).map_err(|e| stripe.explain(way, e)))
            }
            Handle::Plain(obj, id) => {
                let done = obj.write(*id, offset, &bytes);
                Box::new(move || done.map_err(|e| stripe.explain(way, e)))
            }
        })
    }

    /// Begins to read `len` bytes of an object. What lies behind its end reads as zeros.
    ///
    /// # Errors
    /// There is no such object.
    pub(super) fn read(
        &self,
        object: u32,
        offset: u64,
        len: usize,
    ) -> Result<Pending<'_, Vec<u8>>> {
        let (stripe, way) = (self.stripe(object)?, self.way);
        let whole = move |mut bytes: Vec<u8>, read: usize| {
            bytes.truncate(read);
            bytes.resize(len, 0);
            bytes
        };
        Ok(match &stripe.handle {
            Handle::Cached(object) => {
                let op = object.read_at(offset, vec![0; len]);
                Box::new(move || {
                    let (buffer, read) = op.blocking().map_err(|e| stripe.explain(way, e))?;
                    Ok(whole(buffer.into_vec(), read))
                })
            }
            Handle::Plain(obj, id) => {
                let done = obj.read(*id, offset, len);
                Box::new(move || {
                    let bytes = done.map_err(|e| stripe.explain(way, e))?;
                    let read = bytes.len();
                    Ok(whole(bytes, read))
                })
            }
        })
    }

    /// Begins the same operation on all objects, and waits for all.
    fn all(
        &self,
        cached: impl Fn(u32, &Object) -> lustre_rt::ObjectOp,
        plain: impl Fn(u32, &ObjClient, ObjectId) -> Result<u64, ObjError>,
    ) -> Result<Vec<u64>> {
        let begin = |(n, stripe): (u32, &Stripe<'_>)| -> Result<_, (u32, Failure)> {
            match &stripe.handle {
                Handle::Cached(object) => Ok((n, Ok(cached(n, object)))),
                Handle::Plain(obj, id) => {
                    Ok((n, Err(plain(n, obj, *id).map_err(|e| (n, e.into()))?)))
                }
            }
        };
        let begun: Vec<_> = (0..).zip(&self.stripes).map(begin).collect();
        let end = |begun: Result<(u32, Result<lustre_rt::ObjectOp, u64>), (u32, Failure)>| {
            let (n, op) = begun?;
            op.map_or_else(Ok, |op| op.blocking().map_err(|e| (n, e.into())))
        };
        let ends: Vec<Result<u64, (u32, Failure)>> = begun.into_iter().map(end).collect();
        let said = |(n, failure): (u32, Failure)| match self.stripe(n) {
            Ok(stripe) => stripe.explain(self.way, failure),
            Err(e) => e,
        };
        ends.into_iter().collect::<Result<Vec<_>, _>>().map_err(said)
    }

    /// Where the file ends.
    ///
    /// # Errors
    /// An object does not exist, or a target does not answer.
    pub(super) fn size(&self) -> Result<u64> {
        let plain = |_, obj: &ObjClient, id| Ok(obj.stat(id)?.size);
        let ends = self.all(|_, object| object.size(), plain)?;
        Ok(self.raid.file_end(ends))
    }

    /// Cuts the file off, or extends it with zeros.
    ///
    /// # Errors
    /// As [`StripedFile::size`].
    pub(super) fn truncate(&self, size: u64) -> Result<()> {
        let end = |n| self.raid.object_end(n, size);
        let plain = |n, obj: &ObjClient, id| obj.punch(id, end(n)).map(|()| 0);
        self.all(|n, object| object.truncate(end(n)), plain).map(drop)
    }

    /// Waits until what was written survives all servers.
    ///
    /// # Errors
    /// Data was lost, and as [`StripedFile::size`].
    pub(super) fn sync(&self) -> Result<()> {
        let plain = |_, obj: &ObjClient, id| obj.sync(Some(id)).map(|()| 0);
        self.all(|_, object| object.fsync(), plain).map(drop)
    }

    /// Ends the work on the objects.
    ///
    /// # Errors
    /// Data was lost, and as [`StripedFile::size`].
    pub(super) fn close(&self) -> Result<()> {
        self.all(|_, object| object.clone().close(), |_, _, _| Ok(0)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_one_target_follow_each_other_by_number() {
        let fid = ObjectId::of(Fid { seq: 0x2_4000_0400, oid: 2, ver: 0 });
        assert_eq!(behind(ObjectId::old(7), 3).unwrap(), ObjectId::old(10));
        assert_eq!(behind(fid, 3).unwrap().fid().map(|fid| fid.oid), Some(5));
        let last = ObjectId::of(Fid { seq: 0x2_4000_0400, oid: u32::MAX, ver: 0 });
        for id in [last, ObjectId::old(u64::MAX)] {
            let e = behind(id, 1).unwrap_err().to_string();
            assert!(e.contains("no room"), "{e}");
        }
    }
}
