//! What can go wrong when a template is loaded or rendered.

use std::path::PathBuf;

/// The template of a model cannot be used. Other models are not concerned.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file that was asked for.
        path: PathBuf,
        /// Why the operating system refused.
        source: std::io::Error,
    },
    /// A file is not the JSON it should be.
    #[error("{path} is not valid: {reason}")]
    Json {
        /// The file that was read.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The model has no template and none is built in for its type.
    #[error("the model has no chat template")]
    Missing,
    /// The template does not parse.
    #[error("chat template is not valid, line {line} ({quote}): {reason}")]
    Syntax {
        /// Line in the template, counted from 1.
        line: usize,
        /// That line.
        quote: String,
        /// What the parser says.
        reason: String,
    },
}

/// No prompt could be made.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The template itself refuses the conversation; the text is its own, written for the caller.
    #[error("{0}")]
    Raised(String),
    /// A part of the request cannot be rendered.
    #[error("{path}: {reason}")]
    Invalid {
        /// Where, in the request's own terms (`messages[1].content`).
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The template cannot handle these messages (wrong types, missing members).
    #[error("the conversation cannot be rendered by the model's chat template: {0}")]
    Unfit(String),
    /// The rendering took more work or more output than allowed.
    #[error("the conversation is too large to render: {0}")]
    TooLarge(String),
    /// The template uses something that does not exist, whatever the conversation.
    #[error("the model's chat template is broken: {0}")]
    Template(String),
}

impl RenderError {
    /// True when another request could succeed: the text belongs into a 400. False: the model's template is at
    /// fault.
    #[must_use]
    pub fn is_client_fault(&self) -> bool {
        !matches!(self, Self::Template(_))
    }
}
