//! Changes that targets have answered and may still lose (C-261). A client that has left repeats nothing: so
//! a visit ends with a sync of each target of which it is not known that it has committed all. What an
//! eviction has made void is said once: by the next sync of all or the end, and of a file that was changed
//! by its next fsync or its close.

use core::sync::atomic::{AtomicU64, Ordering};

use ptlrpc::CallError;

use super::join::join;
use super::remote::Remote;
use super::{IN_FLIGHT, OpenFile, VisitError, Visitor, Wire, mdc, ost};
use crate::sabotage::Sabotage;

impl<W: Wire> Visitor<W> {
    /// Targets that have answered a change of this visit.
    fn changed(&self) -> impl Iterator<Item = &Remote<W::Link>> {
        self.mdts.values().chain(self.osts.values()).filter(|remote| remote.has_changed())
    }

    /// How many changes evictions have made void so far.
    pub(super) fn losses(&self) -> u64 {
        self.changed().map(|remote| remote.losses(&self.wire)).sum()
    }

    /// Says what is lost of which `said` does not know yet.
    fn say_losses(&self, said: &AtomicU64) -> Result<(), VisitError> {
        let losses = self.losses();
        let count = losses.saturating_sub(said.swap(losses, Ordering::Relaxed));
        let target = self.changed().find(|remote| remote.losses(&self.wire) > 0);
        match target {
            Some(remote) if count > 0 => {
                Err(VisitError::ChangesLost { target: remote.uuid.clone(), count })
            }
            _ => Ok(()),
        }
    }

    /// Changes that were answered, of any file, and that an eviction may have lost since this was asked
    /// before. It asks no target.
    ///
    /// # Errors
    /// [`VisitError::ChangesLost`], once.
    pub fn check_losses(&self) -> Result<(), VisitError> {
        self.say_losses(&self.said_losses)
    }

    /// The same of a file, if this client has changed it.
    pub(super) fn check_losses_of(&self, file: &OpenFile) -> Result<(), VisitError> {
        match file.is_changed() {
            true => self.say_losses(&file.said_losses),
            false => Ok(()),
        }
    }

    /// Waits until all that this visit has changed is committed. No target is asked that has it committed, as
    /// far as this client knows.
    ///
    /// # Errors
    /// [`VisitError::ChangesLost`], once; no answer.
    pub async fn settle(&self) -> Result<(), VisitError> {
        if self.breaks(Sabotage::SettledEarly) {
            return self.check_losses();
        }
        let all: Vec<_> = self.changed().map(|remote| self.settled(remote)).collect();
        let settled = join(all, IN_FLIGHT).await.into_iter().collect::<Result<(), _>>();
        // What is lost says more than which target has not answered.
        self.check_losses().and(settled)
    }

