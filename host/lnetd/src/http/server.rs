//! Connections of the status server: who may have one, for how long, and the bytes of an answer.
//! One request each, then it is closed. What is answered is `mod.rs`.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Site;
use super::request::{self, HEAD_MAX, Refusal};

/// Connections at a time.
pub(super) const CLIENTS_MAX: usize = 32;
/// How long a client may take to send its head.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long it may take to read the answer.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// Rest after the system could not give us a connection.
const REST: Duration = Duration::from_millis(100);
/// Bytes written between two looks at the clock.
const PIECE: usize = 64 << 10;

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

/// Serves for as long as the process lives.
pub(super) fn serve(listener: TcpListener, site: Arc<Site>) -> io::Result<()> {
    let clients = Arc::new(AtomicUsize::new(0));
    thread::Builder::new().name("lnetd-http".to_owned()).spawn(move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => greet(stream, &site, &clients),
                Err(e) => {
                    tracing::warn!("status server: {e}");
                    thread::sleep(REST);
                }
            }
        }
    })?;
    Ok(())
}

fn greet(mut stream: TcpStream, site: &Arc<Site>, clients: &Arc<AtomicUsize>) {
    if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
        clients.fetch_sub(1, Ordering::Relaxed);
        site.refused.fetch_add(1, Ordering::Relaxed);
        // What fits into the socket's buffer; the rest is not waited for.
        let _ = stream.set_nonblocking(true);
        let _ = stream.write_all(&refusal((503, "too many connections")));
        // Closed with a request unread, the system would take the answer back.
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut [0; HEAD_MAX]);
        return;
    }
    let (site, count) = (Arc::clone(site), Arc::clone(clients));
    let thread = thread::Builder::new().name("lnetd-http-client".to_owned()).spawn(move || {
        if let Err(e) = converse(stream, &site) {
            tracing::debug!("status client: {e}");
        }
        count.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(e) = thread {
        clients.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!("status client: no thread: {e}");
    }
}

/// Reads one head, answers it, and says goodbye.
fn converse(mut stream: TcpStream, site: &Site) -> io::Result<()> {
    let local = stream.local_addr()?;
    let end = Instant::now() + HEAD_TIME;
    let mut head = Vec::new();
    let mut buf = [0; 1024];
    let asked = loop {
        match request::parse(&head, local) {
            Ok(None) => {}
            Ok(Some(request)) => break Ok(request),
            Err(refusal) => break Err(refusal),
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break Err((408, "the request did not arrive in time"));
        }
        stream.set_read_timeout(Some(left))?;
        let room = HEAD_MAX.saturating_sub(head.len()).min(buf.len());
        match stream.read(buf.get_mut(..room).unwrap_or_default()) {
            Ok(0) => return Ok(()),
            Ok(n) => head.extend_from_slice(buf.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
    };
    let bytes = match asked {
        Ok(request) => {
            let answer = site.answer(&request.what);
            let mut bytes = lines(200, answer.content_type, answer.body.len());
            if !request.head_only {
                bytes.extend_from_slice(&answer.body);
            }
            bytes
        }
        Err(why) => {
            site.refused.fetch_add(1, Ordering::Relaxed);
            refusal(why)
        }
    };
    let end = Instant::now() + ANSWER_TIME;
    for piece in bytes.chunks(PIECE) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        stream.write_all(piece)?;
    }
    stream.shutdown(Shutdown::Write)
}

fn refusal((status, why): Refusal) -> Vec<u8> {
    let body = format!("{status} {why}\n");
    let mut bytes = lines(status, "text/plain; charset=utf-8", body.len());
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

/// The lines before a body. The page may run its own script and ask us for more, and nothing else.
fn lines(status: u16, content_type: &str, length: usize) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    };
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} {reason}\r\n\
         Content-Type: {content_type}\r\n\
         Content-Length: {length}\r\n\
         Cache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'\r\n\
         X-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\n\
         {allow}Connection: close\r\n\r\n"
    )
    .into_bytes()
}
