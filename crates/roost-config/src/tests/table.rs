//! The table as a whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Environment, Kind, Status, args,
    effective::Effective,
    file::FileValues,
    resolve, serve,
    spec::CommandSpec,
    table::{self, COMMANDS},
    value::Value,
    values::Values,
};

#[test]
fn every_default_is_a_value_of_its_kind() {
    for command in COMMANDS {
        for spec in command.options() {
            if let Some(default) = spec.default {
                let read = Value::parse(spec.kind, default);
                assert!(read.is_ok(), "{}: {read:?}", spec.name);
            }
            assert!(
                spec.default.is_some() || !matches!(spec.kind, Kind::Switch),
                "{}: a switch needs a default",
                spec.name
            );
        }
    }
}

#[test]
fn names_flags_and_variables_are_unique_in_a_command() {
    for command in COMMANDS {
        let mut flags = BTreeMap::new();
        let mut variables = BTreeMap::new();
        for spec in command.options() {
            for flag in spec.flag_names() {
                assert_eq!(flags.insert(flag, spec.name), None, "--{flag} twice in {}", command.name);
            }
            for variable in spec.env.iter().map(ToString::to_string).chain([spec.roost_env()]) {
                let before = variables.insert(variable.clone(), spec.name);
                assert_eq!(before, None, "{variable} twice in {}", command.name);
            }
        }
        let keys: BTreeSet<_> = command.sections.iter().map(|section| section.key).collect();
        assert_eq!(keys.len(), command.sections.len(), "a section key twice in {}", command.name);
    }
}

#[test]
fn texts_are_sentences() {
    for command in COMMANDS {
        for spec in command.options() {
            assert!(spec.help.ends_with('.'), "{}: {}", spec.name, spec.help);
            if let Status::NoEffect(reason) | Status::Refused(reason) = spec.status {
                assert!(!reason.ends_with('.') && !reason.is_empty(), "{}: {reason}", spec.name);
            }
        }
    }
}

/// The names a builder reads are exactly the supported options of its command: none is accepted and forgotten.
#[track_caller]
fn check_all_read(command: &'static CommandSpec, build: impl FnOnce(&Values)) {
    let arguments = args::split(command, Vec::new());
    let resolved =
        resolve::resolve(command, &arguments.given, &Environment::default(), &FileValues::default());
    let (values, _) = resolved.finish();
    build(&values);
    let mut supported: BTreeSet<String> =
        command.options().filter(|spec| table::is_supported(spec)).map(|spec| spec.name.to_owned()).collect();
    // Read where they act: before the values are there, as presets, or by having one accepted value only.
    for elsewhere in [
        "config",
        "dump-config",
        "load-aware",
        "router-kv-overlap-score-weight",
        "request-plane",
        "response-plane",
        "event-plane-codec",
    ] {
        supported.remove(elsewhere);
    }
    assert_eq!(values.names_read(), supported);
}

#[test]
fn every_supported_option_is_read() {
    check_all_read(&table::SERVE, |values| drop(serve::build(values, Effective::default(), Vec::new())));
    check_all_read(&table::MOCK_WORKER, |values| {
        drop(crate::mock_worker::build(values, Effective::default(), Vec::new()));
    });
    check_all_read(&table::WORKER, |values| {
        drop(crate::worker::build(values, Effective::default(), Vec::new()));
    });
    check_all_read(&table::BENCH, |values| drop(crate::bench::build(values)));
    check_all_read(&table::REPLAY, |values| {
        drop(crate::replay::build(values, &Environment::default()));
    });
    check_all_read(&table::DEMO, |values| drop(crate::demo::build(values, Effective::default(), Vec::new())));
}
