//! In-process cluster harness: real sockets, port 0, no sleeps but to look again.

pub mod certificates;
mod chromium;
pub mod cluster;
pub mod etcd;
pub mod gate;
pub mod http;
pub mod kubernetes;
mod lossy;
pub mod nats;
mod nginx;
pub mod peers;
pub mod port;
pub mod prometheus;
mod scripted;
mod sglang;

pub use certificates::Certificates;
pub use chromium::Chromium;
pub use cluster::{Cluster, LongRun, MODEL, Options, copy_folder, fixture, worker_of};
pub use etcd::Etcd;
pub use gate::Gate;
pub use http::{Events, PATIENCE, Reply, Request};
pub use kubernetes::KubeApi;
pub use lossy::Lossy;
pub use nats::Nats;
pub use nginx::Nginx;
pub use peers::{Peer, Peers};
pub use prometheus::Prometheus;
pub use scripted::ScriptedEngine;
pub use sglang::{Sglang, SglangOptions};
