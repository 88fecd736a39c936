//! The configuration file: the options of a command by section and name, in TOML.

use std::{collections::HashMap, path::Path};

use toml::de::{DeTable, DeValue};

use crate::{
    problem::Problem,
    spec::{CommandSpec, Section},
    suggest, table,
};

/// Larger files are not configuration.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Texts by option name, each with its line.
#[derive(Debug, Default)]
pub(crate) struct FileValues {
    path: String,
    by_name: HashMap<&'static str, (String, usize)>,
}

impl FileValues {
    /// Reads a file. Every mistake in it becomes a problem that names file and line.
    pub(crate) fn load(command: &'static CommandSpec, path: &str, problems: &mut Vec<Problem>) -> Self {
        let size = std::fs::metadata(Path::new(path)).map(|metadata| metadata.len());
        let text = match size {
            Ok(bytes) if bytes > MAX_FILE_BYTES => {
                Err(format!("has {bytes} bytes, at most {MAX_FILE_BYTES} are read"))
            }
            Ok(_) => std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}")),
            Err(error) => Err(format!("cannot be read: {error}")),
        };
        match text {
            Ok(text) => Self::parse(command, path, &text, problems),
            Err(message) => {
                problems.push(Problem::new(path, message));
                Self::default()
            }
        }
    }

    pub(crate) fn parse(
        command: &'static CommandSpec,
        path: &str,
        text: &str,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut file = Self { path: path.to_owned(), by_name: HashMap::new() };
        let mut found = file.read(command, text);
        // Sections are visited by name; people read by line.
        found.sort();
        problems
            .extend(found.into_iter().map(|(line, message)| Problem::new(format!("{path}:{line}"), message)));
        file
    }

    /// Takes what is right and returns what is wrong, each with its line.
    fn read(&mut self, command: &'static CommandSpec, text: &str) -> Vec<(usize, String)> {
        let line_of = |offset: usize| 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
        let root = match DeTable::parse(text) {
            Ok(root) => root,
            Err(error) => {
                let line = error.span().map_or(1, |span| line_of(span.start));
                return vec![(line, error.message().to_owned())];
            }
        };
        let mut found = Vec::new();
        for (key, value) in root.get_ref() {
            let section = command.sections.iter().find(|section| section.key == key.get_ref());
            let (Some(section), DeValue::Table(options)) = (section, value.get_ref()) else {
                let near =
                    suggest::nearest(key.get_ref(), command.sections.iter().map(|section| section.key));
                let hint = near.map(|near| format!("; did you mean `[{near}]`?")).unwrap_or_default();
                found
                    .push((line_of(key.span().start), format!("`{}` is not a section{hint}", key.get_ref())));
                continue;
            };
            for (name, value) in options {
                let line = line_of(name.span().start);
                if let Err(message) = self.add(command, section, name.get_ref(), value.get_ref(), line) {
                    found.push((line, message));
                }
            }
        }
        found
    }

    fn add(
        &mut self,
        command: &'static CommandSpec,
        section: &'static Section,
        name: &str,
        value: &DeValue<'_>,
        line: usize,
    ) -> Result<(), String> {
        let Some(spec) = section.options.iter().find(|spec| spec.name == name) else {
            let elsewhere =
                command.sections.iter().find(|other| other.options.iter().any(|spec| spec.name == name));
            return Err(match elsewhere {
                Some(other) => format!("`{name}` belongs to `[{}]`", other.key),
                None => match suggest::nearest(name, command.options().map(|spec| spec.name)) {
                    Some(near) => format!("`{name}` is not an option; did you mean `{near}`?"),
                    None => format!("`{name}` is not an option"),
                },
            });
        };
        if table::is_about_the_file(spec) {
            return Err(format!("`{name}` cannot be set in a file"));
        }
        let text = match value {
            DeValue::String(text) => text.clone().into_owned(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(value) => value.to_string(),
            _ => return Err(format!("`{name}` must be a text, a decimal number or true or false")),
        };
        self.by_name.insert(spec.name, (text, line));
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Option<(&str, usize)> {
        self.by_name.get(name).map(|(text, line)| (text.as_str(), *line))
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}
