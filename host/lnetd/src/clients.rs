//! Who is connected to the control socket: limits for each uid, a share that ordinary users cannot take
//! from root and the daemon's own user, room made by idle connections, refusals in the log.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections of one ordinary uid at a time. A tool uses one for a moment.
pub(crate) const PER_UID_MAX: usize = 16;
/// Connections of all ordinary uids together.
pub(crate) const ORDINARY_MAX: usize = 48;
/// Connections of root, and as many of the daemon's own uid, beside those.
pub(crate) const RESERVED: usize = 32;
/// From this idle time on a connection makes room for a new one of its uid.
const IDLE_MIN: Duration = Duration::from_secs(5);
/// Time between two lines of the log about refusals of one uid.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Uids whose refusals are counted at a time.
const REFUSED_MAX: usize = 1024;

/// Stands for "not idle".
const BUSY: u64 = u64::MAX;

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    uid: u32,
    /// Since when it is idle, milliseconds of the daemon's clock; [`BUSY`] during a request.
    idle_since: AtomicU64,
    closed: AtomicBool,
}

impl Client {
    /// A request begins.
    pub(crate) fn busy(&self) {
        self.idle_since.store(BUSY, Ordering::Relaxed);
    }

    /// A request has ended.
    pub(crate) fn idle(&self, now: Duration) {
        self.idle_since.store(millis(now), Ordering::Relaxed);
    }

    /// Whether it is to be closed to make room.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(BUSY - 1)
}

/// A connection that is not admitted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The limit that is reached.
    pub(crate) why: String,
    /// Whether it is to be logged, and then how many of this uid were refused since the last line.
    pub(crate) log: Option<u64>,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Clients {
    /// The daemon's own uid.
    own: u32,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    clients: BTreeMap<u32, Vec<Arc<Client>>>,
    /// By uid: when a refusal was logged last, and refusals since.
    refused: BTreeMap<u32, (Duration, u64)>,
}

