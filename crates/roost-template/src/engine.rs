//! The template engine: minijinja with the semantics of transformers' Jinja environment.

mod errors;
mod filters;
mod functions;
mod json_dump;
mod methods;
mod numbers;
mod repr;

use std::sync::PoisonError;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};

pub(crate) use errors::{load_error, render_error};
pub(crate) use functions::{NOW, is_stateful};
pub(crate) use json_dump::dump_json;
pub(crate) use numbers::write_float;

use crate::error::LoadError;
use crate::incremental::{self, Sink};
use crate::syntax;

/// What one rendering may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Work; one unit is an instruction or 64 bytes of text.
    pub(crate) fuel: u64,
    /// Length of the output.
    pub(crate) bytes: usize,
}

/// Nesting of macro calls and loops.
const RECURSION_LIMIT: usize = 200;

/// Compiled templates of one model.
#[derive(Debug)]
pub(crate) struct Engine {
    environment: Environment<'static>,
    limits: Limits,
}

impl Engine {
    pub(crate) fn new(limits: Limits) -> Self {
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(false);
        environment.set_syntax(syntax.build().expect("the default delimiters are valid"));
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_formatter(repr::write_value);
        environment.set_unknown_method_callback(methods::call);
        environment.set_recursion_limit(RECURSION_LIMIT);
        environment.set_fuel(Some(limits.fuel));
        environment.set_debug(false);
        filters::register(&mut environment);
        functions::register(&mut environment);
        incremental::register(&mut environment);
        Self { environment, limits }
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.environment.set_fuel(Some(limits.fuel));
        self.limits = limits;
    }

    /// Compiles `source` under `name`, and where possible a form of it that can be watched.
    pub(crate) fn add(
        &mut self,
        [name, watched_name]: [&'static str; 2],
        source: &str,
    ) -> Result<(), LoadError> {
        let rewritten = syntax::rewrite(source);
        if let Some(watched) = syntax::main_loop::watch(&rewritten) {
            // A form that does not compile is not used.
            let _absent = self.environment.add_template_owned(watched_name, watched);
        }
        self.environment.add_template_owned(name, rewritten).map_err(|e| load_error(&e, source))
    }

    /// Whether there is a template of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.environment.get_template(name).is_ok()
    }

    /// Renders the template `name` into `sink`, whatever else looks at it.
    pub(crate) fn render_into(
        &self,
        name: &str,
        context: Value,
        sink: &Sink,
    ) -> Result<(), minijinja::Error> {
        let template = self.environment.get_template(name)?;
        let mut output = SharedOutput { sink: Sink::clone(sink), left: self.limits.bytes };
        template.render_captured_to(context, &mut output)?;
        Ok(())
    }

    /// Renders the template `name` within the limits.
    pub(crate) fn render(&self, name: &str, context: Value) -> Result<String, minijinja::Error> {
        let template = self.environment.get_template(name)?;
        let mut output = Bounded { text: Vec::with_capacity(4096), left: self.limits.bytes };
        template.render_captured_to(context, &mut output)?;
        String::from_utf8(output.text).map_err(|e| {
            minijinja::Error::new(minijinja::ErrorKind::BadSerialization, "output is no text").with_source(e)
        })
    }
}

/// Output that ends in an error instead of growing without limit.
struct Bounded {
    text: Vec<u8>,
    left: usize,
}

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// [`Bounded`], shared.
struct SharedOutput {
    sink: Sink,
    left: usize,
}

impl std::io::Write for SharedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        self.sink.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
