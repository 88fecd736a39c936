//! Log set-up, metric registry, text encoding and bucket sets. Knows nothing of what is measured.

pub mod buckets;
mod error;
pub mod logging;
mod registry;

pub use error::Error;
pub use registry::{Family, Kind, Name, Registry};
