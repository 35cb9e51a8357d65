//! Transcripts: what kernel nodes printed, compared with what this program prints.
//!
//! `vector.rs` reads the recordings, `verdict.rs` says how each compares and makes the page of
//! transcripts, `rebuild.rs` is a stand-in for the daemon with the state of a recording,
//! `offline.rs` compares against it; `commands.rs` tests what no recording shows, `rpc.rs` the commands
//! for the request layer, `lctl.rs` the older tool. Against real daemons in network namespaces:
//! `tools/ulnet/tests/transcripts.rs`.

#[path = "transcripts/commands.rs"]
mod commands;
#[path = "transcripts/formats.rs"]
mod formats;
#[path = "transcripts/lctl.rs"]
mod lctl;
#[path = "transcripts/offline.rs"]
mod offline;
#[path = "transcripts/rebuild.rs"]
mod rebuild;
#[path = "transcripts/rpc.rs"]
mod rpc;
#[path = "transcripts/vector.rs"]
mod vector;
#[path = "transcripts/verdict.rs"]
mod verdict;
