//! Benchmarks that span crates; per-crate micro benches stay with their crate.
