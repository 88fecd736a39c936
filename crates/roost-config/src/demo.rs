//! What `roost demo` needs to know.

use std::net::IpAddr;

use crate::{
    effective::Effective,
    serve::{self, LogOptions},
    values::Values,
};

/// Options of `roost demo`: a frontend and mock workers in one process.
#[derive(Debug, Clone)]
pub struct Demo {
    /// Address to bind.
    pub host: IpAddr,
    /// Port to bind; 0 takes a free one.
    pub port: u16,
    /// Mock workers to start.
    pub workers: usize,
    /// Play the demonstration once and exit, instead of serving until stopped.
    pub once: bool,
    /// Log output.
    pub log: LogOptions,
    /// Every option with its value and where it came from.
    pub effective: Effective,
    /// Things to tell the operator once at start.
    pub notices: Vec<String>,
}

pub(crate) fn build(values: &Values, effective: Effective, notices: Vec<String>) -> Demo {
    Demo {
        host: values.ip("host"),
        port: values.port("port"),
        workers: values.size("workers"),
        once: values.switch("once"),
        log: serve::log(values),
        effective,
        notices,
    }
}
