//! The table of the paper, row by row.

use lnet_sim::{
    PaperRow, loss_sweep, paper_drivers, paper_locks, paper_routers, paper_rpc, paper_sweeps,
};

fn all_hold(rows: &[PaperRow]) {
    rows.iter().for_each(|row| println!("{row}"));
    let missed: Vec<String> =
        rows.iter().filter(|row| !row.holds()).map(ToString::to_string).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn each_figure_of_the_paper_is_played_within_a_second() {
    let rows = paper_rpc();
    all_hold(&rows);
    assert_eq!(rows.len(), 22);
    let found = |what: &str| {
        let row = rows.iter().find(|row| row.what.contains(what));
        row.and_then(|row| row.played).unwrap()
    };
    // RS-047: without LNet's retries a call waits for its own deadline.
    assert!(found("profile off") > found("profile default") + 1.0);
}

#[test]
fn pa096_pa097_pa143_pa146_each_figure_of_drivers_is_played() {
    let rows = paper_drivers();
    all_hold(&rows);
    assert!(rows.len() == 5 && rows.iter().all(|row| row.wanted.is_some()));
}

#[test]
fn each_figure_of_locks_and_evictions_is_played() {
    let rows = paper_locks();
    all_hold(&rows);
    assert!(rows.len() >= 14 && rows.iter().all(|row| row.wanted.is_some()));
    // The course of a play ends with what its row says.
    let resent = rows.iter().find(|row| row.what == "lost AST, resent").unwrap();
    let course: Vec<&str> = resent.moments.iter().map(|moment| moment.what).collect();
    assert_eq!((course[0], course[course.len() - 1]), ("another client asks", "lock granted"));
    assert!(course.iter().filter(|what| **what == "callback").count() > 3, "{course:?}");
}

#[test]
fn each_value_that_weighs_two_costs_is_swept() {
    all_hold(&paper_sweeps());
}

#[test]
fn each_figure_of_routers_is_played() {
    // Few phases and clients: the program plays more.
    all_hold(&paper_routers(60, 200));
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
