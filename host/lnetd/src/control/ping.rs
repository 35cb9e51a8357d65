//! `ping` and `discover`: waits for peers, without the lock.

use std::time::{Duration, Instant};

use lnet::Found;
use lnet_admin::{AdminError, Contact, Contacted, Discover, Ping, Reply};
use lnet_rt::OpError;
use lnet_types::{Errno, Nid, Pid, ProcessId};

use super::Control;
use super::net::not_ours;

/// Limit on a ping without one of its own, in the kernel profile (D-82).
const KERNEL_PING_TIMEOUT: Duration = Duration::from_secs(180);

impl Control {
    pub(super) fn ping(&self, ping: &Ping) -> Result<Reply, AdminError> {
        let handle = self.handle(Errno::ENETDOWN)?;
        let (own_limit, of_responses) = {
            let tunables = &self.state().tunables;
            let own_limit = match tunables.conduct.patient_user_pings {
                true => KERNEL_PING_TIMEOUT,
                false => tunables.ping_limit(),
            };
            (own_limit, Duration::from_secs(tunables.transaction_timeout.unsigned_abs()))
        };
        let timeout = ping.timeout_ms.map_or(own_limit, Duration::from_millis);
        let began = Instant::now();
        let asked: Vec<_> = ping
            .nids
            .iter()
            .map(|&nid| {
                let target = ProcessId { nid, pid: Pid::LUSTRE };
                match ping.source {
                    Some(source) => handle.ping_from(source, target, timeout),
                    None => handle.ping(target, timeout),
                }
            })
            .collect();
        let answers = asked.into_iter().map(|a| a.blocking());
        let absent = match ping.source {
            Some(source) if !self.owns(source)? => Some(source),
            _ => None,
        };
        let why = |e: &OpError| match (e.errno(), absent) {
            (Errno::EINVAL, Some(source)) => not_ours(source),
            // Given up with its descriptor, before its own limit (H-63).
            (Errno::EIO, _) if of_responses < timeout && began.elapsed() < timeout => {
                format!("no answer within {of_responses:?}, the transaction_timeout")
            }
            (Errno::EIO, _) => format!("no answer within {timeout:?}"),
            _ => words(e),
        };
        Ok(contacted(&ping.nids, answers, why))
    }

    pub(super) fn discover(&self, discover: &Discover) -> Result<Reply, AdminError> {
        let handle = self.handle(Errno::ENETDOWN)?;
        let asked: Vec<_> = discover
            .nids
            .iter()
            .map(
                |&nid| {
                    if discover.force { handle.discover_again(nid) } else { handle.discover(nid) }
                },
            )
            .collect();
        let answers = asked.into_iter().map(|a| a.blocking());
        Ok(contacted(&discover.nids, answers, words))
    }
}

/// What went wrong; who was asked stands beside it.
fn words(e: &OpError) -> String {
    match e {
        OpError::Question { errno, .. } => errno.to_string(),
        _ => e.to_string(),
    }
}

/// The outcomes; `why` says what a failure means.
fn contacted(
    nids: &[Nid],
    answers: impl Iterator<Item = Result<Found, OpError>>,
    why: impl Fn(&OpError) -> String,
) -> Reply {
    Reply::Contacted(
        nids.iter()
            .zip(answers)
            .map(|(&nid, answer)| Contacted {
                nid,
                outcome: answer
                    .map(|found| Contact {
                        primary: found.primary,
                        multi_rail: found.multi_rail,
                        pid: Pid::LUSTRE.0,
                        nids: found.nids,
                    })
                    .map_err(|e| AdminError::errno(e.errno()).because(why(&e))),
            })
            .collect(),
    )
}
