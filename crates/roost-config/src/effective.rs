//! Every option with its value and where it came from.

use std::fmt::{self, Write as _};

/// Where a value came from, strongest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A flag, as it was written.
    Flag(String),
    /// A variable, by name.
    Variable(String),
    /// A line of the configuration file.
    File {
        /// The file, as it was named.
        path: String,
        /// Line, counted from 1.
        line: usize,
    },
    /// Another option that stands for several, by its flag.
    Implied(&'static str),
    /// Nothing set it.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(out, "{flag}"),
            Self::Variable(name) => write!(out, "{name}"),
            Self::File { path, line } => write!(out, "{path}:{line}"),
            Self::Implied(flag) => write!(out, "implied by {flag}"),
            Self::Default => write!(out, "default"),
        }
    }
}

/// One option of the effective configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name in the table.
    pub name: &'static str,
    /// Section in the configuration file.
    pub section: &'static str,
    /// Value as it could be given again, unless it is a secret; `None`: unset.
    pub value: Option<String>,
    /// Whether the value is written with quotes in a configuration file.
    pub(crate) quoted: bool,
    /// The value is not the value.
    pub(crate) secret: bool,
    /// Where it came from.
    pub source: Source,
}

/// The effective configuration: what the process runs with, option by option, in the order of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effective {
    entries: Vec<Entry>,
}

impl Effective {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        Self { entries }
    }

    /// Every option.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Options that something set.
    pub fn changed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.source != Source::Default)
    }

    /// The option of this name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The configuration as a file that `--config` reads, each line with its origin: what `--dump-config` prints.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        for entry in &self.entries {
            if entry.section != section {
                section = entry.section;
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}[{section}]");
            }
            let _ = match &entry.value {
                None => writeln!(text, "# {} is unset", entry.name),
                Some(_) if entry.secret => {
                    writeln!(text, "# {} is set by {} and not shown", entry.name, entry.source)
                }
                Some(value) if entry.quoted => {
                    writeln!(text, "{} = {} # {}", entry.name, quote(value), entry.source)
                }
                Some(value) => writeln!(text, "{} = {value} # {}", entry.name, entry.source),
            };
        }
        text
    }
}

/// A basic string of the file format.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