impl Clients {
    pub(crate) const fn new(own: u32) -> Self {
        let table = Table { clients: BTreeMap::new(), refused: BTreeMap::new() };
        Self { own, table: Mutex::new(table) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const fn is_privileged(&self, uid: u32) -> bool {
        uid == 0 || uid == self.own
    }

    /// Admits a connection of `uid`. At the limit of the uid, its connection that is idle for longest is
    /// closed for it.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn admit(&self, uid: u32, now: Duration) -> Result<Arc<Client>, Refusal> {
        let mut table = self.table();
        let ordinary = |uid: &u32| !self.is_privileged(*uid);
        let all_ordinary: usize =
            table.clients.iter().filter(|(u, _)| ordinary(u)).map(|(_, c)| c.len()).sum();
        let max = if self.is_privileged(uid) { RESERVED } else { PER_UID_MAX };
        let of_uid = table.clients.entry(uid).or_default();
        if of_uid.len() >= max && !make_room(of_uid, now) {
            let why = format!("connections of uid {uid}: {max}, the limit, are open and in use");
            return Err(table.refuse(uid, now, why));
        }
        let of_uid = table.clients.entry(uid).or_default();
        if ordinary(&uid) && all_ordinary >= ORDINARY_MAX && !make_room(of_uid, now) {
            let why = format!("connections: {ORDINARY_MAX}, the limit, are open");
            return Err(table.refuse(uid, now, why));
        }
        let idle_since = AtomicU64::new(millis(now));
        let client = Arc::new(Client { uid, idle_since, closed: AtomicBool::new(false) });
        table.clients.entry(uid).or_default().push(Arc::clone(&client));
        Ok(client)
    }

    /// Whether a refusal of `uid` is to be logged; then how many there were since the last line.
    pub(crate) fn refused(&self, uid: u32, now: Duration) -> Option<u64> {
        self.table().refuse(uid, now, String::new()).log
    }

    /// A connection has ended.
    pub(crate) fn leave(&self, client: &Arc<Client>) {
        let mut table = self.table();
        if let Some(of_uid) = table.clients.get_mut(&client.uid) {
            of_uid.retain(|c| !Arc::ptr_eq(c, client));
            if of_uid.is_empty() {
                table.clients.remove(&client.uid);
            }
        }
    }
}

/// Closes the connection that is idle for longest, if it is so for long enough. It is not counted from
/// now on.
fn make_room(of_uid: &mut Vec<Arc<Client>>, now: Duration) -> bool {
    let since = |c: &Arc<Client>| c.idle_since.load(Ordering::Relaxed);
    let Some(at) = (0..of_uid.len()).min_by_key(|at| of_uid.get(*at).map(since)) else {
        return false;
    };
    let idle = of_uid.get(at).map(since).and_then(|since| millis(now).checked_sub(since));
    if idle.is_none_or(|idle| idle < millis(IDLE_MIN)) {
        return false;
    }
    of_uid.swap_remove(at).closed.store(true, Ordering::Relaxed);
    true
}

impl Table {
    fn refuse(&mut self, uid: u32, now: Duration, why: String) -> Refusal {
        if self.clients.get(&uid).is_some_and(Vec::is_empty) {
            self.clients.remove(&uid);
        }
        if self.refused.len() >= REFUSED_MAX && !self.refused.contains_key(&uid) {
            self.refused.retain(|_, (last, _)| now.saturating_sub(*last) < LOG_INTERVAL);
        }
        if self.refused.len() >= REFUSED_MAX && !self.refused.contains_key(&uid) {
            return Refusal { why, log: None };
        }
        let log = match self.refused.get_mut(&uid) {
            None => {
                self.refused.insert(uid, (now, 0));
                Some(1)
            }
            Some((last, since)) => {
                *since += 1;
                let due = now.saturating_sub(*last) >= LOG_INTERVAL;
                due.then(|| {
                    *last = now;
                    core::mem::take(since)
                })
            }
        };
        Refusal { why, log }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 500;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn connections_of_one_uid_leave_room_for_root_own_and_other_uids() {
        let clients = Clients::new(OWN);
        let of = |uid| (0..300).filter(|_| clients.admit(uid, s(1)).is_ok()).count();
        assert_eq!([of(1001), of(1002), of(1003)], [PER_UID_MAX; 3]);
        // All ordinary ones are taken; the reserve is not.
        assert_eq!(of(1004), 0);
        assert_eq!([of(0), of(OWN)], [RESERVED; 2]);
    }

    #[test]
    fn an_idle_connection_makes_room_and_a_busy_one_does_not() {
        let clients = Clients::new(OWN);
        let all: Vec<_> = (0..PER_UID_MAX).map(|_| clients.admit(7, s(1)).unwrap()).collect();
        all.iter().for_each(|c| c.busy());
        let refusal = clients.admit(7, s(100)).unwrap_err();
        assert_eq!(refusal.why, "connections of uid 7: 16, the limit, are open and in use");
        all[3].idle(s(98));
        assert!(clients.admit(7, s(100)).is_err(), "not idle for long enough");
        let new = clients.admit(7, s(103)).unwrap();
        assert!(all[3].is_closed() && !new.is_closed());
        assert_eq!(all.iter().filter(|c| c.is_closed()).count(), 1);
        clients.leave(&new);
        clients.admit(7, s(103)).unwrap();
    }

    #[test]
    fn refusals_of_one_uid_are_logged_once_a_minute_with_their_number() {
        let clients = Clients::new(OWN);
        let logged: Vec<_> =
            [0, 1, 30, 59, 60, 61, 130].map(|at| clients.refused(7, s(at))).into_iter().collect();
        assert_eq!(logged, [Some(1), None, None, None, Some(4), None, Some(2)]);
        assert_eq!(clients.refused(8, s(131)), Some(1));
    }
}
