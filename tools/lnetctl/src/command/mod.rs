//! What each command does, one file per noun.

pub(crate) mod configuration;
pub(crate) mod connection;
pub(crate) mod debug;
mod draft;
pub(crate) mod explain;
pub(crate) mod fault;
pub(crate) mod fault_rpc;
pub(crate) mod global;
mod hosts;
pub(crate) mod legacy;
pub(crate) mod lnet;
pub(crate) mod lock;
pub(crate) mod misc;
pub(crate) mod net;
pub(crate) mod peer;
pub(crate) mod ping;
pub(crate) mod route;
pub(crate) mod routing;
pub(crate) mod set;
pub(crate) mod stats;
mod sync;
pub(crate) mod target;
mod trial;
pub(crate) mod udsp;

use core::ops::RangeInclusive;

pub(crate) use hosts::nid_list;
use lnet_config::parse_number;
pub(crate) use lnet_config::{not_a_net, not_a_nid, not_nids};
use lnet_types::Nid;

use crate::Session;
use crate::args::Args;
use crate::report::Place;

/// Health values that make sense (C-netset-1).
const HEALTH: RangeInclusive<i64> = 0..=1000;

/// The number behind an option. One that is none is an error, or ignored in strict compatibility.
fn number(
    session: &mut Session<'_>,
    args: &Args,
    long: &str,
    place: Place,
) -> Result<Option<i64>, i32> {
    let Some(word) = args.value(long) else { return Ok(None) };
    match parse_number(word) {
        None if session.strict => Ok(None),
        None => {
            let what = format!("invalid {long} value '{word}': expected a number");
            Err(session.bad_value(place, &what))
        }
        number => Ok(number),
    }
}

/// The number behind an option, within bounds; strict compatibility cuts it to them.
fn number_in(
    session: &mut Session<'_>,
    args: &Args,
    long: &str,
    place: Place,
    range: RangeInclusive<i64>,
) -> Result<Option<i64>, i32> {
    match number(session, args, long, place)? {
        Some(n) if !range.contains(&n) && !session.strict => {
            let (low, high) = range.into_inner();
            let what = format!("invalid {long} value '{n}': expected {low} to {high}");
            Err(session.bad_value(place, &what))
        }
        Some(n) => Ok(Some(n.clamp(*range.start(), *range.end()))),
        None => Ok(None),
    }
}

/// A text that names exactly one NID.
pub(crate) fn single_nid(text: &str) -> Option<Nid> {
    match nid_list(text).ok()?.as_slice() {
        [nid] => Some(*nid),
        _ => None,
    }
}
