//! Log set-up, metric registry, text encoding and bucket sets. Knows nothing of what is measured.

pub mod buckets;
mod error;
mod federation;
pub mod logging;
mod registry;

pub use error::Error;
pub use federation::{Federation, MAX_PAGE_BYTES, MAX_SERIES, Refused};
pub use registry::{Family, Kind, Name, Registry};
