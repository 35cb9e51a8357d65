//! The machine as its owner sees it: events of LNet and times go in, calls of the program go in
//! through [`Rpc`], events for the program are polled.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use lnet::upper::Below;
use lnet::{Event as LnetEvent, Report};
use lnet_types::{Errno, Instant, IoVec, Nid, Prng};
use lustre_wire::{Buffers, ConnectData};

use crate::client::{
    Call, Client, ClientStats, Direction, Explanation, ImportConfig, ImportState, ImportTunables,
    ImportView,
};
use crate::common::{Common, Cx, Post, Word};
use crate::error::CallError;
use crate::event::{Event, EvictReason};
use crate::lose::{Lose, LoseId, Losing, Losses};
use crate::server::{
    Answer, ExportView, NrsError, RecoveryView, ReplyRecord, Server, ServerStats, ServiceConfig,
    ServiceView, TargetConfig, TargetView, Waiting,
};
use crate::table::{CallId, ExportId, ImportId, PostId, ServedId, ServiceId, Table, TargetId};
use crate::timers::{Timer, Timers};
use crate::tunables::Tunables;
use crate::xid::Xids;

/// What a request layer begins with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of cookies and of whatever else is random.
    pub seed: u64,
    /// Wall-clock time since 1970: numbers of requests begin there.
    pub wall: Duration,
    /// Tunables.
    pub tunables: Tunables,
}

/// The request layer of one node.
pub struct Ptlrpc {
    common: Common,
    client: Client,
    server: Server,
}

/// What a program may do, for the length of one call.
pub struct Rpc<'a, 'b> {
    ptlrpc: &'a mut Ptlrpc,
    below: &'a mut Below<'b>,
}

impl Ptlrpc {
    /// One without imports, targets and services.
    pub fn new(config: Config) -> Self {
        let mut prng = Prng::new(config.seed);
        let xids = Xids::new(config.wall, &mut prng);
        Self {
            common: Common {
                tunables: config.tunables,
                xids,
                prng,
                posts: Table::default(),
                timers: Timers::default(),
                losses: Losses::default(),
                events: VecDeque::new(),
                imports_gone: Vec::new(),
                callback_nets: Vec::new(),
                reversed: Vec::new(),
                #[cfg(feature = "sabotage")]
                sabotage: None,
            },
            client: Client::default(),
            server: Server::default(),
        }
    }

