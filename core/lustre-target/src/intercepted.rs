//! A target with an interceptor before it: some requests are served otherwise, or are changed, or are only
//! seen. All else is the target's.

use ldlm::server::LockServer;
use lnet_types::{Errno, Instant};
use lustre_wire::connect::ConnectData;
use lustre_wire::ldlm::ResourceName;
use ptlrpc::{Answer, ExportId, ImportId, ImportState, Rpc, Served, ServedId};

use crate::journal::Cx;
use crate::store::{Outcome, StoreError};
use crate::targets::{Beginning, CallbackFact, Kind};

/// See the module's head.
pub struct Intercepted<K, F> {
    kind: K,
    serve: F,
}

impl<K, F> core::fmt::Debug for Intercepted<K, F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Intercepted").finish_non_exhaustive()
    }
}

impl<K, F> Intercepted<K, F>
where
    K: Kind,
    F: FnMut(&mut K, Served, &mut Cx<'_, '_, '_>) -> Option<Served> + Send,
{
    /// `serve` gets each request first, and gives back what the target is to serve. A request that does not
    /// come back is answered by it.
    pub const fn new(kind: K, serve: F) -> Self {
        Self { kind, serve }
    }
}

impl<K, F> Kind for Intercepted<K, F>
where
    K: Kind,
    F: FnMut(&mut K, Served, &mut Cx<'_, '_, '_>) -> Option<Served> + Send,
{
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn offer(&self) -> ConnectData {
        self.kind.offer()
    }

    fn keeps_records(&self) -> bool {
        self.kind.keeps_records()
    }

    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        if let Some(served) = (self.serve)(&mut self.kind, served, cx) {
            self.kind.serve(served, cx);
        }
    }

    fn bulk_done(
        &mut self,
        served: ServedId,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        self.kind.bulk_done(served, result, cx)
    }

    fn stored(
        &mut self,
        token: u64,
        outcome: Result<Outcome, StoreError>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        self.kind.stored(token, outcome, cx);
    }

    fn answer(&mut self, served: ServedId, answer: Answer, cx: &mut Cx<'_, '_, '_>) {
        self.kind.answer(served, answer, cx);
    }

    fn begin(&mut self, beginning: Beginning, rpc: &mut Rpc<'_, '_>) {
        self.kind.begin(beginning, rpc);
    }

    fn recovered(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.kind.recovered(cx);
    }

    fn refused(&mut self, record: &[u8], cx: &mut Cx<'_, '_, '_>) {
        self.kind.refused(record, cx);
    }

    fn left(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        self.kind.left(export, cx);
    }

    fn waits(&mut self, served: ServedId, export: ExportId, cx: &mut Cx<'_, '_, '_>) -> bool {
        self.kind.waits(served, export, cx)
    }

    fn callback(&mut self, fact: &CallbackFact, cx: &mut Cx<'_, '_, '_>) -> bool {
        self.kind.callback(fact, cx)
    }

    fn import_changed(
        &mut self,
        import: ImportId,
        state: ImportState,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        self.kind.import_changed(import, state, cx)
    }

    fn committed(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.kind.committed(cx);
    }

    fn is_ahead(&self) -> bool {
        self.kind.is_ahead()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.kind.poll_timeout()
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.kind.handle_timeout(cx);
    }

    fn locks(&self) -> Option<&LockServer> {
        self.kind.locks()
    }

    fn resource_name(&self, resource: &ResourceName) -> Option<&str> {
        self.kind.resource_name(resource)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_method_of_a_target_is_passed_on() {
        let (_, kind) = include_str!("targets.rs").split_once("pub trait Kind").unwrap();
        let (kind, _) = kind.split_once("\n}\n").unwrap();
        let names = kind.split("\n    fn ").skip(1).map(|method| method.split_once('(').unwrap().0);
        let names: Vec<&str> = names.collect();
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            let passed = format!("self.kind.{name}(");
            assert!(include_str!("intercepted.rs").contains(&passed), "{name}");
        }
    }
}
