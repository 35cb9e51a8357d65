//! The table of the paper, row by row.

use core::time::Duration;

use lnet_sim::paper_rpc;

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
