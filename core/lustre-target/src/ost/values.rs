//! Attributes of objects that are read for the locks that they go with (L-18): where a replay has brought locks
//! back that others wait for (L-25), and where the store has refused a change that locks show already. One object
//! after the other in one turn, so that no change comes between a record and what locks say of it.

use ptlrpc::ServedId;

use super::name::Name;
use super::object::Object;
use super::{Ost, VALUES};
use crate::journal::Cx;
use crate::store::{Outcome, Source, Space, StoreError, StoreOrder};

impl Ost {
    /// The recovery is over: waiting locks are granted when the attributes are known that go with them.
    pub(super) fn begin_grants(&mut self, cx: &mut Cx<'_, '_, '_>) {
        let Some(locks) = &self.locks else { return };
        let lacking = locks.space().without_value();
        let names: Vec<Name> = lacking.filter_map(|name| Name::of_resource(&name)).collect();
        self.recovering = true;
        self.read_values(names, cx);
        self.end_recovery(cx);
    }

    fn end_recovery(&mut self, cx: &mut Cx<'_, '_, '_>) {
        if self.unread.is_empty()
            && core::mem::take(&mut self.recovering)
            && let Some(locks) = &mut self.locks
        {
            locks.recovered(cx.rpc);
        }
    }

    /// The store has refused a change of an object: what its locks show of it is not there.
    pub(super) fn show_again(&mut self, name: Name, cx: &mut Cx<'_, '_, '_>) {
        let resource = name.resource();
        let shows = |locks: &ldlm::server::LockServer| locks.space().value(&resource).is_some();
        if self.locks.as_ref().is_some_and(shows) {
            self.read_values(vec![name], cx);
        }
    }

    /// Reads the records of objects when the turn comes.
    fn read_values(&mut self, names: Vec<Name>, cx: &mut Cx<'_, '_, '_>) {
        let idle = self.unread.is_empty();
        self.unread.extend(names);
        if idle && !self.unread.is_empty() {
            self.queue.push_back(ServedId::from(VALUES));
            self.next_turn(cx);
        }
    }

    /// Reads the next record.
    pub(super) fn read_value(&self, cx: &mut Cx<'_, '_, '_>) {
        if let Some(name) = self.unread.front() {
            let from = Source::Record(Space::Objects, name.key());
            cx.order(StoreOrder::Read { token: VALUES, from });
        }
    }

    /// A record was read. An object without one has no bytes.
    pub(super) fn value_read(
        &mut self,
        outcome: Result<Outcome, StoreError>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(name) = self.unread.pop_front() else { return };
        if let Ok(Outcome::Record(record)) = outcome
            && let Some(object) =
                record.as_deref().map_or_else(|| Some(Object::default()), Object::read)
        {
            self.show_locks(name, &object);
        }
        self.read_value(cx);
        self.end_recovery(cx);
    }
}
