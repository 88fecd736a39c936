//! The `roost` binary: configuration → build → run → drain.

mod access;
mod banner;
mod bench;
mod check;
mod demo;
mod descriptors;
mod exchange;
#[cfg(test)]
mod exits;
mod explain;
mod federation;
mod fleet;
mod frontend;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod listeners;
mod mock_worker;
mod nats;
mod output;
mod replay;
mod serve;
mod settings;
mod sglang;
mod signals;
mod store;
mod top;
mod transport;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;

use roost_config::{Command, Environment};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit status of a wrong command line or configuration.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    run(std::env::args_os().skip(1))
}

/// Does what the arguments say.
fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let environment = Environment::capture();
    let result = match roost_config::parse(arguments, &environment) {
        Ok(Command::Print(text)) => {
            output::result(&text);
            return ExitCode::SUCCESS;
        }
        Ok(Command::Serve(options)) => serve::run(*options),
        Ok(Command::Check(options)) => check::run(*options),
        Ok(Command::Worker(options)) => worker::run(*options),
        Ok(Command::MockWorker(options)) => mock_worker::run(*options),
        Ok(Command::Demo(options)) => demo::run(*options),
        Ok(Command::Replay(options)) => replay::run(&options),
        Ok(Command::Bench(options)) => bench::run(&options),
        Ok(Command::Explain(options)) => explain::run(&options),
        Ok(Command::Top(options)) => top::run(&options),
        Err(problems) => {
            output::problem(&problems);
            return ExitCode::from(USAGE);
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            output::problem(&format_args!("roost: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
