//! Everything that is wrong with the input, at once.

use std::fmt;

/// One mistake: where it is and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The flag, variable or file line as the operator wrote it.
    pub subject: String,
    /// What is wrong with it and what would be accepted.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { subject: subject.into(), message: message.into() }
    }
}

/// All mistakes of a command line, an environment and a configuration file. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    problems: Vec<Problem>,
    /// The command whose help is worth reading.
    pub(crate) command: Option<&'static str>,
}

impl Problems {
    /// Exit code of a process that could not understand what it was told.
    pub const EXIT_CODE: u8 = 2;

    pub(crate) fn new(problems: Vec<Problem>, command: Option<&'static str>) -> Self {
        Self { problems, command }
    }

    /// The mistakes, in the order they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => writeln!(out, "1 problem with the configuration:")?,
            count => writeln!(out, "{count} problems with the configuration:")?,
        }
        for Problem { subject, message } in &self.problems {
            writeln!(out, "  {subject}: {message}")?;
        }
        match self.command {
            Some(command) => write!(out, "see `roost help {command}`"),
            None => write!(out, "see `roost help`"),
        }
    }
}
