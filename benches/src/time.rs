//! Repeated timings.

use std::time::{Duration, Instant};

/// Timings of one step.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Fastest run.
    pub min: Duration,
    /// Median run.
    pub median: Duration,
}

impl Timing {
    /// Milliseconds of the median run.
    #[must_use]
    pub fn ms(&self) -> f64 {
        self.median.as_secs_f64() * 1e3
    }

    /// The timing of runs measured elsewhere; zero when there are none.
    #[must_use]
    pub fn of(mut runs: Vec<Duration>) -> Self {
        runs.sort_unstable();
        let at = |n: usize| runs.get(n).copied().unwrap_or_default();
        Timing { min: at(0), median: at(runs.len() / 2) }
    }
}

/// Runs `step` `runs` times, each on a fresh value of `input`, which is not timed; dropping the result is not timed
/// either.
pub fn timed<I, T>(runs: usize, mut input: impl FnMut() -> I, mut step: impl FnMut(I) -> T) -> Timing {
    Timing::of(
        (0..runs)
            .map(|_| {
                let input = input();
                let started = Instant::now();
                let result = step(input);
                let took = started.elapsed();
                drop(std::hint::black_box(result));
                took
            })
            .collect(),
    )
}
