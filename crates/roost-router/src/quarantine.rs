//! Keeping requests away from a worker that has just failed, each worker by its own clock.
//!
//! A failure opens a period that starts at 5 s and doubles with each failed probe. When it is over, one
//! request at a time is let through as a probe; once a dispatch succeeds the worker is trusted again. A
//! worker that merely answered that it is overloaded is avoided for 1 s. Nothing needs a timer: the state
//! follows from the time of the question, so a mark can never outlive its period.

use std::time::{Duration, Instant};

use crate::QuarantineConfig;

#[cfg(test)]
mod tests;

/// What went wrong with a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection could be made, or it broke.
    Unreachable,
    /// The worker did not answer in time.
    Timeout,
    /// The stream ended without its last frame, or the engine said it is going down.
    Broken,
    /// The worker refused for lack of capacity. It is healthy otherwise.
    Overloaded,
}

/// Whether a worker may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Trusted,
    /// Its period is over: one request may try.
    Probe,
    /// Failed lately, or a probe is running.
    Avoid,
    /// Said lately that it is overloaded.
    Overloaded,
}

/// The record of one worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quarantine {
    state: State,
    overloaded_until: Option<Instant>,
    /// Length of the last period, kept after its end until the worker has delivered.
    last_period: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Trusted,
    Failed {
        until: Instant,
        probing: bool,
    },
}

impl Quarantine {
    pub(crate) fn standing(&self, now: Instant) -> Standing {
        match self.state {
            State::Failed { until, probing } if probing || now < until => Standing::Avoid,
            _ if self.overloaded_until.is_some_and(|until| now < until) => Standing::Overloaded,
            State::Failed { .. } => Standing::Probe,
            State::Trusted => Standing::Trusted,
        }
    }

    /// Tells whether a probe could be sent before the period is over, for want of any other worker.
    pub(crate) fn may_probe_early(&self) -> bool {
        matches!(self.state, State::Failed { probing: false, .. })
    }

    /// Returns when the period ends, for choosing whom to try first.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self.state {
            State::Failed { until, .. } => Some(until),
            State::Trusted => None,
        }
    }

    /// A request was sent although the worker is not trusted. Returns whether it is a probe.
    pub(crate) fn begin_probe(&mut self) -> bool {
        match &mut self.state {
            State::Failed { probing, .. } => {
                *probing = true;
                true
            }
            State::Trusted => false,
        }
    }

    /// The probe ended without an answer either way: the next request may be one.
    pub(crate) fn abandon_probe(&mut self) {
        if let State::Failed { probing, .. } = &mut self.state {
            *probing = false;
        }
    }

    /// A dispatch to the worker succeeded.
    pub(crate) fn accepted(&mut self) {
        self.state = State::Trusted;
    }

    /// The worker delivered output: earlier failures no longer lengthen the next period.
    pub(crate) fn delivered(&mut self) {
        self.last_period = None;
    }

    /// Records a failure. Those that come in while a period runs, as when a worker with many streams
    /// dies, do not lengthen it.
    pub(crate) fn failed(&mut self, now: Instant, kind: Failure, config: &QuarantineConfig) {
        if kind == Failure::Overloaded {
            self.overloaded_until = Some(now + config.overloaded);
            self.abandon_probe();
            return;
        }
        match self.state {
            State::Failed { until, probing: false } if now < until => {}
            _ => {
                let period = self.last_period.map_or(config.first, |last| (last * 2).min(config.longest));
                self.last_period = Some(period);
                self.state = State::Failed { until: now + period, probing: false };
            }
        }
    }
}
