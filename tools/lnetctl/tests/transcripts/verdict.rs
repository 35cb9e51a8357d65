//! The list: every recorded `lnetctl` command that this program has, and how ours compares.
//! `fixtures/lnetctl/TRANSCRIPTS.md` is made from it and checked against it.

use super::vector::{Vector, names};

/// How ours compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Equal to the byte, numbers that differ by nature aside.
    Matched,
    /// Equal to the byte with `--strict-compat`; without, an error for this reason (DEC-33).
    Strict(&'static str),
    /// Different on purpose.
    Different(&'static str),
}

const OWN_HELP: &str = "help is in our own words; stream and exit code are equal";
const REAL_TEXT: &str = "the kernel lost the text (`Unspecific failure`); ours says it (G-19)";
const SILENT: &str = "the original fails in silence; ours prints the document (C-peer-4)";
const ABSENT: &str =
    "a NID that there is none of is an error that names it (DEC-33); silent with --strict-compat";
const NO_DAEMON: &str = "no kernel module but a daemon: its socket is named, errno is real (G-17)";

/// What is not [`Verdict::Matched`]. Names are exact, or prefixes that end in `*`.
const VERDICTS: &[(&str, Verdict)] = &[
    (
        "help-service-id",
        Verdict::Different("there is help; without it the recorded error is printed (C-misc-1)"),
    ),
    ("help-fault-add", Verdict::Matched),
    ("help-*", Verdict::Different(OWN_HELP)),
    (
        "err-net-add-bad-option",
        Verdict::Different(
            "an unknown option is an error (DEC-33); with --strict-compat help and exit 0 as recorded, in our own words",
        ),
    ),
    ("err-peer-add-no-arg", Verdict::Different(OWN_HELP)),
    ("err-set-noarg", Verdict::Different(OWN_HELP)),
    ("err-set-retry_count-noarg", Verdict::Different(OWN_HELP)),
    ("err-net-add-bad-credits", Verdict::Strict("a count that is no number")),
    ("err-net-set-bad-health", Verdict::Strict("a health value above 1000")),
    ("err-set-discovery-2", Verdict::Strict("neither 0 nor 1")),
    ("err-set-drop_asym_route-2", Verdict::Strict("neither 0 nor 1")),
    ("err-set-max_interfaces-10", Verdict::Strict("below 16 the default is taken silently")),
    (
        "err-ping-no-arg",
        Verdict::Different(
            "`Writer error: write error` says nothing; ours says what is needed (C-ping-4)",
        ),
    ),
    ("err-net-set-absent-nid", Verdict::Different(ABSENT)),
    ("err-peer-set-absent", Verdict::Different(ABSENT)),
    ("unconf-net-show", Verdict::Different(REAL_TEXT)),
    ("unconf-ping", Verdict::Different(REAL_TEXT)),
    ("unconf-peer-show", Verdict::Different(SILENT)),
    (
        "unconf-export",
        Verdict::Different(
            "errors go to standard error, so that what is printed stays YAML, and the exit code is not 0",
        ),
    ),
    ("noload-*", Verdict::Different(NO_DAEMON)),
    ("err-peer-add-conflict", Verdict::Different(SILENT)),
    ("err-peer-del-*", Verdict::Different(SILENT)),
    ("err-peer-show-bad-nid", Verdict::Different(SILENT)),
    ("peer-show-nid-absent", Verdict::Different(SILENT)),
    (
        "peer-show-final",
        Verdict::Different("10.77.0.60 stays not Multi-Rail, as it was added (C-peer-1, Q fix)"),
    ),
    (
        "net-show-after-set",
        Verdict::Different("`net set --nid --conns-per-peer` takes effect (C-netset-1, Q fix)"),
    ),
    (
        "version",
        Verdict::Different("the version is ours, behind the one that it is compatible with"),
    ),
    ("list-commands", Verdict::Different("there are more commands")),
    (
        "cpt-of-nid",
        Verdict::Different(
            "an unknown option is an error (DEC-33); with --strict-compat help and exit 0 as recorded, in our own words",
        ),
    ),
    (
        "import-bad-yaml",
        Verdict::Different(
            "YAML that does not end is a syntax error with its place, found before anything is applied (Y-10)",
        ),
    ),
    (
        "import-del",
        Verdict::Different(
            "blocks are undone last first, so peers are removed before the nets that they hang on (I-9, Q fix)",
        ),
    ),
    (
        "err-ping-timeout-unreachable",
        Verdict::Different(
            "`--timeout 1` is honoured, so silence ends in EIO; the original does not send a 1 and waits for ARP to fail (C-ping-1)",
        ),
    ),
    ("err-udsp-add-noarg", Verdict::Different(OWN_HELP)),
    (
        "udsp-show-idx",
        Verdict::Different("the rule is shown, where the original crashes (C-udsp-4, Q fix)"),
    ),
    (
        "fault-drop-show",
        Verdict::Different("the rules are shown, where the original crashes (C-fault-4, Q fix)"),
    ),
    (
        "fault-drop-show-empty",
        Verdict::Different("nothing and 0, where the original crashes (C-fault-4, Q fix)"),
    ),
    (
        "fault-delay-show",
        Verdict::Different("the rules are shown, where the original crashes (C-fault-4, Q fix)"),
    ),
    (
        "fault-drop-reset",
        Verdict::Different("the counters are reset without one more argument (C-fault-4, Q fix)"),
    ),
];

/// The list, sorted: every recorded `lnetctl` command.
pub(crate) fn list() -> Vec<(Vector, Verdict)> {
    names().iter().map(|name| Vector::read(name)).filter(is_ours).map(with_verdict).collect()
}

fn with_verdict(vector: Vector) -> (Vector, Verdict) {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(prefix) => vector.name.starts_with(prefix),
        None => vector.name == pattern,
    };
    let verdict = VERDICTS.iter().find(|(pattern, _)| fits(pattern)).map(|(_, v)| *v);
    (vector, verdict.unwrap_or(Verdict::Matched))
}

