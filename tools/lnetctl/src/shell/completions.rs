//! Completions for bash, zsh and fish, made from the table of commands: `lnetctl completions SHELL`
//! prints them.

use core::fmt::Write as _;

use super::{commands, levels};
use crate::Session;
use crate::args::{Arg, Args, Opt};
use crate::report::{INVALID, Place};
use crate::table::Command;

const PLACE: Place = Place::classic("show", "completions");

/// A shell and what writes its script.
type Shell = (&'static str, fn() -> String);

/// The shells.
const SHELLS: [Shell; 3] = [("bash", bash), ("zsh", zsh), ("fish", fish)];

/// The command.
pub(crate) fn completions(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let Some(name) = args.operands.first() else {
        return command.print_help(session, INVALID);
    };
    match SHELLS.iter().find(|(shell, _)| shell == name) {
        Some((_, script)) => {
            session.out.push_str(&script());
            0
        }
        None => {
            let what = format!("no completions for '{name}': expected bash, zsh or fish");
            session.bad_value(PLACE, &what)
        }
    }
}

/// What can follow an option or stand as an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Files,
    Interfaces,
    Words(&'static str),
    Anything,
}

fn values_of(opt: &Opt) -> Values {
    match (opt.long, opt.arg) {
        ("if", _) => Values::Interfaces,
        ("message", _) => Values::Words("PUT ACK GET REPLY"),
        ("part", _) => Values::Words("request reply bulk early"),
        (_, Arg::Value("FILE")) => Values::Files,
        _ => Values::Anything,
    }
}

fn operands_of(command: &Command) -> Values {
    match command.operands.0 {
        text if text.contains("FILE") => Values::Files,
        "SHELL" => Values::Words("bash zsh fish"),
        _ => Values::Anything,
    }
}

fn takes_value(opt: &Opt) -> bool {
    matches!(opt.arg, Arg::Value(_))
}

/// The part that bash and zsh share: from the words so far to the path of a command.
fn walk() -> String {
    let of_levels = levels().into_iter().flat_map(|level| {
        let path = level.path;
        level.words.into_iter().map(move |word| super::joined(&path, word))
    });
    let mut paths: Vec<String> = of_levels.collect();
    // Words behind a command that is also a group stand in no level.
    let rest = commands().into_iter().map(|command| command.path.to_owned());
    let rest: Vec<String> = rest.filter(|path| !paths.contains(path)).collect();
    paths.extend(rest);
    let known = paths.iter().map(|path| format!("\"{path}\"")).collect::<Vec<_>>().join("|");
    format!(
        "        case \"${{at:+$at }}$word\" in\n            {known})\n                \
         at=\"${{at:+$at }}$word\" ;;\n        esac\n"
    )
}

fn bash() -> String {
    let mut text = String::from(
        "# Completions of lnetctl for bash; made by `lnetctl completions bash`.\n\
         _lnetctl() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n    \
         local at= word i words=\n    COMPREPLY=()\n    \
         for ((i = 1; i < COMP_CWORD; i++)); do\n        word=${COMP_WORDS[i]}\n",
    );
    text.push_str(&walk());
    text.push_str("    done\n    case \"$at $prev\" in\n");
    for command in commands() {
        for opt in command.options.iter().filter(|opt| takes_value(opt)) {
            let how = match values_of(opt) {
                Values::Files => "COMPREPLY=($(compgen -f -- \"$cur\"))".to_owned(),
                Values::Interfaces => {
                    "COMPREPLY=($(compgen -W \"$(ls /sys/class/net 2>/dev/null)\" -- \"$cur\"))"
                        .to_owned()
                }
                Values::Words(words) => {
                    format!("COMPREPLY=($(compgen -W \"{words}\" -- \"$cur\"))")
                }
                Values::Anything => ":".to_owned(),
            };
            let short =
                opt.short.map_or_else(String::new, |c| format!("|\"{} -{c}\"", command.path));
            let _ = writeln!(
                text,
                "        \"{} --{}\"{short}) {how}; return ;;",
                command.path, opt.long
            );
        }
    }
    text.push_str("    esac\n    case \"$at\" in\n");
    for level in levels() {
        let _ = writeln!(
            text,
            "        \"{}\") words=\"{}{}\" ;;",
            level.path,
            level.words.join(" "),
            if level.path.is_empty() {
                " help version --socket --strict-compat"
            } else {
                " --help"
            },
        );
    }
    for command in commands() {
        let options: Vec<_> = command.options.iter().map(|o| format!("--{}", o.long)).collect();
        let more = match operands_of(command) {
            Values::Files => "; COMPREPLY=($(compgen -f -- \"$cur\"))".to_owned(),
            Values::Words(words) => {
                format!("; COMPREPLY=($(compgen -W \"{words}\" -- \"$cur\"))")
            }
            Values::Interfaces | Values::Anything => String::new(),
        };
        let help = if options.iter().any(|o| o == "--help") { "" } else { "--help" };
        let _ = writeln!(
            text,
            "        \"{}\") words=\"{}\"{more} ;;",
            command.path,
            format!("{} {help}", options.join(" ")).trim(),
        );
    }
    text.push_str(
        "    esac\n    COMPREPLY+=($(compgen -W \"$words\" -- \"$cur\"))\n}\n\
         complete -F _lnetctl lnetctl\n",
    );
    text
}

/// A text between single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn zsh() -> String {
    let mut text = String::from(
        "#compdef lnetctl\n# Completions of lnetctl for zsh; made by `lnetctl completions zsh`.\n\
         _lnetctl() {\n    local at= before= word\n    local -i i last=1\n    local -a entries\n    \
         for ((i = 2; i < CURRENT; i++)); do\n        word=$words[i] before=$at\n",
    );
    text.push_str(&walk());
    // What follows is about the words behind the command, as if it were the first.
    text.push_str(
        "        [[ $at == $before ]] || last=$i\n    done\n    \
         words=(lnetctl \"${(@)words[last+1,-1]}\")\n    (( CURRENT -= last - 1 ))\n    \
         case \"$at\" in\n",
    );
    let summary = |path: &str| {
        commands().into_iter().find(|c| c.path == path).map_or("commands below", |c| c.summary)
    };
    for level in levels() {
        let _ = writeln!(text, "        {}) entries=(", quoted(&level.path));
        for word in level.words {
            let path = if level.path.is_empty() {
                word.to_owned()
            } else {
                format!("{} {word}", level.path)
            };
            let line = format!("{word}:{}", summary(&path).replace(':', r"\:"));
            let _ = writeln!(text, "            {}", quoted(&line));
        }
        text.push_str("            ); _describe command entries ;;\n");
    }
    for command in commands() {
        let _ = writeln!(text, "        {}) _arguments -s -S \\", quoted(command.path));
        for opt in command.options {
            let help = opt.help.replace('[', r"\[").replace(']', r"\]").replace(':', r"\:");
            let value = match opt.arg {
                Arg::None => String::new(),
                Arg::Level => "::LEVEL:(0 1 2 3 4)".to_owned(),
                Arg::Value(name) => match values_of(opt) {
                    Values::Files => format!(":{name}:_files"),
                    Values::Interfaces => format!(":{name}:_net_interfaces"),
                    Values::Words(words) => format!(":{name}:({words})"),
                    Values::Anything => format!(":{name}: "),
                },
            };
            let _ = writeln!(
                text,
                "            {} \\",
                quoted(&format!("*--{}[{help}]{value}", opt.long))
            );
        }
        let operands = match operands_of(command) {
            Values::Files => "'*:file:_files'".to_owned(),
            Values::Words(words) => format!("'*:word:({words})'"),
            // With a message in its place options are not offered.
            Values::Interfaces | Values::Anything => "'*:word:()'".to_owned(),
        };
        let _ = writeln!(text, "            {operands} ;;");
    }
    text.push_str("    esac\n}\n_lnetctl \"$@\"\n");
    text
}

