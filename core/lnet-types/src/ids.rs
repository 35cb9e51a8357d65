//! Names of things inside one node. Ids are resolved once at the border and carried from there; a
//! stale one is noticed (generation counters), never taken for its successor.

slotmap::new_key_type! {
    /// A local network interface of this node.
    pub struct NiId;
    /// A peer node: one identity with one or more peer NIs.
    pub struct PeerId;
    /// One interface of a peer.
    pub struct PeerNiId;
    /// A memory descriptor; its 64-bit form is the object cookie of wire handles.
    pub struct MdId;
    /// A message somewhere between its birth in the node and its one terminal outcome.
    pub struct MsgId;
}

/// A driver's name for a message whose header has arrived and whose payload has not been asked for.
/// Chosen by the driver, unique among the messages that it has in hand on one NI.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct RxId(pub u64);
