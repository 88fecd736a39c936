use serde::{Deserialize, Serialize};

use super::{DynamoError, Reason};

/// An item with what surrounds it: most carry only `data`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Annotated<T> {
    /// The item.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub data: Option<T>,
    /// Identity of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Kind of the item; `error` marks a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Remarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<Vec<String>>,
    /// The failure, with `event` being `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<DynamoError>,
}

fn none<T>() -> Option<T> {
    None
}

impl<T> Annotated<T> {
    /// An item that carries only data.
    #[must_use]
    pub fn from_data(data: T) -> Self {
        Self { data: Some(data), id: None, event: None, comment: None, error: None }
    }

    /// An item that reports a failure; it ends the answer.
    #[must_use]
    pub fn from_error(error: DynamoError) -> Self {
        Self { data: None, id: None, event: Some("error".to_owned()), comment: None, error: Some(error) }
    }

    /// Takes out the failure that the item reports, if it does: typed, or told only in the remarks.
    pub fn take_error(&mut self) -> Option<DynamoError> {
        if self.event.as_deref() != Some("error") && self.error.is_none() {
            return None;
        }
        Some(self.error.take().unwrap_or_else(|| {
            let text = self.comment.take().unwrap_or_default().join("; ");
            DynamoError::new(Reason::Unclassified, text)
        }))
    }
}
