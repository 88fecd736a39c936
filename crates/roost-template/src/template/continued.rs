//! Rendering watched, see [`crate::incremental`].

use minijinja::Value;

use super::{Jinja, RenderInput};
use crate::incremental::{Continued, Lazy, Sink, Trace, Traced, Turn, WATCHER, Watcher};
use crate::prompt::Prompt;

impl Jinja {
    pub(super) fn render_continued(&self, input: &RenderInput<'_>, turn: &Turn<'_>) -> Option<Continued> {
        let tools = self.tools.of(input).ok()?;
        let capabilities = *self.capabilities(tools.is_some());
        let [_, name] = self.name(tools.is_some());
        // Messages that are joined with others are not rendered one by one.
        let joins = capabilities.refuses_late_system || capabilities.refuses_user_runs;
        if joins || input.continue_final_message || turn.messages.is_empty() || !self.engine.has(name) {
            return None;
        }
        let broken = input.broken_arguments;
        let messages = Lazy::new(turn, capabilities, broken).ok()?;
        let sink = Sink::default();
        let trace = turn.trace.filter(|_| turn.unchanged > 0).and_then(Trace::as_loop).cloned();
        let variant = format!("{name} {broken:?}");
        let digester = self.digester.clone();
        let watcher = Watcher::new(messages.clone(), turn.unchanged, trace, variant, digester, sink.clone());
        let watcher = Value::from_object(watcher);
        let mut context = self.context(Value::from_dyn_object(messages.clone()), tools, input).ok()?;
        context.push((WATCHER.into(), watcher.clone()));
        self.engine.render_into(name, Value::from_pairs(context), &sink).ok()?;
        if messages.has_failed() {
            return None;
        }
        let watched = watcher.downcast_object_ref::<Watcher>()?.take();
        let mut text = String::from_utf8(std::mem::take(&mut *sink.lock().ok()?)).ok()?;
        let skipped = watched.skipped;
        let trace = watched.trace.map(|trace| Trace(Traced::Loop(trace)));
        let reused = match (&trace, skipped) {
            (_, 0) => 0,
            (Some(trace), skipped) => {
                text.drain(..watched.head);
                trace.ends().nth(skipped - 1)?
            }
            // Only a loop that ended tells what it left out.
            (None, _) => return None,
        };
        Some(Continued { prompt: Prompt { text, segments: None }, reused, skipped, trace })
    }
}
