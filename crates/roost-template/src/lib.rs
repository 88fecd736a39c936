//! Messages, tools and a chat template to prompt text, with Hugging Face semantics. Knows nothing of tokens or HTTP.
