//! Text to token ids and back: encoder backends and the incremental detokenizer. Knows nothing of templates or OpenAI.
