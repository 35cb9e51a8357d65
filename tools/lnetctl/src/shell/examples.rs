//! Command lines that people can start from, shown by `--help` and in the manual. Each is parsed by
//! the command that it is for when the tests run.

/// The words of a command, and lines that use it with what they are for.
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    ("lnet configure", &[("lnet configure", "start LNet with nothing but loopback")]),
    (
        "net add",
        &[
            ("net add --net tcp --if eth0", "one interface"),
            ("net add --net tcp --if eth0,eth1", "two rails on one network"),
            ("net add --net tcp1 --if eth2 --peer-credits 16", "another network, tuned"),
        ],
    ),
    ("net del", &[("net del --net tcp --if eth1", "take one rail away")]),
    ("net show", &[("net show --net tcp -v 3", "everything about one network")]),
    (
        "net set",
        &[
            ("net set --nid 10.0.0.1@tcp --health 1000", "declare an interface healthy"),
            ("net set --net tcp --lnd-timeout 10", "the driver's own limit"),
        ],
    ),
    ("set transaction_timeout", &[("set transaction_timeout 10", "seconds")]),
    ("import", &[("import /etc/ulnet/node.yaml", "apply a configuration")]),
    ("export", &[("export --backup /etc/ulnet/node.yaml", "keep what is configured")]),
    (
        "peer add",
        &[(
            "peer add --prim_nid 10.0.0.2@tcp --nid 10.0.[1-3].2@tcp",
            "a peer with four interfaces",
        )],
    ),
    ("peer show", &[("peer show --nid 10.0.0.2@tcp -v 2", "credits, counters, health")]),
    (
        "udsp add",
        &[("udsp add --src tcp --priority 0", "prefer this network whenever it is healthy")],
    ),
    (
        "fault drop add",
        &[(
            "fault drop add --source *@tcp --dest 10.0.0.2@tcp --rate 10",
            "lose every tenth message to a peer",
        )],
    ),
    (
        "target add",
        &[("target add kv-1=kv:/srv/kv-1", "serve a key-value target from this directory")],
    ),
    ("lock show", &[("lock show jobs/42", "who has the lock, who waits, until when")]),
    ("lock break", &[("lock break 0x5f2a", "give the lock to the next client now")]),
    ("target del", &[("target del kv-1", "let another node serve it")]),
    ("export show", &[("export show", "who is connected, and who was evicted")]),
    ("export evict", &[("export evict 10.0.0.2@tcp", "drop every client on that node")]),
    (
        "fault rpc lose",
        &[(
            "fault rpc lose --opcode OST_WRITE --part reply --count 3",
            "the next three writes are executed, and sent again",
        )],
    ),
    (
        "fault rpc delay",
        &[(
            "fault rpc delay --service target --min 5 --max 300 --share 100%",
            "each request waits, and clients hear that it takes longer",
        )],
    ),
    (
        "explain",
        &[
            ("explain 10.0.0.2@tcp", "which way would a message go, and why"),
            ("explain --last 5", "and where did the last ones go"),
        ],
    ),
    (
        "explain import",
        &[(
            "explain import locks",
            "where are the clients that a target calls back, and why there",
        )],
    ),
    (
        "explain lock",
        &[("explain lock jobs/42", "who waits for a lock, behind which locks, and until when")],
    ),
    ("ping", &[("ping 10.0.0.[2-9]@tcp --timeout 2", "who is there")]),
    ("discover", &[("discover --force 10.0.0.2@tcp", "learn a peer's interfaces anew")]),
    ("top", &[("top", "the node live, until q"), ("top --count 1", "one look, as text")]),
    (
        "doctor",
        &[
            ("doctor", "this node"),
            ("doctor --export b.yaml --export c.yaml", "this node among others"),
        ],
    ),
    ("completions", &[("completions bash", "to /usr/share/bash-completion/completions/lnetctl")]),
];

/// Examples of the command with these words.
pub(crate) fn of(path: &str) -> &'static [(&'static str, &'static str)] {
    EXAMPLES.iter().find(|(p, _)| *p == path).map_or(&[], |(_, lines)| lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;

    #[test]
    fn every_example_is_of_a_command_and_is_understood_by_it() {
        for (path, lines) in EXAMPLES {
            let command = super::super::commands().into_iter().find(|c| c.path == *path);
            let command = command.unwrap_or_else(|| panic!("no command is called '{path}'"));
            for (line, _) in *lines {
                let rest = line.strip_prefix(path).unwrap_or_else(|| panic!("{line}: not {path}"));
                let words: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
                let args = Args::parse(command.options, &words)
                    .unwrap_or_else(|misuse| panic!("{line}: {misuse}"));
                assert!(args.operands.len() <= command.operands.1, "{line}");
            }
        }
    }
}
