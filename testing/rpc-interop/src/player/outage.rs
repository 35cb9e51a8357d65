//! What LNet did and no capture shows: requests that were lost before they were recorded, nodes that
//! were dead, and the moment in which LNet found out.

use core::time::Duration;

use lustre_wire::{Buffers, MsgKind, Opcode};
use ptlrpc::Call;

use super::Player;
use super::past::DEADLINE;
use crate::exchange::base;
use crate::recording::Role;
use crate::stage::{Stage, instant};

/// Attempts to connect that were not recorded went so far apart, a moment late (P-101).
const ATTEMPT: Duration = Duration::from_millis(5_050);

/// Something that was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unseen {
    /// The first sending of an exchange, which was lost.
    Call(usize),
    /// Requests with this handle reach no server any more.
    Silent(u64),
    /// A ping goes with this handle, so that there is something to fail.
    Ping(u64),
    /// They do again.
    Back(u64),
    /// LNet finds out that they did not arrive, unless this attempt to connect is made.
    Failed(u64, u32),
}

impl<S: Stage> Player<'_, S> {
    pub(super) fn plan_unseen(&mut self) {
        for exchange in 0..self.index.exchanges.len() {
            self.plan_call(exchange);
        }
        if self.setup.dies {
            for at in 0..self.messages.len() {
                self.plan_failure(at);
            }
        }
        self.unseen.sort_by_key(|(at, _)| *at);
    }

    /// A request that was first recorded as a resend was lost a deadline before its reconnect.
    fn plan_call(&mut self, exchange: usize) {
        if !self.index.begins_with_resend(self.messages, exchange) {
            return;
        }
        let first = self.index.exchanges[exchange].sendings[0];
        if self.messages[first].from() != self.me || self.messages[first].is_callback() {
            return;
        }
        let link = self.index.link_of.get(&first).copied();
        let mine = |at: &usize| self.index.link_of.get(at).copied() == link;
        let connects = |at: &usize| self.messages[*at].body().opcode.is_connect();
        let connect = (0..first).rev().filter(mine).find(connects);
        // A crash takes several attempts, all with the handle of the time before.
        let old = connect.map(|at| self.messages[at].body().handle);
        let begun = |at: &usize| !connects(at) && Some(self.messages[*at].body().handle) == old;
        let last = (0..first).rev().filter(mine).find(begun).unwrap_or(0);
        let earliest = (last..first).filter(mine).find(connects).filter(|_| self.setup.dies);
        let connect = earliest.or(connect);
        if let Some(connect) = connect {
            let at = self.messages[connect].at.saturating_sub(DEADLINE);
            self.unseen.push((at, Unseen::Call(exchange)));
        }
    }

    /// A connect whose cause was not recorded: LNet had failed, once for each attempt.
    fn plan_failure(&mut self, at: usize) {
        let message = &self.messages[at];
        let mine = message.role == Role::Request && message.from() == self.me;
        if !mine || !message.body().opcode.is_connect() || message.body().handle == 0 {
            return;
        }
        let Some(link) = self.index.link_of.get(&at).copied() else { return };
        let mut before = self.index.link_of.range(..at).rev().filter(|(_, l)| **l == link);
        let last = before.next().map(|(last, _)| *last);
        let refused = last.and_then(|last| self.index.reply_to(self.messages, last));
        let connects = last.is_some_and(|last| self.messages[last].body().opcode.is_connect());
        if connects || refused.is_some_and(|r| self.messages[r].body().kind == MsgKind::ERROR) {
            // The cause was recorded.
            return;
        }
        let handle = message.body().handle;
        let mut earlier = self.index.link_of.range(..at).rev().filter(|(_, l)| **l == link);
        let heard = earlier.find_map(|(asked, _)| self.index.reply_to(self.messages, *asked));
        let silent = heard.map_or(Duration::ZERO, |heard| self.messages[heard].at);
        let silent = silent + Duration::from_millis(1);
        self.unseen.push((silent, Unseen::Silent(handle)));
        let count = message.body().conn_cnt;
        let seen = last.map_or(count - 1, |last| self.messages[last].body().conn_cnt);
        let first = message.at.saturating_sub(ATTEMPT * (count - seen).saturating_sub(1));
        let ping = first.saturating_sub(Duration::from_secs(1)).max(silent);
        self.unseen.push((ping, Unseen::Ping(handle)));
        for attempt in (seen + 1)..=count {
            let failed = message.at.saturating_sub(ATTEMPT * (count - attempt));
            self.unseen.push((failed.max(silent), Unseen::Failed(handle, attempt)));
        }
        self.unseen.push((message.at, Unseen::Back(handle)));
    }

    pub(super) fn unseen_until(&mut self, end: Duration) {
        while let Some((at, unseen)) = self.unseen.first().copied().filter(|(at, _)| *at <= end) {
            self.unseen.remove(0);
            self.run_to(instant(at));
            match unseen {
                Unseen::Call(exchange) => self.lose(exchange),
                Unseen::Silent(handle) => self.stage.silence(handle, true),
                Unseen::Ping(handle) => self.ping(handle),
                Unseen::Back(handle) => self.stage.silence(handle, false),
                Unseen::Failed(handle, attempt) => self.fail(handle, attempt),
            }
        }
    }

    /// The first sending of an exchange is lost.
    fn lose(&mut self, exchange: usize) {
        let first = self.index.exchanges[exchange].sendings[0];
        let before = self.produced.len();
        self.call(first);
        self.take();
        for lost in &mut self.produced[before..] {
            lost.paired = true;
            let recorded = &self.messages[first];
            self.relations.xids.relate(base(recorded.bits()), base(lost.message.bits()));
        }
    }

    /// The connection whose requests have a handle.
    fn link_by(&self, handle: u64) -> Option<usize> {
        let mine = |at: usize| {
            self.messages[at].from() == self.me && self.messages[at].body().handle == handle
        };
        self.index.link_of.iter().find(|(at, _)| mine(**at)).map(|(_, link)| *link)
    }

    fn ping(&mut self, handle: u64) {
        let link = self.link_by(handle);
        let Some(import) = link.and_then(|link| self.imports.get(&link)).copied() else { return };
        let call =
            Call { resend: false, delay: false, ..Call::new(Opcode::OBD_PING, Buffers::new()) };
        let _ = self.stage.rpc(|rpc| rpc.call(import, call));
        self.take();
    }

    fn fail(&mut self, handle: u64, attempt: u32) {
        let Some(link) = self.link_by(handle) else { return };
        let Some(import) = self.imports.get(&link).copied() else { return };
        let made = self.stage.look(|ptlrpc| ptlrpc.import_view(import)).map_or(0, |v| v.conn_cnt);
        // Ours has made one connect before the recording.
        let first = self.index.link_of.iter().find(|(_, l)| **l == link).map(|(at, _)| *at);
        let connects = first.is_some_and(|at| self.messages[at].body().opcode.is_connect());
        let before = self.index.links[link].conn_cnt - u32::from(connects);
        if made + before > attempt {
            return;
        }
        self.stage.fail(handle);
        self.take();
    }
}
