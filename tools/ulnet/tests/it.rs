//! All tests of the program, in one: most of them wait for nodes and deadlines, and so they wait beside each
//! other. Each file is a subject: `cargo test -p ulnet doctor`.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod browser;
mod stage;

#[path = "access.rs"]
mod access;
#[path = "backup.rs"]
mod backup;
#[path = "batch.rs"]
mod batch;
#[path = "book.rs"]
mod book;
#[path = "care.rs"]
mod care;
#[path = "ctrl_c.rs"]
mod ctrl_c;
#[path = "daemon.rs"]
mod daemon;
#[path = "destination.rs"]
mod destination;
#[path = "doctor.rs"]
mod doctor;
#[path = "files.rs"]
mod files;
#[path = "habits.rs"]
mod habits;
#[path = "http.rs"]
mod http;
#[path = "interrupted.rs"]
mod interrupted;
#[path = "lctl.rs"]
mod lctl;
#[path = "lists.rs"]
mod lists;
#[path = "lock.rs"]
mod lock;
#[path = "man.rs"]
mod man;
#[path = "names.rs"]
mod names;
#[path = "namespaces.rs"]
mod namespaces;
#[path = "obj.rs"]
mod obj;
#[path = "operands.rs"]
mod operands;
#[path = "page.rs"]
mod page;
#[path = "parameters.rs"]
mod parameters;
#[path = "perf.rs"]
mod perf;
#[path = "progress.rs"]
mod progress;
#[path = "python.rs"]
mod python;
#[path = "rpc.rs"]
mod rpc;
#[path = "rpc_field.rs"]
mod rpc_field;
#[path = "scratch.rs"]
mod scratch;
#[path = "selftest.rs"]
mod selftest;
#[path = "serve.rs"]
mod serve;
#[path = "serve_fs.rs"]
mod serve_fs;
#[path = "service.rs"]
mod service;
#[path = "sim.rs"]
mod sim;
#[path = "site.rs"]
mod site;
#[path = "site_scripts.rs"]
mod site_scripts;
#[path = "top.rs"]
mod top;
#[path = "transcripts.rs"]
mod transcripts;
#[path = "tunables.rs"]
mod tunables;
#[path = "tuning.rs"]
mod tuning;
#[path = "verify.rs"]
mod verify;

#[test]
fn every_file_is_one_of_the_modules() {
    let own = include_str!("it.rs");
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap();
    for file in files.map(|file| file.unwrap().file_name().into_string().unwrap()) {
        if file.ends_with(".rs") && file != "it.rs" {
            assert!(own.contains(&format!("#[path = \"{file}\"]")), "{file} is not in it.rs");
        }
    }
}
