//! Keys, rates, order and the picture at 80 by 24, without a terminal.

use lnet_admin::{
    KindCounts, NiDetail, NiHealth, NiSnapshot, PeerNiDetail, PeerNiSnapshot, PeerNiState, Traffic,
};
use lnet_types::Net;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::super::columns::{mib, short};
use super::super::draw::{Theme, draw};
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
        routes: vec![RouteSnapshot {
            net: "tcp9".parse().unwrap(),
            gateway: "10.77.0.9@tcp".parse().unwrap(),
            hops: Some(1),
            priority: 0,
            up: false,
            single_hop: true,
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

/// The same with everything that an interface can have.
fn busy() -> Model {
    let mut model = Model::default();
    for (n, seconds) in [(0, 0.0), (1, 1.0)] {
        let mut sample = sample(100 * (n as u32 + 1));
        for ni in sample.nets.iter_mut().flat_map(|net| &mut net.nis) {
            let more = &mut ni.detail.as_mut().unwrap().more;
            more.bytes = (n * (3 << 20), n * (1 << 19));
            (more.tx_available, more.tx_max, more.tx_min) = (250, 256, 200);
            more.last_received_ms = Some(1_500);
        }
        for (i, peer) in sample.peers.iter_mut().enumerate() {
            let detail = peer.nis[0].detail.as_mut().unwrap();
            detail.bytes = (n * i as u64 * (1 << 20), 0);
            (detail.credits.tx_available, detail.credits.tx_max) = (8 - i as i32, 8);
            detail.usage.complete.samples = 1;
            detail.usage.complete.p50_nsec = 1_000_000 + 250_000 * i as u64;
            detail.last_received_ms = Some(100 * i as u64);
        }
        model.take(sample, seconds);
    }
    model
}

#[test]
fn interfaces_are_sorted_and_filtered() {
    let mut model = model();
    let first = |model: &Model| model.peer_nis()[0].nid.clone();
    assert_eq!(first(&model), "10.77.0.100@tcp");
    model.sort = Sort::By(Column::Health);
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
    model.sort = Sort::By(Column::Failed);
    model.reverse = false;
    assert_eq!(model.nis()[0].failures, 6);
}

#[test]
fn each_column_with_something_in_it_sorts_what_needs_attention_first() {
    let mut model = busy();
    for (column, first) in [
        (Column::State, "10.77.0.103@tcp"),
        (Column::Doubt, "10.77.0.103@tcp"),
        (Column::Health, "10.77.0.149@tcp"),
        (Column::OutBytes, "10.77.0.149@tcp"),
        (Column::Credits, "10.77.0.149@tcp"),
        (Column::Latency, "10.77.0.149@tcp"),
        (Column::Last, "10.77.0.149@tcp"),
    ] {
        model.sort = Sort::By(column);
        assert_eq!(model.peer_nis()[0].nid, first, "{column:?}");
    }
    // Once round with each key.
    model.sort = Sort::Listed;
    let mut names = Vec::new();
    loop {
        model.key(Key::Char('>'));
        names.push(model.sort.name());
        if model.sort == Sort::Listed {
            break;
        }
    }
    assert_eq!(names[..3], ["NID", "device", "state"]);
    assert!(!names.contains(&"queued"), "nothing is queued: {names:?}");
    assert!(names.contains(&"latency") && names.contains(&"last message"), "{names:?}");
    model.key(Key::Char('<'));
    assert_eq!(model.sort.name(), names[names.len() - 2]);
    model.key(Key::Char('s'));
    assert_eq!(model.sort, Sort::Listed);
}

#[test]
fn a_value_that_is_absent_sorts_behind_those_that_are_there() {
    let lines = busy().peer_nis();
    let mut without = lines[0].clone();
    (without.latency_ns, without.health, without.credits) = (None, None, None);
    for column in [Column::Latency, Column::Health, Column::Credits] {
        assert_eq!(column.order(&without, &lines[1]), core::cmp::Ordering::Greater, "{column:?}");
        assert_eq!(column.order(&lines[1], &without), core::cmp::Ordering::Less, "{column:?}");
    }
}

#[test]
fn headers_carry_units_and_empty_columns_give_their_width_away() {
    // Idle: neither bytes, nor credits, nor times are there; the width goes to bars of health.
    let idle = screen(&mut model(), 80, 24, true);
    for absent in ["MiB/s", "CREDITS", "LATENCY", "LAST", "QUEUED"] {
        assert!(!idle[3].contains(absent) && !idle[4].contains(absent), "{absent}: {idle:#?}");
    }
    assert!(idle[5].contains("████████ 1000"), "{idle:#?}");
    let busy = screen(&mut busy(), 80, 24, true);
    for there in ["STATE", "HEALTH", "OUT", "IN", "CREDITS", "LATENCY", "LAST"] {
        assert!(busy[3].contains(there), "{there}: {busy:#?}");
    }
    for unit in ["of 1000", "MiB/s", "of max", "ms", "s ago"] {
        assert!(busy[4].contains(unit), "{unit}: {busy:#?}");
    }
    let local = &busy[5];
    for value in ["10.77.0.1@tcp", "up", "1000", "3.00", "0.50", "250/256", "1.5"] {
        assert!(local.contains(value), "{value}: {local}");
    }
    let peer = busy.iter().find(|line| line.contains("10.77.0.101@tcp")).unwrap();
    for value in ["degraded", "990", "1.00", "7/8", "1.250", "0.1"] {
        assert!(peer.contains(value), "{value}: {peer}");
    }
}

#[test]
fn a_wide_window_has_all_columns_and_a_narrow_one_those_that_matter() {
    let wide = screen(&mut busy(), 150, 24, true);
    assert!(wide[4].contains("msg/s") && wide[5].contains("████████ 1000"), "{wide:#?}");
    assert!(wide[3].contains("DOUBT") && wide[3].contains("DEV"), "{wide:#?}");
    let narrow = screen(&mut busy(), 44, 24, true);
    assert!(narrow[3].contains("STATE") && narrow[3].contains("HEALTH"), "{narrow:#?}");
    assert!(!narrow[3].contains("LATENCY"), "{narrow:#?}");
    // What rows are sorted by has room before everything else.
    let mut model = busy();
    model.sort = Sort::By(Column::Latency);
    assert!(screen(&mut model, 44, 24, true)[3].contains("LATENCY"));
}

#[test]
fn a_column_that_stood_empty_keeps_its_place_once_it_was_filled() {
    let mut model = busy();
    let mut quiet = sample(200);
    quiet.peers.clear();
    model.take(quiet, 1.0);
    assert!(screen(&mut model, 80, 24, true)[4].contains("MiB/s"), "a rate of 0 for a moment");
}

#[test]
fn columns_are_chosen_by_key() {
    let mut model = busy();
    model.sort = Sort::By(Column::Health);
    model.key(Key::Char('c'));
    let open = screen(&mut model, 80, 24, true).join("\n");
    assert!(open.contains("[x] health") && open.contains("space chooses"), "{open}");
    assert!(open.contains("(nothing in it)"), "{open}");
    for _ in 0..3 {
        model.key(Key::Down);
    }
    model.key(Key::Char(' '));
    assert!(screen(&mut model, 80, 24, true).join("\n").contains("[ ] health"));
    assert_eq!(model.key(Key::Char('q')), Next::Stay, "it ends the choice");
    let without = screen(&mut model, 80, 24, true);
    assert!(!without[3].contains("HEALTH"), "{without:#?}");
    assert!(without[3].contains("FAILED"), "another one has its room: {without:#?}");
    assert_eq!(model.sort, Sort::Listed, "no order by a column that is not there");
    model.key(Key::Char('c'));
    model.key(Key::Char('a'));
    model.key(Key::Enter);
    assert!(screen(&mut model, 80, 24, true)[3].contains("HEALTH"));
}

#[test]
fn rows_that_are_cut_are_counted() {
    let mut model = model();
    model.page = Page::Peers;
    let lines = screen(&mut model, 80, 24, true);
    // 50 rows, 18 places, of which one is for the count.
    assert_eq!(lines[22], "33 more rows: make the window higher or press ↓");
    assert!(lines[21].contains("10.77.0.116@tcp"), "{lines:#?}");
    model.key(Key::Down);
    let lines = screen(&mut model, 80, 24, false);
    assert_eq!(lines[22], "32 more rows: make the window higher or press Down");
    model.key(Key::End);
    let lines = screen(&mut model, 80, 24, true);
    assert!(lines[22].contains("10.77.0.149@tcp"), "all that follow are there: {lines:#?}");
    // On the page with everything each part says where the rest is.
    let now = model.now.as_mut().unwrap();
    now.routes = vec![now.routes[0]; 6];
    now.resends = vec![now.resends[0].clone(); 5];
    let ni = now.nets[0].nis[0].clone();
    now.nets[0].nis = vec![ni; 30];
    model.key(Key::Char('1'));
    let all = screen(&mut model, 80, 30, true).join("\n");
    for hint in [
        "more rows: make the window higher or press 2",
        "more rows: make the window higher or press ↓",
        "GATEWAY (2 more: press 4)",
        "SENT AGAIN, NEWEST FIRST (2 more: press 5)",
    ] {
        assert!(all.contains(hint), "{hint}:\n{all}");
    }
}

#[test]
fn help_fits_the_smallest_terminal_and_lists_the_keys() {
    let mut model = model();
    model.key(Key::Char('h'));
    let help = screen(&mut model, 80, 24, true).join("\n");
    for there in ["choose columns", "s > <", "reverse the order", "h ?", "or down."] {
        assert!(help.contains(there), "{there}:\n{help}");
    }
}

#[test]
fn keys_turn_pages_of_top_and_end_it() {
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
    assert_eq!(at("lnetd 9.9 on oss-3  profile default"), 0);
    assert_eq!(at("out 100 msg/s 0 MiB/s"), 1);
    assert!(screen[5].contains("10.77.0.1@tcp") && screen[5].contains(" 100 "), "{}", screen[5]);
    assert!(screen[5].trim_end().ends_with('6'), "{}", screen[5]);
    assert!(screen[6].contains("degraded") && screen[6].contains("████░░░░  400"), "{}", screen[6]);
    assert_eq!(at("PEER INTERFACE (50)"), 7);
    assert!(at("tcp9") > at("ROUTE TO") && at("ROUTE TO") > at("10.77.0.104@tcp"));
    assert_eq!(at("goes from A to B: Put of 5 bytes"), 22);
    assert!(screen[23].starts_with("1:all 2:nets") && screen[23].ends_with("q:quit"));
    // The longest order leaves room for the keys that lead on.
    (model.sort, model.reverse) = (Sort::By(Column::Least), true);
    let screen = self::screen(&mut model, 80, 24, true);
    assert!(screen[23].contains("s:by least credits, r") && screen[23].ends_with("q:quit"));
}

#[test]
fn top_draws_at_every_size_and_scroll_position() {
    let mut model = model();
    for page in Page::ALL {
        model.page = page;
        for (width, height) in [(1, 1), (10, 3), (40, 10), (80, 24), (300, 100)] {
            model.help = width == 40;
            screen(&mut model, width, height, false);
            model.help = false;
            model.choosing = Some(13);
            screen(&mut model, width, height, false);
            model.choosing = None;
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
        assert!(mib(n * 10.0).len() <= 6, "{n}: {}", mib(n * 10.0));
    }
}

/// DEC-31.
#[test]
fn a_peer_interface_of_a_doubted_rail_is_suspect_before_anything_has_failed() {
    let mut model = model();
    let line = |model: &Model, n: usize| (model.peer_nis()[n].state, model.peer_nis()[n].doubt);
    assert_eq!(line(&model, 3), (InterfaceState::Suspect, "silent"));
    assert_eq!(line(&model, 4), (InterfaceState::Degraded, ""));
    assert!(screen(&mut model, 80, 24, true)[2].contains("suspected rails 1"));
}
