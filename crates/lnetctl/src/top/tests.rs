//! Keys, rates, order and the picture at 80 by 24, without a terminal.

use lnet_admin::{KindCounts, NiDetail, NiHealth, NiSnapshot, PeerNiDetail, PeerNiSnapshot};
use lnet_types::Net;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::super::draw::{Theme, bytes, draw, short};
use super::*;

fn traffic_of(sent: u32) -> Traffic {
    let sent = KindCounts { put: sent, ..KindCounts::default() };
    Traffic { sent, ..Traffic::default() }
}

fn sample(sent: u32) -> Sample {
    let nid = |n| Nid::new(Net::TCP, 0x0a4d_0000 + n);
    let ni = |n, value| NiSnapshot {
        nid: nid(n),
        up: true,
        interface: Some(format!("eth{n}")),
        detail: Some(Box::new(NiDetail {
            traffic: traffic_of(sent * n),
            health: NiHealth { value, timeouts: 7 - n, ..NiHealth::default() },
            ..NiDetail::default()
        })),
    };
    let peer = |n: u32| {
        let mut detail = PeerNiDetail { traffic: traffic_of(sent), ..PeerNiDetail::default() };
        detail.health.value = 1000 - n as i32 * 10;
        let nis = vec![PeerNiSnapshot {
            nid: nid(100 + n),
            state: PeerNiState::NotWatched,
            detail: Some(Box::new(detail)),
        }];
        PeerSnapshot {
            primary: nid(100 + n),
            multi_rail: true,
            state: 1 << 3 | 1 << 4,
            own: false,
            nis,
            sum: None,
        }
    };
    Sample {
        status: Status {
            version: "9.9".to_owned(),
            pid: 1,
            configured: true,
            profile: "default".to_owned(),
            incarnation: 1,
            host: "oss-3".to_owned(),
        },
        nets: vec![NetSnapshot {
            net: Net::TCP,
            nis: vec![ni(1, 1000), ni(2, 400)],
            sum: None,
            accept_from: Vec::new(),
            refused: Vec::new(),
        }],
        peers: (0..50).map(peer).collect(),
        stats: StatsSnapshot { send_count: sent, ..StatsSnapshot::default() },
        routes: vec![Route {
            net: "tcp9".to_owned(),
            gateway: "10.77.0.9@tcp".to_owned(),
            hops: Some(1),
            priority: 0,
            up: false,
        }],
        resends: vec!["3.1 Put of 5 bytes to X, attempt 2: any\n  goes from A to B\n".to_owned()],
        faults: Vec::new(),
        rails: vec![RailSnapshot {
            local: nid(1),
            peer: nid(103),
            doubt: "silent".to_owned(),
            for_ms: 70,
        }],
    }
}

fn model() -> Model {
    let mut model = Model::default();
    model.take(sample(100), 0.0);
    model.take(sample(300), 2.0);
    model
}

