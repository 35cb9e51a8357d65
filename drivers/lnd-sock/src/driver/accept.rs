//! Connections that come in: who is let in to the handshake at all (wire.md 2.2).

use lnet_types::{Errno, Instant, NiId};

use super::conn::{Conn, Phase};
use super::{SockDriver, Timer};
use crate::proto::admit::judge_address;
use crate::proto::conn::{Inbox, Outbox};
use crate::stats::Refusal;
use crate::streams::{Accepted, ListenerId, Stop, Streams};

use core::time::Duration;

/// Connections accepted in one go, before others have their turn.
const ACCEPT_BUDGET: usize = 64;
/// How long a listener rests that could not accept for want of descriptors or memory.
const ACCEPT_REST: Duration = Duration::from_millis(100);

impl<S: Streams> SockDriver<S> {
    pub(super) fn accept(&mut self, now: Instant, listener: ListenerId) {
        // Which of the interfaces on the address is meant, the request will tell.
        let Some((namespace, addr)) = self
            .listeners
            .iter()
            .find(|(_, (l, _))| *l == listener)
            .map(|((namespace, at), _)| (*namespace, at.ip()))
        else {
            return;
        };
        for _ in 0..ACCEPT_BUDGET {
            let Some((ni_id, ni)) = self.nis.iter().find(|(_, ni)| ni.serves(namespace, addr))
            else {
                return;
            };
            match self.streams.accept(listener, &ni.options) {
                Ok(accepted) => self.accepted(now, ni_id, accepted),
                Err(Stop::WouldBlock) => return,
                // The one connection is gone already; there may be others.
                Err(Stop::Failed(Errno::ECONNABORTED | Errno::ECONNRESET | Errno::EINTR)) => {}
                Err(Stop::Failed(errno)) => {
                    tracing::warn!(%errno, "can't accept connections; trying again");
                    self.timers.insert((now + ACCEPT_REST, Timer::Accept(listener)));
                    return;
                }
            }
        }
        self.accepts.push(listener);
    }

    fn accepted(&mut self, now: Instant, ni: NiId, accepted: Accepted) {
        let Accepted { stream, local, remote } = accepted;
        if let Some(refusal) = self.refusal_of(&accepted) {
            self.turn_away(now, ni, remote, None, refusal);
            // Nothing has been read, so the peer sees a reset if it has sent anything.
            self.streams.close(stream, false);
            return;
        }
        self.keep_accepted(ni, stream, remote.ip());
        let conn = Conn {
            stream,
            ni,
            local,
            remote,
            came: true,
            phase: Phase::AwaitRequest { inbox: Inbox::default(), want: 4 },
            outbox: Outbox::default(),
            timer: Instant::FAR_FUTURE,
            in_dirty: false,
            in_backlog: false,
            in_verify: false,
        };
        let key = self.add_conn(conn);
        self.pending += 1;
        self.by_address.entry(remote.ip()).or_default().pending += 1;
        self.set_conn_timer(key, now + self.config.accept_timeout);
        self.look_again(key);
    }

    /// Why a connection is not even listened to.
    fn refusal_of(&self, accepted: &Accepted) -> Option<Refusal> {
        let at = accepted.local.ip();
        let here = self.ni_list.iter().filter_map(|ni| self.ni(*ni)).filter(|ni| ni.addr == at);
        let nets = here.map(|ni| ni.nid.net());
        let held = self.by_address.get(&accepted.remote.ip()).copied().unwrap_or_default();
        judge_address(&self.config, nets, accepted.remote, self.pending, held)
    }
}
