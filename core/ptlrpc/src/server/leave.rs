//! A client disconnects. A target that keeps records takes the client's away first, so that none who
//! comes after a crash waits for one that had gone in peace (P-104, P-131).

use lustre_wire::Body;

use super::Server;
use super::service::Origin;
use crate::common::Cx;
use crate::event::Event;
use crate::table::ExportId;

/// A disconnect that waits for its answer.
#[derive(Debug)]
pub(crate) struct Leaving {
    origin: Origin,
    body: Body,
}

impl Server {
    pub(super) fn disconnect(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: Origin,
        id: ExportId,
        body: Body,
    ) {
        let Some(export) = self.exports.get_mut(id) else { return };
        let (target, client) = (export.target, export.client.clone());
        let keeps = self.targets.get(target).is_some_and(|t| t.config.replayable);
        // The answer goes to the last copy.
        let copy = export.leaving.replace(Box::new(Leaving { origin, body })).is_some();
        if !copy {
            cx.common.events.push_back(Event::Disconnected { export: id, target, client });
        }
        if !keeps {
            self.left(cx, id);
        }
    }

    /// Nothing is stored of a client that disconnects.
    pub(crate) fn left(&mut self, cx: &mut Cx<'_, '_>, id: ExportId) {
        let leaving = self.exports.get_mut(id).and_then(|export| export.leaving.take());
        let Some(leaving) = leaving else { return };
        self.answer_at_once(cx, &leaving.origin, id, &leaving.body);
        self.drop_export(cx, id);
    }
}
