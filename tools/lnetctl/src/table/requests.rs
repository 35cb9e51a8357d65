//! Commands: targets, services and locks of the request layer.

use crate::command::{connection, lock, target};

use super::{Command, Entry, Group, NO_OPERANDS};

pub(super) const SERVICE: Entry = Entry::Group(Group {
    name: "service",
    entries: &[Entry::Command(Command {
        name: "show",
        path: "service show",
        options: &[],
        operands: NO_OPERANDS,
        summary: "show the services of this node's targets, their queues and estimates",
        help_code: 1,
        run: connection::services,
    })],
});

pub(super) const LOCK: Entry = Entry::Group(Group {
    name: "lock",
    entries: &[
        Entry::Command(Command {
            name: "show",
            path: "lock show",
            options: &[],
            operands: ("[NAME]", 1),
            summary: "show the locks on NAME; without it locks that wait or are waited for",
            help_code: 1,
            run: lock::show,
        }),
        Entry::Command(Command {
            name: "dump",
            path: "lock dump",
            options: &[],
            operands: NO_OPERANDS,
            summary: "show all locks of this node's targets",
            help_code: 1,
            run: lock::dump,
        }),
        Entry::Command(Command {
            name: "break",
            path: "lock break",
            options: &[],
            operands: ("LOCK", 1),
            summary: "evict the client that has the lock, or waits for it",
            help_code: 1,
            run: lock::break_lock,
        }),
    ],
});

pub(super) const NAMESPACE: Entry = Entry::Group(Group {
    name: "namespace",
    entries: &[Entry::Command(Command {
        name: "show",
        path: "namespace show",
        options: &[],
        operands: NO_OPERANDS,
        summary: "show how many locks this node's targets have, and what happened to them",
        help_code: 1,
        run: lock::namespaces,
    })],
});

pub(super) const TARGET: Entry = Entry::Group(Group {
    name: "target",
    entries: &[
        Entry::Command(Command {
            name: "add",
            path: "target add",
            options: &[],
            operands: ("NAME=KIND:DIR", 1),
            summary: "serve a target; KIND is kv, lock, ost, echo, mgs or mdt",
            help_code: 1,
            run: target::add,
        }),
        Entry::Command(Command {
            name: "del",
            path: "target del",
            options: &[],
            operands: ("NAME", 1),
            summary: "take a target out of service when its data are committed",
            help_code: 1,
            run: target::del,
        }),
        Entry::Command(Command {
            name: "show",
            path: "target show",
            options: &[],
            operands: NO_OPERANDS,
            summary: "show the targets that this node serves",
            help_code: 1,
            run: target::show,
        }),
    ],
});
