//! Results to standard output, everything else to standard error. A reader that has gone (`roost serve --help | head`) is no
//! failure of ours: what it does not want is not said.

use std::fmt::Display;
use std::io::Write;

/// Text that was asked for.
pub(crate) fn result(text: &dyn Display) {
    line(&mut std::io::stdout().lock(), text);
}

/// What went wrong.
pub(crate) fn problem(text: &dyn Display) {
    line(&mut std::io::stderr().lock(), text);
}

/// How far a long run has come; on a terminal in place of what stood there before.
pub(crate) fn progress(terminal: bool, text: &dyn Display) {
    let mut out = std::io::stderr().lock();
    if terminal {
        let _gone = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
    } else {
        line(&mut out, text);
    }
}

fn line(out: &mut impl Write, text: &dyn Display) {
    let _gone = writeln!(out, "{text}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe without a reader.
    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        line(&mut Gone, &"text");
        let mut out = Vec::new();
        line(&mut out, &"text");
        assert_eq!(out, b"text\n");
    }
}
