//! Engine items to an answer: one path, two ends.

pub(crate) mod aggregate;
pub(crate) mod choice;
pub(crate) mod stream;
