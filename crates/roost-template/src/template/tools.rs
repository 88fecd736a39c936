//! The tools of requests as template values.

use std::sync::{Mutex, PoisonError};

use minijinja::Value;

use super::RenderInput;
use crate::error::RenderError;
use crate::messages;

/// Lists that are kept; an application has one or a few.
const LISTS: usize = 16;
/// Longer lists are parsed whenever they come.
const LONGEST: usize = 128 << 10;

/// The lists of tools that came last, parsed: sessions send theirs again with every turn.
#[derive(Debug, Default)]
pub(super) struct Tools(Mutex<Vec<(Box<str>, Value)>>);

impl Tools {
    /// The tools, when there are any.
    pub(super) fn of(&self, input: &RenderInput<'_>) -> Result<Option<Value>, RenderError> {
        let Some(raw) = input.tools else { return Ok(None) };
        let tools = match self.known(raw) {
            Some(known) => known,
            None => {
                let parsed =
                    messages::parse_json(raw).map_err(|e| messages::invalid("tools", &e.to_string()))?;
                self.keep(raw, &parsed);
                parsed
            }
        };
        Ok(tools.is_true().then_some(tools))
    }

    fn known(&self, raw: &str) -> Option<Value> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = lists.iter().position(|(text, _)| **text == *raw)?;
        // The one used last stands first.
        lists[..=at].rotate_right(1);
        Some(lists[0].1.clone())
    }

    fn keep(&self, raw: &str, parsed: &Value) {
        if raw.len() > LONGEST {
            return;
        }
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = (lists.len() >= LISTS).then(|| lists.pop());
        lists.insert(0, (raw.into(), parsed.clone()));
        drop(lists);
        // Freed without the lock.
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn input(tools: Option<&str>) -> RenderInput<'_> {
        RenderInput { tools, ..RenderInput::new("", SystemTime::UNIX_EPOCH) }
    }

    #[test]
    fn lists_are_told_apart_and_the_oldest_is_forgotten() {
        let tools = Tools::default();
        for round in 0..3 {
            for n in 0..LISTS + 1 + round {
                let text = format!("[{n}]");
                let list = tools.of(&input(Some(&text))).unwrap().unwrap();
                assert_eq!(list.to_string(), text);
            }
        }
        assert_eq!(tools.0.lock().unwrap().len(), LISTS);
        assert_eq!(tools.of(&input(Some("[]"))).unwrap(), None);
        assert_eq!(tools.of(&input(None)).unwrap(), None);
        assert!(tools.of(&input(Some("["))).is_err());
        assert!(tools.known("[").is_none());
    }
}
