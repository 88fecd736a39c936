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

/// How far a long run has come; on a terminal in place of what stood there before.
pub(crate) fn progress(terminal: bool, text: &dyn Display) {
    match terminal {
        true => eprint!("\r\x1b[K{text}"),
        false => eprintln!("{text}"),
    }
}
