//! Arguments to named texts.

use std::ffi::OsString;

use crate::{
    problem::Problem,
    spec::{CommandSpec, Kind, OptionSpec},
    suggest, table,
};

/// One option on the command line, not yet read as a value.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) spec: &'static OptionSpec,
    /// The flag as it was written, without its value.
    pub(crate) flag: String,
    pub(crate) text: String,
}

/// The arguments after the command.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) given: Vec<Given>,
    pub(crate) help: bool,
    pub(crate) version: bool,
    pub(crate) problems: Vec<Problem>,
}

/// Splits arguments: `--flag value`, `--flag=value`, `--x`, `--no-x`, and unambiguous beginnings of a flag, which
/// Dynamo accepts too. Never stops at a mistake.
pub(crate) fn split(command: &'static CommandSpec, arguments: Vec<OsString>) -> Arguments {
    let mut result = Arguments::default();
    let mut texts = Vec::with_capacity(arguments.len());
    for argument in arguments {
        match argument.into_string() {
            Ok(text) => texts.push(text),
            Err(argument) => {
                result.problems.push(Problem::new(argument.to_string_lossy(), "is not UTF-8"));
            }
        }
    }
    let mut rest = texts.into_iter().peekable();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--help" | "-h" => result.help = true,
            "--version" | "-V" => result.version = true,
            _ => match argument.strip_prefix("--") {
                Some(body) if !body.is_empty() => {
                    let (name, attached) = match body.split_once('=') {
                        Some((name, value)) => (name, Some(value.to_owned())),
                        None => (body, None),
                    };
                    let mut next = || rest.next_if(|next| !next.starts_with("--"));
                    match find(command, name) {
                        Ok(found) => result.take(found, name, attached, next),
                        Err(message) => {
                            // What follows is most likely its value: one mistake, one message.
                            if attached.is_none() {
                                next();
                            }
                            result.problems.push(Problem::new(format!("--{name}"), message));
                        }
                    }
                }
                _ => match command.positional.and_then(|name| find(command, name).ok()) {
                    Some(found) => result.given.push(Given {
                        spec: found.spec,
                        flag: format!("--{}", found.spec.name),
                        text: argument,
                    }),
                    None => result.problems.push(Problem::new(
                        argument,
                        format!("is not expected; options of `roost {}` begin with `--`", command.name),
                    )),
                },
            },
        }
    }
    result
}

/// A flag that was recognised.
#[derive(Debug, Clone, Copy)]
struct Found {
    spec: &'static OptionSpec,
    negated: bool,
}

impl Arguments {
    fn take(
        &mut self,
        found: Found,
        name: &str,
        attached: Option<String>,
        mut next: impl FnMut() -> Option<String>,
    ) {
        let flag = format!("--{name}");
        let text = match (found.spec.kind, found.negated, attached) {
            (Kind::Switch, true, Some(_)) => {
                self.problems.push(Problem::new(flag, "takes no value"));
                return;
            }
            (Kind::Switch, true, None) => "false".to_owned(),
            (Kind::Switch, false, None) => "true".to_owned(),
            (_, _, Some(attached)) => attached,
            (kind, _, None) => match next() {
                Some(value) if matches!(kind, Kind::Words) => {
                    std::iter::once(value).chain(std::iter::from_fn(next)).collect::<Vec<_>>().join(" ")
                }
                Some(value) => value,
                None => {
                    let accepted = crate::value::describe(found.spec.kind);
                    self.problems.push(Problem::new(flag, format!("needs a value: {accepted}")));
                    return;
                }
            },
        };
        self.given.push(Given { spec: found.spec, flag, text });
    }
}

/// The option a flag means. The error says why there is none.
fn find(command: &'static CommandSpec, name: &str) -> Result<Found, String> {
    let mut beginnings: Vec<(String, Found)> = Vec::new();
    for (spelling, found) in spellings(command) {
        if spelling == name {
            return Ok(found);
        }
        if spelling.starts_with(name) {
            beginnings.push((spelling, found));
        }
    }
    match beginnings.as_slice() {
        [] => Err(unknown(command, name)),
        [(_, only), others @ ..]
            if others
                .iter()
                .all(|(_, other)| other.spec.name == only.spec.name && other.negated == only.negated) =>
        {
            Ok(*only)
        }
        several => {
            let names: Vec<String> = several.iter().map(|(spelling, _)| format!("--{spelling}")).collect();
            Err(format!("could be {}", names.join(", ")))
        }
    }
}

fn spellings(command: &'static CommandSpec) -> impl Iterator<Item = (String, Found)> {
    command.options().flat_map(|spec| {
        spec.flag_names().flat_map(move |name| {
            let negated = matches!(spec.kind, Kind::Switch)
                .then(|| (format!("no-{name}"), Found { spec, negated: true }));
            std::iter::once((name.to_owned(), Found { spec, negated: false })).chain(negated)
        })
    })
}

fn unknown(command: &'static CommandSpec, name: &str) -> String {
    let owner = table::COMMANDS
        .iter()
        .find(|other| other.name != command.name && spellings(other).any(|(spelling, _)| spelling == name));
    if let Some(owner) = owner {
        return format!("is an option of `roost {}`, not of `roost {}`", owner.name, command.name);
    }
    let known: Vec<String> = spellings(command).map(|(spelling, _)| spelling).collect();
    match suggest::nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("is not known; did you mean `--{near}`?"),
        None => "is not known".to_owned(),
    }
}
