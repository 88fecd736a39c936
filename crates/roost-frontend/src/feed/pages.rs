//! How prompts are cut into KV blocks: as the workers do it, unless an option gives another size, and what is lost then.
//!
//! Workers tell of their cache in blocks of their own. Prompts cut in any other way never match any of them, and routing by cache becomes routing by load; nothing but this module would show it.

use std::collections::HashSet;
use std::sync::Arc;

use roost_cluster::WorkerInfo;
use roost_cluster::record::ModelCard;
use roost_kv::Cut;

use super::Set;
use crate::config::Route;

/// Tokens per block when neither card nor options say.
const DEFAULT: u32 = 16;

/// How prompts for workers of this card are cut.
pub(super) fn used(card: &ModelCard, route: &Route) -> Cut {
    let block_size = route.block_size.or(card.block_size_tokens()).unwrap_or(DEFAULT);
    Cut { block_size, eagle: card.runtime_config.enable_eagle }
}

/// Whether a worker's events are in vain when prompts are cut as `used` says.
fn differs(card: &ModelCard, used: Cut, route: &Route) -> bool {
    let told = route.kv_events && card.runtime_config.kv_event_publishing_enabled;
    // A card that does not say is filled in by the option; without that, the size is a guess.
    let resized = card.block_size_tokens().map_or(route.block_size.is_none(), |size| size != used.block_size);
    told && (resized || card.runtime_config.enable_eagle != used.eagle)
}

/// Says so once for each card.
pub(super) fn warn(worker: &Arc<WorkerInfo>, used: Cut, route: &Route) {
    let card = &worker.card;
    if !differs(card, used, route) {
        return;
    }
    let model = &card.display_name;
    let used = used.block_size;
    match card.block_size_tokens() {
        Some(size) => tracing::warn!(
            model,
            worker = format_args!("{:x}", worker.worker.0),
            "the workers tell of KV blocks of {size} tokens and prompts are cut into blocks of {used} \
             (--kv-cache-block-size): none will ever match; leave the option unset"
        ),
        None => tracing::warn!(
            model,
            worker = format_args!("{:x}", worker.worker.0),
            "the workers do not say how many tokens a KV block has; {used} is a guess (--kv-cache-block-size)"
        ),
    }
}

/// The number of a model's workers whose events are in vain, from the sets that answer and those that compute prompts for
/// them. Prompts are cut as the set that answers needs it.
pub(super) fn mismatched(pairs: &[(&Set, Option<&Set>)], route: &Route) -> usize {
    let mut found = HashSet::new();
    for (answering, prefill) in pairs {
        let used = used(&answering.first.card, route);
        let both = std::iter::once(answering).chain(prefill);
        let workers = both.flat_map(|set| set.workers.values());
        found.extend(workers.filter(|worker| differs(&worker.card, used, route)).map(|worker| worker.worker));
    }
    found.len()
}
