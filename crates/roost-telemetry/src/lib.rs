//! Log set-up, metric registry, records in files, spans for collectors, text encoding and bucket sets. Knows nothing of what is measured.

pub mod buckets;
mod error;
mod federation;
pub mod logging;
mod records;
mod registry;
pub mod spans;

pub use error::Error;
pub use federation::{Federation, MAX_PAGE_BYTES, MAX_SERIES, Refused};
pub use records::{RecordFile, RecordKeeper, RecordStats, Records};
pub use registry::{Family, Kind, Name, Registry};
