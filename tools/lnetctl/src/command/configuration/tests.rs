//! An export of many pages is never held whole.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use lnet_admin::{
    Ask, GlobalSnapshot, PeerNiSnapshot, PeerNiState, PeerPage, PeerSnapshot, RoutePage,
    RouteSnapshot, RoutingSnapshot,
};
use lnet_types::Nid;

use super::*;

const PAGES: u64 = 40;
const PER_PAGE: u64 = 50;

/// A node with many routes and peers, which looks at each page how much of the pages before has arrived
/// where the export goes.
struct Node {
    arrived: Box<dyn Fn() -> usize + Send>,
    seen: Vec<(&'static str, usize)>,
}

fn nid(n: u64) -> Nid {
    format!("10.{}.{}.1@tcp", n / 200, n % 200).parse().unwrap()
}

fn page<T>(from: Option<u64>, item: impl Fn(u64) -> T) -> (Vec<T>, Option<u64>) {
    let page = from.unwrap_or(0);
    let items = (page * PER_PAGE..(page + 1) * PER_PAGE).map(item).collect();
    (items, (page + 1 < PAGES).then_some(page + 1))
}

impl Ask for Node {
    fn ask_within(&mut self, request: &Request, _: Duration) -> Result<Reply, ClientError> {
        match request {
            Request::GlobalShow => Ok(Reply::Global(GlobalSnapshot {
                configured: true,
                tunables: Vec::new(),
                changed: Vec::new(),
                lnd_timeout_ms: 1000,
                profile: "default".to_owned(),
            })),
            Request::NetShow { .. } => Ok(Reply::Nets(Vec::new())),
            Request::UdspShow => Ok(Reply::Udsp(Vec::new())),
            Request::RoutingShow => Ok(Reply::Routing(RoutingSnapshot::default())),
            Request::RouteShow { from } => {
                self.seen.push(("route", (self.arrived)()));
                let (routes, next) = page(*from, |n| RouteSnapshot {
                    net: "tcp9".parse().unwrap(),
                    gateway: nid(n),
                    hops: None,
                    priority: 0,
                    up: true,
                    single_hop: false,
                });
                Ok(Reply::Routes(RoutePage { routes, next }))
            }
            Request::PeerShow { from, .. } => {
                self.seen.push(("peer", (self.arrived)()));
                let (peers, next) = page(*from, |n| PeerSnapshot {
                    own: false,
                    primary: nid(n),
                    multi_rail: true,
                    state: 1 << 3 | 1 << 4,
                    nis: vec![PeerNiSnapshot {
                        nid: nid(n),
                        state: PeerNiState::default(),
                        detail: None,
                    }],
                    sum: None,
                });
                Ok(Reply::Peers(PeerPage { peers, next }))
            }
            _ => Err(ClientError::Refused(AdminError::errno(Errno::ENETDOWN))),
        }
    }
}

/// Counts what is written, and keeps it.
struct Counter(Arc<AtomicUsize>, Rc<Cell<Vec<u8>>>);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.len(), Relaxed);
        let mut all = self.1.take();
        all.extend(bytes);
        self.1.set(all);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// From the third page of a list on, something has arrived between any two pages.
