//! The request's reasoning controls as template variables.

use serde_json::{Map, Value};

/// Reasoning controls of a request, each as it was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThinkingControls<'a> {
    /// `reasoning_effort`.
    pub reasoning_effort: Option<&'a str>,
    /// `thinking.type`: `enabled`, `disabled` or `adaptive`.
    pub thinking: Option<&'a str>,
}

const MODE: &str = "thinking_mode";
const EFFORT: &str = "reasoning_effort";
const TOGGLES: [&str; 2] = ["thinking", "enable_thinking"];

impl ThinkingControls<'_> {
    /// Folds the controls into `kwargs` (`chat_template_kwargs` of the request). Model families read different
    /// variables, so one decision is written to all of them: `thinking` and `enable_thinking` as boolean,
    /// `thinking_mode` as `enabled` or `disabled`, and `reasoning_effort` as given. Without any control nothing
    /// is written. The request's own members win over those in `kwargs`; of several decisions the order is
    /// `thinking`, `enable_thinking`, `thinking_mode`, effort. `adaptive` leaves the decision to the model.
    pub fn apply(&self, kwargs: &mut Map<String, Value>) {
        let effort = match self.reasoning_effort {
            Some(effort) => Some(Value::from(effort)),
            None => kwargs.get(EFFORT).filter(|effort| !effort.is_null()).cloned(),
        };
        match self.thinking {
            Some("enabled") => set(kwargs, true),
            Some("disabled") => set(kwargs, false),
            Some("adaptive") => {
                kwargs.retain(|name, _| !TOGGLES.contains(&name.as_str()));
                kwargs.insert(MODE.into(), "adaptive".into());
            }
            _ => {}
        }
        let mode = kwargs.get(MODE).and_then(Value::as_str).map(str::to_ascii_lowercase);
        let toggle = TOGGLES.iter().find_map(|name| kwargs.get(*name).and_then(Value::as_bool));
        let decision = toggle.or_else(|| match mode.as_deref() {
            Some("adaptive") => None,
            Some("enabled") => Some(true),
            Some("disabled") => Some(false),
            _ => effort.as_ref().and_then(Value::as_str).map(|effort| effort != "none"),
        });
        if let Some(on) = decision {
            set(kwargs, on);
        }
        if let Some(effort) = effort {
            kwargs.insert(EFFORT.into(), effort);
        }
    }
}

fn set(kwargs: &mut Map<String, Value>, on: bool) {
    for name in TOGGLES {
        kwargs.insert(name.into(), on.into());
    }
    kwargs.insert(MODE.into(), if on { "enabled" } else { "disabled" }.into());
}

#[cfg(test)]
mod tests;
