//! The manual page `lnetctl(8)`, made from the table of commands.

use roff::{Inline, Roff, bold, italic, roman};

use super::{commands, examples};
use crate::args::Arg;
use crate::table::Command;

/// The page, as troff reads it.
pub fn page() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut page = Roff::new();
    page.control("TH", ["lnetctl", "8", "", &format!("ulnet {version}"), "LNet in user space"]);
    page.control("SH", ["NAME"]);
    page.text([roman("lnetctl - configure and show a running LNet node")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([
        bold("lnetctl"),
        roman(" ["),
        bold("--socket"),
        roman(" "),
        italic("PATH"),
        roman("] ["),
        bold("--strict-compat"),
        roman("] ["),
        italic("COMMAND"),
        roman(" [OPTIONS] [ARGUMENTS]]"),
    ]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in [
        "lnetctl asks the daemon lnetd(8) for what is to be done or shown, over its control \
         socket, and prints the answer. Its commands, output and exit status are those that \
         scripts know from the tool of the same name for kernel LNet.",
        "Without a command, commands are read from standard input, one a line, and end with the \
         first that fails; with ignore_errors as a line of its own they go on. There, and only \
         there, commands may be shortened to any unique prefix.",
        "What is mistyped is an error here even where the original ignores it in silence; the \
         option --strict-compat asks for that silence.",
    ] {
        page.control("PP", []);
        page.text([roman(paragraph)]);
    }
    page.control("SH", ["OPTIONS"]);
    let options: [(&str, &str, &str); 2] = [
        ("--socket", "PATH", "The control socket of the daemon that is meant."),
        ("--strict-compat", "", "Be as silent about mistakes as the original."),
    ];
    for (name, value, help) in options {
        page.control("TP", []);
        page.text([bold(name), roman(if value.is_empty() { "" } else { " " }), italic(value)]);
        page.text([roman(help)]);
    }
    page.control("SH", ["COMMANDS"]);
    for command in commands() {
        of_command(&mut page, command);
    }
    tail(&mut page);
    page.to_roff()
}

fn of_command(page: &mut Roff, command: &Command) {
    let (operands, _) = command.operands;
    let gap = if operands.is_empty() { "" } else { " " };
    page.control("SS", [format!("{}{gap}{operands}", command.path).as_str()]);
    page.text([roman(sentence(command.summary))]);
    for opt in command.options {
        page.control("TP", []);
        let mut head: Vec<Inline> = Vec::new();
        if let Some(short) = opt.short {
            head.extend([bold(format!("-{short}")), roman(", ")]);
        }
        head.push(bold(format!("--{}", opt.long)));
        match opt.arg {
            Arg::None => {}
            Arg::Value(name) => head.extend([roman(" "), italic(name)]),
            Arg::Level => head.extend([roman(" ["), italic("LEVEL"), roman("]")]),
        }
        page.text(head);
        page.text([roman(sentence(opt.help))]);
    }
    for (line, why) in examples::of(command.path) {
        page.control("PP", []);
        page.text([roman(format!("{}:", sentence(why).trim_end_matches('.')))]);
        page.control("RS", ["4"]);
        page.text([bold(format!("lnetctl {line}"))]);
        page.control("RE", []);
    }
}

fn tail(page: &mut Roff) {
    let sections: [(&str, &[(&str, &str)]); 4] = [
        (
            "EXIT STATUS",
            &[
                ("0", "It is done."),
                (
                    "other",
                    "It is not: the low byte of the negative error number, as the original \
                     returns it. What is wrong is told on standard error, as YAML.",
                ),
            ],
        ),
        (
            "ENVIRONMENT",
            &[
                ("ULNET_SOCKET", "The control socket, where no option names one."),
                ("NO_COLOR", "If set and not empty, lnetctl top has no colours."),
            ],
        ),
        (
            "FILES",
            &[(
                "/run/ulnet/lnetd.sock",
                "The control socket of the system's daemon. Users other than root look at \
                 ulnet/lnetd.sock in XDG_RUNTIME_DIR first.",
            )],
        ),
        ("SEE ALSO", &[]),
    ];
    for (name, items) in sections {
        page.control("SH", [name]);
        for (head, text) in items {
            page.control("TP", []);
            page.text([bold(*head)]);
            page.text([roman(*text)]);
        }
    }
    page.text([bold("lnetd"), roman("(8), "), bold("ulnet"), roman("(1)")]);
}

/// A text of the table as a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}
