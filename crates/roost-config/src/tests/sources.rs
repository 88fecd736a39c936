//! Which source sets an option.

use std::{path::PathBuf, time::Duration};

use super::serve;
use crate::{
    Command, DiscoveryBackend, Environment, NamespaceFilter, Source, file::FileValues, parse,
    problem::Problem, table,
};

fn origin(serve: &crate::Serve, name: &str) -> Option<Source> {
    serve.effective.get(name).map(|entry| entry.source.clone())
}

#[test]
fn flag_then_our_variable_then_dynamos_then_default() {
    let both = [("DYN_HTTP_PORT", "1"), ("ROOST_HTTP_PORT", "2")];
    let flag = serve("serve --http-port 3", &both);
    assert_eq!((flag.http.port, origin(&flag, "http-port")), (3, Some(Source::Flag("--http-port".into()))));
    let ours = serve("serve", &both);
    assert_eq!(
        (ours.http.port, origin(&ours, "http-port")),
        (2, Some(Source::Variable("ROOST_HTTP_PORT".into())))
    );
    let dynamos = serve("serve", &both[..1]);
    assert_eq!(dynamos.http.port, 1);
    assert_eq!(origin(&serve("serve", &[]), "http-port"), Some(Source::Default));
}

#[test]
fn of_two_names_of_a_variable_the_newer_counts() {
    let both = [("DYN_USE_KV_EVENTS", "true"), ("DYN_ROUTER_USE_KV_EVENTS", "0")];
    assert!(!serve("serve", &both).router.kv_events);
    assert!(!serve("serve", &[("DYN_USE_KV_EVENTS", "off")]).router.kv_events);
}

#[test]
fn the_last_of_repeated_flags_counts() {
    assert_eq!(serve("serve --http-port 1 --http-port=2", &[]).http.port, 2);
    assert!(serve("serve --no-kv-events --router-kv-events", &[]).router.kv_events);
}

#[test]
fn a_stronger_source_hides_a_mistake_in_a_weaker_one() {
    assert_eq!(serve("serve --http-port 1", &[("DYN_HTTP_PORT", "many")]).http.port, 1);
}

#[test]
fn an_empty_variable_is_unset_and_none_unsets_a_number() {
    let empty = serve("serve", &[("DYN_HTTP_PORT", ""), ("DYN_NAMESPACE", "")]);
    assert_eq!((empty.http.port, empty.discovery.namespaces), (8000, NamespaceFilter::All));
    let none = serve(
        "serve --router-session-affinity-ttl-secs None",
        &[("DYN_ROUTER_SESSION_AFFINITY_TTL_SECS", "3600"), ("DYN_KV_CACHE_BLOCK_SIZE", "None")],
    );
    assert_eq!((none.router.affinity.decode_ttl, none.router.block_size), (None, None));
}

#[test]
fn a_kubernetes_service_link_is_not_a_port() {
    assert_eq!(serve("serve", &[("ROOST_HTTP_PORT", "tcp://10.1.2.3:80")]).http.port, 8000);
}

#[test]
fn the_beginning_of_a_flag_is_enough() {
    let short = serve("serve --router-session-affinity-t 60 --no-router-kv-e", &[]);
    assert_eq!(short.router.affinity.decode_ttl, Some(Duration::from_secs(60)));
    assert!(!short.router.kv_events);
}

#[test]
fn zero_turns_a_wait_off() {
    let off = serve(
        "serve --http-sse-keep-alive-interval-ms 0 --prologue-timeout-secs 0 --max-inflight 0",
        &[("DYN_RUNTIME_INHIBITED_DURATION_SECS", "0"), ("DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS", "0")],
    );
    assert_eq!(off.http.keep_alive_interval, None);
    assert_eq!(off.http.backend_stream_timeout, None);
    assert_eq!(off.plane.prologue_timeout, None);
    assert_eq!(off.limits.max_inflight, None);
    assert_eq!(off.router.quarantine, None);
}

#[test]
fn values_with_units() {
    let units = serve(
        "serve --tcp-max-message-size 64MiB --http-body-limit-mb 100MB --tcp-connect-timeout 250ms \
         --discovery-poll-interval-ms 2s",
        &[],
    );
    assert_eq!(units.plane.max_message_bytes, 64 << 20);
    assert_eq!(units.http.body_limit_bytes, 100_000_000);
    assert_eq!(units.plane.connect_timeout, Duration::from_millis(250));
    assert_eq!(units.discovery.poll_interval, Duration::from_secs(2));
}

