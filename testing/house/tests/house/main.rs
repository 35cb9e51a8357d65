//! The rules of the house, as tests over the sources themselves. Nothing of ulnet is linked here.
//!
//! One file a rule: `directions.rs` (which crate may use which), `sources.rs` (heads, lengths, words
//! that must not be committed), `dependencies.rs` (each has its reason), `requirements.rs` (each
//! claim names code and a test that exist), `documents.rs` (links), `language.rs` (terms of the
//! field), `references.rs` (each code in a comment has a row), `packages.rs` (each crate can be
//! packaged), `toolchain.rs` (the oldest Rust), `walk.rs` (the way of a message through the node),
//! `parts.rs` (circles among the files of the node).
//! `workspace.rs` reads the tree.
//! A rule that fails says which file breaks it; to change a rule, change it here and say why.

mod dependencies;
mod directions;
mod documents;
mod language;
mod packages;
mod parts;
mod references;
mod requirements;
mod sources;
mod toolchain;
mod walk;
mod workspace;
