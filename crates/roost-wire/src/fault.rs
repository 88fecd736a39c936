/// Whose fault a failed request is; status code, log level and metric label follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The client asked for something that no worker will do, or went away.
    Client,
    /// The worker answered wrongly, failed, or broke the protocol.
    Worker,
    /// The connection to the worker could not be made or was lost.
    Transport,
    /// The worker, or our own pool, is full.
    Overload,
    /// Something took longer than its deadline.
    Deadline,
}

impl Fault {
    /// A short stable name, fit for a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Worker => "worker",
            Self::Transport => "transport",
            Self::Overload => "overload",
            Self::Deadline => "deadline",
        }
    }
}
