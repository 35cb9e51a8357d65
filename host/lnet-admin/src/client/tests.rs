use std::fs;
use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
use crate::{AdminError, PeerPage, REQUEST_MAX, decode_request, encode_reply};

/// A socket path that is removed when it goes away.
struct Socket(PathBuf);

impl Socket {
    fn new(name: &str) -> Self {
        let path = fresh::path(&format!("{name}.sock"));
        let _ = fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Serves one connection; `answer` makes the bytes that go out for each request.
fn serve(
    socket: &Socket,
    mut answer: impl FnMut(u64, Request) -> Vec<u8> + Send + 'static,
) -> thread::JoinHandle<()> {
    let listener = UnixListener::bind(&socket.0).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut decoder = FrameDecoder::new(REQUEST_MAX);
        let mut buf = [0; 4096];
        loop {
            while let Some(frame) = decoder.next_frame().unwrap() {
                let (id, request) = decode_request(&frame).unwrap();
                let bytes = answer(id, request);
                if bytes.is_empty() {
                    return;
                }
                stream.write_all(&bytes).unwrap();
            }
            match stream.read(&mut buf) {
                Ok(0) | Err(_) => return,
                Ok(n) => decoder.push(&buf[..n]),
            }
        }
    })
}

#[test]
fn peers_are_collected_over_pages_and_a_server_that_goes_backwards_is_left() {
    let socket = Socket::new("pages");
    let server = serve(&socket, |id, request| {
        let Request::PeerShow { from, .. } = request else { panic!("{request:?}") };
        let next = match from {
            None => Some(5),
            Some(5) => None,
            Some(other) => panic!("{other}"),
        };
        let peers = vec![PeerSnapshot {
            sum: None,
            primary: "10.0.0.1@tcp".parse().unwrap(),
            multi_rail: true,
            state: 1,
            own: false,
            nis: Vec::new(),
        }];
        encode_reply(id, &Ok(Reply::Peers(PeerPage { peers, next })))
    });
    let mut client = Client::connect(&socket.0).unwrap();
    assert_eq!(client.peers(None, false).unwrap().len(), 2);
    drop(client);
    server.join().unwrap();

    let socket = Socket::new("backwards");
    let server = serve(&socket, |id, _| {
        encode_reply(id, &Ok(Reply::Peers(PeerPage { peers: Vec::new(), next: Some(1) })))
    });
    let mut client = Client::connect(&socket.0).unwrap();
    assert!(matches!(client.peers(None, false), Err(ClientError::Unexpected)));
    drop(client);
    server.join().unwrap();
}

#[test]
fn refusals_come_through_with_errno_and_text() {
    let socket = Socket::new("refused");
    let refusal = AdminError::new(Errno::ENETDOWN, "cannot add LNet NI").because("eth9: none");
    let expected = refusal.clone();
    let server = serve(&socket, move |id, _| encode_reply(id, &Err(refusal.clone())));
    let mut client = Client::connect(&socket.0).unwrap();
    let Err(ClientError::Refused(got)) = client.ask(&Request::Status) else { panic!() };
    assert_eq!(got, expected);
    drop(client);
    server.join().unwrap();
}

#[test]
fn absent_dead_silent_and_confused_daemons_give_different_errors() {
    let socket = Socket::new("absent");
    let absent = Client::connect(&socket.0).unwrap_err();
    assert_eq!(absent.errno(), Errno::ENOENT);
    let text = absent.to_string();
    assert!(text.contains("absent.sock") && text.ends_with("No such file or directory"), "{text}");

    // A listener that is gone leaves its socket file behind.
    let socket = Socket::new("dead");
    drop(UnixListener::bind(&socket.0).unwrap());
    assert_eq!(Client::connect(&socket.0).unwrap_err().errno(), Errno::ECONNREFUSED);

    let socket = Socket::new("closing");
    let server = serve(&socket, |_, _| Vec::new());
    let mut client = Client::connect(&socket.0).unwrap();
    assert_eq!(client.ask(&Request::Status).unwrap_err().errno(), Errno::ECONNRESET);
    server.join().unwrap();

    let socket = Socket::new("silent");
    let _listener = UnixListener::bind(&socket.0).unwrap();
    let mut client = Client::connect(&socket.0).unwrap();
    let error = client.ask_within(&Request::Status, Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");

    let socket = Socket::new("confused");
    let server = serve(&socket, |id, _| encode_reply(id + 1, &Ok(Reply::Done)));
    let mut client = Client::connect(&socket.0).unwrap();
    assert_eq!(client.ask(&Request::Status).unwrap_err().errno(), Errno::EPROTO);
    drop(client);
    server.join().unwrap();
}

#[test]
fn a_server_that_turns_a_client_away_before_it_asks_is_heard() {
    let socket = Socket::new("away");
    let listener = UnixListener::bind(&socket.0).unwrap();
    let mut client = Client::connect(&socket.0).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let refusal = AdminError::not_permitted("no right");
    stream.write_all(&encode_reply(0, &Err(refusal.clone()))).unwrap();
    drop(stream);
    let Err(ClientError::Refused(got)) = client.ask(&Request::Status) else { panic!() };
    assert!(got.is_not_permitted());
    assert_eq!(got, refusal);
}
