//! `--help`: grouped, wrapped, from the table.

use std::fmt::Write as _;

use crate::{
    environment::Environment,
    spec::{CommandSpec, Kind, OptionSpec, Status},
    table,
};

/// Column at which descriptions begin.
const INDENT: usize = 8;

/// Lines are at least and at most this wide, whatever the terminal says.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=110;

/// Help on the program: its commands.
pub fn general_help() -> String {
    let mut text = format!(
        "{}\n\nusage: roost <command> [options]\n       roost [options of serve]\n\ncommands:\n",
        table::ABOUT
    );
    for command in table::COMMANDS {
        let _ = writeln!(text, "  {:<12} {}", command.name, command.about);
    }
    let _ = write!(
        text,
        "  {:<12} Print completions for bash, zsh or fish.\n  {:<12} Print the manual page.\n  {:<12} Help on a command.\n\n  --version    Print the version.\n  --help       This text; after a command, \
         its options.\n",
        "completions", "man", "help"
    );
    text
}

/// Help on a command: every option that does something, then the names of those that are accepted without effect
/// or refused. `width` is the width of a line in characters.
pub fn command_help(command: &CommandSpec, width: usize) -> String {
    let mut text = String::new();
    wrap(&mut text, command.about, 0, width);
    let _ = write!(text, "\nusage: roost {} [options]\n\n", command.name);
    wrap(
        &mut text,
        "A flag wins over a variable, a variable over the configuration file, the file over the default. Every \
         option also has a variable of its own, ROOST_ and its name in upper case, which wins over the one of \
         Dynamo.",
        0,
        width,
    );
    for section in command.sections {
        if section.options.iter().all(|spec| spec.status != Status::Supported) {
            continue;
        }
        let _ = writeln!(text, "\n{}:", section.title);
        for spec in section.options.iter().filter(|spec| spec.status == Status::Supported) {
            let _ = writeln!(text, "  {}", usage(spec));
            wrap(&mut text, spec.help, INDENT, width);
            let facts = facts(spec);
            if !facts.is_empty() {
                wrap(&mut text, &facts, INDENT, width);
            }
        }
    }
    names(&mut text, command, width, "Accepted without effect", |status| {
        matches!(status, Status::NoEffect(_))
    });
    names(&mut text, command, width, "Refused unless at its default", |status| {
        matches!(status, Status::Refused(_))
    });
    text
}

/// The name and version of the program, as `--version` prints it.
pub(crate) fn version() -> String {
    format!("roost {}", env!("CARGO_PKG_VERSION"))
}

/// Width of help lines, from `COLUMNS`.
pub(crate) fn width(environment: &Environment) -> usize {
    let columns = environment.get("COLUMNS").and_then(|columns| columns.parse().ok());
    columns.unwrap_or(100).clamp(*WIDTHS.start(), *WIDTHS.end())
}

pub(crate) fn usage(spec: &OptionSpec) -> String {
    let value = match spec.kind {
        Kind::Switch => return format!("--{0}, --no-{0}", spec.name),
        Kind::Integer { .. } => "N",
        Kind::Number { .. } => "X",
        Kind::Duration { .. } => "DURATION",
        Kind::Bytes { .. } => "SIZE",
        Kind::Text => "TEXT",
        Kind::Texts => "TEXT ...",
        Kind::Words => "WORD ...",
        Kind::Path => "PATH",
        Kind::Ip => "ADDRESS",
        Kind::Choice { accepted, .. } => return format!("--{} {}", spec.name, accepted.join("|")),
    };
    format!("--{} {value}", spec.name)
}

pub(crate) fn facts(spec: &OptionSpec) -> String {
    let mut facts = Vec::new();
    if !spec.env.is_empty() {
        facts.push(format!("variable: {}", spec.env.join(", ")));
    }
    if let Some(default) = spec.default {
        facts.push(format!("default: {default}"));
    }
    if let Some(dynamo) = spec.dynamo_default {
        facts.push(format!("Dynamo's default: {dynamo}"));
    }
    if facts.is_empty() { String::new() } else { format!("[{}]", facts.join("; ")) }
}

fn names(text: &mut String, command: &CommandSpec, width: usize, title: &str, which: fn(Status) -> bool) {
    let names: Vec<String> =
        command.options().filter(|spec| which(spec.status)).map(|spec| format!("--{}", spec.name)).collect();
    if !names.is_empty() {
        let _ = writeln!(text, "\n{title} (reasons are in docs/options.md):");
        wrap(text, &names.join(", "), 2, width);
    }
}

/// Appends `words`, broken at spaces into lines of at most `width` characters that begin with `indent` spaces.
pub(crate) fn wrap(text: &mut String, words: &str, indent: usize, width: usize) {
    let mut column = 0;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            text.push('\n');
            column = 0;
        }
        if column == 0 {
            text.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}
