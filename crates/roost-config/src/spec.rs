//! The shape of one option, as data.

/// One option: everything the parser, the help, the documents and the dump know about it.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Name in lower case with hyphens. The flag is `--name`, the variable of our own is [`Self::roost_env`].
    pub name: &'static str,
    /// Further spellings of the flag, without hyphens in front.
    pub aliases: &'static [&'static str],
    /// Dynamo's variables for it; the first that is set counts.
    pub env: &'static [&'static str],
    /// Type and range.
    pub kind: Kind,
    /// Value when nothing sets it, as it would be written. `None`: unset.
    pub default: Option<&'static str>,
    /// Dynamo's default, where it is another one.
    pub dynamo_default: Option<&'static str>,
    /// One or more sentences for people.
    pub help: &'static str,
    /// What roost does with it.
    pub status: Status,
    /// The value is shown to nobody.
    pub secret: bool,
}

/// Type of a value and what is accepted.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// `--x` and `--no-x`; in a variable true, 1, yes, on and false, 0, no, off.
    Switch,
    /// A whole number.
    Integer {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A finite number.
    Number {
        /// Least value.
        min: f64,
        /// Greatest value.
        max: f64,
    },
    /// A number in the given unit, or a number with a unit such as `15s`, `500ms`, `2h`.
    Duration {
        /// Unit of a bare number.
        unit: TimeUnit,
        /// Least value, in that unit.
        min: f64,
        /// Greatest value, in that unit.
        max: f64,
    },
    /// A number of bytes in the given unit, or a number with a unit such as `45MiB`, `8GB`.
    Bytes {
        /// Bytes per unit of a bare number.
        unit: u64,
        /// Least value, in bytes.
        min: u64,
        /// Greatest value, in bytes.
        max: u64,
    },
    /// Text that is not empty.
    Text,
    /// Texts that are not empty: the flag can be given several times; elsewhere one a line.
    Texts,
    /// Words without spaces: the flag takes all up to the next one and can be given several times; elsewhere words are
    /// separated by spaces or lines.
    Words,
    /// A path.
    Path,
    /// An IPv4 or IPv6 literal.
    Ip,
    /// One of a few words.
    Choice {
        /// Words that are accepted.
        accepted: &'static [&'static str],
        /// Words Dynamo accepts and this build does not, with the reason.
        unavailable: &'static [(&'static str, &'static str)],
    },
}

/// Unit of a bare number that stands for a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

/// What roost does with an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It works.
    Supported,
    /// Any value is accepted and changes nothing, for the stated reason.
    NoEffect(&'static str),
    /// Only the default is accepted, for the stated reason.
    Refused(&'static str),
}

/// A group of options with a title.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Title in `--help` and in the reference.
    pub title: &'static str,
    /// Name of the table in the configuration file.
    pub key: &'static str,
    /// Its options, in the order they are shown.
    pub options: &'static [OptionSpec],
}

/// A command and the options it takes.
#[derive(Debug, Clone, Copy)]
pub struct CommandSpec {
    /// Word on the command line.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Its options.
    pub sections: &'static [Section],
    /// Whether `--config FILE` applies to it.
    pub reads_config_file: bool,
    /// Name of the option that an argument without a flag is the value of.
    pub positional: Option<&'static str>,
}

impl CommandSpec {
    /// Every option of the command.
    pub fn options(&self) -> impl Iterator<Item = &'static OptionSpec> + use<> {
        self.sections.iter().flat_map(|section| section.options)
    }
}

impl OptionSpec {
    /// Our own variable: `ROOST_` and the name in upper case.
    pub fn roost_env(&self) -> String {
        format!("ROOST_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }

    /// Every spelling of the flag, without hyphens in front.
    pub(crate) fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Whether `None` unsets it, as in `DYN_ROUTER_QUEUE_THRESHOLD=None`.
    pub(crate) fn none_unsets(&self) -> bool {
        self.default.is_none()
            && !matches!(
                self.kind,
                Kind::Switch | Kind::Text | Kind::Texts | Kind::Words | Kind::Path | Kind::Ip
            )
    }
}

/// Begins an option; the methods below add to it. The functions are `const` so that the table is a static.
pub(crate) const fn option(name: &'static str, kind: Kind, help: &'static str) -> OptionSpec {
    OptionSpec {
        name,
        aliases: &[],
        env: &[],
        kind,
        default: None,
        dynamo_default: None,
        help,
        status: Status::Supported,
        secret: false,
    }
}

impl OptionSpec {
    pub(crate) const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    pub(crate) const fn env(mut self, names: &'static [&'static str]) -> Self {
        self.env = names;
        self
    }

    pub(crate) const fn default(mut self, text: &'static str) -> Self {
        self.default = Some(text);
        self
    }

    pub(crate) const fn dynamo_default(mut self, text: &'static str) -> Self {
        self.dynamo_default = Some(text);
        self
    }

    pub(crate) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    pub(crate) const fn no_effect(mut self, reason: &'static str) -> Self {
        self.status = Status::NoEffect(reason);
        self
    }

    pub(crate) const fn refused(mut self, reason: &'static str) -> Self {
        self.status = Status::Refused(reason);
        self
    }
}

pub(crate) const fn integer(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max }
}

pub(crate) const fn number(min: f64, max: f64) -> Kind {
    Kind::Number { min, max }
}

pub(crate) const fn seconds(min: f64, max: f64) -> Kind {
    Kind::Duration { unit: TimeUnit::Seconds, min, max }
}

pub(crate) const fn milliseconds(min: f64, max: f64) -> Kind {
    Kind::Duration { unit: TimeUnit::Milliseconds, min, max }
}

pub(crate) const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { unit: 1, min, max }
}

pub(crate) const fn mebibytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { unit: 1 << 20, min: min << 20, max: max << 20 }
}

pub(crate) const fn choice(accepted: &'static [&'static str]) -> Kind {
    Kind::Choice { accepted, unavailable: &[] }
}
