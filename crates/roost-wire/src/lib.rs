//! The worker TCP plane, both ends: frames, messages, connection pool, response listener, worker listener. Knows nothing of discovery, routing or OpenAI.
