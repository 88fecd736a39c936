//! The `roost` binary.
fn main() {}
