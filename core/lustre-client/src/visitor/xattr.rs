//! Extended attributes, ACLs among them (C-235 … C-240).

use lnet_types::Errno;
use lustre_wire::mds::MdtBody;

use super::reint::{self, SetXattr};
use super::walk::Node;
use super::{VisitError, Visitor, Wire, mdc};

/// Most bytes of a value, and of all names.
pub const XATTR_MAX: u32 = 64 << 10;
/// How often a value is asked for that grows meanwhile.
const TRIES: u32 = 4;

impl<W: Wire> Visitor<W> {
    async fn value(&self, node: &Node, name: Option<&[u8]>) -> Result<Vec<u8>, VisitError> {
        let mdt = self.mdt_of(node.fid).await?;
        let failed = |e: VisitError| match name {
            Some(name) => e.at(name),
            None => e,
        };
        let mut tries = 0;
        loop {
            let call = mdc::xattr(&self.who, node.fid, name, 0);
            let len: Option<MdtBody> = mdt.ask(&self.wire, call).await.map_err(failed)?.get(1);
            let len = len.ok_or_else(|| mdt.bad("expected the length of an attribute"))?.eadatasize;
            if len == 0 {
                return Ok(Vec::new());
            }
            if len > XATTR_MAX {
                return Err(mdt.bad("expected an attribute of at most 64 KiB"));
            }
            let call = mdc::xattr(&self.who, node.fid, name, len);
            match mdt.ask(&self.wire, call).await {
                // It has grown.
                Err(VisitError::Refused { errno: Errno::ERANGE, .. }) if tries < TRIES => {
                    tries += 1
                }
                answer => {
                    let reply = answer.map_err(failed)?.reply;
                    let msg = reply.msg().map_err(|_| mdt.bad("expected a message"))?;
                    let body: MdtBody =
                        msg.get(1).map_err(|_| mdt.bad("expected the length of an attribute"))?;
                    let bytes = msg.buffer(2).unwrap_or_default();
                    let bytes = bytes.get(..body.eadatasize as usize).unwrap_or(bytes);
                    return Ok(bytes.to_vec());
                }
            }
        }
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none, no answer.
    pub async fn get_xattr(&self, node: &Node, name: &[u8]) -> Result<Vec<u8>, VisitError> {
        self.value(node, Some(name)).await
    }

    /// The names of all extended attributes that this user may see.
    ///
    /// # Errors
    /// No answer.
    pub async fn list_xattrs(&self, node: &Node) -> Result<Vec<Vec<u8>>, VisitError> {
        let names = self.value(node, None).await?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EEXIST` or `ENODATA` as `how` says, a file that may not be changed, no space, no answer.
    pub async fn set_xattr(
        &self,
        node: &Node,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<(), VisitError> {
        self.change_xattr(node, name, Some((value, how))).await
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none, a file that may not be changed, no answer.
    pub async fn remove_xattr(&self, node: &Node, name: &[u8]) -> Result<(), VisitError> {
        self.change_xattr(node, name, None).await
    }

    async fn change_xattr(
        &self,
        node: &Node,
        name: &[u8],
        value: Option<(&[u8], SetXattr)>,
    ) -> Result<(), VisitError> {
        let failed = |errno| Err(VisitError::Path { path: name.to_vec(), errno });
        if name.is_empty() || name.contains(&0) {
            return failed(Errno::EINVAL);
        }
        if name.len() > 255 || value.is_some_and(|(value, _)| value.len() > XATTR_MAX as usize) {
            return failed(Errno::ERANGE);
        }
        let mdt = self.mdt_of(node.fid).await?;
        let of = (node.fid, node.body.gid);
        let call = |_| reint::setxattr(&self.who, of, name, value, self.wire.now());
        self.ask_for(mdt, call).await.map_err(|e| e.at(name)).map(|_| ())
    }
}
