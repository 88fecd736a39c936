//! Where the cached part of a prompt was found, as the engine tells it.

use roost_wire::message::EngineOutput;

/// Prompt tokens found in each tier of an engine's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CachedTiers {
    /// In the memory of the device.
    pub(crate) device: u64,
    /// In the memory of the host.
    pub(crate) host: u64,
    /// In storage, of this machine or another.
    pub(crate) storage: u64,
}

impl CachedTiers {
    /// What an item says of it (`cached_tokens_details`), if anything.
    pub(crate) fn told_by(output: &EngineOutput) -> Option<Self> {
        let details = output.engine_data.as_ref()?.get("cached_tokens_details")?.as_object()?;
        let tokens = |tier| details.get(tier).and_then(serde_json::Value::as_u64).unwrap_or(0);
        Some(CachedTiers { device: tokens("device"), host: tokens("host"), storage: tokens("storage") })
    }

    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        CachedTiers {
            device: self.device.saturating_add(other.device),
            host: self.host.saturating_add(other.host),
            storage: self.storage.saturating_add(other.storage),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(data: Value) -> Option<CachedTiers> {
        CachedTiers::told_by(&EngineOutput { engine_data: Some(data.into()), ..EngineOutput::default() })
    }

    #[test]
    fn tiers_as_engines_tell_them() {
        let hicache = told(json!({"cached_tokens_details": {"device": 0, "host": 112}}));
        assert_eq!(hicache, Some(CachedTiers { device: 0, host: 112, storage: 0 }));
        let details = json!({"device": 64, "host": 32, "storage": 16, "storage_backend": "file"});
        let tiers = told(json!({"cached_tokens_details": details})).unwrap();
        assert_eq!(tiers, CachedTiers { device: 64, host: 32, storage: 16 });
        assert_eq!(tiers.plus(tiers), CachedTiers { device: 128, host: 64, storage: 32 });
        assert_eq!(told(json!({"kv_cache_hit": {"reused_tokens": 3}})), None);
        assert_eq!(told(json!({"cached_tokens_details": null})), None);
        let odd = told(json!({"cached_tokens_details": {"device": -1, "host": "many"}}));
        assert_eq!(odd, Some(CachedTiers::default()));
        assert_eq!(CachedTiers::told_by(&EngineOutput::default()), None);
    }
}
