//! Completions for shells and the manual page, from the table.

use std::fmt::Write as _;

use crate::help;
use crate::spec::{CommandSpec, Kind, OptionSpec};
use crate::table;

/// Shells for which there are completions.
pub(crate) const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Completions for `bash`, `zsh` or `fish`; `None` for another shell.
pub fn completions(shell: &str) -> Option<String> {
    Some(match shell {
        "bash" => bash(),
        "zsh" => zsh(),
        "fish" => fish(),
        _ => return None,
    })
}

/// Options of a command, `check` having those of `serve`, too.
fn options(command: &'static CommandSpec) -> impl Iterator<Item = &'static OptionSpec> {
    let more = (command.name == table::CHECK.name).then(|| table::SERVE.options());
    command.options().chain(more.into_iter().flatten()).filter(|spec| table::is_supported(spec))
}

/// Words that are no command of the table.
const OTHERS: &str = "replay completions man help";

fn commands() -> String {
    let names: Vec<&str> = table::COMMANDS.iter().map(|command| command.name).collect();
    format!("{} {OTHERS}", names.join(" "))
}

/// Values that an option has, if they can be listed.
fn values(spec: &OptionSpec) -> Option<String> {
    match spec.kind {
        Kind::Choice { accepted, .. } => Some(accepted.join(" ")),
        _ => None,
    }
}

fn bash() -> String {
    let mut text = String::from(
        "# bash completion for roost\n_roost() {\n  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=serve word\n  \
         for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    case $word in -*) ;; *) command=$word; break ;; esac\n  done\n  [[ $command == replay ]] && command=bench\n  case $command:$before in\n",
    );
    for command in table::COMMANDS {
        for spec in options(command) {
            if let Some(values) = values(spec) {
                let _infallible = writeln!(
                    text,
                    "    {}:--{}) COMPREPLY=($(compgen -W '{values}' -- \"$current\")); return ;;",
                    command.name, spec.name
                );
            } else if matches!(spec.kind, Kind::Path) {
                let _infallible = writeln!(
                    text,
                    "    {}:--{}) COMPREPLY=($(compgen -f -- \"$current\")); return ;;",
                    command.name, spec.name
                );
            }
        }
    }
    let _infallible = writeln!(
        text,
        "    completions:completions) COMPREPLY=($(compgen -W '{}' -- \"$current\")); return ;;\n  esac",
        SHELLS.join(" ")
    );
    let _infallible = writeln!(
        text,
        "  if [[ $COMP_CWORD == 1 && $current != -* ]]; then\n    COMPREPLY=($(compgen -W '{}' -- \"$current\"))\n    return\n  fi\n  case $command in",
        commands()
    );
    for command in table::COMMANDS {
        let flags: Vec<String> = options(command).flat_map(flags).collect();
        let _infallible = writeln!(
            text,
            "    {}) COMPREPLY=($(compgen -W '{} --help' -- \"$current\")) ;;",
            command.name,
            flags.join(" ")
        );
    }
    text.push_str("  esac\n}\ncomplete -o default -F _roost roost\n");
    text
}

fn flags(spec: &OptionSpec) -> Vec<String> {
    match spec.kind {
        Kind::Switch => vec![format!("--{}", spec.name), format!("--no-{}", spec.name)],
        _ => vec![format!("--{}", spec.name)],
    }
}

fn zsh() -> String {
    let mut text = String::from(
        "#compdef roost\n# zsh completion for roost\n_roost() {\n  local -a commands\n  commands=(\n",
    );
    for command in table::COMMANDS {
        let _infallible = writeln!(text, "    '{}:{}'", command.name, quoted(command.about));
    }
    text.push_str(
        "    'completions:Print completions for a shell.'\n    'man:Print the manual page.'\n    'help:Help on a command.'\n  )\n  \
         if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n    _describe command commands\n    return\n  fi\n  \
         local command=$words[2]\n  [[ $command == -* ]] && command=serve\n  [[ $command == replay ]] && command=bench\n  case $command in\n",
    );
    for command in table::COMMANDS {
        let _infallible = write!(text, "    {}) _arguments", command.name);
        for spec in options(command) {
            let about =
                quoted(first_sentence(spec.help)).replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
            let value = match spec.kind {
                Kind::Switch => {
                    let _infallible = write!(text, " \\\n      '--no-{}[not: {about}]'", spec.name);
                    String::new()
                }
                Kind::Path => ":path:_files".to_owned(),
                Kind::Choice { accepted, .. } => format!(":value:({})", accepted.join(" ")),
                _ => ":value:".to_owned(),
            };
            let _infallible = write!(text, " \\\n      '--{}[{about}]{value}'", spec.name);
        }
        text.push_str(" ;;\n");
    }
    let _infallible =
        writeln!(text, "    completions) _values shell {} ;;\n  esac\n}}\n_roost \"$@\"", SHELLS.join(" "));
    text
}

fn fish() -> String {
    let mut text = String::from("# fish completion for roost\n");
    let none = format!("not __fish_seen_subcommand_from {}", commands());
    for command in table::COMMANDS {
        let _infallible = writeln!(
            text,
            "complete -c roost -f -n '{none}' -a {} -d '{}'",
            command.name,
            quoted(command.about)
        );
        let seen = match command.name {
            "serve" => format!("__fish_seen_subcommand_from serve; or {none}"),
            "bench" => "__fish_seen_subcommand_from bench replay".to_owned(),
            name => format!("__fish_seen_subcommand_from {name}"),
        };
        for spec in options(command) {
            let value = match spec.kind {
                Kind::Switch => String::new(),
                Kind::Path => " -r -F".to_owned(),
                Kind::Choice { accepted, .. } => format!(" -x -a '{}'", accepted.join(" ")),
                _ => " -x".to_owned(),
            };
            let about = quoted(first_sentence(spec.help));
            let _infallible =
                writeln!(text, "complete -c roost -n '{seen}' -l {}{value} -d '{about}'", spec.name);
        }
    }
    let _infallible = writeln!(
        text,
        "complete -c roost -f -n '__fish_seen_subcommand_from completions' -a '{}'",
        SHELLS.join(" ")
    );
    text
}

fn first_sentence(help: &str) -> &str {
    help.split_once(". ").map_or(help, |(first, _)| first).trim_end_matches('.')
}

/// Inside single quotes.
fn quoted(text: &str) -> String {
    text.replace('\\', "").replace('\'', "’").replace('`', "")
}

/// The manual page, in roff.
pub fn manual() -> String {
    let mut text = format!(
        ".TH ROOST 1 \"\" \"roost {}\" \"User Commands\"\n.SH NAME\nroost \\- session-affinity, KV-aware router and \
         OpenAI-compatible server for SGLang workers\n.SH SYNOPSIS\n.B roost\n[\\fIcommand\\fR] [\\fIoptions\\fR]\n.SH DESCRIPTION\n{}\n\
         Without a command, options are those of \\fBserve\\fR.\n",
        env!("CARGO_PKG_VERSION"),
        roff(table::ABOUT)
    );
    text.push_str(
        "A flag wins over a variable, a variable over the configuration file, the file over the default.\nEvery option has a \
         variable of its own, ROOST_ and its name in upper case with underscores.\n.SH COMMANDS\n",
    );
    for command in table::COMMANDS {
        let _infallible = writeln!(text, ".TP\n\\fB{}\\fR\n{}", roff(command.name), roff(command.about));
    }
    text.push_str(
        ".TP\n\\fBcompletions\\fR bash|zsh|fish\nPrint completions for a shell.\n.TP\n\\fBman\\fR\nPrint this page.\n.TP\n\\fBhelp\\fR \
         [\\fIcommand\\fR]\nHelp on a command.\n",
    );
    for command in table::COMMANDS {
        let _infallible = writeln!(text, ".SH OPTIONS OF {}", command.name.to_uppercase());
        if command.name == table::CHECK.name {
            text.push_str("All options of \\fBserve\\fR, and:\n");
        }
        for spec in command.options().filter(|spec| table::is_supported(spec)) {
            let _infallible =
                writeln!(text, ".TP\n\\fB{}\\fR\n{}", roff(&help::usage(spec)), roff(spec.help));
            let facts = help::facts(spec);
            if !facts.is_empty() {
                let _infallible = writeln!(text, "{}", roff(&facts));
            }
        }
    }
    text.push_str(
        ".SH EXIT STATUS\n.TP\n0\nSuccess; after a signal, every answer could end.\n.TP\n1\nSomething failed: \\fBcheck\\fR found a \
         problem, an answer had to be cut at the end of the drain, a server could not be reached.\n.TP\n2\nThe command line, a \
         variable or the configuration file is wrong; all mistakes are named.\n.SH FILES\n.TP\n/etc/roost/roost.toml\n\
         Configuration of the packaged service.\n",
    );
    text
}

fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('`', "");
    // A point or an apostrophe at the beginning of a line would be a request.
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
