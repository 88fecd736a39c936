//! Help, reference and files made from the table.

use expect_test::{expect, expect_file};

use super::{printed, serve};
use crate::{
    Command, Environment, command_help, configuration_file, file::FileValues, general_help, options_document,
    parse, table,
};

#[test]
fn the_reference_document_is_current() {
    expect_file!["../../../../docs/options.md"].assert_eq(&options_document());
}

#[test]
fn the_configuration_file_is_current() {
    expect_file!["../../../../config/roost.toml"].assert_eq(&configuration_file());
}

#[test]
fn the_configuration_file_with_every_default_uncommented_changes_nothing() {
    let text: String = configuration_file()
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(option) if !option.starts_with(' ') && !option.ends_with('=') => format!("{option}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let mut problems = Vec::new();
    let file = FileValues::parse(&table::SERVE, "roost.toml", &text, &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    for spec in table::SERVE.options().filter(|spec| table::is_supported(spec)) {
        let default = spec.default.filter(|_| !table::is_about_the_file(spec));
        assert_eq!(file.get(spec.name).map(|(text, _)| text), default, "{}", spec.name);
    }
}

#[test]
fn the_dumped_configuration_reads_back_as_the_same() {
    let line = "serve --router-mode kv --router-session-affinity-ttl-secs 14400 --namespace a\"b --http-host ::1 \
                --router-temperature 0.5 --no-router-kv-events --tcp-connect-timeout 1500ms";
    let dumped = printed(&format!("{line} --dump-config"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("roost.toml");
    std::fs::write(&path, &dumped).expect("a written file");
    let arguments = ["serve", "--config", path.to_str().expect("a path in UTF-8")];
    let read = match parse(arguments, &Environment::default()) {
        Ok(Command::Serve(read)) => read,
        other => panic!("the dump is a right file, but: {other:?}"),
    };
    let values = |serve: &crate::Serve| {
        serve.effective.iter().map(|entry| (entry.name, entry.value.clone())).collect::<Vec<_>>()
    };
    assert_eq!(values(&read), values(&serve(line, &[])));
    assert!(dumped.contains("router-mode = \"kv\" # --router-mode\n"), "{dumped}");
    assert!(dumped.contains("http-port = 8000 # default\n"), "{dumped}");
}

#[test]
fn general_help_names_the_commands() {
    expect![[r#"
        roost: a session-affinity, KV-aware router and OpenAI-compatible server in front of Dynamo workers.

        usage: roost <command> [options]
               roost [options of serve]

        commands:
          serve        Serve the OpenAI-compatible API in front of discovered workers.
          check        See whether `roost serve` with the same options would serve: ports, store, workers, models. Takes its options, too.
          worker       Put a plain SGLang server on the worker plane, for roost and for Dynamo frontends.
          mock-worker  Run workers that behave like an engine's, without a model, for trials and tests.
          demo         Run a frontend and mock workers in one process and show a conversation.
          explain      Ask a running frontend why a request or the turns of a session went where they went.
          top          Show the workers, sessions and alarms of a running frontend in the terminal.
          replay-routing Run a recorded or generated trace through the router over a simulated fleet, with any sets of options.
          bench        Replay agent sessions against OpenAI endpoints and measure them side by side; also called `replay`.
          completions  Print completions for bash, zsh or fish.
          man          Print the manual page.
          help         Help on a command.

          --version    Print the version.
          --help       This text; after a command, its options.
    "#]]
    .assert_eq(&general_help());
    assert_eq!(printed(""), general_help());
    assert_eq!(printed("--help"), general_help());
    assert_eq!(printed("help"), general_help());
}

#[test]
fn help_of_a_command() {
    expect![[r#"
        Run a frontend and mock workers in one process and show a conversation.

        usage: roost demo [options]

        A flag wins over a variable, a variable over the configuration file, the file
        over the default. Every option also has a variable of its own, ROOST_ and its
        name in upper case, which wins over the one of Dynamo.

        Demonstration:
          --host ADDRESS
                Address to bind.
                [default: 127.0.0.1]
          --port N
                Port to bind; 0 takes a free one.
                [default: 8000]
          --workers N
                Mock workers to start.
                [default: 2]
          --once, --no-once
                Play the demonstration once and exit, instead of serving until stopped.
                [default: false]

        Logs:
          --log-filter TEXT
                What is logged, in the syntax of RUST_LOG: a level, or `target=level`
                pairs separated by commas.
                [variable: DYN_LOG; default: info]
          --log-jsonl, --no-log-jsonl
                One JSON object per line instead of text.
                [variable: DYN_LOGGING_JSONL; default: false]
          --log-console-format default|jsonl
                The same by another name: jsonl or default.
                [variable: DYN_LOGGING_CONSOLE_FORMAT; default: default]
          --log-disable-ansi, --no-log-disable-ansi
                No colour in text lines.
                [variable: DYN_SDK_DISABLE_ANSI_LOGGING; default: false]

        Accepted without effect (reasons are in docs/options.md):
          --log-use-local-tz

        Refused unless at its default (reasons are in docs/options.md):
          --log-span-events, --log-config-path
    "#]]
    .assert_eq(&command_help(&table::DEMO, 80));
    assert_eq!(printed("demo --port x --help"), printed("help demo"));
}

#[test]
fn help_of_serve_is_wrapped_and_complete() {
    let help = command_help(&table::SERVE, 100);
    for spec in table::SERVE.options() {
        assert!(help.contains(&format!("--{}", spec.name)), "{}", spec.name);
    }
    let long: Vec<_> = help
        .lines()
        .filter(|line| {
            line.chars().count() > 100 && line.trim_start().contains(' ') && !line.starts_with("  --")
        })
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn the_version() {
    assert_eq!(printed("--version"), format!("roost {}", env!("CARGO_PKG_VERSION")));
    assert_eq!(printed("serve --version"), printed("-V"));
}
