//! `get_param`, `set_param`, `list_param` (T-3): parameters by name or glob pattern.

use lnet_admin::{ClientError, ParamInfo, Reply, Request};
use lnet_config::yaml::{self, Value};
use lnet_types::Errno;

use super::{INVALID, failed};
use crate::Session;
use crate::args::Args;
use crate::table::Command;

/// The parameters that the patterns name, in the order of the patterns, and 0; or the code of a pattern
/// that names none, which is reported.
fn chosen(
    session: &mut Session<'_>,
    command: &Command,
    args: &Args,
    patterns: &[String],
) -> Result<(Vec<ParamInfo>, i32), i32> {
    let all = match session.ask(&Request::ParamList) {
        Ok(Reply::Params(all)) => all,
        Ok(_) => return Err(failed(session, command.name, &ClientError::Unexpected)),
        Err(e) => return Err(failed(session, command.name, &e)),
    };
    let mut chosen = Vec::new();
    let mut code = 0;
    for pattern in patterns {
        let below = format!("{pattern}/*");
        let fits = |p: &&ParamInfo| {
            matches(pattern, &p.name) || args.has("recursive") && matches(&below, &p.name)
        };
        let fits: Vec<_> = all.iter().filter(fits).collect();
        if fits.is_empty() {
            let errno = Errno::ENOENT;
            session
                .err_line(format_args!("error: {}: param_path '{pattern}': {errno}", command.name));
            session.suggest(pattern, all.iter().map(|p| p.name.as_str()));
            code = errno.negative();
        }
        let only_writable = args.has("writable") || args.has("only-tunable");
        let wanted = fits.into_iter().filter(|p| p.writable || !only_writable);
        chosen.extend(wanted.cloned());
    }
    Ok((chosen, code))
}

/// Shell patterns: `*` any text, `?` any character.
fn matches(pattern: &str, name: &str) -> bool {
    // The places in the pattern that the part of the name read so far can have come to.
    let pattern: Vec<char> = pattern.chars().collect();
    let stars = |mut at: Vec<bool>| {
        for (i, c) in pattern.iter().enumerate() {
            at[i + 1] |= at[i] && *c == '*';
        }
        at
    };
    let mut at = vec![false; pattern.len() + 1];
    at[0] = true;
    at = stars(at);
    for c in name.chars() {
        let mut next = vec![false; pattern.len() + 1];
        for (i, p) in pattern.iter().enumerate().filter(|(i, _)| at[*i]) {
            match p {
                '*' => next[i] = true,
                '?' => next[i + 1] = true,
                p => next[i + 1] |= *p == c,
            }
        }
        at = stars(next);
    }
    at.last().copied().unwrap_or(false)
}

/// The name as it is listed: with `=` behind it if it may be written, where that is asked for.
fn shown(param: &ParamInfo, args: &Args) -> String {
    let mark = if args.has("classify") && param.writable { "=" } else { "" };
    format!("{}{mark}", param.name)
}

pub(super) fn list(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let everything = ["*".to_owned()];
    let patterns = if args.operands.is_empty() { &everything[..] } else { &args.operands };
    match chosen(session, command, args, patterns) {
        Ok((params, code)) => {
            for param in &params {
                let name = shown(param, args);
                session.out_line(name);
            }
            code
        }
        Err(code) => code,
    }
}

