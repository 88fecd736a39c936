//! Random histories against the invariants of the core.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Join { worker: u64, ranks: u32 },
    Leave { worker: u64 },
    Drain { worker: u64 },
    Fail { worker: u64, kind: u8 },
    Place { session: Option<u8>, parent: bool, prompt: u8, pinned: Option<u64>, exclude: Option<u64> },
    Commit { which: prop::sample::Index },
    FirstToken { which: prop::sample::Index },
    Output { which: prop::sample::Index, tokens: u32 },
    Finish { which: prop::sample::Index, end: u8 },
    FinishAgain { which: prop::sample::Index },
    Sleep { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let worker = 1..5_u64;
    let which = any::<prop::sample::Index>;
    prop_oneof![
        2 => (worker.clone(), 1..4_u32).prop_map(|(worker, ranks)| Step::Join { worker, ranks }),
        1 => worker.clone().prop_map(|worker| Step::Leave { worker }),
        1 => worker.clone().prop_map(|worker| Step::Drain { worker }),
        2 => (worker.clone(), 0..4_u8).prop_map(|(worker, kind)| Step::Fail { worker, kind }),
        12 => (
            prop::option::weighted(0.8, 0..6_u8),
            any::<bool>(),
            any::<u8>(),
            prop::option::weighted(0.1, worker.clone()),
            prop::option::weighted(0.2, worker),
        )
            .prop_map(|(session, parent, prompt, pinned, exclude)| Step::Place { session, parent, prompt, pinned, exclude }),
        6 => which().prop_map(|which| Step::Commit { which }),
        4 => which().prop_map(|which| Step::FirstToken { which }),
        3 => (which(), 1..100_u32).prop_map(|(which, tokens)| Step::Output { which, tokens }),
        8 => (which(), 0..3_u8).prop_map(|(which, end)| Step::Finish { which, end }),
        2 => which().prop_map(|which| Step::FinishAgain { which }),
        3 => (0..40_u64).prop_map(|seconds| Step::Sleep { seconds }),
    ]
}

/// What the core is told and what it must therefore believe.
#[derive(Default)]
struct Model {
    /// Workers that may be given requests, with their ranks.
    workers: BTreeMap<u64, (u32, bool)>,
    running: Vec<Placement>,
    ended: Vec<Placement>,
}

fn apply(pool: &mut Pool, model: &mut Model, step: &Step) -> Option<Result<WorkerRank, Rejection>> {
    let pick = |running: &[Placement], which: &prop::sample::Index| {
        (!running.is_empty()).then(|| which.index(running.len()))
    };
    match step {
        Step::Join { worker, ranks } => {
            let described = Worker { id: WorkerId(*worker), ranks: *ranks, ..Worker::default() };
            pool.core.worker_joined(pool.now, described);
            model.workers.insert(*worker, (*ranks, false));
            model
                .running
                .retain(|placement| placement.rank.worker.0 != *worker || placement.rank.dp_rank < *ranks);
        }
        Step::Leave { worker } => {
            pool.core.worker_left(pool.now, WorkerId(*worker));
            model.workers.remove(worker);
            model.running.retain(|placement| placement.rank.worker.0 != *worker);
        }
        Step::Drain { worker } => {
            pool.core.worker_draining(WorkerId(*worker));
            model.workers.entry(*worker).and_modify(|known| known.1 = true);
        }
        Step::Fail { worker, kind } => {
            let kinds = [Failure::Unreachable, Failure::Timeout, Failure::Broken, Failure::Overloaded];
            pool.core.worker_failed(pool.now, WorkerId(*worker), kinds[usize::from(*kind)]);
        }
        Step::Place { session, parent, prompt, pinned, exclude } => {
            let name = session.map(|session| format!("s{session}"));
            let exclude: Vec<WorkerId> = exclude.iter().copied().map(WorkerId).collect();
            let turn = Turn {
                session: name.as_deref(),
                parent: parent.then_some("s0"),
                pin: pin(*pinned, None),
                exclude: &exclude,
                tokens: (0..u32::from(*prompt)).map(|token| token / (1 + u32::from(*prompt) / 64)).collect(),
            };
            let placed = pool.place(&turn);
            if let Ok(placement) = &placed {
                let rank = placement.rank;
                let (ranks, draining) = model.workers[&rank.worker.0];
                assert!(rank.dp_rank < ranks && !draining, "{rank} is not admitted");
                assert!(!exclude.contains(&rank.worker), "{rank} is excluded");
                assert!(
                    pinned.is_none_or(|pinned| pinned == rank.worker.0),
                    "{rank} is not the pinned worker"
                );
                model.running.push(placement.clone());
            } else if pinned.is_none() {
                // Affinity never turns away what plain routing would serve.
                let plain = Turn { session: None, parent: None, ..turn };
                assert_eq!(pool.place(&plain).err(), placed.as_ref().err().copied());
            }
            return Some(placed.map(|placement| placement.rank));
        }
        Step::Commit { which } => {
            if let Some(at) = pick(&model.running, which) {
                pool.core.committed(pool.now, model.running[at].booking);
            }
        }
        Step::FirstToken { which } => {
            if let Some(at) = pick(&model.running, which) {
                pool.core.first_token(pool.now, model.running[at].booking);
            }
        }
        Step::Output { which, tokens } => {
            if let Some(at) = pick(&model.running, which) {
                pool.core.output_tokens(pool.now, model.running[at].booking, *tokens);
            }
        }
        Step::Finish { which, end } => {
            if let Some(at) = pick(&model.running, which) {
                let placement = model.running.swap_remove(at);
                let end = [End::Ok, End::Cancelled, End::Failed][usize::from(*end)];
                pool.core.finish(pool.now, placement.booking, end);
                model.ended.push(placement);
            }
        }
        Step::FinishAgain { which } => {
            if let Some(at) = pick(&model.ended, which) {
                pool.core.finish(pool.now, model.ended[at].booking, End::Ok);
                pool.core.first_token(pool.now, model.ended[at].booking);
            }
        }
        Step::Sleep { seconds } => pool.sleep(*seconds),
    }
    None
}

fn pool() -> Pool {
    Pool::with(0, |config| {
        config.track_output_blocks = true;
        config.affinity.capacity = 4;
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn load_is_exact_and_ends_at_zero(steps in prop::collection::vec(step(), 1..120)) {
        let (mut pool, mut model) = (pool(), Model::default());
        for step in &steps {
            apply(&mut pool, &mut model, step);
            let snapshot = pool.core.snapshot(pool.now);
            prop_assert_eq!(snapshot.active_requests, model.running.len(), "after {:?}", step);
            for rank in &snapshot.ranks {
                let here = model.running.iter().filter(|placement| placement.rank == rank.rank).count();
                prop_assert_eq!(rank.active_requests as usize, here);
            }
            prop_assert!(snapshot.bindings <= 4);
            let bound: usize = snapshot.ranks.iter().map(|rank| rank.bindings).sum();
            prop_assert_eq!(bound, snapshot.bindings);
        }
        for placement in model.running.drain(..) {
            pool.core.finish(pool.now, placement.booking, End::Ok);
        }
        prop_assert!(pool.idle());
        pool.sleep(61);
        pool.core.expire(pool.now);
        prop_assert_eq!(pool.core.snapshot(pool.now).bindings, 0);
    }

    #[test]
    fn same_inputs_and_seed_give_the_same_placements(steps in prop::collection::vec(step(), 1..80)) {
        let run = || {
            let (mut pool, mut model) = (pool(), Model::default());
            steps.iter().filter_map(|step| apply(&mut pool, &mut model, step)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}
