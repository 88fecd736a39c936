//! Engine items to an answer: one path, two ends.

use std::time::Duration;

pub(crate) mod aggregate;
pub(crate) mod choice;
pub(crate) mod choices;
pub(crate) mod events;
pub(crate) mod logprobs;
pub(crate) mod stream;
pub(crate) mod tiers;
pub(crate) mod whole;

/// How long the end mark of a worker's stream may take after the finish reason.
const END_WAIT: Duration = Duration::from_secs(5);
