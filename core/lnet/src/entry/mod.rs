//! What a node is called with from outside: commands of users and administrators, facts from drivers.
//!
//! All entries follow one pattern: note the call for the recorder, take the clock, do the one thing, then
//! `settle` (`turn.rs`), which works off whatever that set in motion before control returns. Entries call
//! the rest of the node, and no file of the rest calls an entry.

mod arrivals;
mod buffers;
mod life;
mod links;
mod messages;
mod peers;
mod routes;
mod rules;
