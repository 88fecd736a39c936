//! Conditional disaggregation: a prompt of which the decode worker has most is computed there.

use roost_router::{LocalPrefill, Outlook, Preview, Rejection};

use super::Request;
use super::seat::{Tried, Wish};
use crate::models::Pool;

/// Tells a decode worker that its prompt is computed nowhere else. It is the frontend's to say: clients' annotations of
/// this name are dropped.
pub(crate) const LOCAL_PREFILL: &str = "x-bypass-remote-prefill";

impl Request<'_> {
    /// Whether the decode worker that would be chosen is to compute the prompt itself.
    pub(super) fn prefills_locally(&self, prefill: &Pool, tried: &Tried) -> bool {
        let Some(rule) = &self.shared.config.route.local_prefill else { return false };
        if tried.refused_local || self.prepared.prefill_pin.worker.is_some() {
            return false;
        }
        // What the preview cannot do, the placement will say.
        let Ok(decode) = self.preview(&self.prepared.model.pool, self.wish(), tried) else {
            return false;
        };
        let outlook = Outlook {
            prompt_tokens: self.progress.isl(),
            cached_tokens: decode.cached_tokens,
            prefill_busy: self.prefill_busy(rule, prefill, tried),
            decode_blocks: decode.blocks(),
            decode_capacity: decode.total_blocks,
        };
        let locally = rule.decide(&outlook);
        tracing::debug!(request_id = %self.prepared.session.name(), session = self.prepared.session.id.as_deref(), ?outlook, locally, "where the prompt is computed");
        locally
    }

    fn prefill_busy(&self, rule: &LocalPrefill, pool: &Pool, tried: &Tried) -> Option<bool> {
        let share = rule.prefill_busy.filter(|_| rule.asks_for_prefill_load())?;
        match self.preview(pool, self.prefill_wish(), tried) {
            Ok(preview) => Some(preview.prefill_exceeds(share)),
            Err(Rejection::Overloaded | Rejection::PinOverloaded { .. } | Rejection::QueueFull { .. }) => {
                Some(true)
            }
            Err(_) => None,
        }
    }

    fn preview(&self, pool: &Pool, wish: Wish<'_>, tried: &Tried) -> Result<Preview, Rejection> {
        let overlap = pool.overlap(&self.prepared.blocks.sequence);
        pool.router.preview(&self.route_request(pool, &overlap, wish, tried))
    }
}
