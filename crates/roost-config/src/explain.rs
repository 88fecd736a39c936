//! What `roost explain` needs to know.

use crate::values::Values;

/// Options of `roost explain`: a question to a running frontend.
#[derive(Debug, Clone)]
pub struct Explain {
    /// Request or session; `None` asks for the latest decisions.
    pub id: Option<String>,
    /// Where the frontend serves.
    pub url: String,
    /// Decisions to show.
    pub limit: usize,
}

pub(crate) fn build(values: &Values) -> Explain {
    Explain { id: values.text("id"), url: values.required_text("url"), limit: values.size("limit") }
}
