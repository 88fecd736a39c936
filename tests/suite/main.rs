//! One test binary: end to end, compatibility, interoperability.
