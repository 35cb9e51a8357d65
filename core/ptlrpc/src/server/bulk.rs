//! Bulk data of a request that is being served (P-46 … P-53).

use lnet::{Event as LnetEvent, Get, MdOptions, Put};
use lnet_types::{Errno, IoVec};

use super::Server;
use super::service::Moving;
use crate::client::Direction;
use crate::common::{Cx, Post, Word, errno, spec};
use crate::cut::PIECES_MAX;
use crate::event::Event;
use crate::lose::Part;
use crate::table::ServedId;
use crate::timers::Timer;

impl Server {
    /// Moves the bulk data between `memory` and the client's; [`Event::BulkDone`] says when. What is
    /// read may have fewer bytes than the client has posted.
    pub(crate) fn bulk(
        &mut self,
        cx: &mut Cx<'_, '_>,
        id: ServedId,
        direction: Direction,
        memory: &IoVec,
    ) -> Result<(), Errno> {
        let now = cx.below.now();
        let Some(work) = self.work.get_mut(id) else { return Err(Errno::ENOENT) };
        if work.began.is_none() || work.bulk.is_some() {
            return Err(Errno::EBUSY);
        }
        // P-48, P-49: the client names the match bits of the last piece, and the first one's are a
        // multiple of the most that there can be.
        let first = work.body.mbits & !(PIECES_MAX - 1);
        let posted = work.body.mbits - first + 1;
        let cut = work.cut;
        let filled = cut.pieces_of(memory);
        let fits = match direction {
            Direction::Read => filled <= posted,
            Direction::Write => filled == posted,
        };
        if work.body.mbits == 0 || !fits {
            return Err(Errno::EPROTO);
        }
        let portal = self.services.get(work.origin.service).map(|s| s.config.bulk_portal);
        let Some(portal) = portal else { return Err(Errno::ENOENT) };
        let until = work.origin.deadline.min(now + cx.common.tunables.bulk_limit());
        // P-53: its client has gone, or has connected anew.
        let export = self.exports.get(work.export);
        let gone = export.is_none_or(|export| work.body.conn_cnt < export.conn_cnt);
        let failed = gone.then_some(Errno::ENOTCONN);
        let moved = Default::default();
        let mut moving = Moving { mds: Vec::new(), open: 0, moved, failed, began: now };
        let (target, src) = (work.origin.from, Some(work.origin.to));
        // P-50: pieces beyond the end of what is read are empty, and are sent all the same.
        for k in 0..if gone { 0 } else { posted } {
            let part = cut.piece(memory, k);
            let post = cx.common.posts.insert(Post::ServerBulk { served: id });
            let given = spec(part, Word::Post(post), MdOptions::ANSWERS, Some(2));
            let md = match cx.below.bind(given) {
                Ok(md) => md,
                Err(e) => {
                    cx.common.posts.remove(post);
                    moving.failed = Some(errno(e));
                    break;
                }
            };
            moving.open += 1;
            moving.mds.push(md);
            let (match_bits, offset, timeout) = (first + k, 0, None);
            if cx.common.losses.hit(work.body.opcode, Part::Bulk) {
                continue;
            }
            let sent = match direction {
                Direction::Read => {
                    let hdr_data = 0;
                    let ack = true;
                    let put =
                        Put { md, ack, src, target, portal, match_bits, offset, hdr_data, timeout };
                    cx.below.put(put)
                }
                Direction::Write => {
                    cx.below.get(Get { md, src, target, portal, match_bits, offset, timeout })
                }
            };
            if let Err(e) = sent {
                moving.failed = Some(e.errno());
                break;
            }
        }
        let failed = moving.failed;
        work.bulk = Some(moving);
        cx.common.timers.set(Timer::Bulk(id), until);
        if let Some(errno) = failed {
            self.end_bulk(cx, id, errno);
            self.bulk_settled(cx, id);
        }
        Ok(())
    }

    /// The longest that bulk data may take is over, unless early replies have moved it (P-51).
    pub(crate) fn bulk_due(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) {
        let now = cx.below.now();
        let Some(work) = self.work.get(id) else { return };
        let deadline = work.origin.deadline;
        let Some(moving) = &work.bulk else { return };
        // The memory of data that have moved is in the hands of a driver, which has a limit of its own.
        if moving.moved.are_all(moving.open) {
            return;
        }
        let until = deadline.min(moving.began + cx.common.tunables.bulk_limit());
        if until > now {
            cx.common.timers.set(Timer::Bulk(id), until);
        } else {
            self.end_bulk(cx, id, Errno::ETIMEDOUT);
        }
    }

    /// Cuts the bulk data of a request off.
    pub(super) fn end_bulk(&mut self, cx: &mut Cx<'_, '_>, id: ServedId, errno: Errno) {
        let Some(moving) = self.work.get_mut(id).and_then(|work| work.bulk.as_mut()) else {
            return;
        };
        moving.failed.get_or_insert(errno);
        for md in core::mem::take(&mut moving.mds) {
            // One that has moved is gone already.
            let _ = cx.below.unlink(md);
        }
    }

    /// A piece has moved, or has failed.
    pub(crate) fn bulk_event(&mut self, cx: &mut Cx<'_, '_>, id: ServedId, event: &LnetEvent) {
        let Some(moving) = self.work.get_mut(id).and_then(|work| work.bulk.as_mut()) else {
            return;
        };
        if let Err(errno) = moving.moved.take(event) {
            moving.failed.get_or_insert(errno);
        }
        moving.open -= u32::from(event.unlinked).min(moving.open);
        self.bulk_settled(cx, id);
    }

    fn bulk_settled(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) {
        let Some(work) = self.work.get_mut(id) else { return };
        let Some(Moving { open: 0, failed, .. }) = &work.bulk else { return };
        let failed = *failed;
        work.bulk = None;
        cx.common.timers.stop(Timer::Bulk(id));
        let result = failed.map_or(Ok(()), Err);
        cx.common.events.push_back(Event::BulkDone { served: id, result });
        if result.is_err() {
            // P-53: no reply. The client sends the whole request again.
            self.stats.bulk_failed += 1;
            self.decline(cx, id);
        }
    }
}
