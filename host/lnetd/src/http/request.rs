//! The head of a request, from bytes of any origin. Total: any bytes are a request, a
//! wish for more, or a status to refuse with. No body is ever read.

use std::net::{IpAddr, SocketAddr};

use super::accept::{self, Format};

/// The longest head that is read.
pub(super) const HEAD_MAX: usize = 8 << 10;
/// The most header lines.
const HEADERS_MAX: usize = 64;
/// The longest filter that the status page may send.
const FILTER_MAX: usize = 64;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) what: What,
    /// `HEAD`: the answer without its body.
    pub(super) head_only: bool,
}

/// What there is to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// `/`: the status page.
    Page,
    /// `/status.json`: what the page shows. With `?peers=TEXT`, of peers only those with that text
    /// in one of their NIDs.
    Status(String),
    /// `/metrics`: for Prometheus, in the format that its `Accept` prefers.
    Metrics(Format),
}

/// Why a request is refused: status and what follows it.
pub(super) type Refusal = (u16, &'static str);

/// Reads a head as far as it has arrived. `Ok(None)`: there is more to come. `local`: the address
/// that the client has reached.
pub(super) fn parse(bytes: &[u8], local: SocketAddr) -> Result<Option<Request>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err((431, "request header fields too large"));
        }
        Err(_) => return Err((400, "not HTTP")),
    }
    let head_only = match head.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err((405, "read-only: expected GET or HEAD")),
    };
    let host = head.headers.iter().find(|h| h.name.eq_ignore_ascii_case("host"));
    if !is_meant(host.map(|h| h.value), local) {
        return Err((421, "this host is not served here"));
    }
    let accepted = head.headers.iter().filter(|h| h.name.eq_ignore_ascii_case("accept"));
    let accepted = accepted.filter_map(|h| core::str::from_utf8(h.value).ok());
    let target = head.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let what = match path {
        "/" => What::Page,
        "/metrics" => What::Metrics(accept::choose(accepted)),
        "/status.json" => What::Status(filter(query)?),
        _ => return Err((404, "not found: expected /, /metrics or /status.json")),
    };
    Ok(Some(Request { what, head_only }))
}

/// Whether the host that the request names can be this one. On loopback a name other than
/// `localhost` is that of a page on the web that tries to read what is not for it (DNS rebinding).
fn is_meant(host: Option<&[u8]>, local: SocketAddr) -> bool {
    if !local.ip().is_loopback() {
        return true;
    }
    let Some(host) = host else { return true };
    let Ok(host) = core::str::from_utf8(host) else { return false };
    let host = host.trim();
    if host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    matches!(name, "localhost" | "[::1]")
}

/// The value of `peers=`, percent-decoded; what else stands in the query is ignored.
fn filter(query: &str) -> Result<String, Refusal> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("peers=")).unwrap_or_default();
    let refused = (400, "peers: expected at most 64 characters, percent-encoded");
    let mut decoded = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let mut digit =
                    || rest.next().and_then(|d| char::from(d).to_digit(16)).ok_or(refused);
                (digit()? * 16 + digit()?) as u8
            }
            b'+' => b' ',
            byte => byte,
        };
        decoded.push(byte);
        if decoded.len() > FILTER_MAX {
            return Err(refused);
        }
    }
    String::from_utf8(decoded).map_err(|_| refused)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn local() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9110))
    }

    fn ask(head: &str) -> Result<Option<Request>, Refusal> {
        parse(head.as_bytes(), local())
    }

    #[test]
    fn existing_pages_are_served_and_no_others() {
        let get = |what| Ok(Some(Request { what, head_only: false }));
        assert_eq!(ask("GET / HTTP/1.1\r\n\r\n"), get(What::Page));
        assert_eq!(ask("GET /metrics HTTP/1.0\r\n\r\n"), get(What::Metrics(Format::Classic)));
        let status = What::Status("10.0 @tcp".to_owned());
        assert_eq!(ask("GET /status.json?x=1&peers=10.0+%40tcp HTTP/1.1\r\n\r\n"), get(status));
        assert_eq!(ask("GET /etc/passwd HTTP/1.1\r\n\r\n").unwrap_err().0, 404);
        assert_eq!(ask("POST / HTTP/1.1\r\n\r\n").unwrap_err().0, 405);
        assert_eq!(ask("\0\x01\x02").unwrap_err().0, 400);
        assert!(ask("HEAD / HTTP/1.1\r\n\r\n").unwrap().unwrap().head_only);
        for bad in ["%4", "%zz", "%ff", &"a".repeat(65)] {
            let line = format!("GET /status.json?peers={bad} HTTP/1.1\r\n\r\n");
            assert_eq!(ask(&line).unwrap_err().0, 400, "{bad}");
        }
    }

    #[test]
    fn the_format_of_metrics_follows_all_accept_headers() {
        let format = |headers: &str| {
            let head = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
            ask(&head).unwrap().unwrap().what
        };
        assert_eq!(format(""), What::Metrics(Format::Classic));
        let named = "accept: application/openmetrics-text;version=1.0.0;q=0.5\r\n";
        assert_eq!(format(named), What::Metrics(Format::OpenMetrics));
        let both = format!("{named}ACCEPT: text/plain;version=0.0.4;q=0.6\r\n");
        assert_eq!(format(&both), What::Metrics(Format::Classic));
        assert_eq!(
            format(&format!("Accept: \u{ff}\r\n{named}")),
            What::Metrics(Format::OpenMetrics)
        );
    }

    #[test]
    fn a_head_is_waited_for_up_to_its_limit() {
        let line = "GET / HTTP/1.1\r\nx: ";
        assert_eq!(ask(line), Ok(None));
        assert_eq!(ask(&format!("{line}{}", "y".repeat(HEAD_MAX))).unwrap_err().0, 431);
        assert_eq!(
            ask(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65))).unwrap_err().0,
            431
        );
    }

    #[test]
    fn a_page_of_the_web_cannot_read_what_is_on_loopback() {
        let with = |host: &str, at: [u8; 4]| {
            let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            parse(head.as_bytes(), SocketAddr::from((at, 9110))).map(|_| ()).map_err(|e| e.0)
        };
        for host in ["localhost", "localhost:9110", "127.0.0.1:9110", "[::1]:9110", "10.0.0.1"] {
            assert_eq!(with(host, [127, 0, 0, 1]), Ok(()), "{host}");
        }
        assert_eq!(with("evil.example:9110", [127, 0, 0, 1]), Err(421));
        assert_eq!(with("node7.example:9110", [10, 0, 0, 7]), Ok(()));
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse(&bytes, local());
            let line = [b"GET /status.json?peers=", bytes.as_slice(), b" HTTP/1.1\r\n\r\n"].concat();
            let _ = parse(&line, local());
        }
    }
}
