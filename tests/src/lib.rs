//! In-process cluster harness.
