//! `roost check`: the options of `serve`, and a few of its own.

use std::ffi::OsString;
use std::time::Duration;

use crate::serve::Serve;
use crate::values::Values;

/// What `roost check` needs to know.
#[derive(Debug, Clone)]
pub struct Check {
    /// What would be served.
    pub serve: Box<Serve>,
    /// Results as JSON.
    pub json: bool,
    /// Longest wait for the store and for workers.
    pub wait: Duration,
}

impl Check {
    pub(crate) fn new(serve: Box<Serve>, own: &Values) -> Self {
        Check { serve, json: own.switch("json"), wait: own.duration("wait") }
    }
}

/// Tells the arguments of `check` itself from those of `serve`.
pub(crate) fn part(arguments: Vec<OsString>) -> (Vec<OsString>, Vec<OsString>) {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy().into_owned();
        let name = text.split('=').next().unwrap_or_default();
        match name {
            "--json" | "--no-json" => own.push(argument),
            "--wait" => {
                own.push(argument);
                own.extend((!text.contains('=')).then(|| arguments.next()).flatten());
            }
            _ => others.push(argument),
        }
    }
    (own, others)
}
