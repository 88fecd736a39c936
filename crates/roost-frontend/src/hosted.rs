//! Engines that this process reaches by itself, without the plane.

use std::fmt;
use std::pin::Pin;

use futures_core::Stream;
use roost_kv::WorkerId;
use roost_wire::message::{DynamoError, EngineOutput, EngineRequest};

/// The answer of such an engine: outputs in order, as a worker would send them.
pub type HostedStream = Pin<Box<dyn Stream<Item = Result<EngineOutput, HostedError>> + Send>>;

/// Why such an answer ended before its time.
#[derive(Debug)]
pub enum HostedError {
    /// The engine reports a failure.
    Reported(Box<DynamoError>),
    /// The engine cannot be reached, or broke off. Another one may serve the request.
    Lost(String),
}

/// Engines by worker. Their joining and leaving comes with the cluster's updates like that of any other worker.
pub trait HostedEngines: Send + Sync + fmt::Debug {
    /// Starts a request on a worker's engine; `None` when it has left. Does not wait. Dropping the stream ends the
    /// request at the engine.
    fn generate(&self, worker: WorkerId, id: &str, request: EngineRequest) -> Option<HostedStream>;
}