fn screen(model: &mut Model, width: u16, height: u16, blocks: bool) -> Vec<String> {
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    draw(model, Theme { colour: false, blocks }, area, &mut buf);
    let lines = buf.content().chunks(usize::from(width));
    lines.map(|l| l.iter().map(|c| c.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

#[test]
fn rates_are_differences_over_time_and_survive_zeroed_counters() {
    let mut model = model();
    assert_eq!(model.rates().sent, 100.0);
    assert_eq!(model.nis().iter().map(|l| l.out).collect::<Vec<_>>(), [100.0, 200.0]);
    model.take(sample(0), 1.0);
    assert_eq!((model.rates().sent, model.nis()[0].out), (0.0, 0.0));
}

#[test]
fn interfaces_are_sorted_and_filtered() {
    let mut model = model();
    let first = |model: &Model| model.peer_nis()[0].nid.clone();
    assert_eq!(first(&model), "10.77.0.100@tcp");
    model.sort = Sort::Health;
    assert_eq!(first(&model), "10.77.0.149@tcp");
    model.key(Key::Char('r'));
    assert_eq!(first(&model), "10.77.0.100@tcp");
    model.key(Key::Char('/'));
    ".123@q".chars().for_each(|c| assert_eq!(model.key(Key::Char(c)), Next::Stay));
    model.key(Key::Backspace);
    model.key(Key::Enter);
    assert_eq!(model.peer_nis().len(), 1);
    assert_eq!(model.nis().len(), 0);
    model.key(Key::Escape);
    assert_eq!(model.peer_nis().len(), 50);
    model.sort = Sort::Failures;
    model.reverse = false;
    assert_eq!(model.nis()[0].failures, 6);
}

#[test]
fn keys_turn_pages_and_end_it() {
    let mut model = model();
    assert_eq!(model.key(Key::Char('3')), Next::Stay);
    assert_eq!(model.page, Page::Peers);
    model.key(Key::Tab);
    assert_eq!(model.page, Page::Routes);
    model.key(Key::Char('?'));
    assert_eq!(model.key(Key::Char('q')), Next::Stay, "any key ends the help");
    assert_eq!(model.key(Key::Char(' ')), Next::Look);
    assert_eq!(model.key(Key::Char('q')), Next::Quit);
    model.key(Key::Char('/'));
    assert_eq!(model.key(Key::Char('q')), Next::Stay, "it is typed");
    assert_eq!(model.key(Key::Interrupt), Next::Quit);
}

#[test]
fn everything_has_its_place_at_80_by_24() {
    let mut model = model();
    let screen = screen(&mut model, 80, 24, true);
    assert_eq!(screen.len(), 24);
    let at = |text: &str| screen.iter().position(|line| line.contains(text)).expect(text);
    assert_eq!(at("lnetd 9.9  profile default"), 0);
    assert_eq!(at("out 100/s"), 1);
    assert!(screen[4].contains("10.77.0.1@tcp") && screen[4].ends_with("100      0      0     6"));
    assert!(screen[5].contains("degraded") && screen[5].contains("████░░░░  400"), "{}", screen[5]);
    assert_eq!(at("PEER INTERFACE (50)"), 6);
    assert!(at("tcp9") > at("ROUTE TO") && at("ROUTE TO") > at("10.77.0.105@tcp"));
    assert_eq!(at("goes from A to B: Put of 5 bytes"), 22);
    assert!(screen[23].starts_with("1:all 2:nets") && screen[23].ends_with("q:quit"));
}

#[test]
fn no_size_of_terminal_and_no_scrolling_breaks_it() {
    let mut model = model();
    for page in Page::ALL {
        model.page = page;
        for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 100)] {
            model.help = width == 40;
            screen(&mut model, width, height, false);
        }
    }
    model.help = false;
    model.page = Page::Peers;
    model.key(Key::End);
    let lines = screen(&mut model, 80, 24, false);
    assert!(lines[22].contains("10.77.0.149@tcp"), "{lines:#?}");
    assert!(lines[22].contains("####.... ") || lines[22].contains("#####... "), "{}", lines[22]);
}

#[test]
fn numbers_fit_their_columns() {
    for n in [0.0, 0.05, 9.94, 9.96, 999.4, 9949.0, 9951.0, 123_456.0, 999_999.0, 9.96e6, 5e9] {
        assert!(short(n).len() <= 5, "{n}: {}", short(n));
        assert!(bytes(n).len() <= 6, "{n}: {}", bytes(n));
    }
}

/// DEC-31.
#[test]
fn rails_under_suspicion_are_told_before_anything_has_failed() {
    let mut model = model();
    let state = |model: &Model, n: usize| model.peer_nis()[n].state;
    assert_eq!(state(&model, 3), "silent");
    assert_ne!(state(&model, 4), "silent");
    assert!(screen(&mut model, 80, 24, true)[2].contains("suspected rails 1"));
}
