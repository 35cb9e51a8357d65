//! A recorded node on TCP: it accepts the connections of ours, greets, and sends and receives whole
//! messages of LNet, whatever they say.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use lnet_types::{Nid, Pid};
use lnet_wire::acceptor::Request;
use lnet_wire::sock::{ConnType, FrameHdr, FrameType, Hello, Version};
use lnet_wire::{ByteOrder, Hdr, HdrForm, Need};

/// Incarnation of all recorded nodes.
const INCARNATION: u64 = 1;

struct Conn {
    stream: TcpStream,
    /// Its type, as our node calls it; `None` before its HELLO.
    kind: Option<ConnType>,
    got: Vec<u8>,
    out: Vec<u8>,
}

/// One recorded node.
pub(crate) struct Peer {
    nid: Nid,
    listener: TcpListener,
    conns: Vec<Conn>,
}

/// Header and payload.
type Message = (Hdr, Vec<u8>);

impl Peer {
    /// A node that listens on its address.
    pub(crate) fn listen(nid: Nid, ip: IpAddr, port: u16) -> Self {
        let listener =
            TcpListener::bind(SocketAddr::new(ip, port)).expect("an address to listen on");
        listener.set_nonblocking(true).expect("a listener");
        Self { nid, listener, conns: Vec::new() }
    }

    /// Whether our node can be sent messages.
    pub(crate) fn is_connected(&self) -> bool {
        self.conns.iter().any(|conn| conn.kind == Some(ConnType::CONTROL))
    }

    /// Sends a message to our node.
    pub(crate) fn send(&mut self, hdr: &Hdr, payload: &[u8]) {
        let form = HdrForm::Short;
        let mut bytes = FrameHdr::lnet(0, 0).to_bytes(ByteOrder::Little).to_vec();
        let start = bytes.len();
        bytes.resize(start + form.len(), 0);
        hdr.emit(form, &mut bytes[start..]).expect("room for a header");
        bytes.extend_from_slice(payload);
        let control = |conn: &&mut Conn| conn.kind == Some(ConnType::CONTROL);
        let conn = self.conns.iter_mut().find(control).expect("a connection to our node");
        conn.out.extend(bytes);
        conn.flush();
    }

    /// Reads what has come, and greets new connections.
    pub(crate) fn poll(&mut self) -> Vec<Message> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).expect("a stream");
            stream.set_nodelay(true).expect("a stream");
            self.conns.push(Conn { stream, kind: None, got: Vec::new(), out: Vec::new() });
        }
        let mut messages = Vec::new();
        let nid = self.nid;
        self.conns.retain_mut(|conn| {
            let open = conn.read();
            while let Some(len) = conn.next(nid, &mut messages) {
                conn.got.drain(..len);
            }
            conn.flush();
            open
        });
        messages
    }
}

impl Conn {
    /// `false` once the connection has ended.
    fn read(&mut self) -> bool {
        let mut room = [0; 1 << 16];
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => return false,
                Ok(n) => self.got.extend_from_slice(&room[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    fn flush(&mut self) {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Takes what the bytes begin with; its length, or `None` if it is not whole.
    fn next(&mut self, nid: Nid, messages: &mut Vec<Message>) -> Option<usize> {
        let b = &self.got[..];
        if b.len() < FrameHdr::LEN {
            return None;
        }
        if self.kind.is_none() {
            if Request::need(b).is_ok() {
                return Request::parse(b).ok().map(|(_, len)| len);
            }
            let Ok(Need::Exactly(need)) = Hello::need(b) else { return None };
            let (hello, len) = Hello::parse(b.get(..need)?).expect("a HELLO of our node");
            self.kind = Some(hello.conn_type);
            self.greet(nid, &hello);
            return Some(len);
        }
        let frame = FrameHdr::parse(ByteOrder::Little, b).expect("a frame of our node");
        if frame.kind == FrameType::Noop {
            return Some(FrameHdr::LEN);
        }
        let (form, rest) = (HdrForm::Short, &b[FrameHdr::LEN..]);
        if rest.len() < form.len() {
            return None;
        }
        let hdr = Hdr::parse(form, rest).expect("a header of our node");
        let len = form.len() + hdr.payload_len as usize;
        let payload = rest.get(form.len()..len)?.to_vec();
        messages.push((hdr, payload));
        Some(FrameHdr::LEN + len)
    }

    fn greet(&mut self, nid: Nid, asked: &Hello) {
        let hello = Hello {
            order: ByteOrder::Little,
            version: Version::V3,
            src: nid,
            dst: asked.src,
            src_pid: Pid::LUSTRE,
            dst_pid: asked.src_pid,
            src_incarnation: INCARNATION,
            dst_incarnation: asked.src_incarnation,
            conn_type: asked.conn_type.inverse().unwrap_or(ConnType::NONE),
            ips: Default::default(),
        };
        let mut bytes = [0; Hello::LEN_MAX];
        let len = hello.emit(&mut bytes).expect("room for a HELLO");
        self.out.extend_from_slice(&bytes[..len]);
    }
}
