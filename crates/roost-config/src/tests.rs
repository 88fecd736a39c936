//! Tests of the crate as a caller sees it, and of the table as a whole.

mod documents;
mod mistakes;
mod recipes;
mod sources;
mod table;

use crate::{Command, Environment, MockWorker, Problems, Serve, parse};

fn parse_line(line: &str, environment: &[(&str, &str)]) -> Result<Command, Problems> {
    parse(line.split_whitespace(), &Environment::from_iter(environment.iter().copied()))
}

#[track_caller]
fn serve(line: &str, environment: &[(&str, &str)]) -> Serve {
    match parse_line(line, environment) {
        Ok(Command::Serve(serve)) => *serve,
        other => panic!("expected options of serve, got {other:?}"),
    }
}

#[track_caller]
fn mock_worker(line: &str, environment: &[(&str, &str)]) -> MockWorker {
    match parse_line(line, environment) {
        Ok(Command::MockWorker(worker)) => *worker,
        other => panic!("expected options of mock-worker, got {other:?}"),
    }
}

#[track_caller]
fn printed(line: &str) -> String {
    match parse_line(line, &[]) {
        Ok(Command::Print(text)) => text,
        other => panic!("expected text, got {other:?}"),
    }
}

#[track_caller]
fn problems(line: &str, environment: &[(&str, &str)]) -> Vec<String> {
    match parse_line(line, environment) {
        Err(problems) => {
            problems.iter().map(|problem| format!("{}: {}", problem.subject, problem.message)).collect()
        }
        Ok(command) => panic!("expected problems, got {command:?}"),
    }
}
