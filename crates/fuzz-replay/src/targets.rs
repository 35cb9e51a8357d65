//! The functions that targets run. Each takes any bytes and panics where a promise is broken.

pub mod pcap;
pub mod types;
pub mod wire;
