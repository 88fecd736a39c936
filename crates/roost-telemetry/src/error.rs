//! What can go wrong when logs or metrics are set up.

/// A set-up that failed; nothing fails later.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A metric family has a name or a set of labels that is not valid, or its name is taken.
    #[error("cannot register metric family {name}")]
    Register {
        /// Full name of the family.
        name: String,
        /// What the metric library says.
        source: prometheus::Error,
    },
    /// The log filter is not in the syntax of `RUST_LOG`.
    #[error("cannot read log filter `{filter}`")]
    Filter {
        /// The filter as it was given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The process has a log subscriber already.
    #[error("logs are set up already")]
    Subscriber(#[from] tracing_subscriber::util::TryInitError),
}
