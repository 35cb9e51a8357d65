//! The functions that targets run. Each takes any bytes and panics where a promise is broken.

pub mod control;
pub mod ib;
pub mod lustre;
pub mod node;
pub mod pcap;
pub mod recording;
pub mod sock;
pub mod types;
pub mod wire;