#[test]
fn the_folder_of_the_file_backend_follows_tmpdir() {
    let folder =
        |environment: &[(&str, &str)]| serve("serve --discovery-backend file", environment).discovery.backend;
    assert_eq!(
        folder(&[("TMPDIR", "/scratch/")]),
        DiscoveryBackend::File(PathBuf::from("/scratch/dynamo_store_kv"))
    );
    assert_eq!(folder(&[("DYN_FILE_KV", "/kv")]), DiscoveryBackend::File(PathBuf::from("/kv")));
}

#[test]
fn the_namespace_prefix_wins() {
    let both = serve("serve --namespace a --namespace-prefix b", &[]);
    assert_eq!(both.discovery.namespaces, NamespaceFilter::Prefix("b".into()));
    assert_eq!(both.notices, ["--namespace has no effect: --namespace-prefix wins"]);
}

#[test]
fn a_file_is_weaker_than_a_variable_and_stronger_than_the_default() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("roost.toml");
    let text = "[http]\nhttp-port = 9000\nhttp-host = \"127.0.0.1\"\n\n[router]\nrouter-mode = \"kv\"\n\
                router-temperature = 0.5\nrouter-kv-events = false\n";
    std::fs::write(&path, text).expect("a written file");
    let environment = Environment::from_iter([
        ("ROOST_CONFIG", path.to_str().expect("a path in UTF-8")),
        ("DYN_ROUTER_MODE", "random"),
    ]);
    let Ok(Command::Serve(read)) = parse(["serve", "--router-temperature", "2"], &environment) else {
        panic!("the file is right");
    };
    assert_eq!(read.http.port, 9000);
    assert_eq!(read.http.host.to_string(), "127.0.0.1");
    assert_eq!(read.router.mode, crate::RouterMode::Random);
    assert_eq!(read.router.cost.temperature, 2.0);
    assert!(!read.router.kv_events);
    let port = origin(&read, "http-port").map(|source| source.to_string());
    assert_eq!(port, Some(format!("{}:2", path.display())));
}

#[test]
fn mistakes_in_a_file_name_file_and_line() {
    let check = |text: &str| {
        let mut problems: Vec<Problem> = Vec::new();
        FileValues::parse(&table::SERVE, "roost.toml", text, &mut problems);
        problems
            .into_iter()
            .map(|problem| format!("{}: {}", problem.subject, problem.message))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        check(
            "[htp]\n\n[http]\nhttp-prot = 1\nrouter-mode = \"kv\"\nstrict-fields = []\n\n[general]\nconfig = \"x\"\n"
        ),
        [
            "roost.toml:1: `htp` is not a section; did you mean `[http]`?",
            "roost.toml:4: `http-prot` is not an option; did you mean `http-port`?",
            "roost.toml:5: `router-mode` belongs to `[router]`",
            "roost.toml:6: `strict-fields` must be a text, a decimal number or true or false",
            "roost.toml:9: `config` cannot be set in a file",
        ]
    );
    let syntax = check("[http]\nhttp-port 1\n");
    assert!(syntax.len() == 1 && syntax[0].starts_with("roost.toml:2: "), "{syntax:?}");
}

#[test]
fn a_wrong_value_in_a_file_names_file_and_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("roost.toml");
    std::fs::write(&path, "[http]\n\nhttp-port = 99999\n").expect("a written file");
    let name = path.to_str().expect("a path in UTF-8");
    let problems =
        parse(["serve", "--config", name], &Environment::default()).expect_err("the port is too large");
    let problem = problems.iter().next().expect("one problem");
    assert_eq!(problem.subject, format!("{name}:3"));
    assert_eq!(problem.message, "`99999` is not a whole number from 0 to 65535");

    let missing = folder.path().join("missing.toml");
    let name = missing.to_str().expect("a path in UTF-8");
    let problems =
        parse(["serve", "--config", name], &Environment::default()).expect_err("there is no such file");
    assert!(problems.to_string().contains("cannot be read"), "{problems}");
}

#[test]
fn explain_takes_its_question_without_a_flag() {
    let parse = |line: &str| crate::parse(line.split(' '), &Environment::default());
    for line in ["explain s-1 --url http://r:1", "explain --id s-1 --url=http://r:1"] {
        let Ok(Command::Explain(options)) = parse(line) else { panic!("{line}") };
        assert_eq!(
            (options.id.as_deref(), &*options.frontend.url, options.limit),
            (Some("s-1"), "http://r:1", 8)
        );
    }
    let Ok(Command::Explain(options)) = parse("explain") else { panic!("no question is one too") };
    assert_eq!(options.id, None);
    let problems = parse("demo s-1").unwrap_err().to_string();
    assert!(problems.contains("s-1: is not expected"), "{problems}");
}