fn assert_flows(seen: &[(&'static str, usize)], how: &str) {
    for list in ["route", "peer"] {
        let arrived: Vec<usize> = seen.iter().filter(|s| s.0 == list).map(|s| s.1).collect();
        assert_eq!(arrived.len() as u64, PAGES, "{how}");
        assert!(arrived[1..].is_sorted_by(|a, b| a < b), "{how}: {list}: {arrived:?}");
    }
}

fn assert_whole(text: &str, json: bool) {
    let all = (PAGES * PER_PAGE) as usize;
    if json {
        let tree: serde_json::Value = serde_json::from_str(text).unwrap();
        for list in ["route", "peer"] {
            assert_eq!(tree[list].as_array().map(Vec::len), Some(all), "{list}");
        }
        assert_eq!(tree["peer"][all - 1]["primary nid"], nid(all as u64 - 1).to_string());
    } else {
        assert_eq!(text.matches("gateway:").count(), all);
        assert_eq!(text.matches("primary nid:").count(), all);
        assert_eq!(text.lines().filter(|l| *l == "peer:" || *l == "route:").count(), 2);
    }
}

#[test]
fn an_export_leaves_page_by_page_for_standard_output_and_for_a_file() {
    for (line, json) in [("export --backup --json", true), ("export --backup", false)] {
        let (count, kept) = (Arc::new(AtomicUsize::new(0)), Rc::new(Cell::new(Vec::new())));
        let counted = Arc::clone(&count);
        let mut node = Node { arrived: Box::new(move || counted.load(Relaxed)), seen: Vec::new() };
        let mut session = Session::new(&mut node);
        session.live = Some(Box::new(Counter(count, Rc::clone(&kept))));
        crate::run(&mut session, &words(line));
        session.spill().unwrap();
        drop(session);
        assert_flows(&node.seen, line);
        assert_whole(&String::from_utf8(kept.take()).unwrap(), json);

        let path = fresh::path(&format!("export-{json}"));
        let file = super::super::draft::beside(&path);
        let arrived = move || fs::metadata(&file).map_or(0, |m| m.len() as usize);
        let mut node = Node { arrived: Box::new(arrived), seen: Vec::new() };
        let mut session = Session::new(&mut node);
        crate::run(&mut session, &words(&format!("{line} {}", path.display())));
        assert_eq!(session.out, "", "all of it is in the file");
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_flows(&node.seen, "file");
        assert_whole(&text, json);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_named_and_the_export_fails() {
    for (path, errno) in [("/dev/full", Errno::ENOSPC), ("/no/such/place", Errno::ENOENT)] {
        let mut node = Node { arrived: Box::new(|| 0), seen: Vec::new() };
        let mut session = Session::new(&mut node);
        let code = crate::run(&mut session, &words(&format!("export --backup {path}")));
        assert_eq!(code, errno.negative(), "{}", session.err);
        assert!(session.err.contains(path), "{}", session.err);
        assert_eq!(session.out, "");
    }
}

/// No daemon.
struct Absent;

impl Ask for Absent {
    fn ask_within(&mut self, _: &Request, _: Duration) -> Result<Reply, ClientError> {
        Err(ClientError::Connect {
            path: "/run/x.sock".into(),
            source: io::Error::from_raw_os_error(Errno::ENOENT.0),
        })
    }
}

#[test]
fn an_export_that_fails_leaves_the_file_as_it_was() {
    let path = fresh::path("export-before");
    fs::write(&path, "a good backup").unwrap();
    let mut session_of = Absent;
    let mut session = Session::new(&mut session_of);
    session.explain = true;
    let code = crate::run(&mut session, &words(&format!("export --backup {}", path.display())));
    assert_eq!(code, Errno::ENOENT.negative(), "{}", session.err);
    assert!(session.err.contains("left as it was"), "{}", session.err);
    assert_eq!(fs::read_to_string(&path).unwrap(), "a good backup");
    fs::remove_file(&path).unwrap();
    crate::run(&mut session, &words(&format!("export --backup {}", path.display())));
    assert!(!path.exists(), "an export that failed makes no file");
}

/// Standard output on a disk that is full.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(Errno::ENOSPC.0))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn output_that_finds_no_room_is_recorded_and_that_of_a_reader_who_left_is_not() {
    let mut node = Node { arrived: Box::new(|| 0), seen: Vec::new() };
    let mut session = Session::new(&mut node);
    session.live = Some(Box::new(Full));
    crate::run(&mut session, &words("export --backup"));
    assert_eq!(session.unwritten, Some(Errno::ENOSPC));
    session.unwritten = None;
    session.not_written(&io::Error::from(io::ErrorKind::BrokenPipe));
    assert_eq!(session.unwritten, None);
}
