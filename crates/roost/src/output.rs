//! Results to standard output, everything else to standard error.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the one place that prints")]

use std::fmt::Display;

/// Text that was asked for.
pub(crate) fn result(text: &dyn Display) {
    println!("{text}");
}

/// What went wrong.
pub(crate) fn problem(text: &dyn Display) {
    eprintln!("{text}");
}