    /// Breaks a rule from now on.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, rule: crate::Sabotage) {
        self.common.sabotage = Some(rule);
    }

    /// The tunables.
    pub fn tunables(&self) -> &Tunables {
        &self.common.tunables
    }

    /// Other tunables. Times that have been set stay; those that are set from now on follow them.
    pub fn set_tunables(&mut self, tunables: Tunables) {
        self.common.tunables = tunables;
        // Another rule for silent clients begins with a look at them.
        self.common.timers.set(Timer::Silence, Instant::ZERO);
    }

    /// The calls of a program.
    pub fn rpc<'a, 'b>(&'a mut self, below: &'a mut Below<'b>) -> Rpc<'a, 'b> {
        Rpc { ptlrpc: self, below }
    }

    /// What the program is to know next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.common.events.pop_front()
    }

    /// Whether [`Ptlrpc::poll_event`] has something.
    pub fn has_event(&self) -> bool {
        !self.common.events.is_empty()
    }

    /// When [`Ptlrpc::handle_timeout`] is wanted.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.common.timers.next()
    }

    /// Something happened to a descriptor.
    pub fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        match Word::of(event.user) {
            Word::Request(sending) => {
                let cx = &mut Cx { common: &mut self.common, below };
                self.client.sent(cx, sending, event.status);
            }
            Word::ReplyBuffer(sending) => {
                let cx = &mut Cx { common: &mut self.common, below };
                self.client.reply_event(cx, sending, event);
            }
            Word::Post(id) => self.post_event(id, event, below),
        }
        self.tidy(below);
    }

    /// A descriptor is gone of which only failures are events ([`lnet::upper::Upper::spent`]).
    pub fn spent(&mut self, user: u64) {
        if let Word::Post(id) = Word::of(user)
            && let Some(Post::Reply { to, .. }) = self.common.posts.remove(id)
        {
            self.server.reply_left(to);
        }
    }

    fn post_event(&mut self, id: PostId, event: &LnetEvent, below: &mut Below<'_>) {
        let Some(post) = self.common.posts.get(id).copied() else { return };
        let cx = &mut Cx { common: &mut self.common, below };
        match post {
            Post::RequestBuffer { service, .. } => {
                return self.server.request_event(cx, &self.client, service, id, event);
            }
            Post::ClientBulk { call, attempt } => {
                self.client.bulk_event(cx, call, attempt, event);
            }
            Post::ServerBulk { served } => self.server.bulk_event(cx, served, event),
            Post::Reply { difficult: Some(served), .. } => {
                self.server.reply_event(cx, served, event);
            }
            Post::Reply { .. } => {}
        }
        if event.unlinked {
            self.common.posts.remove(id);
            if let Post::Reply { to, .. } = post {
                self.server.reply_left(to);
            }
        }
    }

    /// Each side learns what has become of the other's connections.
    fn tidy(&mut self, below: &mut Below<'_>) {
        let Self { common, client, server } = self;
        let gone = !common.imports_gone.is_empty() || !common.reversed.is_empty();
        if !gone && common.callback_nets.is_empty() {
            return;
        }
        let cx = &mut Cx { common, below };
        while let Some(import) = cx.common.imports_gone.pop() {
            server.caller_gone(cx, import);
        }
        while let Some((export, net)) = cx.common.callback_nets.pop() {
            server.callback_took(export, net);
        }
        while let Some(export) = cx.common.reversed.pop() {
            match server.reverse(export) {
                Some(reverse) => client.rebuilt(cx, export, reverse),
                None => client.unreversed(cx, export),
            }
        }
    }

    /// A discovery that was asked for has ended.
    pub fn report(&mut self, report: &Report, below: &mut Below<'_>) {
        self.client.report(&mut Cx { common: &mut self.common, below }, report);
    }

    /// LNet has lost a connection to a peer ([`lnet::upper::Upper::connection_lost`]).
    pub fn connection_lost(&mut self, primary: Nid, below: &mut Below<'_>) {
        self.client.connection_lost(&mut Cx { common: &mut self.common, below }, primary);
        self.tidy(below);
    }

    /// Runs what is due.
    pub fn handle_timeout(&mut self, below: &mut Below<'_>) {
        while let Some(timer) = self.common.timers.pop(below.now()) {
            let cx = &mut Cx { common: &mut self.common, below };
            match timer {
                Timer::Call(call) => self.client.call_due(cx, call),
                Timer::Limit(call) => self.client.limit_passed(cx, call),
                Timer::Import(import) => self.client.import_due(cx, import),
                Timer::Close(import) => self.client.close_due(cx, import),
                Timer::Early(served) => self.server.early_due(cx, served),
                Timer::Bulk(served) => self.server.bulk_due(cx, served),
                Timer::Service(service) => self.server.dispatch(cx, service),
                Timer::Silence => self.server.silence_due(cx),
                Timer::Recovery(target) => self.server.recovery_due(cx, target),
                Timer::Watchdog(served) => self.server.watchdog_due(cx, served),
                Timer::Discoveries => self.client.discoveries_due(cx),
                Timer::Pass => self.client.pass_due(cx),
                Timer::Unanswered(import) => self.client.unanswered(cx, import),
            }
        }
        self.tidy(below);
    }

    /// An import, to be looked at.
    pub fn import_view(&self, import: ImportId) -> Option<ImportView> {
        let mut view = self.client.view(import, &self.common.tunables)?;
        // The way to a client is named by both its ends, which the server's side knows.
        if let Some((client, target)) = view.callback.and_then(|id| self.server.ends(id)) {
            (view.target, view.client) = (client, target);
        }
        Some(view)
    }

    /// How many imports there are.
    pub fn import_count(&self) -> usize {
        self.client.import_count()
    }

    /// How many exports there are.
    pub fn export_count(&self) -> usize {
        self.server.export_count()
    }

    /// All imports, those to clients that are called back among them.
    pub fn import_views(&self) -> Vec<ImportView> {
        self.client.ids().filter_map(|id| self.import_view(id)).collect()
    }

    /// How many imports are in which state.
    pub fn import_states(&self) -> BTreeMap<ImportState, usize> {
        let mut states = BTreeMap::new();
        for state in self.client.states() {
            *states.entry(state).or_default() += 1;
        }
        states
    }

    /// At most so many imports, those that are not in use first.
    pub fn worst_imports(&self, limit: usize) -> Vec<ImportView> {
        let ids = self.client.worst(limit);
        ids.into_iter().filter_map(|id| self.import_view(id)).collect()
    }

    /// At most so many exports, those with most requests in work first.
    pub fn busiest_exports(&self, limit: usize) -> Vec<ExportView> {
        self.server.busiest(limit)
    }

    /// The targets.
    pub fn target_views(&self, now: Instant) -> Vec<TargetView> {
        self.server.target_views(now)
    }

    /// The way to a client over which it was called back, to be looked at.
    pub fn reverse_view(&self, export: ExportId) -> Option<ImportView> {
        self.import_view(self.client.reverse_import(export)?)
    }

    /// The uuid of an export's client.
    pub fn client_of(&self, export: ExportId) -> Option<&str> {
        self.server.client_of(export)
    }

    /// The exports of all targets.
    pub fn export_views(&self) -> Vec<ExportView> {
        self.server.export_views()
    }

    /// How the recovery of a target goes, or went; `None` if it had nothing to recover.
    pub fn recovery_view(&self, target: TargetId, now: Instant) -> Option<RecoveryView> {
        self.server.recovery_view(target, now)
    }

    /// The services.
    pub fn service_views(&self) -> Vec<ServiceView> {
        self.server.service_views(&self.common.tunables)
    }

    /// What the client's side has counted.
    pub fn client_stats(&self) -> ClientStats {
        self.client.stats()
    }

    /// The rules by which messages get lost, and what they have done.
    pub fn losing(&self) -> &[Losing] {
        self.common.losses.rules()
    }

    /// What a parameter of the policies of a service is set to, in the form in which it is written.
    ///
    /// # Errors
    /// As [`Rpc::set_parameter`].
    pub fn parameter(&self, service: ServiceId, name: &str) -> Result<String, NrsError> {
        self.server.parameter(service, name)
    }

    /// The requests of a client that wait for a service, in order of their numbers.
    pub fn waiting(&self, export: ExportId) -> Vec<Waiting<'_>> {
        self.server.waiting(export)
    }

    /// A request that waits for a service; `None` for one that is being served, or over.
    pub fn waiting_as(&self, served: ServedId) -> Option<Waiting<'_>> {
        self.server.waiting_as(served)
    }

    /// What the server's side has counted.
    pub fn server_stats(&self) -> ServerStats {
        self.server.stats()
    }

    /// Descriptors whose last event has not come.
    pub fn descriptors(&self) -> usize {
        self.common.posts.len()
    }
}

