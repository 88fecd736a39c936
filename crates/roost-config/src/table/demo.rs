//! The demonstration.

use crate::spec::{Kind, OptionSpec, integer, option};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option("host", Kind::Ip, "Address to bind.").default("127.0.0.1"),
    option("port", integer(0, 65_535), "Port to bind; 0 takes a free one.").default("8000"),
    option("workers", integer(1, 64), "Mock workers to start.").default("2"),
    option("once", Kind::Switch, "Play the demonstration once and exit, instead of serving until stopped.")
        .default("false"),
];