fn fish() -> String {
    let mut text = String::from(
        "# Completions of lnetctl for fish; made by `lnetctl completions fish`.\n\
         function __lnetctl_at --description 'whether the words so far are this command'\n    \
         set -l words (string match --invert -- '-*' (commandline -opc)[2..])\n    \
         set -l wanted (string split ' ' -- $argv[1])\n    \
         test -z \"$argv[1]\"; and set wanted\n    \
         test (count $words) -ge (count $wanted); or return 1\n    \
         for i in (seq (count $wanted))\n        \
         test \"$words[$i]\" = \"$wanted[$i]\"; or return 1\n    end\n    \
         test -n \"$argv[2]\"; and test (count $words) -ne (count $wanted); and return 1\n    \
         return 0\nend\ncomplete -c lnetctl -f\n",
    );
    let commands = commands();
    for level in levels() {
        for word in level.words {
            let path = if level.path.is_empty() {
                word.to_owned()
            } else {
                format!("{} {word}", level.path)
            };
            let summary =
                commands.iter().find(|c| c.path == path).map_or("commands below", |c| c.summary);
            let _ = writeln!(
                text,
                "complete -c lnetctl -n \"__lnetctl_at '{}' exactly\" -a {word} -d {}",
                level.path,
                quoted(summary)
            );
        }
    }
    for command in commands {
        let at = format!("complete -c lnetctl -n \"__lnetctl_at '{}'\"", command.path);
        for opt in command.options {
            let short = opt.short.map_or_else(String::new, |c| format!(" -s {c}"));
            let value = match (takes_value(opt), values_of(opt)) {
                (false, _) => String::new(),
                (true, Values::Files) => " -rF".to_owned(),
                (true, Values::Interfaces) => " -xa '(ls /sys/class/net)'".to_owned(),
                (true, Values::Words(words)) => format!(" -xa '{words}'"),
                (true, Values::Anything) => " -x".to_owned(),
            };
            let _ = writeln!(text, "{at} -l {}{short}{value} -d {}", opt.long, quoted(opt.help));
        }
        match operands_of(command) {
            Values::Files => {
                let _ = writeln!(text, "{at} -F");
            }
            Values::Words(words) => {
                let _ = writeln!(text, "{at} -a '{words}'");
            }
            Values::Interfaces | Values::Anything => {}
        }
    }
    text
}
