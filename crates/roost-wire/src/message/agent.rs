use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The session that a request belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentContext {
    /// Stable name of the session.
    pub session_id: String,
    /// Session that started this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<String>,
    /// Whether this is the last request of the session; sent only as `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_final: Option<bool>,
    /// Headers of coding agents, lower-case name to values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agent_headers: BTreeMap<String, Vec<String>>,
    /// What made the agent send this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_trigger: Option<InputTrigger>,
}

/// What made an agent send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputTrigger {
    /// A new message of the user.
    UserMessage,
    /// The result of a tool call.
    ToolResult,
    /// Anything else, also values unknown to us.
    #[serde(other)]
    Other,
}
