//! What is said once at start: the options that differ from their defaults, and what has no effect.

use roost_config::Effective;

/// Logs every option that was set, with its source, then the notices.
pub(crate) fn show(effective: &Effective, notices: &[String]) {
    for entry in effective.changed() {
        let value = entry.value.as_deref().unwrap_or("unset");
        tracing::info!(option = entry.name, value, source = %entry.source, "configured");
    }
    for notice in notices {
        tracing::warn!("{notice}");
    }
}
