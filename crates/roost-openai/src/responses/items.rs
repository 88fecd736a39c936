//! The items of a response.

use bytes::{BufMut, BytesMut};

use super::names::Names;
use crate::blocks::{Block, Step};
use crate::json::write_string;

/// Items so far; the last one may still grow.
#[derive(Debug)]
pub(super) struct Items {
    /// Digits of the response's id: those of its items come next.
    base: u128,
    pub(super) list: Vec<Item>,
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) kind: Kind,
    /// Text, reasoning or arguments so far.
    pub(super) text: String,
    pub(super) status: &'static str,
}

#[derive(Debug)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Call { call_id: String, name: String, namespace: Option<String> },
}

impl Items {
    pub(super) fn new(base: u128) -> Self {
        Items { base, list: Vec::new() }
    }

    /// Takes a step; what it closes gets `status`.
    pub(super) fn apply(&mut self, step: Step<'_>, names: &Names, status: &'static str) {
        match step {
            Step::Open(block) => {
                let number = self.base.wrapping_add(self.list.len() as u128 + 1);
                let (prefix, kind) = match block {
                    Block::Text => ("msg", Kind::Message),
                    Block::Reasoning => ("rs", Kind::Reasoning),
                    Block::Call { id, name } => {
                        let (space, name) = names.decode(name);
                        let namespace = space.map(str::to_owned);
                        ("fc", Kind::Call { call_id: id.to_owned(), name: name.to_owned(), namespace })
                    }
                };
                let id = format!("{prefix}_{number:032x}");
                self.list.push(Item { id, kind, text: String::new(), status: "in_progress" });
            }
            Step::Add(text) => {
                if let Some(item) = self.list.last_mut() {
                    item.text.push_str(text);
                }
            }
            Step::Close => {
                if let Some(item) = self.list.last_mut() {
                    item.status = status;
                }
            }
        }
    }

    /// Adds an empty message to a response that has no items.
    pub(super) fn fill(&mut self, status: &'static str) {
        if self.list.is_empty() {
            self.apply(Step::Open(Block::Text), &Names::default(), status);
            self.apply(Step::Close, &Names::default(), status);
        }
    }

    /// Writes the list.
    pub(super) fn write(&self, out: &mut BytesMut) {
        out.put_u8(b'[');
        for (at, item) in self.list.iter().enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            item.write(out, false);
        }
        out.put_u8(b']');
    }
}

impl Item {
    /// Writes the item; a new one has nothing in it yet.
    pub(super) fn write(&self, out: &mut BytesMut, is_new: bool) {
        let text = if is_new { "" } else { &self.text };
        out.put_slice(b"{\"id\":");
        write_string(out, &self.id);
        match &self.kind {
            Kind::Message => {
                out.put_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
                if !is_new {
                    self.write_part(out, text);
                }
                out.put_u8(b']');
            }
            Kind::Reasoning => {
                out.put_slice(b",\"type\":\"reasoning\",\"summary\":[],\"content\":[");
                if !is_new {
                    self.write_part(out, text);
                }
                out.put_slice(b"],\"encrypted_content\":null");
            }
            Kind::Call { call_id, name, namespace } => {
                out.put_slice(b",\"type\":\"function_call\",\"call_id\":");
                write_string(out, call_id);
                out.put_slice(b",\"name\":");
                write_string(out, name);
                if let Some(namespace) = namespace {
                    out.put_slice(b",\"namespace\":");
                    write_string(out, namespace);
                }
                out.put_slice(b",\"arguments\":");
                write_string(out, text);
            }
        }
        out.put_slice(b",\"status\":");
        write_string(out, self.status);
        out.put_u8(b'}');
    }

    /// Writes the part of a message or of reasoning that holds `text`.
    pub(super) fn write_part(&self, out: &mut BytesMut, text: &str) {
        if matches!(self.kind, Kind::Reasoning) {
            out.put_slice(b"{\"type\":\"reasoning_text\",\"text\":");
            write_string(out, text);
        } else {
            out.put_slice(b"{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
            write_string(out, text);
        }
        out.put_u8(b'}');
    }
}
