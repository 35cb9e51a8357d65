//! The table of the paper, row by row.

use core::time::Duration;

use lnet_sim::{loss_sweep, paper_rpc};

#[test]
fn each_figure_of_the_paper_is_played_within_a_second() {
    let rows = paper_rpc();
    let secs = [
        25.0, 75.0, 150.0, 450.0, 16.0, 80.0, 95.0, 0.0, 1200.0, 1355.0, 800.0, 905.0, 605.0,
        405.0, 605.0, 1076.0, 100.0, 400.0, 0.0, 0.0, 0.0,
    ];
    assert_eq!(rows.len(), secs.len());
    rows.iter().for_each(|row| println!("{row}"));
    for (row, wanted) in rows.iter().zip(secs) {
        let played = row.played.unwrap_or_else(|| panic!("{row}")).as_secs_f64();
        if wanted > 0.0 {
            assert!((played - wanted).abs() < 1.0, "{row}: expected {wanted} s");
        }
    }
    let found = |what: &str| {
        let row = rows.iter().find(|row| row.what.contains(what));
        row.and_then(|row| row.played).unwrap()
    };
    assert!(found("send failure") < Duration::from_secs(5));
    assert!(found("profile default") < Duration::from_secs(1));
    // RS-047: without LNet's retries a call waits for its own deadline.
    assert!(found("profile off") > found("profile default") + Duration::from_secs(1));
}

#[test]
fn pa033_lost_messages_cost_time_and_no_call() {
    let rows = loss_sweep();
    rows.iter().for_each(|row| println!("{row}"));
    let [none, .., most] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((rows.len(), none.percent, most.percent), (6, 0, 5));
    assert_eq!((none.figures.reconnects, none.figures.copies), (0, 0));
    assert!(most.rate() < none.rate() / 2.0, "{none}\n{most}");
    for row in &rows {
        let f = &row.figures;
        // A call fails only with its client's eviction.
        assert!(f.failed == 0 || f.evictions > 0, "{row}");
        assert_eq!((f.executed_twice, f.lost_writes), (0, 0), "{row}");
    }
}
