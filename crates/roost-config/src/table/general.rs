//! The configuration itself.

use crate::spec::{Kind, OptionSpec, option, seconds};

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

/// Options of `check` itself.
pub(crate) static CHECK: &[OptionSpec] = &[
    option("json", Kind::Switch, "Print the findings as JSON.").default("false"),
    option("wait", seconds(0.1, 600.0), "Longest wait for the store, and for a worker and its model.")
        .default("10"),
];
