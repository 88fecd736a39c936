//! One test binary: end to end in process, public cases, interoperability with live peers.

mod affinity;
mod api;
mod balance;
mod calls;
mod choices;
mod dashboards;
mod disagg;
mod etcd;
mod explain;
mod faults;
mod hostile;
mod interop;
mod matrix;
mod metrics;
mod migration;
mod nats;
mod outages;
mod plane;
mod queue;
mod readiness;
mod replicas;
mod rolling;
mod shutdown;
mod streaming;
mod text;
