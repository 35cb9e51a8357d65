//! Rounds of the swarm.

use std::collections::BTreeSet;

use lnet::Conduct;
use lnet_sim::{Floor, Round, seed_of};

use crate::rounds;

#[test]
fn a_drawn_scenario_is_valid_and_the_same_for_its_seed() {
    let (kinds, _) = rounds::drawn(Floor::Lnet);
    assert!(kinds.len() >= 18, "{kinds:?}");
}

#[test]
fn a_round_in_four_flips_rows_of_the_conduct_table_and_over_many_rounds_all() {
    let mut flipped = BTreeSet::new();
    for n in 0..2000 {
        let round = Round::draw(seed_of(1, n)).unwrap();
        let group = &round.scenario.world.groups[0];
        assert_eq!(!group.conduct.is_empty(), n % 4 == 0, "seed {}", round.seed);
        let original = Conduct::new(group.profile);
        for (row, value) in &group.conduct {
            assert_ne!(original.get(row), Some(*value), "seed {}", round.seed);
            assert_eq!(group.settings().conduct.get(row), Some(*value));
            flipped.insert(*row);
        }
    }
    assert_eq!(flipped.len(), Conduct::TABLE.len(), "{flipped:?}");
}

#[test]
fn rounds_on_rdma_alone_have_no_other_network_and_all_faults_of_adapters() {
    let (kinds, texts) = rounds::drawn(Floor::Rdma);
    for kind in ["completions", "credits", "degraded", "device"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    let count = |what: &str| texts.matches(what).count();
    assert_eq!(count("[[net]]"), count("transport = \"rdma\""));
    assert_eq!(count("fidelity = \"bytes\""), 500);
    assert!(count("router = true") > 100 && count("\"o2ib2\"") > 100);
}

#[test]
fn three_rounds_on_rdma_alone_break_no_rule() {
    for n in 0..3 {
        let played = rounds::holds(Floor::Rdma, seed_of(4, n));
        assert!(played.summary.completed > 0, "{}", played.summary);
    }
}

/// An answer that came by another way ended a GET whose connection had just been ended: its memory was taken
/// from the peer as the node wished, and the fabric held that against the driver.
#[test]
fn get_is_withdrawn_from_a_connection_that_has_ended() {
    rounds::holds(Floor::Rdma, 9122075815432379903);
}

#[test]
fn four_rounds_of_the_swarm_break_no_rule() {
    for n in 0..4 {
        let played = rounds::holds(Floor::Lnet, seed_of(2, n));
        assert!(played.summary.completed > 0, "{}", played.summary);
    }
}

#[test]
fn a_drawn_scenario_of_the_request_layer_is_valid_and_has_each_kind_of_fault() {
    let (kinds, _) = rounds::drawn(Floor::Rpc);
    let all = [
        "commit_stall",
        "cut",
        "drop",
        "evict",
        "failover",
        "handler_delay",
        "kill",
        "pause",
        "rpc_lose",
        "store_error",
        "store_full",
    ];
    assert_eq!(kinds, all);
}

#[test]
fn some_rounds_of_the_request_layer_hold() {
    for n in 0..6 {
        let played = rounds::holds(Floor::Rpc, seed_of(3, n));
        assert!(played.summary.rpc.is_some_and(|rpc| rpc.answered > 100));
    }
}

/// Rounds in which the swarm of requests has found something, as docs/simulation.md lists it.
#[test]
fn earlier_findings_of_the_swarm_of_requests_hold_now() {
    for seed in [
        144893023123207166,
        2544671572987899903,
        4672864415209847487,
        8599918888510385197,
        3825562892573885673,
        29478826355543295,
        2098129478869540863,
        5713837721052827849,
        7838687738169120013,
        3418629621937750132,
    ] {
        rounds::holds(Floor::Rpc, seed);
    }
}

/// Rounds in which the swarm has found something, as docs/simulation.md lists it. What they play
/// changes with what is drawn; defects that need their very course have tests of their own.
const FINDINGS: &[u64] = &[
    3066459071994501119,
    906808807764246043,
    1795504137354349994,
    7097150071748287439,
    3559527155368576486,
    4047667982876887834,
    785986143524189099,
    7161831888587495396,
    3196972412028438910,
    4856437317969051216,
    8791098561889005004,
    886316878515706260,
    1833371532606806407,
    8601659298280881279,
    4258660894298963397,
    2279157723157774863,
    974800422905971522,
    5089091092108225503,
    7453835340855411517,
    1993742245537188244,
    8671054442932013630,
    2770362612915324843,
    6672142812576214590,
    442418632561592661,
    4781889207806544813,
    559626064007689880,
    2851089278749205767,
    3250099131293405816,
    5775530899323951601,
    5131789052837003980,
    1163283040093711069,
    3427556255813358963,
    8190280609817964919,
    287607885359692458,
    3343848730658167244,
    8737856005435347721,
    2362016640516024929,
    4247143474123801551,
    3604708556380320947,
    3581456394726640937,
    8108615922291728136,
    526059053829094876,
    3818789254821370345,
    1909896432139140535,
    2146289509408083927,
    2164581354550884487,
    4051783013892399066,
    2525497472508248607,
    4067145406357657528,
    4758197022755788200,
    3333464792878595811,
    4162370946623429035,
    3014561714175918699,
    675724382697093726,
    1074840779808579029,
    8338421989980876457,
    736776290196224419,
    7000435169692836830,
    8559864598605345190,
    8281310621404686241,
    59168753944283788,
    9191946975541770258,
    420909568990340918,
    5504753342644703987,
    6422125516458692767,
    4496686504805973842,
    5163996794686590925,
    576917993963366938,
    8008024857813305420,
    2148839337596777210,
    2806646624300279805,
    5406036010161956576,
    1377615104600676600,
    2276034424822256273,
    8555616266103214717,
    7752112857436027114,
    8034959227197827155,
    4105520511405626640,
    5707431697757163973,
    1849598760786903498,
    2982223153195868934,
    2659457391123594067,
    6438458127484211101,
    3014633590772335077,
    6115900478322359517,
    4237507735251501311,
    4412857505900743552,
    4416386791621093832,
    1089106684633880866,
    8016130691179784541,
];

/// Plays one of three parts of them, so that they run beside each other: every third round, and all if the
/// environment says `LONG=1`. They are rounds as good as others, and took a tenth of all tests' time.
fn play_findings(part: usize) {
    let step = if std::env::var_os("LONG").is_some() { 3 } else { 9 };
    for &seed in FINDINGS.iter().skip(part).step_by(step) {
        rounds::holds(Floor::Lnet, seed);
    }
}

#[test]
fn earlier_findings_of_the_swarm_hold_now() {
    play_findings(0);
}

#[test]
fn earlier_findings_of_the_swarm_hold_now_second_part() {
    play_findings(1);
}

#[test]
fn earlier_findings_of_the_swarm_hold_now_third_part() {
    play_findings(2);
}

/// A router's interface was announced as down while its health was 0, and the end of that by nothing (H-92).
#[test]
fn ping_ends_what_a_router_has_announced_of_its_interface() {
    rounds::holds(Floor::Rdma, 9168411820693434111);
}

/// What a node that does not announce its recovery has said of itself stays with those who have no way of
/// their own to the interface.
#[test]
fn unannounced_recovery_leaves_the_health_that_others_record() {
    rounds::holds(Floor::Rdma, 3257601170648221183);
}

/// A request whose memory was on its way when its interface was removed arrived, and went again as a new one
/// when the interface was back: its first copy counted as one that had not left.
#[test]
fn request_that_was_posted_when_its_interface_went_comes_once() {
    rounds::holds(Floor::Rdma, 7493712254125227977);
}

/// A request whose last message an adapter reported 154 s late, when its connection was given up, counted as
/// one that had never been sent.
#[test]
fn request_is_known_as_long_as_a_driver_may_keep_it() {
    rounds::holds(Floor::Rdma, 5607322734060859903);
}

/// A peer that had withheld credits has no message to bring them back with until its keepalive, and work whose
/// completion was lost keeps its place: the connection stands still until its driver's time limit, long after
/// the fault.
#[test]
fn connection_that_stands_still_is_given_up_after_its_time_limit() {
    for seed in [7452495513208870463, 7136042875294554267] {
        rounds::holds(Floor::Rdma, seed);
    }
}

/// A path that looked fresh to a copy, and on which no choice ever fell, let copies that fail at once follow
/// each other for ever, in one moment.
#[test]
fn copies_that_fail_at_once_do_not_follow_each_other_without_an_end() {
    rounds::holds(Floor::Rdma, 4314446060095932927);
}

/// A GET_DONE was read behind the end of its connection, and its memory was unmapped before the queue pair
/// went: its peer had said that it wrote no more. It was the emulated adapter that took it for a violation.
#[test]
fn memory_whose_peer_is_through_goes_before_its_queue_pair() {
    rounds::holds(Floor::Rdma, 9151919179173233151);
}

/// Others tried an interface that was gone for good, ever more seldom; each try cost the router on the way some
/// health of its own, the last one a moment before the end.
#[test]
fn tries_of_what_is_gone_cost_a_router_on_the_way_nothing() {
    rounds::holds(Floor::Rdma, 1174530218929427564);
}

/// A question was due while its node had no link, and was not asked again; and answers to an interface that was
/// gone cost their own one health until their time was over, as the model did not know.
#[test]
fn what_is_gone_or_was_missed_without_a_link_is_found_in_the_end() {
    for seed in [8553246563411087359, 1059701896962122340] {
        rounds::holds(Floor::Rdma, seed);
    }
}

/// A node that announces no recovery went on saying that its interface was down; routers dropped what was for it
/// until they heard it again.
#[test]
fn interface_that_is_announced_as_down_for_good_is_not_forwarded_to_at_times() {
    rounds::holds(Floor::Rdma, 2270175502791477503);
}
