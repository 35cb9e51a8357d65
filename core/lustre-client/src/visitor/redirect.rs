//! Changes that a target refuses because another one has to make them: the refusal names a file of that
//! one (C-126, C-131, C-133, C-296).

use lnet_types::Errno;
use lustre_wire::Fid;
use lustre_wire::fid::Valid;
use lustre_wire::mds::MdtBody;
use ptlrpc::Call;

use super::remote::{Answer, Remote};
use super::walk::Node;
use super::{VisitError, Visitor, Wire};

/// How often a change goes on to another target. The protocol names no number: the second target is the
/// right one, unless the file moves on meanwhile. Two that name each other do not hold a visit up.
pub(super) const REDIRECTS_MAX: u32 = 4;

/// Why a target has not done what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) error: VisitError,
    /// A file of the target that can do it, if there is one.
    pub(super) elsewhere: Option<Fid>,
}

impl From<VisitError> for Refusal {
    fn from(error: VisitError) -> Self {
        Self { error, elsewhere: None }
    }
}

impl Refusal {
    /// The same of a path: as [`VisitError::at`].
    pub(super) fn at(self, path: &[u8]) -> Self {
        Self { error: self.error.at(path), ..self }
    }
}

/// The file by which a refusal names another target. `EXDEV` is final unless it says that the file is
/// elsewhere (C-296).
pub(super) fn elsewhere(errno: Errno, body: &MdtBody) -> Option<Fid> {
    let named = match errno {
        Errno::EREMOTE => true,
        Errno::EXDEV => body.valid.contains(Valid::MDS),
        _ => false,
    };
    (named && body.fid1 != Fid::default()).then_some(body.fid1)
}

impl<L> Remote<L> {
    /// A call whose refusal may name another target: in the attributes at `place` of the reply.
    pub(super) async fn ask_or_refuse<W: Wire<Link = L>>(
        &self,
        wire: &W,
        call: Call,
        place: usize,
    ) -> Result<Answer, Refusal> {
        let answer = self.ask(wire, Call { error_reply: true, ..call }).await?;
        if answer.reply.status >= 0 {
            return Ok(answer);
        }
        let errno = Errno(answer.reply.status.saturating_neg());
        let body: Option<MdtBody> = answer.get(place);
        let elsewhere = body.and_then(|body| elsewhere(errno, &body));
        let error = VisitError::Refused { target: self.uuid.clone(), errno };
        Err(Refusal { error, elsewhere })
    }
}

impl<W: Wire> Visitor<W> {
    /// The target to which a refusal sends a change that has gone on `turn` times.
    ///
    /// # Errors
    /// The refusal, if it names no other target or the change has gone on often enough; no answer to
    /// where the file is.
    pub(super) async fn redirected(
        &self,
        asked: &Remote<W::Link>,
        refusal: Refusal,
        turn: u32,
    ) -> Result<&Remote<W::Link>, VisitError> {
        let Refusal { error, elsewhere } = refusal;
        let Some(fid) = elsewhere.filter(|_| turn < REDIRECTS_MAX) else { return Err(error) };
        match self.mdt_of(fid).await {
            Ok(mdt) if mdt.uuid != asked.uuid => Ok(mdt),
            // The same one, or a file of which no target knows.
            Ok(_) | Err(VisitError::Refused { .. }) => Err(error),
            Err(e) => Err(e),
        }
    }

    /// A directory as it is now, if its names are in other stripes by now. `None` also if it is not there.
    pub(super) async fn laid_anew(&self, dir: &Node) -> Option<Node> {
        let now = self.node_of(dir.fid).await.ok()?;
        let other = now.dir_layout() != dir.dir_layout();
        let (from, parent, depth) = (dir.dir, dir.parent.clone(), dir.depth);
        other.then_some(Node { dir: from, parent, depth, ..now })
    }

    /// The same after an error of a change in it, if that may be why: a target does not know a stale directory
    /// (C-163).
    ///
    /// # Errors
    /// The error, if it has another reason.
    pub(super) async fn relaid(&self, dir: &Node, error: VisitError) -> Result<Node, VisitError> {
        if error.errno() != Errno::ESTALE {
            return Err(error);
        }
        self.laid_anew(dir).await.ok_or(error)
    }

    /// A file as it is found by its name now, if an error of a change of the name may come of a stale
    /// directory, and the name is in another stripe by now.
    ///
    /// # Errors
    /// As [`Visitor::relaid`].
    pub(super) async fn refound(&self, node: &Node, error: VisitError) -> Result<Node, VisitError> {
        if error.errno() != Errno::ESTALE {
            return Err(error);
        }
        let name = node.parent.2.as_slice();
        let found = async {
            let dir = self.node_of(node.dir).await.ok()?;
            self.lookup_in(&dir, name, name).await.ok()?
        };
        let found = found.await;
        found.filter(|now| now.fid == node.fid && now.parent.0 != node.parent.0).ok_or(error)
    }

    /// A change of metadata, by the target that is likely to have to make it, or the one to which that
    /// sends it on. `call` makes it; its argument is whether it goes on.
    pub(super) async fn ask_for(
        &self,
        first: &Remote<W::Link>,
        call: impl Fn(bool) -> Call,
    ) -> Result<Answer, VisitError> {
        let (mut mdt, mut turn) = (first, 0);
        loop {
            match mdt.ask_or_refuse(&self.wire, call(turn > 0), 1).await {
                Ok(answer) => return Ok(answer),
                Err(refusal) => mdt = self.redirected(mdt, refusal, turn).await?,
            }
            turn += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c296_a_refusal_names_another_target_by_a_file_of_it() {
        let fid = Fid { seq: 0x2_4000_0403, oid: 5, ver: 0 };
        let there = MdtBody { fid1: fid, valid: Valid::MDS | Valid::ID, ..MdtBody::default() };
        let plain = MdtBody { fid1: fid, ..MdtBody::default() };
        let none = MdtBody { valid: Valid::MDS, ..MdtBody::default() };
        for (errno, body, named) in [
            (Errno::EREMOTE, &there, Some(fid)),
            (Errno::EREMOTE, &plain, Some(fid)),
            (Errno::EREMOTE, &none, None),
            (Errno::EXDEV, &there, Some(fid)),
            (Errno::EXDEV, &plain, None),
            (Errno::EXDEV, &none, None),
            (Errno::ENOENT, &there, None),
        ] {
            assert_eq!(elsewhere(errno, body), named, "{errno:?}");
        }
    }
}
