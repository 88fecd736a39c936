//! An agent's session as request bodies.

use bytes::Bytes;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::text;

/// How big a session is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Bytes of message text at the start.
    pub context: usize,
    /// Bytes of text of each new turn, about.
    pub turn: usize,
    /// Tools that are offered.
    pub tools: usize,
}

/// A coding agent's session: system prompt, tools, then user, assistant with a tool call, tool output, and so on.
#[derive(Clone, Debug)]
pub struct Conversation {
    model: String,
    rng: Rng,
    turn: usize,
    tools: Value,
    messages: Vec<Value>,
    calls: usize,
}

impl Conversation {
    /// Makes a session that has reached its context already.
    #[must_use]
    pub fn new(model: &str, seed: u64, size: Size) -> Self {
        let mut rng = Rng::with_seed(seed);
        let tools = (0..size.tools).map(|n| tool(&mut rng, n)).collect();
        let system = format!("You are a coding agent.\n{}", text::code(&mut rng, size.context / 12));
        let user = text::prose(&mut rng, 120);
        let messages =
            vec![json!({"role": "system", "content": system}), json!({"role": "user", "content": user})];
        let mut conversation =
            Conversation { model: model.to_owned(), rng, turn: size.turn, tools, messages, calls: 0 };
        let mut written = size.context / 12;
        while written < size.context {
            conversation.grow();
            written += size.turn;
        }
        conversation
    }

    /// Adds one turn: what the model answered and what its tool returned.
    pub fn grow(&mut self) {
        self.calls += 1;
        let rng = &mut self.rng;
        let id = format!("call_{:08}", self.calls);
        let arguments =
            json!({"path": format!("src/{}.rs", text::prose(rng, 1)), "limit": self.calls}).to_string();
        self.messages.push(json!({
            "role": "assistant",
            "content": text::prose(rng, 30),
            "tool_calls": [{"id": id, "type": "function", "function": {"name": "read_file", "arguments": arguments}}],
        }));
        let output = text::code(rng, self.turn.saturating_sub(200));
        self.messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
        if self.calls.is_multiple_of(12) {
            let answer = text::prose(rng, 40);
            self.messages.push(json!({"role": "assistant", "content": answer}));
            let user = text::prose(rng, 60);
            self.messages.push(json!({"role": "user", "content": user}));
        }
    }

    /// The request body of the turn reached.
    #[must_use]
    pub fn body(&self) -> Bytes {
        let body = json!({
            "model": self.model, "messages": self.messages, "tools": self.tools,
            "stream": true, "max_tokens": 4096, "temperature": 0.7,
        });
        Bytes::from(body.to_string())
    }
}

fn tool(rng: &mut Rng, n: usize) -> Value {
    json!({"type": "function", "function": {
        "name": if n == 0 { "read_file".to_owned() } else { format!("tool_{n}") },
        "description": text::prose(rng, 40),
        "parameters": {"type": "object", "required": ["path"], "properties": {
            "path": {"type": "string", "description": text::prose(rng, 12)},
            "limit": {"type": "integer", "description": text::prose(rng, 8)},
        }},
    }})
}
