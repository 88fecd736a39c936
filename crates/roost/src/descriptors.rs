//! The limit of open files: each stream takes two sockets.

/// Raises the soft limit towards `target`, as far as the hard limit allows.
pub(crate) fn raise(target: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(target, |maximum| target.min(maximum));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, wanted, "cannot raise the limit of open files");
        }
    }
}

/// The soft limit; `None` without one.
pub(crate) fn limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}
