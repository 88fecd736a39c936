//! The reference document and the commented configuration file, from the table.

use std::fmt::Write as _;

use crate::{
    effective::quote,
    help,
    spec::{CommandSpec, Kind, OptionSpec, Status},
    table,
    value::describe,
};

/// `docs/options.md`: every option of every command.
pub fn options_document() -> String {
    let mut text = String::from(
        "# Options\n\n<!-- Generated from the option table of roost-config. Change the table and run \
         `UPDATE_EXPECT=1 cargo test -p roost-config`. -->\n\n",
    );
    help::wrap(
        &mut text,
        "A flag wins over a variable, a variable over the configuration file, the file over the default. Every option \
         has a variable of its own: `ROOST_` and its name in upper case with underscores, `ROOST_HTTP_PORT` for \
         `--http-port`. It wins over Dynamo's variable for the same option, which is listed here. An empty variable is \
         an unset one.",
        0,
        usize::MAX,
    );
    text.push('\n');
    help::wrap(
        &mut text,
        "Flags are written `--name value` or `--name=value`; switches `--name` and `--no-name`. `None` unsets a number, \
         a duration or a choice that has no default. Durations and sizes are bare numbers in the stated unit or carry \
         one: `500ms`, `2h`, `45MiB`. An unambiguous beginning of a flag is enough. All mistakes are reported \
         together; the exit code is then 2.",
        0,
        usize::MAX,
    );
    text.push_str(
        "\nStatus: **works**; **no effect**: accepted with any value, says so once at start; **refused**: the \
         process does not start unless the value is the default.\n",
    );
    for command in table::COMMANDS {
        let _ = write!(text, "\n## `roost {}`\n\n{}\n", command.name, command.about);
        for section in command.sections {
            let _ = writeln!(text, "\n### {}\n", section.title);
            if command.reads_config_file {
                let _ = writeln!(text, "Section `[{}]` of the configuration file.\n", section.key);
            }
            text.push_str("| Flag | Variable | Value | Default | Meaning | Status |\n| --- | --- | --- | --- | --- | --- |\n");
            for spec in section.options {
                row(&mut text, spec);
            }
        }
    }
    text
}

/// `config/roost.toml`: every option of `roost serve` that works, commented out at its default.
pub fn configuration_file() -> String {
    let mut text = String::from(
        "# Configuration of `roost serve`, read with --config FILE or ROOST_CONFIG.\n# Every option at its default; \
         flags and variables win over this file.\n# Generated from the option table of roost-config.\n",
    );
    let command: &CommandSpec = &table::SERVE;
    for section in command.sections {
        let mut options = section
            .options
            .iter()
            .filter(|spec| table::is_supported(spec) && !table::is_about_the_file(spec))
            .peekable();
        if options.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "\n[{}]", section.key);
        for spec in options {
            text.push('\n');
            let mut comment = String::new();
            help::wrap(&mut comment, spec.help, 0, 108);
            let accepted = describe(spec.kind);
            help::wrap(&mut comment, &format!("Accepted: {accepted}."), 0, 108);
            for line in comment.lines() {
                let _ = writeln!(text, "# {line}");
            }
            let _ = match spec.default {
                Some(default) if is_bare(spec.kind) => writeln!(text, "#{} = {default}", spec.name),
                Some(default) => writeln!(text, "#{} = {}", spec.name, quote(default)),
                None => writeln!(text, "#{} =", spec.name),
            };
        }
    }
    text
}

/// Whether a default is written without quotes.
fn is_bare(kind: Kind) -> bool {
    !matches!(kind, Kind::Text | Kind::Texts | Kind::Words | Kind::Path | Kind::Ip | Kind::Choice { .. })
}

fn row(text: &mut String, spec: &OptionSpec) {
    let mut flags = match spec.kind {
        Kind::Switch => format!("`--{0}`, `--no-{0}`", spec.name),
        _ => format!("`--{}`", spec.name),
    };
    for alias in spec.aliases {
        let _ = write!(flags, ", `--{alias}`");
    }
    let variables: Vec<String> = spec.env.iter().map(|name| format!("`{name}`")).collect();
    let mut default = spec.default.map_or_else(|| "unset".to_owned(), |default| format!("`{default}`"));
    if let Some(dynamo) = spec.dynamo_default {
        let _ = write!(default, " (Dynamo: {dynamo})");
    }
    let mut accepted = describe(spec.kind);
    if let Kind::Choice { unavailable, .. } = spec.kind {
        for (word, reason) in unavailable {
            let _ = write!(accepted, "; `{word}` {reason}");
        }
    }
    let status = match spec.status {
        Status::Supported => "works".to_owned(),
        Status::NoEffect(reason) => format!("no effect: {reason}"),
        Status::Refused(reason) => format!("refused: {reason}"),
    };
    let variables = if variables.is_empty() { "—".to_owned() } else { variables.join(", ") };
    let cells = [flags, variables, accepted, default, spec.help.to_owned(), status];
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}
