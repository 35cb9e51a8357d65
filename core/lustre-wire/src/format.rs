//! Buffer lists: which structures follow the body (P-17, P-19).
//!
//! Most stand in the table of opcodes. Those of a lock request with an intent, and of a change of
//! metadata, depend on what the request says: [`Variant`] (C-60, C-74, C-85, C-113, C-115).

use crate::ldlm::{Intent, LockFlags, LockRequestHead};
use crate::mds::ReintOp;
use crate::msg::Msg;
use crate::opcode::Opcode;
use crate::{Body, Layout, WireError};

/// How long a buffer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartSize {
    /// Exactly so many bytes.
    Exact(usize),
    /// At least so many bytes.
    AtLeast(usize),
    /// A multiple of so many bytes.
    Array(usize),
    /// A text with its NUL, or nothing.
    Text,
    /// Any number of bytes.
    Any,
}

/// What a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Default ACL or ACL of a file.
    Acl,
    /// Advice for object I/O.
    Advice,
    /// Requests or replies in a batch.
    Batch,
    /// Room for the replies of a batch.
    BatchReplySize,
    /// A capability; empty.
    Capability,
    /// The client's handle of a connection.
    ClientHandle,
    /// UUID of a client.
    ClientUuid,
    /// What else a close does.
    CloseData,
    /// What is read of a target table.
    ConfigBody,
    /// How far a target table was read.
    ConfigResult,
    /// Connect data.
    ConnectData,
    /// Log cookies; empty.
    Cookies,
    /// Default layout of a directory.
    DefaultMd,
    /// Value of an extended attribute, or room for one.
    EaData,
    /// Lengths of the values of extended attributes.
    EaLengths,
    /// Encryption context.
    EncryptionContext,
    /// Open handle of a close.
    Epoch,
    /// What a glimpse asks for beside the lock.
    GlimpseDescriptor,
    /// Data of a small file inside of a reply.
    InlineData,
    /// Intent of a lock request.
    Intent,
    /// Object of a data request.
    IoObj,
    /// Key of an information.
    Key,
    /// Range for which a layout is asked.
    LayoutIntent,
    /// Place in a log.
    LlogdBody,
    /// A lock, asked for, cancelled or called back.
    LockRequest,
    /// A lock as it was granted.
    LockReply,
    /// Records of a log.
    LogBlock,
    /// Header of a log.
    LogHeader,
    /// Lock value block.
    Lvb,
    /// Layout, or text of a symbolic link.
    Md,
    /// Metadata of a file.
    MdtBody,
    /// Mirrors that are in step again.
    MirrorIds,
    /// A name.
    Name,
    /// NIDs as texts.
    NidList,
    /// Ranges of a data request.
    Niobufs,
    /// Attributes of an object.
    OstBody,
    /// Request for quota.
    Quotactl,
    /// A change of metadata.
    Record,
    /// Results, one for each range.
    Results,
    /// Security attribute's name or value.
    SecurityContext,
    /// SELinux policy of the client.
    SelinuxPolicy,
    /// What is wanted of a range of sequences.
    SeqOp,
    /// A range of sequences.
    SeqRange,
    /// Ranges of sequences.
    SeqRanges,
    /// Data inside of a message.
    ShortIo,
    /// Space.
    Statfs,
    /// A target as its server registers it.
    TargetInfo,
    /// UUID of a target.
    TargetUuid,
    /// Value of an information.
    Value,
}

impl Part {
    /// How long the buffer may be.
    pub const fn size(self) -> PartSize {
        match self {
            Self::TargetUuid | Self::ClientUuid | Self::Name | Self::SelinuxPolicy => {
                PartSize::Text
            }
            Self::ClientHandle | Self::Intent => PartSize::Exact(8),
            Self::SeqOp => PartSize::Exact(4),
            Self::OstBody => PartSize::Exact(208),
            Self::MdtBody => PartSize::Exact(216),
            Self::Record => PartSize::Exact(136),
            Self::IoObj | Self::Epoch | Self::SeqRange | Self::LayoutIntent => PartSize::Exact(24),
            Self::LlogdBody => PartSize::Exact(48),
            Self::LockRequest => PartSize::AtLeast(104),
            Self::LockReply => PartSize::Exact(112),
            Self::Statfs => PartSize::Exact(144),
            Self::TargetInfo => PartSize::Exact(4544),
            Self::ConfigBody => PartSize::Exact(80),
            Self::ConfigResult => PartSize::Exact(16),
            Self::Niobufs => PartSize::Array(16),
            Self::Results | Self::EaLengths => PartSize::Array(4),
            // Not checked, or checked where it is read.
            _ => PartSize::Any,
        }
    }

