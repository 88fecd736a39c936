//! Which of flag, variable, file and default sets each option, and whether it may.

use std::borrow::Cow;

use crate::{
    args::Given,
    effective::{Effective, Entry, Source},
    environment::Environment,
    file::FileValues,
    problem::Problem,
    spec::{CommandSpec, Kind, OptionSpec, Section, Status},
    suggest, table,
    value::Value,
    values::Values,
};

/// The options of a command with a value each, and what there is to say about them.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    settings: Vec<Setting>,
    pub(crate) notices: Vec<String>,
    pub(crate) problems: Vec<Problem>,
}

#[derive(Debug)]
struct Setting {
    spec: &'static OptionSpec,
    section: &'static Section,
    value: Option<Value>,
    source: Source,
}

/// Stands for the value of a secret.
const NOT_SHOWN: &str = "(not shown)";

/// A text that something gave for an option, strongest source first.
struct Raw<'a> {
    text: Cow<'a, str>,
    source: Source,
}

/// Takes for each option the strongest source that sets it: flag, `ROOST_` variable, Dynamo's variable, file,
/// default. Values of weaker sources are not looked at.
pub(crate) fn resolve(
    command: &'static CommandSpec,
    given: &[Given],
    environment: &Environment,
    file: &FileValues,
) -> Resolved {
    let mut resolved = Resolved::default();
    for section in command.sections {
        for spec in section.options {
            let raw = strongest(spec, given, environment, file);
            resolved.add(section, spec, raw, environment);
        }
    }
    resolved.note_misspelt_variables(environment);
    resolved
}

fn strongest<'a>(
    spec: &'static OptionSpec,
    given: &'a [Given],
    environment: &'a Environment,
    file: &'a FileValues,
) -> Option<Raw<'a>> {
    let mut flags = given.iter().filter(|given| given.spec.name == spec.name);
    if let Some(last) = flags.clone().next_back() {
        let text = match spec.kind {
            Kind::Texts | Kind::Words => {
                let texts: Vec<&str> = flags.by_ref().map(|given| given.text.as_str()).collect();
                texts.join("\n").into()
            }
            _ => last.text.as_str().into(),
        };
        return Some(Raw { text, source: Source::Flag(last.flag.clone()) });
    }
    let roost = spec.roost_env();
    let names = std::iter::once(roost.as_str()).chain(spec.env.iter().copied());
    for name in names {
        if let Some(text) = environment.get(name) {
            return Some(Raw { text: text.into(), source: Source::Variable(name.to_owned()) });
        }
    }
    file.get(spec.name).map(|(text, line)| Raw {
        text: text.into(),
        source: Source::File { path: file.path().to_owned(), line },
    })
}

impl Resolved {
    fn add(
        &mut self,
        section: &'static Section,
        spec: &'static OptionSpec,
        raw: Option<Raw<'_>>,
        environment: &Environment,
    ) {
        let default = default_value(spec, environment);
        let Some(Raw { text, source }) = raw else {
            self.settings.push(Setting { spec, section, value: default, source: Source::Default });
            return;
        };
        let read = read(spec, &text);
        match spec.status {
            Status::Supported => match read {
                Ok(value) => self.settings.push(Setting { spec, section, value, source }),
                Err(message) => self.problems.push(Problem::new(source.to_string(), message)),
            },
            Status::NoEffect(reason) if read.as_ref() != Ok(&default) => {
                self.notices.push(format!("{source} has no effect: {reason}"));
            }
            Status::Refused(reason) if read.as_ref() != Ok(&default) => {
                let accepted = match spec.default {
                    Some(default) => format!("only `{default}` is accepted"),
                    None => "leave it unset".to_owned(),
                };
                let message = format!("{reason}: `{text}` is refused, {accepted}");
                self.problems.push(Problem::new(source.to_string(), message));
            }
            Status::NoEffect(_) | Status::Refused(_) => {}
        }
    }

    /// Whether something set the option.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.settings.iter().any(|setting| setting.spec.name == name && setting.source != Source::Default)
    }

    /// What set the option, if something did.
    pub(crate) fn source(&self, name: &str) -> Option<&Source> {
        let setting = self.settings.iter().find(|setting| setting.spec.name == name)?;
        Some(&setting.source).filter(|source| **source != Source::Default)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.settings.iter().find(|setting| setting.spec.name == name)?.value.as_ref()
    }

    /// Sets an option because another one, a preset, says so.
    pub(crate) fn imply(&mut self, by: &'static str, name: &str, value: Value) {
        if let Some(setting) = self.settings.iter_mut().find(|setting| setting.spec.name == name) {
            setting.value = Some(value);
            setting.source = Source::Implied(by);
        }
    }

    /// The values for a builder and the list for people. Options that change nothing are in neither.
    pub(crate) fn finish(self) -> (Values, Effective) {
        let mut values = Values::default();
        let mut entries = Vec::new();
        for Setting { spec, section, value, source } in self.settings {
            if spec.status != Status::Supported {
                continue;
            }
            let text = match &value {
                Some(_) if spec.secret => Some(NOT_SHOWN.to_owned()),
                value => value.as_ref().map(ToString::to_string),
            };
            let quoted = !matches!(value, Some(Value::Switch(_) | Value::Integer(_) | Value::Number(_)));
            values.insert(spec.name, value);
            if !table::is_about_the_file(spec) {
                entries.push(Entry {
                    name: spec.name,
                    section: section.key,
                    value: text,
                    quoted,
                    secret: spec.secret,
                    source,
                });
            }
        }
        (values, Effective::new(entries))
    }

    /// A variable of our own name space that no option has, close to one that exists, is a typo. Others are left
    /// alone: Kubernetes makes such names from the names of services.
    fn note_misspelt_variables(&mut self, environment: &Environment) {
        let known: Vec<String> =
            table::COMMANDS.iter().flat_map(|command| command.options()).map(OptionSpec::roost_env).collect();
        for name in environment.names().filter(|name| name.starts_with("ROOST_")) {
            if known.iter().any(|known| known == name) {
                continue;
            }
            if let Some(near) = suggest::nearest(name, known.iter().map(String::as_str)) {
                self.notices.push(format!("{name} is not a known variable; did you mean {near}?"));
            }
        }
    }
}

fn read(spec: &OptionSpec, text: &str) -> Result<Option<Value>, String> {
    if text.is_empty() && spec.default.is_none() || text == "None" && spec.none_unsets() {
        return Ok(None);
    }
    let value = Value::parse(spec.kind, text);
    if spec.none_unsets() { value.map_err(|message| format!("{message}, or None")) } else { value }.map(Some)
}

/// The default as a value. `$TMPDIR` at its beginning stands for the system's folder for temporary files.
fn default_value(spec: &OptionSpec, environment: &Environment) -> Option<Value> {
    let text = spec.default?;
    let value = match (spec.kind, text.strip_prefix("$TMPDIR")) {
        (Kind::Path, Some(rest)) => {
            let folder = environment.get("TMPDIR").unwrap_or("/tmp").trim_end_matches('/');
            Value::Path(format!("{folder}{rest}").into())
        }
        _ => Value::parse(spec.kind, text).expect("a test reads every default of the table"),
    };
    Some(value)
}
