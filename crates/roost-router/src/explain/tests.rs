use super::*;
use roost_kv::WorkerId;

fn candidates(count: u64) -> Vec<Candidate> {
    let candidate = |worker| {
        let rank = WorkerRank::new(WorkerId(worker), 0);
        let terms = Terms { decode: (worker * 7 % count) as f64, preference: 1.0, ..Terms::default() };
        let overlap = OwnerOverlap::device_only(rank, 0);
        Candidate { rank, overlap, load: RankLoad::default(), preference: None, terms }
    };
    (0..count).map(candidate).collect()
}

fn record(decisions: &mut Decisions, request: &str, session: &str, count: u64) -> Arc<Decision> {
    let rank = WorkerRank::new(WorkerId(1), 0);
    decisions.record(Instant::now(), (request, session), &mut candidates(count), |decision| {
        decision.outcome = Outcome::Placed { rank, reason: Reason::Cost };
    })
}

#[test]
fn the_latest_decisions_are_found_by_request_and_session() {
    let mut decisions = Decisions::new(3);
    for number in 1..=5 {
        record(&mut decisions, &format!("r{number}"), &format!("s{}", number % 2), 2);
    }
    let about = |name: &str| -> Vec<u64> {
        decisions.about(name, 2).iter().map(|decision| decision.number).collect()
    };
    assert_eq!((about("r2"), about("r3")), (vec![], vec![3]));
    assert_eq!(about("s1"), [5, 3]);
    let numbers: Vec<u64> = decisions.recent(2).iter().map(|decision| decision.number).collect();
    assert_eq!(numbers, [5, 4]);
}

#[test]
fn the_chosen_and_the_cheapest_candidates_are_kept() {
    let mut decisions = Decisions::new(3);
    let decision = record(&mut decisions, "r", "s", 101);
    assert_eq!((decision.considered, decision.candidates.len()), (101, 16));
    assert_eq!(decision.candidates[0].rank.worker, WorkerId(1));
    let costs: Vec<f64> = decision.candidates[1..].iter().map(|candidate| candidate.terms.total()).collect();
    let cheapest: Vec<f64> = [0, 1, 2, 3, 4, 5, 6].into_iter().chain(8..16).map(f64::from).collect();
    assert_eq!(costs, cheapest, "the chosen one has cost 7");
}

#[test]
fn a_full_ring_uses_its_memory_again_unless_someone_reads_it() {
    let mut decisions = Decisions::new(2);
    let first = Arc::as_ptr(&record(&mut decisions, "a", "", 4));
    let held = record(&mut decisions, "b", "", 4);
    assert_eq!(Arc::as_ptr(&record(&mut decisions, "c", "", 4)), first);
    record(&mut decisions, "d", "", 4);
    assert_eq!(held.request, "b");
    assert!(decisions.about("b", 1).is_empty());
}

#[test]
fn long_names_are_cut_and_still_found() {
    let mut decisions = Decisions::new(2);
    let name = "ä".repeat(4000);
    let decision = record(&mut decisions, "r", &name, 1);
    assert_eq!(decision.session.len(), 256);
    assert_eq!(decisions.about(&name, 1).len(), 1);
}
