//! The configuration itself.

use crate::spec::{Kind, OptionSpec, option};

pub(crate) const CONFIG: OptionSpec = option(
    "config",
    Kind::Path,
    "Configuration file (TOML); config/roost.toml lists every option. Flags and variables win over it.",
);

pub(crate) const DUMP_CONFIG: OptionSpec = option(
    "dump-config",
    Kind::Switch,
    "Print the effective configuration with the origin of every value, in the form of a configuration file, and \
     exit.",
)
.default("false");

pub(crate) static OPTIONS: &[OptionSpec] = &[CONFIG, DUMP_CONFIG];