    fn check(self, b: &[u8]) -> Result<(), WireError> {
        let what = self.name();
        let wrong = |need| Err(WireError::Size { what, need, have: b.len() });
        match self.size() {
            PartSize::Exact(need) if b.len() != need => wrong(need),
            PartSize::Array(need) if !b.len().is_multiple_of(need) => wrong(need),
            PartSize::AtLeast(need) if b.len() < need => {
                Err(WireError::Short { what, need, have: b.len() })
            }
            PartSize::Text if !b.is_empty() && !b.contains(&0) => {
                Err(WireError::Unterminated { what, len: b.len() })
            }
            _ => Ok(()),
        }
    }

    /// What errors call the buffer.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acl => "ACL",
            Self::Advice => "advice",
            Self::Batch => "batch",
            Self::BatchReplySize => "batch reply size",
            Self::Capability => "capability",
            Self::ClientHandle => "client handle",
            Self::ClientUuid => "client uuid",
            Self::CloseData => "close data",
            Self::ConfigBody => "config body",
            Self::ConfigResult => "config result",
            Self::ConnectData => "connect data",
            Self::Cookies => "log cookies",
            Self::DefaultMd => "default layout",
            Self::EaData => "extended attribute",
            Self::EaLengths => "attribute lengths",
            Self::EncryptionContext => "encryption context",
            Self::Epoch => "epoch",
            Self::GlimpseDescriptor => "glimpse descriptor",
            Self::InlineData => "inline data",
            Self::Intent => "intent",
            Self::IoObj => "ioobj",
            Self::Key => "key",
            Self::LayoutIntent => "layout intent",
            Self::LlogdBody => "llogd body",
            Self::LockRequest => "lock request",
            Self::LockReply => "lock reply",
            Self::LogBlock => "log block",
            Self::LogHeader => "log header",
            Self::Lvb => "lock value block",
            Self::Md => "layout",
            Self::MdtBody => "mdt body",
            Self::MirrorIds => "mirror ids",
            Self::Name => "name",
            Self::NidList => "NID list",
            Self::Niobufs => "niobuf",
            Self::OstBody => "ost body",
            Self::Quotactl => "quotactl",
            Self::Record => "record",
            Self::Results => "results",
            Self::SecurityContext => "security context",
            Self::SelinuxPolicy => "SELinux policy",
            Self::SeqOp => "sequence operation",
            Self::SeqRange => "sequence range",
            Self::SeqRanges => "sequence ranges",
            Self::ShortIo => "inline data",
            Self::Statfs => "statfs",
            Self::TargetInfo => "target info",
            Self::TargetUuid => "target uuid",
            Self::Value => "value",
        }
    }
}

/// The buffers behind the body, in order. The last ones may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    parts: &'static [Part],
    required: usize,
}

impl Format {
    /// A list whose first `required` buffers must be there.
    pub(crate) const fn new(parts: &'static [Part], required: usize) -> Self {
        Self { parts, required }
    }

    /// The buffers; the first of them has index 1.
    pub const fn parts(&self) -> &'static [Part] {
        self.parts
    }

    /// How many of them must be there.
    pub const fn required(&self) -> usize {
        self.required
    }

    /// The index of a buffer, the first if there are several of its kind.
    pub fn index(&self, part: Part) -> Option<usize> {
        self.parts.iter().position(|p| *p == part).map(|i| i + 1)
    }

    /// Whether a message has the buffers, each of a length that its receiver takes. Buffers beyond
    /// the list are ignored.
    ///
    /// # Errors
    /// The first buffer that is missing or has another length.
    pub fn check(&self, msg: &Msg<'_>) -> Result<(), WireError> {
        for (i, part) in self.parts.iter().enumerate() {
            match msg.buffer(i + 1) {
                // A buffer that may be left out may be empty.
                Some([]) if i >= self.required => {}
                Some(b) => part.check(b)?,
                None if i < self.required => {
                    msg.required(part.name(), i + 1)?;
                }
                None => break,
            }
        }
        Ok(())
    }
}

/// What a request says beside its opcode, where the buffers depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// Nothing.
    #[default]
    Plain,
    /// A lock request with an intent.
    Intent(Intent),
    /// A change of metadata.
    Reint(ReintOp),
}