impl<'b> Rpc<'_, 'b> {
    fn split(&mut self) -> (&mut Client, &mut Server, Cx<'_, 'b>) {
        let Ptlrpc { common, client, server } = &mut *self.ptlrpc;
        (client, server, Cx { common, below: &mut *self.below })
    }

    /// A new import. It connects with its first call, or with [`Rpc::connect`].
    ///
    /// # Errors
    /// A uuid that is empty or too long, no NID, a kind that has no connect.
    pub fn import(&mut self, config: ImportConfig) -> Result<ImportId, CallError> {
        let (client, _, mut cx) = self.split();
        client.import(&mut cx, config)
    }

    /// All imports, to be looked at.
    pub fn imports(&self) -> Vec<ImportView> {
        self.ptlrpc.import_views()
    }

    /// Where an import would connect now, and why (P-60); `None`: there is no such import.
    pub fn explain(&mut self, import: ImportId) -> Option<Explanation> {
        let (client, server, cx) = self.split();
        let mut explanation = client.explain(&cx, import)?;
        if let Some((of, target)) = client.callback_of(import).and_then(|id| server.ends(id)) {
            (explanation.target, explanation.client) = (of, target);
        }
        Some(explanation)
    }

    /// Connects an import now, if it is not.
    pub fn connect(&mut self, import: ImportId) {
        let (client, _, mut cx) = self.split();
        client.connect_now(&mut cx, import);
    }

    /// Sets what may be set for one import.
    pub fn tune(&mut self, import: ImportId, tunables: ImportTunables) {
        let (client, _, mut cx) = self.split();
        client.tune(&mut cx, import, tunables);
    }

    /// The program has, or has no longer, what goes with an import's connection, such as locks: an
    /// import that has does not disconnect for want of use (P-103).
    pub fn hold(&mut self, import: ImportId, held: bool) {
        self.ptlrpc.client.hold(import, held);
    }

    /// The program has locks of an import's target, or has none any more: if the target recovers,
    /// [`Event::ReplayLocks`] asks for them.
    pub fn replays_locks(&mut self, import: ImportId, replays: bool) {
        let (client, _, mut cx) = self.split();
        client.replays_locks(&mut cx, import, replays);
    }

    /// Replays a lock after [`Event::ReplayLocks`] (P-57). The call has its end as any other, but is not
    /// sent again: if it fails, the import connects again, and asks for all locks once more.
    ///
    /// # Errors
    /// [`CallError::NotConnected`] if the import is not in that stage; else as [`Rpc::call`].
    pub fn replay_lock(&mut self, import: ImportId, call: Call) -> Result<CallId, CallError> {
        let (client, _, mut cx) = self.split();
        client.replay_lock(&mut cx, import, call)
    }

    /// All locks are replayed, or under way: recovery goes on when those are answered.
    pub fn locks_replayed(&mut self, import: ImportId) {
        let (client, _, mut cx) = self.split();
        client.locks_replayed(&mut cx, import);
    }

    /// A call is not repeated any more after a crash of the server, whether it is committed or not: its
    /// effect is over. `false`: it would not be repeated anyway.
    pub fn forget(&mut self, import: ImportId, call: CallId) -> bool {
        self.ptlrpc.client.forget(import, call)
    }

    /// Whether a call that has ended with an answer would be repeated to a server that has lost its effect.
    /// The memory of a write is the program's again if it would not
    /// ([`Call::retains_bulk`]).
    pub fn retains(&self, import: ImportId, call: CallId) -> bool {
        self.ptlrpc.client.retains(import, call)
    }

    /// The buffers of a call that is under way, or would be repeated to a server that has lost its effect.
    pub fn buffers(&self, import: ImportId, call: CallId) -> Option<&Buffers> {
        self.ptlrpc.client.buffers(import, call)
    }

    /// Puts other buffers into a call, for its next sending or its replay: what it names has another
    /// number now (P-70). `false`: the call is neither under way nor repeated any more, or the
    /// buffers can't be packed.
    pub fn amend(&mut self, import: ImportId, call: CallId, buffers: Buffers) -> bool {
        self.ptlrpc.client.amend(import, call, buffers)
    }

    /// A target runs at `nid` as incarnation `instance`, as its management server says: an import that
    /// knows another incarnation connects there at once, without a timeout (P-154). `false`: there is
    /// nothing to do, because the import knows, is idle, closed or refused.
    pub fn restarted(&mut self, import: ImportId, nid: Nid, instance: u32) -> bool {
        let (client, _, mut cx) = self.split();
        client.restarted(&mut cx, import, nid, instance)
    }

    /// What the server has granted an import with its last connect; `None`: there is no such import.
    pub fn terms(&self, import: ImportId) -> Option<ConnectData> {
        self.ptlrpc.client.terms(import)
    }

    /// The highest transaction that the target of an import has committed, as far as it has said so: after a
    /// restart of the target, in its present life.
    pub fn committed_of(&self, import: ImportId) -> Option<u64> {
        self.ptlrpc.client.committed_of(import)
    }

    /// With its next connect an import says that it holds promises of so many bytes (L-96).
    pub fn announce_grant(&mut self, import: ImportId, bytes: u32) {
        self.ptlrpc.client.announce_grant(import, bytes);
    }

    /// Makes the connection of an import again, as if a request over it had failed (L-37, L-61).
    pub fn fail(&mut self, import: ImportId) {
        let (client, _, mut cx) = self.split();
        client.fail(&mut cx, import);
    }

    /// Ends an import: its calls end, the server gets a disconnect, the import is closed.
    pub fn disconnect(&mut self, import: ImportId) {
        self.disconnect_within(import, None);
    }

    /// The same. A server that is away gets the disconnect when it is back, within so long; within the
    /// estimate of its service if no bound is given.
    pub fn disconnect_within(&mut self, import: ImportId, within: Option<Duration>) {
        let (client, _, mut cx) = self.split();
        client.disconnect(&mut cx, import, within);
        self.ptlrpc.tidy(self.below);
    }

    /// Begins a call; [`Event::Ended`] is its end.
    ///
    /// # Errors
    /// It could not begin: no such import, too many bytes. It has no end then.
    pub fn call(&mut self, import: ImportId, call: Call) -> Result<CallId, CallError> {
        let (client, _, mut cx) = self.split();
        client.call(&mut cx, import, call)
    }

    /// Calls a client, over the connection that it has made to a target (P-130). A callback goes again
    /// until it is answered, or until its limit; the client serves it on the portal of its opcode,
    /// or on that of callbacks. [`Event::Ended`] is its end.
    ///
    /// # Errors
    /// [`CallError::NoImport`] if the client is not connected; else as [`Rpc::call`].
    pub fn callback(&mut self, export: ExportId, call: Call) -> Result<CallId, CallError> {
        let (client, server, mut cx) = self.split();
        let reverse = server.reverse(export).ok_or(CallError::NoImport)?;
        client.callback(&mut cx, export, reverse, call)
    }

    /// Takes a call back. It still has its end, when nothing uses its memory.
    pub fn cancel(&mut self, call: CallId) {
        let (client, _, mut cx) = self.split();
        client.cancel(&mut cx, call);
    }

    /// Starts a service.
    ///
    /// # Errors
    /// `EADDRINUSE` if there is one on the portal, `EINVAL` for sizes that can't be, and what the node
    /// says.
    pub fn serve(&mut self, config: ServiceConfig) -> Result<ServiceId, Errno> {
        let (_, server, mut cx) = self.split();
        server.serve(&mut cx, config)
    }

    /// A target that clients may connect to.
    ///
    /// # Errors
    /// `EEXIST` if there is one of this uuid, `EINVAL` for a past with clients if it keeps no records,
    /// or with one of them twice, `ENOSPC` if there are more than [`EXPORTS_MAX`](crate::EXPORTS_MAX).
    pub fn add_target(&mut self, config: TargetConfig) -> Result<TargetId, Errno> {
        let (_, server, mut cx) = self.split();
        server.add_target(&mut cx, config)
    }

    /// Takes a target out, as if this node had died for it: its clients look elsewhere, or wait for its
    /// next start, and its store keeps what is recorded of them. `false`: there is none of this name.
    pub fn remove_target(&mut self, target: TargetId) -> bool {
        let (_, server, mut cx) = self.split();
        let removed = server.remove_target(&mut cx, target);
        self.ptlrpc.tidy(self.below);
        removed
    }

    /// The record of a new client is stored, or can't be: the answer to [`Event::Joining`].
    pub fn admit(&mut self, export: ExportId, stored: Result<(), Errno>) {
        let (_, server, mut cx) = self.split();
        server.joined(&mut cx, export, stored);
        self.ptlrpc.tidy(self.below);
    }

    /// Nothing is stored any more of a client that disconnects: its disconnect is answered. The program
    /// of a target that keeps records says so after [`Event::Disconnected`].
    pub fn left(&mut self, export: ExportId) {
        let (_, server, mut cx) = self.split();
        server.left(&mut cx, export);
        self.ptlrpc.tidy(self.below);
    }

    /// The transaction of a request that changes something: the next one of its target, or its own
    /// if it is executed again (P-138, P-70). The same however often it is asked for; 0 if the
    /// request is over or its client is gone: then nothing is to be changed.
    pub fn transno(&mut self, served: ServedId) -> u64 {
        self.ptlrpc.server.transno(served)
    }

    /// What a target that keeps records stores in one transaction with the effect of a request,
    /// before it answers: the client's uuid and the record (P-141). `None` if nothing is to be
    /// stored: the answer has no transaction, the client is gone or has given the request up.
    pub fn record(&self, served: ServedId, answer: &Answer) -> Option<(String, ReplyRecord)> {
        self.ptlrpc.server.record(served, answer)
    }

    /// What the record of an export's client says: its uuid and its admission
    /// ([`ClientRecord::admission`](crate::ClientRecord::admission)).
    pub fn admission_of(&self, export: ExportId) -> Option<(&str, u32)> {
        self.ptlrpc.server.admission_of(export)
    }

    /// The portal of a service; `None` if there is no such service.
    pub fn portal(&self, service: ServiceId) -> Option<u32> {
        self.ptlrpc.server.portal(service)
    }

    /// Another node is about to serve a target (`failed`), or this one serves it after all: meanwhile
    /// each connect and request is refused with [`Errno::ENODEV`], and its clients look elsewhere.
    pub fn fail_over(&mut self, target: TargetId, failed: bool) {
        self.ptlrpc.server.fail_over(target, failed);
    }

    /// Everything up to this transaction of a target survives a crash.
    pub fn committed(&mut self, target: TargetId, transno: u64) {
        let (_, server, mut cx) = self.split();
        server.committed(target, transno);
        server.release_committed(&mut cx, target);
    }

    /// What replies of a target say about the caches of locks of its clients: the value of locks, and
    /// how many there should be (L-58). To clients that resize theirs by it.
    pub fn set_lock_volume(&mut self, target: TargetId, slv: u64, limit: u32) {
        self.ptlrpc.server.set_lock_volume(target, slv, limit);
    }

    /// Lets messages get lost, as a net would: those that this node sends, and those that it receives.
    ///
    /// # Errors
    /// `EINVAL` for none, `ENOSPC` beyond [`LOSE_MAX`](crate::LOSE_MAX) rules.
    pub fn lose(&mut self, lose: Lose) -> Result<LoseId, Errno> {
        self.ptlrpc.common.losses.add(lose)
    }

    /// Ends a rule of [`Rpc::lose`]. `false`: there is none of this name.
    pub fn mend(&mut self, rule: LoseId) -> bool {
        self.ptlrpc.common.losses.remove(rule)
    }

    /// Sets a parameter of the order in which a service serves what waits (P-120): `nrs_policies` to
    /// `fifo`, `crrn` or `delay`, for one head with `reg` or `hp` behind it; `nrs_crrn_quantum`;
    /// `nrs_delay_min`, `nrs_delay_max` in seconds, `nrs_delay_pct`: one number, or as
    /// `reg_delay_min:5 hp_delay_min:2`. A policy takes effect at once, a number for later requests.
    ///
    /// # Errors
    /// The parameter keeps its value: it, its value or the service is not known, or its policy does not
    /// run.
    pub fn set_parameter(
        &mut self,
        service: ServiceId,
        name: &str,
        value: &str,
    ) -> Result<(), NrsError> {
        let (_, server, mut cx) = self.split();
        server.set_parameter(&mut cx, service, name, value)
    }

    /// Lets a request that waits go before the regular ones, since others wait for what it does
    /// (P-114). `false`: it does not wait, or its service has no head for such requests.
    pub fn raise(&mut self, served: ServedId) -> bool {
        let (_, server, mut cx) = self.split();
        server.raise(&mut cx, served)
    }

    /// Answers a request.
    pub fn reply(&mut self, served: ServedId, answer: Answer) {
        let (_, server, mut cx) = self.split();
        server.reply(&mut cx, served, answer);
    }

    /// Answers a request with a failure of the service.
    pub fn refuse(&mut self, served: ServedId, errno: Errno) {
        let (_, server, mut cx) = self.split();
        server.refuse(&mut cx, served, errno);
    }

    /// Gives a request no answer: its client sends it again.
    pub fn decline(&mut self, served: ServedId) {
        let (_, server, mut cx) = self.split();
        server.decline(&mut cx, served);
    }

    /// Moves the bulk data of a request between `memory` and the client's; [`Event::BulkDone`] says
    /// when. `memory` is cut into pieces of 1 MiB; of `OST_READ` and `OST_WRITE` the first one is shorter
    /// by the offset in its page at which the first niobuf of the request begins (P-46). For
    /// [`Direction::Write`] it has as many pieces as the client has posted, for [`Direction::Read`] as many
    /// or fewer, down to none.
    ///
    /// # Errors
    /// `ENOENT` if the request is over, `EBUSY` if it has bulk data under way, `EPROTO` if the client
    /// has posted none, or other pieces.
    pub fn bulk(
        &mut self,
        served: ServedId,
        direction: Direction,
        memory: &IoVec,
    ) -> Result<(), Errno> {
        let (_, server, mut cx) = self.split();
        server.bulk(&mut cx, served, direction, memory)
    }

    /// Ends the recovery of a target now: its clients that have not finished are evicted.
    pub fn abort_recovery(&mut self, target: TargetId) {
        let (_, server, mut cx) = self.split();
        server.abort_recovery(&mut cx, target);
        self.ptlrpc.tidy(self.below);
    }

    /// Drops a client, as an administrator or a program wants it.
    pub fn evict(&mut self, export: ExportId) {
        self.evict_for(export, EvictReason::Ordered);
    }

    /// Drops a client for this reason.
    pub fn evict_for(&mut self, export: ExportId, reason: EvictReason) {
        let (_, server, mut cx) = self.split();
        server.evict(&mut cx, export, reason);
        self.ptlrpc.tidy(self.below);
    }

    /// The present time.
    pub fn now(&self) -> Instant {
        self.below.now()
    }

    /// A random number: the seed of a machine above.
    pub fn seed(&mut self) -> u64 {
        self.ptlrpc.common.prng.next_u64()
    }

    /// The tunables.
    pub fn tunables(&self) -> &Tunables {
        &self.ptlrpc.common.tunables
    }

    /// What a client needs for the next request like one that is being served (P-137): so long are
    /// the locks prolonged that it uses.
    pub fn prolongation(&self, served: ServedId) -> Duration {
        let Ptlrpc { common, server, .. } = &*self.ptlrpc;
        server.prolongation(served, self.below.now(), &common.tunables)
    }

    /// What a client was granted when it connected; `None` if it is not connected.
    pub fn granted(&self, export: ExportId) -> Option<ConnectData> {
        self.ptlrpc.server.reverse(export).map(|reverse| reverse.granted)
    }

    /// Uuid of a client and where it is; `None` if it is gone.
    pub fn client(&self, export: ExportId) -> Option<(&str, Nid)> {
        self.ptlrpc.server.client(export)
    }

    /// The requests of a client that wait for a service, in order of their numbers.
    pub fn waiting(&self, export: ExportId) -> Vec<Waiting<'_>> {
        self.ptlrpc.server.waiting(export)
    }

    /// The border below, for memory of the program.
    pub fn below(&mut self) -> &mut Below<'b> {
        self.below
    }

    /// What the program is to know next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.ptlrpc.poll_event()
    }
}