    async fn settled(&self, remote: &Remote<W::Link>) -> Result<(), VisitError> {
        let Some(link) = &remote.link else { return Ok(()) };
        if !self.wire.uncommitted(link).await {
            return Ok(());
        }
        let sync = || match self.mdts.values().any(|mdt| mdt.uuid == remote.uuid) {
            true => mdc::sync(&self.who, Default::default()),
            false => ost::sync_all(),
        };
        let result = match remote.ask(&self.wire, sync()).await {
            // What that has cost is known once the next call has been answered.
            Err(VisitError::Call { error: CallError::Evicted, .. }) => {
                remote.ask(&self.wire, sync()).await
            }
            result => result,
        };
        result.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use core::future::Future;
    use core::pin::pin;
    use core::sync::atomic::AtomicBool;
    use core::task::{Context, Poll, Waker};
    use lustre_wire::Buffers;
    use std::collections::BTreeMap;

    use lustre_wire::{ConnectData, Opcode};
    use ptlrpc::{Call, CallId, ImportConfig, Reply};

    use super::super::fids::Fids;
    use super::super::places::Places;
    use super::super::{End, Identity, Moved};
    use super::*;

    /// A server that answers all, and may evict its client.
    #[derive(Debug, Default)]
    struct Server {
        changes: AtomicU64,
        /// Of metadata targets, and of object targets.
        syncs: [AtomicU64; 2],
        others: AtomicU64,
        uncommitted: AtomicU64,
        losses: AtomicU64,
        /// The next call learns of an eviction.
        evicts: AtomicBool,
    }

    fn count(of: &AtomicU64) -> u64 {
        of.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn set(of: &AtomicU64, to: u64) {
        of.store(to, Ordering::Relaxed);
    }

    impl Wire for Server {
        type Link = ();

        fn link(&self, _: ImportConfig) -> Result<(), CallError> {
            Ok(())
        }

        fn connect(&self, (): &()) {}

        async fn call(&self, (): &(), call: Call, _: Moved) -> End {
            if self.evicts.swap(false, Ordering::Relaxed) {
                let lost = self.uncommitted.swap(0, Ordering::Relaxed);
                self.losses.fetch_add(lost, Ordering::Relaxed);
                return CallError::Evicted.into();
            }
            let mut transno = 0;
            match call.opcode {
                _ if call.modifies => {
                    transno = count(&self.changes);
                    count(&self.uncommitted);
                }
                Opcode::MDS_SYNC => _ = (count(&self.syncs[0]), set(&self.uncommitted, 0)),
                Opcode::OST_SYNC => _ = (count(&self.syncs[1]), set(&self.uncommitted, 0)),
                _ => _ = count(&self.others),
            }
            let reply = Reply { status: 0, transno, message: Vec::new() };
            End { result: Ok(reply), bytes: Vec::new(), call: None }
        }

        async fn handle(&self, (): &(), _: CallId) -> Option<u64> {
            None
        }

        async fn terms(&self, (): &()) -> ConnectData {
            ConnectData::default()
        }

        async fn uncommitted(&self, (): &()) -> bool {
            self.uncommitted.load(Ordering::Relaxed) > 0
        }

        fn losses(&self, (): &()) -> u64 {
            self.losses.load(Ordering::Relaxed)
        }

        async fn close(&self, (): &()) {}

        async fn pause(&self, _: u32) {}

        fn now(&self) -> i64 {
            0
        }
    }

    fn run<R>(future: impl Future<Output = R>) -> R {
        let mut future = pin!(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("nothing waits"),
        }
    }

    const MDT: &str = "lfs-MDT0000_UUID";
    const OST: &str = "lfs-OST0000_UUID";

    /// A visit to a metadata target and an object target.
    fn visitor() -> Visitor<Server> {
        let remote = |uuid: &str| Remote::new(uuid.to_owned(), Vec::new(), Some(()), Fids::new());
        Visitor {
            wire: Server::default(),
            client: String::new(),
            who: Identity::default(),
            mdts: BTreeMap::from([(0, remote(MDT))]),
            osts: BTreeMap::from([(0, remote(OST))]),
            root: Default::default(),
            places: Places::default(),
            balance: Default::default(),
            root_default: Default::default(),
            cookies: AtomicU64::new(1),
            said_losses: AtomicU64::new(0),
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }

    fn ask(visitor: &Visitor<Server>, remote: &Remote<()>, opcode: Opcode) {
        let _ = run(remote.ask(&visitor.wire, Call::new(opcode, Buffers::new())));
    }

    /// How many syncs metadata targets and object targets were asked for.
    fn syncs(visitor: &Visitor<Server>) -> [u64; 2] {
        [0, 1].map(|kind: usize| visitor.wire.syncs[kind].swap(0, Ordering::Relaxed))
    }

    fn lost(count: u64) -> Result<(), VisitError> {
        Err(VisitError::ChangesLost { target: MDT.to_owned(), count })
    }

    #[test]
    fn c261_a_visit_ends_with_a_sync_of_each_target_that_has_changes_to_commit() {
        let visitor = visitor();
        // An open is to be committed, which has made nothing.
        ask(&visitor, &visitor.mdts[&0], Opcode::MDS_STATFS);
        set(&visitor.wire.uncommitted, 1);
        assert_eq!((run(visitor.settle()), syncs(&visitor)), (Ok(()), [0, 0]));
        for (remote, change, asked) in [
            (&visitor.mdts[&0], Opcode::MDS_REINT, [1, 0]),
            (&visitor.osts[&0], Opcode::OST_PUNCH, [0, 1]),
        ] {
            // All targets of the test share one server.
            set(&visitor.wire.uncommitted, 0);
            ask(&visitor, remote, change);
            assert_eq!((run(visitor.settled(remote)), syncs(&visitor)), (Ok(()), asked));
            assert_eq!((run(visitor.settle()), syncs(&visitor)), (Ok(()), [0, 0]));
        }
        ask(&visitor, &visitor.mdts[&0], Opcode::MDS_REINT);
        assert_eq!(run(visitor.end()), Ok(()));
    }

    #[test]
    fn c261_changes_that_an_eviction_has_lost_are_said_once_though_no_call_has_met_it() {
        let visitor = visitor();
        // What was lost before the first change is not this visit's.
        set(&visitor.wire.losses, 7);
        ask(&visitor, &visitor.mdts[&0], Opcode::MDS_REINT);
        assert_eq!(visitor.check_losses(), Ok(()));
        set(&visitor.wire.losses, 9);
        assert_eq!((run(visitor.sync()), run(visitor.settle())), (lost(2), Ok(())));
        set(&visitor.wire.losses, 10);
        assert_eq!((run(visitor.settle()), run(visitor.sync())), (lost(1), Ok(())));
        set(&visitor.wire.losses, 13);
        assert_eq!(run(visitor.end()), lost(3));
    }

    #[test]
    fn c261_an_eviction_that_the_last_sync_meets_is_said_by_what_it_has_lost() {
        let visitor = visitor();
        ask(&visitor, &visitor.mdts[&0], Opcode::MDS_REINT);
        set(&visitor.wire.uncommitted, 3);
        visitor.wire.evicts.store(true, Ordering::Relaxed);
        assert_eq!((run(visitor.settle()), syncs(&visitor)), (lost(3), [1, 0]));
    }
}
