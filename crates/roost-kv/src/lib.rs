//! Block and sequence hashes, worker ids, KV-cache events and the prefix index. Knows nothing of tokio, transports or cost.
