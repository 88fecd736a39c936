//! The size of KV blocks: that of the workers, unless an option says otherwise, and what is lost then.
//!
//! Workers tell of their cache in blocks of their own size. Prompts cut into blocks of another size never match any of
//! them, and routing by cache becomes routing by load; nothing but this module would show it.

use std::sync::Arc;

use roost_cluster::WorkerInfo;
use roost_cluster::record::ModelCard;

use super::Set;
use crate::config::Route;

/// Tokens per block when neither card nor options say.
const DEFAULT: u32 = 16;

/// The size, in tokens, of the blocks that prompts for workers of this card are cut into.
pub(super) fn used(card: &ModelCard, route: &Route) -> u32 {
    route.block_size.or(card.block_size_tokens()).unwrap_or(DEFAULT)
}

/// Whether a worker's events are in vain when prompts are cut into blocks of `used` tokens.
fn differs(card: &ModelCard, used: u32, route: &Route) -> bool {
    let told = route.kv_events && card.runtime_config.kv_event_publishing_enabled;
    // A card that does not say is filled in by the option; without that, the size is a guess.
    told && card.block_size_tokens().map_or(route.block_size.is_none(), |size| size != used)
}

/// Says so once for each card.
pub(super) fn warn(worker: &Arc<WorkerInfo>, used: u32, route: &Route) {
    let card = &worker.card;
    if !differs(card, used, route) {
        return;
    }
    let model = &card.display_name;
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
    let mut found: Vec<&Set> = Vec::new();
    for (answering, prefill) in pairs {
        let used = used(&answering.first.card, route);
        let both = std::iter::once(answering).chain(prefill);
        found.extend(both.copied().filter(|set| differs(&set.first.card, used, route)));
    }
    // One that serves several sets counts once.
    found.sort_unstable_by_key(|set| std::ptr::from_ref(*set));
    found.dedup_by_key(|set| std::ptr::from_ref(*set));
    found.iter().map(|set| set.workers.len()).sum()
}
