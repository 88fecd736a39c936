//! The OpenAI API as data: request and response types, error body, SSE framing written into a byte buffer. Knows nothing of the HTTP server, workers or async.
