//! The worker side of the plane over one trait, Engine: listener, registration, event publishing, and the mock engine. Knows nothing of the frontend.