/// Whether the command that matters in the line, the last `lnetctl` call, is one of ours.
fn is_ours(vector: &Vector) -> bool {
    if vector.command.starts_with("lctl") || vector.command.starts_with("lst") {
        return false;
    }
    vector.command.contains("lnetctl ")
}

/// The page.
pub(crate) fn page() -> String {
    let list = list();
    let count = |f: fn(&Verdict) -> bool| list.iter().filter(|(_, v)| f(v)).count();
    let matched = count(|v| matches!(v, Verdict::Matched));
    let strict = count(|v| matches!(v, Verdict::Strict(_)));
    let different = count(|v| matches!(v, Verdict::Different(_)));
    let others = names().len() - list.len();
    let mut page = format!(
        "# Transcripts\n\n\
        Each `NAME.txt` here is a command run on a kernel node: the command, its standard output, its\n\
        standard error and its exit code. The tests of `lnetctl` compare ours with them, to the byte\n\
        but for numbers that differ by nature: printed from rebuilt state, and against live daemons\n\
        where root can make network namespaces. What is different on purpose lies in `ours/` as it\n\
        is printed by live nodes. This page is made by those tests\n\
        (`ULNET_BLESS=1 cargo test -p lnetctl --test transcripts`).\n\n\
        matched {matched} · matched with `--strict-compat` {strict} · \
        deliberately different {different} · of other programs {others}\n\n\
        | transcript | command | comparison |\n| --- | --- | --- |\n"
    );
    for (vector, verdict) in &list {
        let text = match verdict {
            Verdict::Matched => "matched".to_owned(),
            Verdict::Strict(why) => {
                format!("an error: {why} (DEC-33); matched with `--strict-compat`")
            }
            Verdict::Different(why) => format!("different: {why}"),
        };
        let command = vector.command.replace('|', "\\|");
        page.push_str(&format!("| {} | `{command}` | {text} |\n", vector.name));
    }
    page
}

/// Importing a file needs the file.
pub(crate) fn needs_a_file(vector: &Vector) -> bool {
    vector.name.starts_with("import-") && vector.command.contains("b.yaml")
}