macro_rules! list {
    ($($part:ident)* | $($option:ident)*) => {
        Some(Format::new(
            &[$(Part::$part,)* $(Part::$option,)*],
            <[Part]>::len(&[$(Part::$part,)*]),
        ))
    };
}

impl Variant {
    /// What a request says. A request that is too short for it says nothing.
    pub fn of(request: &Msg<'_>, body: &Body) -> Self {
        match body.opcode {
            Opcode::LDLM_ENQUEUE => {
                let head = request.buffer(1).unwrap_or_default();
                let flags = LockRequestHead::parse(request.order, head).map(|head| head.flags);
                let has = flags.is_ok_and(|flags| flags.contains(LockFlags::HAS_INTENT));
                match request.get(2) {
                    Ok(intent) if has => Self::Intent(intent),
                    _ => Self::Plain,
                }
            }
            Opcode::MDS_REINT => match request.buffer(1) {
                Some(record) if record.len() >= ReintOp::LEN => {
                    Self::Reint(ReintOp::get(request.order, record))
                }
                _ => Self::Plain,
            },
            _ => Self::Plain,
        }
    }

    /// Buffers of the request, if they are known.
    pub fn request(self, opcode: Opcode) -> Option<Format> {
        match self {
            Self::Plain => opcode.row()?.request,
            Self::Intent(intent) if intent.intersects(Intent::OPEN | Intent::CREAT) => list!(
                LockRequest Intent Record Capability Capability Name
                | EaData SecurityContext SecurityContext SelinuxPolicy EncryptionContext
            ),
            Self::Intent(intent) if intent.intersects(Intent::GETATTR | Intent::LOOKUP) => {
                list!(LockRequest Intent MdtBody Capability Name | SecurityContext)
            }
            Self::Intent(Intent::GETXATTR) => {
                list!(LockRequest Intent MdtBody | Capability SelinuxPolicy)
            }
            Self::Intent(Intent::LAYOUT) => list!(LockRequest Intent LayoutIntent | EaData),
            Self::Intent(_) => list!(LockRequest Intent |),
            Self::Reint(op) => match op {
                ReintOp::CREATE => list!(
                    Record Capability Name
                    | EaData LockRequest SecurityContext SecurityContext SelinuxPolicy
                    EncryptionContext
                ),
                ReintOp::LINK => {
                    list!(Record Capability Capability Name | LockRequest SelinuxPolicy)
                }
                ReintOp::UNLINK => list!(Record Capability Name | LockRequest SelinuxPolicy),
                ReintOp::RENAME => {
                    list!(Record Capability Capability Name Name | LockRequest SelinuxPolicy)
                }
                ReintOp::SETATTR => list!(Record | Capability Epoch EaData Cookies LockRequest),
                ReintOp::SETXATTR => {
                    list!(Record Capability Name EaData | LockRequest SelinuxPolicy)
                }
                ReintOp::MIGRATE => list!(
                    Record Capability Capability Name
                    | EaData LockRequest SelinuxPolicy Epoch CloseData
                ),
                ReintOp::RESYNC => list!(Record | LockRequest),
                _ => None,
            },
        }
    }

    /// Buffers of the reply, if they are known.
    pub fn reply(self, opcode: Opcode) -> Option<Format> {
        match self {
            Self::Plain => opcode.row()?.reply,
            Self::Intent(intent) if intent.intersects(Intent::OPEN | Intent::CREAT) => list!(
                LockReply
                | MdtBody Md Acl Capability Capability InlineData SecurityContext
                EncryptionContext DefaultMd
            ),
            Self::Intent(intent) if intent.intersects(Intent::GETATTR | Intent::LOOKUP) => list!(
                LockReply
                | MdtBody Md Acl Capability SecurityContext DefaultMd EncryptionContext
            ),
            Self::Intent(Intent::GETXATTR) => {
                list!(LockReply | MdtBody Md Acl EaData EaData EaLengths)
            }
            Self::Intent(Intent::LAYOUT) => list!(LockReply | Md),
            Self::Intent(_) => list!(LockReply | Lvb),
            Self::Reint(op) => match op {
                ReintOp::SETATTR => list!(MdtBody | Md Acl Capability Capability),
                ReintOp::CREATE => list!(MdtBody | Capability Md),
                ReintOp::UNLINK | ReintOp::RENAME | ReintOp::MIGRATE => {
                    list!(MdtBody | Md Cookies Capability Capability)
                }
                ReintOp::LINK | ReintOp::SETXATTR => list!(MdtBody |),
                _ => None,
            },
        }
    }
}
