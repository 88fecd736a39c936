//! The sum by which workers of one model are told to be the same.

use super::card::{ModelCard, WorkerType};

impl ModelCard {
    /// BLAKE3 in lower hex over what must agree between workers of one set.
    ///
    /// The sum travels in requests for information only; no worker checks it.
    pub fn mdcsum(&self) -> String {
        let mut sum = self.common_sum();
        sum.update(&[self.worker_type.map_or(0, type_byte)]);
        sum.update(&count(self.needs.len()));
        for alternative in &self.needs {
            sum.update(&count(alternative.len()));
            let bytes: Vec<u8> = alternative.iter().copied().map(type_byte).collect();
            sum.update(&bytes);
        }
        if let Some(router) = self.other.get("router_config").filter(|value| !value.is_null()) {
            sum.update(blake3::hash(router.to_string().as_bytes()).as_bytes());
        }
        if !self.aliases.is_empty() {
            sum.update(&count(self.aliases.len()));
            for alias in &self.aliases {
                sum.update(&count(alias.len()));
                sum.update(alias.as_bytes());
            }
        }
        sum.finalize().to_hex().to_string()
    }

    /// BLAKE3 in lower hex over what prefill and decode workers of one release have in common: the model's files, its
    /// context and block size.
    pub fn version_sum(&self) -> String {
        self.common_sum().finalize().to_hex().to_string()
    }

    fn common_sum(&self) -> blake3::Hasher {
        let mut sum = blake3::Hasher::new();
        sum.update(self.display_name.as_bytes());
        sum.update(self.source_path.as_deref().unwrap_or_default().as_bytes());
        let files = [
            &self.model_info,
            &self.tokenizer,
            &self.prompt_formatter,
            &self.chat_template_file,
            &self.gen_config,
        ];
        for file in files.into_iter().flatten() {
            sum.update(file.file().checksum.as_bytes());
        }
        self.add_extra_files(&mut sum);
        let context = self
            .runtime_config
            .context_length
            .or(self.architectural_max_context_length)
            .or(self.context_length)
            .unwrap_or(0);
        sum.update(&context.to_be_bytes());
        sum.update(&self.kv_cache_block_size.unwrap_or(0).to_be_bytes());
        sum
    }

    fn add_extra_files(&self, sum: &mut blake3::Hasher) {
        let mut extra: Vec<(&str, &str)> = self
            .extra_files
            .iter()
            .map(|file| {
                let name = file.path.rsplit('/').next().unwrap_or_default();
                (name, file.checksum.strip_prefix("blake3:").unwrap_or(&file.checksum))
            })
            .collect();
        extra.sort_unstable();
        for (name, hash) in extra {
            sum.update(name.as_bytes());
            sum.update(&[0]);
            sum.update(hash.as_bytes());
        }
    }
}

fn type_byte(kind: WorkerType) -> u8 {
    match kind {
        WorkerType::Prefill => 1,
        WorkerType::Decode => 2,
        WorkerType::Encode => 3,
        WorkerType::Aggregated => 4,
    }
}

fn count(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes()
}
