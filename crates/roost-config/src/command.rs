//! The command line as a whole.

use std::ffi::OsString;

use crate::{
    args, bench,
    bench::Bench,
    check::{self, Check},
    demo,
    demo::Demo,
    environment::Environment,
    file::FileValues,
    help, mock_worker,
    mock_worker::MockWorker,
    problem::{Problem, Problems},
    questions::{self, Explain, Top},
    replay,
    replay::Replay,
    resolve, serve,
    serve::Serve,
    shell,
    spec::{CommandSpec, OptionSpec},
    suggest, table,
    value::Value,
    worker,
    worker::Worker,
};

/// What the process is to do.
#[derive(Debug, Clone)]
pub enum Command {
    /// Serve requests.
    Serve(Box<Serve>),
    /// Put an SGLang server on the plane.
    Worker(Box<Worker>),
    /// See whether it would serve.
    Check(Box<Check>),
    /// Run mock workers.
    MockWorker(Box<MockWorker>),
    /// Run a frontend and mock workers in one process.
    Demo(Box<Demo>),
    /// Ask a running frontend about a request.
    Explain(Explain),
    /// Show what a running frontend's fleet does.
    Top(Top),
    /// Run a trace through the router, offline.
    Replay(Box<Replay>),
    /// Replay sessions against live endpoints.
    Bench(Box<Bench>),
    /// Write this text to standard output and exit with success: help, version, effective configuration.
    Print(String),
}

/// Reads a command line (without the program's own name) and the environment it runs in.
///
/// Without a command, flags are those of `serve`, so a Dynamo command line works as it is. The only file that is
/// read is the one named by `--config` or `ROOST_CONFIG`.
///
/// # Errors
/// Everything that is wrong, together; the process then exits with [`Problems::EXIT_CODE`].
pub fn parse<I, A>(arguments: I, environment: &Environment) -> Result<Command, Problems>
where
    I: IntoIterator<Item = A>,
    A: Into<OsString>,
{
    let mut arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let first = arguments.first().map(|first| first.to_string_lossy().into_owned());
    match first.as_deref() {
        None | Some("--help" | "-h") => Ok(Command::Print(help::general_help())),
        Some("--version" | "-V" | "version") => Ok(Command::Print(help::version())),
        Some("help") => match arguments.get(1).map(|topic| topic.to_string_lossy()) {
            None => Ok(Command::Print(help::general_help())),
            Some(topic) => find(&topic)
                .map(|command| Command::Print(help::command_help(command, help::width(environment)))),
        },
        Some("completions") => completions(arguments.get(1).map(|shell| shell.to_string_lossy()).as_deref()),
        Some("man") => Ok(Command::Print(shell::manual())),
        Some("check") => {
            arguments.remove(0);
            check(arguments, environment)
        }
        Some(flag) if flag.starts_with('-') => run(&table::SERVE, arguments, environment),
        Some(name) => {
            let command = find(name)?;
            arguments.remove(0);
            run(command, arguments, environment)
        }
    }
}

fn completions(shell: Option<&str>) -> Result<Command, Problems> {
    shell.and_then(shell::completions).map(Command::Print).ok_or_else(|| {
        let message = format!("wants a shell: {}", shell::SHELLS.join(", "));
        Problems::new(vec![Problem::new("completions", message)], None)
    })
}

/// `check` takes what `serve` takes.
fn check(arguments: Vec<OsString>, environment: &Environment) -> Result<Command, Problems> {
    let (own, others) = check::part(arguments);
    if others.iter().any(|argument| argument == "--help" || argument == "-h") {
        return Ok(Command::Print(help::command_help(&table::CHECK, help::width(environment))));
    }
    let mut arguments = args::split(&table::CHECK, own);
    let mut resolved = resolve::resolve(&table::CHECK, &arguments.given, environment, &FileValues::default());
    arguments.problems.append(&mut resolved.problems);
    if !arguments.problems.is_empty() {
        return Err(Problems::new(arguments.problems, Some(table::CHECK.name)));
    }
    let (own, _) = resolved.finish();
    Ok(match run(&table::SERVE, others, environment)? {
        Command::Serve(serve) => Command::Check(Box::new(Check::new(serve, &own))),
        printed => printed,
    })
}

fn find(name: &str) -> Result<&'static CommandSpec, Problems> {
    if name == "replay" {
        return Ok(&table::BENCH);
    }
    table::COMMANDS.iter().copied().find(|command| command.name == name).ok_or_else(|| {
        let names = table::COMMANDS.iter().map(|command| command.name);
        let message = match suggest::nearest(name, names.clone()) {
            Some(near) => format!("is not a command; did you mean `{near}`?"),
            None => format!("is not a command; there are {} and help", names.collect::<Vec<_>>().join(", ")),
        };
        Problems::new(vec![Problem::new(name, message)], None)
    })
}

fn run(
    command: &'static CommandSpec,
    arguments: Vec<OsString>,
    environment: &Environment,
) -> Result<Command, Problems> {
    let arguments = args::split(command, arguments);
    if arguments.help {
        return Ok(Command::Print(help::command_help(command, help::width(environment))));
    }
    if arguments.version {
        return Ok(Command::Print(help::version()));
    }
    let mut problems = arguments.problems;
    let file = if command.reads_config_file {
        let flag = arguments.given.iter().rfind(|given| given.spec.name == table::CONFIG);
        let path = flag.map(|given| given.text.as_str());
        match path.or_else(|| environment.get(&OptionSpec::roost_env(&table::CONFIG_OPTION))) {
            Some(path) => FileValues::load(command, path, &mut problems),
            None => FileValues::default(),
        }
    } else {
        FileValues::default()
    };

    let mut resolved = resolve::resolve(command, &arguments.given, environment, &file);
    if command.name == table::SERVE.name {
        serve::apply_presets(&mut resolved);
        serve::check(&mut resolved);
    }
    serve::check_discovery(&mut resolved);
    problems.append(&mut resolved.problems);
    if !problems.is_empty() {
        return Err(Problems::new(problems, Some(command.name)));
    }
    let dump = resolved.value(table::DUMP_CONFIG) == Some(&Value::Switch(true));
    let notices = std::mem::take(&mut resolved.notices);
    let (values, effective) = resolved.finish();
    if dump {
        return Ok(Command::Print(effective.to_toml()));
    }
    Ok(match command.name {
        "worker" => Command::Worker(Box::new(worker::build(&values, effective, notices)?)),
        "mock-worker" => Command::MockWorker(Box::new(mock_worker::build(&values, effective, notices))),
        "replay-routing" => Command::Replay(Box::new(replay::build(&values, environment)?)),
        "bench" => Command::Bench(Box::new(bench::build(&values)?)),
        "explain" => Command::Explain(questions::explain(&values)),
        "top" => Command::Top(questions::top(&values)),
        "demo" => Command::Demo(Box::new(demo::build(&values, effective, notices))),
        _ => Command::Serve(Box::new(serve::build(&values, effective, notices))),
    })
}