/// `get_param PATTERN…`. All are read, since a pattern may name one that has no value now; the code is that
/// of the first that failed.
pub(super) fn get(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.operands.is_empty() {
        return command.print_help(session, INVALID);
    }
    let (params, mut first) = match chosen(session, command, args, &args.operands) {
        Ok(chosen) => chosen,
        Err(code) => return code,
    };
    for param in &params {
        if args.has("only-name") {
            let name = shown(param, args);
            session.out_line(name);
            continue;
        }
        let text = match read(session, &param.name) {
            Ok(text) => text,
            Err(e) => {
                let what = format!("error: get_param: reading '{}'", param.name);
                let code = failed(session, &what, &e);
                first = if first == 0 { code } else { first };
                continue;
            }
        };
        let body = text.trim_end_matches('\n');
        if args.has("yaml") {
            let lines = if body.contains('\n') {
                format!("|\n  {}", body.replace('\n', "\n  "))
            } else {
                body.to_owned()
            };
            session.out_line(format_args!("{}: {lines}", param.name));
            continue;
        }
        match (args.has("no-name"), args.has("header") || body.contains('\n')) {
            (true, _) => session.out_line(body),
            (false, true) => session.out_line(format_args!("{}=\n{body}", param.name)),
            (false, false) => session.out_line(format_args!("{}={body}", param.name)),
        }
    }
    first
}

/// The text of one parameter.
pub(crate) fn read(session: &mut Session<'_>, name: &str) -> Result<String, ClientError> {
    match session.ask(&Request::ParamGet { name: name.to_owned() })? {
        Reply::Texts(mut texts) if texts.len() == 1 => Ok(texts.remove(0)),
        _ => Err(ClientError::Unexpected),
    }
}

/// `set_param NAME=VALUE…`. All are tried; the code is that of the first that failed.
pub(super) fn set(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.has("permanent") {
        session.err_line(
            "error: set_param: --permanent is for file systems; what is to stay goes into the \
             configuration file of lnetd",
        );
        return INVALID;
    }
    if args.operands.is_empty() && !args.has("file") {
        return command.print_help(session, INVALID);
    }
    let words = match args.value("file").map(of_file) {
        None => Vec::new(),
        Some(Ok(words)) => words,
        Some(Err(why)) => {
            session.err_line(format_args!("error: set_param: {why}"));
            return INVALID;
        }
    };
    let mut first = 0;
    for word in words.iter().chain(&args.operands) {
        let code = match word.split_once('=') {
            Some((pattern, value)) => set_all(session, command, args, pattern, value),
            None => {
                session.err_line(format_args!("error: set_param: '{word}': expected NAME=VALUE"));
                INVALID
            }
        };
        if first == 0 {
            first = code;
        }
    }
    first
}

/// What a file sets, as it would stand on the command line.
fn of_file(path: &str) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let mut words = Vec::new();
    for document in yaml::parse(&text).map_err(|e| format!("{path}: {e}"))? {
        let Value::Map(entries) = document.value else {
            return Err(format!("{path}: {}: expected name: value", document.pos));
        };
        for (key, node) in entries {
            let Value::Text(value) = node.value else {
                return Err(format!("{path}: {}: '{}': expected a value", node.pos, key.text));
            };
            words.push(format!("{}={value}", key.text));
        }
    }
    Ok(words)
}

fn set_all(
    session: &mut Session<'_>,
    command: &Command,
    args: &Args,
    pattern: &str,
    value: &str,
) -> i32 {
    let params = match chosen(session, command, args, &[pattern.to_owned()]) {
        Ok((params, 0)) => params,
        Ok((_, code)) | Err(code) => return code,
    };
    for ParamInfo { name, .. } in params {
        let request = Request::ParamSet { name: name.clone(), value: value.to_owned() };
        if let Err(e) = session.order(&request) {
            let what = format!("error: set_param: setting {name}={value}");
            return failed(session, &what, &e);
        }
        if !args.has("no-name") {
            session.out_line(format_args!("{name}={value}"));
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_the_shell() {
        for (pattern, name, fits) in [
            ("peers", "peers", true),
            ("peer", "peers", false),
            ("*", "ksocklnd/nagle", true),
            ("lnet_*_timeout", "lnet_transaction_timeout", true),
            ("lnet_*_timeout", "lnet_timeout", false),
            ("n?s", "nis", true),
            ("n?s", "ns", false),
            ("*a*a*", "banana", true),
            ("*a*a*a*a*", "banana", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
