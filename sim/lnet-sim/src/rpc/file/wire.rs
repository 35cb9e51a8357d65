//! The calls of a visit in a world: what a visit orders, and the answers that its host puts down for it.
//!
//! A future of a visit has to be `Send`, as those of a real node run on threads of programs; so what both
//! sides see lies behind a lock. In a world they take turns, and neither ever waits for it.

#![allow(clippy::disallowed_types, reason = "a visit and its host take turns on one thread")]

use core::future::{Future, poll_fn};
use core::task::{Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lustre_client::visitor::{CacheWire, End, Moved, ObjectAsk, ObjectEnd, Wire};
use lustre_wire::fid::ObjectId;
use lustre_wire::{ConnectData, Fid};
use ptlrpc::{Call, CallError, CallId, ImportConfig};

/// What a visit orders.
pub(super) enum Order {
    /// A connection under this number.
    Link(u64, Box<ImportConfig>),
    /// The same with a cache of objects.
    Cache(u64, Box<ImportConfig>),
    /// An operation on an object, behind the cache of a connection.
    Object(u64, ObjectId, ObjectAsk),
    /// It connects now.
    Connect(u64),
    /// A call over a connection.
    Call(u64, Box<Call>, Moved),
    /// The handle of an open file.
    Handle(u64, CallId),
    /// What a target has granted.
    Terms(u64),
    /// Whether a target has something to commit.
    Uncommitted(u64),
    /// What the cache of a connection has that may be lost.
    Unsettled(u64),
    /// A connection ends.
    Close(u64),
    /// So many seconds pass.
    Pause(u32),
}

/// What comes of an order.
pub(super) enum Answer {
    End(Box<End>),
    Handle(Option<u64>),
    Terms(Box<ConnectData>),
    Uncommitted(bool),
    Unsettled(Vec<(ObjectId, Fid)>),
    /// So many changes are lost, of the connection of this number.
    Lost(u32),
    Object(Box<ObjectEnd>),
    /// It is over.
    Over,
}

/// What a visit and its host share. `T` is what a program wants of a visit, `R` what it gets.
struct Desk<T, R> {
    orders: VecDeque<(u64, Order)>,
    answers: BTreeMap<u64, Answer>,
    /// What waits for an answer.
    waiting: BTreeMap<u64, Waker>,
    /// Evictions, and changes that are lost with them, by connection.
    losses: BTreeMap<u64, (u64, u64)>,
    count: u64,
    now: i64,
    tasks: VecDeque<T>,
    results: VecDeque<R>,
}

/// See the module's head. One end is the visit's, its clone the host's.
pub(super) struct SimWire<T, R>(Arc<Mutex<Desk<T, R>>>);

impl<T, R> Clone for SimWire<T, R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send, R: Send> SimWire<T, R> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Desk {
            orders: VecDeque::new(),
            answers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            losses: BTreeMap::new(),
            count: 0,
            now: 0,
            tasks: VecDeque::new(),
            results: VecDeque::new(),
        })))
    }

    fn desk(&self) -> MutexGuard<'_, Desk<T, R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, order: Order) -> u64 {
        let mut desk = self.desk();
        desk.count += 1;
        let number = desk.count;
        desk.orders.push_back((number, order));
        number
    }

    async fn ask(&self, order: Order) -> Answer {
        let number = self.order(order);
        poll_fn(|cx| {
            let mut desk = self.desk();
            match desk.answers.remove(&number) {
                Some(answer) => Poll::Ready(answer),
                None => {
                    desk.waiting.insert(number, cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The next task of the visit.
    pub(super) fn task(&self) -> impl Future<Output = T> + Send {
        poll_fn(|_| match self.desk().tasks.pop_front() {
            Some(task) => Poll::Ready(task),
            None => Poll::Pending,
        })
    }

    /// A number for a new connection.
    fn number(&self) -> u64 {
        let mut desk = self.desk();
        desk.count += 1;
        desk.count
    }

    /// A task has ended.
    pub(super) fn result(&self, result: R) {
        self.desk().results.push_back(result);
    }

    /// The host's: gives the visit something to do.
    pub(super) fn give(&self, task: T) {
        self.desk().tasks.push_back(task);
    }

    /// The host's: what has come of a task.
    pub(super) fn take(&self) -> Option<R> {
        self.desk().results.pop_front()
    }

    /// The host's: the next order, by its number.
    pub(super) fn next(&self) -> Option<(u64, Order)> {
        self.desk().orders.pop_front()
    }

    /// The host's: puts an answer down.
    pub(super) fn answer(&self, number: u64, answer: Answer) {
        let mut desk = self.desk();
        match answer {
            Answer::Lost(count) => {
                let (evictions, changes) = desk.losses.entry(number).or_default();
                *evictions += 1;
                *changes += u64::from(count);
            }
            answer => {
                desk.answers.insert(number, answer);
                if let Some(waker) = desk.waiting.remove(&number) {
                    waker.wake();
                }
            }
        }
    }

    /// The host's: seconds since 1970.
    pub(super) fn at(&self, now: i64) {
        self.desk().now = now;
    }
}

impl<T: Send, R: Send> CacheWire for SimWire<T, R> {
    type Cache = u64;

    fn cache(&self, config: ImportConfig) -> Result<u64, CallError> {
        let link = self.number();
        self.order(Order::Cache(link, Box::new(config)));
        Ok(link)
    }

    async fn object(&self, link: &u64, id: ObjectId, ask: ObjectAsk) -> ObjectEnd {
        match self.ask(Order::Object(*link, id, ask)).await {
            Answer::Object(end) => *end,
            _ => CallError::Closed.into(),
        }
    }

    async fn unsettled(&self, link: &u64) -> Vec<(ObjectId, Fid)> {
        match self.ask(Order::Unsettled(*link)).await {
            Answer::Unsettled(all) => all,
            _ => Vec::new(),
        }
    }

    async fn end_cache(&self, link: &u64) {
        self.close(link).await;
    }
}

impl<T: Send, R: Send> Wire for SimWire<T, R> {
    type Link = u64;

    fn link(&self, config: ImportConfig) -> Result<u64, CallError> {
        let link = self.number();
        self.order(Order::Link(link, Box::new(config)));
        Ok(link)
    }

    fn connect(&self, link: &u64) {
        self.order(Order::Connect(*link));
    }

    async fn call(&self, link: &u64, call: Call, moved: Moved) -> End {
        match self.ask(Order::Call(*link, Box::new(call), moved)).await {
            Answer::End(end) => *end,
            _ => CallError::Closed.into(),
        }
    }

    async fn handle(&self, link: &u64, open: CallId) -> Option<u64> {
        match self.ask(Order::Handle(*link, open)).await {
            Answer::Handle(handle) => handle,
            _ => None,
        }
    }

    async fn terms(&self, link: &u64) -> ConnectData {
        match self.ask(Order::Terms(*link)).await {
            Answer::Terms(terms) => *terms,
            _ => ConnectData::default(),
        }
    }

    async fn uncommitted(&self, link: &u64) -> bool {
        matches!(self.ask(Order::Uncommitted(*link)).await, Answer::Uncommitted(true))
    }

    fn losses(&self, link: &u64) -> u64 {
        self.desk().losses.get(link).copied().unwrap_or_default().1
    }

    fn evictions(&self, link: &u64) -> u64 {
        self.desk().losses.get(link).copied().unwrap_or_default().0
    }

    async fn close(&self, link: &u64) {
        self.ask(Order::Close(*link)).await;
    }

    async fn pause(&self, seconds: u32) {
        self.ask(Order::Pause(seconds)).await;
    }

    fn now(&self) -> i64 {
        self.desk().now
    }
}
