//! Engine errors to ours.

use minijinja::{Error, ErrorKind};

use crate::error::{LoadError, RenderError};

/// Cause of an error that the template raised on purpose.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

pub(crate) fn load_error(error: &Error, source: &str) -> LoadError {
    let line = error.line().unwrap_or(1);
    LoadError::Syntax { line, quote: quote(source, line), reason: reason(error) }
}

pub(crate) fn render_error(error: &Error) -> RenderError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(raised) = current.downcast_ref::<Raised>() {
            return RenderError::Raised(raised.0.clone());
        }
        if let Some(inner) = current.downcast_ref::<Error>() {
            match inner.kind() {
                ErrorKind::OutOfFuel => return RenderError::TooLarge("too much work".to_owned()),
                ErrorKind::WriteFailure => return RenderError::TooLarge("too much text".to_owned()),
                ErrorKind::SyntaxError
                | ErrorKind::TemplateNotFound
                | ErrorKind::UnknownFilter
                | ErrorKind::UnknownTest
                | ErrorKind::UnknownFunction
                | ErrorKind::UnknownBlock => return RenderError::Template(with_line(inner)),
                _ => {}
            }
        }
        cause = current.source();
    }
    RenderError::Unfit(with_line(error))
}

fn with_line(error: &Error) -> String {
    match error.line() {
        Some(line) => format!("{} (template line {line})", reason(error)),
        None => reason(error),
    }
}

fn reason(error: &Error) -> String {
    match error.detail() {
        Some(detail) => detail.to_owned(),
        None => error.kind().to_string(),
    }
}

/// The line, shortened: some templates are one line of many kilobytes.
fn quote(source: &str, line: usize) -> String {
    let text = source.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
