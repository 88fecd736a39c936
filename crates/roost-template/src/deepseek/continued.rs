//! Rendering only the end of a conversation, see [`crate::incremental`].
//!
//! A conversation is gone on with from before an answer: there every run of users and results ends, nothing of the answer is
//! written yet, and what would be written if there were no answer begins as the answer does. What text before may depend
//! on all the same are system messages, which some formats put first, and whether a user has spoken since, where earlier
//! reasoning is left out. Where that differs, an earlier answer is tried.

use super::conversation::{Conversation, Scene, Turn, read_turns};
use super::{BuiltIn, DeepSeek, DeepSeekStyle, dynamo, v32};
use crate::incremental::{Continued, Facts, Place, Places, Trace, Traced, Turn as Messages};
use crate::template::RenderInput;

/// Most places that are tried.
const TRIES: usize = 4;

/// What is to be rendered.
struct Rest<'a> {
    scene: Scene,
    /// Turns with the numbers of their messages.
    turns: Vec<(usize, Turn)>,
    /// The rendering that is gone on from, and how many of its places stay.
    kept: Option<(&'a Places, usize)>,
}

impl BuiltIn {
    /// As [`ChatTemplate::render_continued`](crate::ChatTemplate::render_continued).
    pub(crate) fn render_continued(
        &self,
        input: &RenderInput<'_>,
        messages: &Messages<'_>,
    ) -> Option<Continued> {
        if input.continue_final_message || messages.messages.is_empty() {
            return None;
        }
        let digest = self.digest(input);
        let before = messages.trace.and_then(Trace::as_places).filter(|before| before.scene == digest);
        let rest = before.and_then(|before| self.going_on(input, before, messages));
        let Rest { scene, turns, kept } = rest.or_else(|| {
            let scene = Scene::read(input).ok()?;
            let turns = self.turns(&scene, messages, 0)?;
            Some(Rest { scene, turns, kept: None })
        })?;

        let mut facts = self.facts(&turns);
        let has_tools = scene.has_tools;
        let answers: Vec<usize> =
            turns.iter().filter(|(_, turn)| is_answer(turn)).map(|(at, _)| *at).collect();
        let ends = answers.into_iter().chain([messages.messages.len()]);
        let turns = turns.into_iter().map(|(_, turn)| turn).collect();
        let rendered = self.write(Conversation { scene, turns, goes_on: kept.is_some() });
        let skipped = kept.map_or(0, |(_, skipped)| skipped);
        let mut places = Vec::with_capacity(skipped + rendered.places.len());
        let mut reused = 0;
        if let Some((before, skipped)) = kept {
            places.extend_from_slice(&before.places[..skipped]);
            let place = before.places[skipped - 1];
            reused = place.end;
            facts = facts.after(&before.facts, place.message);
        }
        // The first one of a conversation that goes on is where it does.
        let new = rendered.places.into_iter().zip(ends).skip(usize::from(kept.is_some()));
        places.extend(new.filter_map(|(end, message)| {
            Some(Place { end: reused + end?, message: message as u32, resumable: false })
        }));
        let trace = Places { scene: digest, has_tools, facts, places };
        let trace = Some(Trace(Traced::Places(trace)));
        Some(Continued { prompt: rendered.prompt, reused, skipped, trace })
    }

    fn digest(&self, input: &RenderInput<'_>) -> u128 {
        let given =
            [input.tools, input.kwargs, input.response_format].map(|raw| raw.unwrap_or_default().as_bytes());
        self.digester.texts(&given)
    }

    /// The rest behind the last place that can be gone on from.
    fn going_on<'a>(
        &self,
        input: &RenderInput<'_>,
        before: &'a Places,
        messages: &Messages<'_>,
    ) -> Option<Rest<'a>> {
        let scene = Scene::familiar(input, before.has_tools).ok()?;
        let usable = |place: &Place| place.resumable && place.message as usize <= messages.unchanged;
        let places = before.places.iter().enumerate().rev().filter(|(_, place)| usable(place));
        let (turns, skipped) = places.take(TRIES).find_map(|(at, place)| {
            let turns = self.turns(&scene, messages, place.message as usize)?;
            self.holds(&scene, before, place.message, &turns, messages.messages.len())
                .then_some((turns, at + 1))
        })?;
        Some(Rest { scene, turns, kept: Some((before, skipped)) })
    }

    /// Whether the text before message `at` is that of the earlier rendering, `turns` being the rest.
    fn holds(&self, scene: &Scene, before: &Places, at: u32, turns: &[(usize, Turn)], count: usize) -> bool {
        let facts = &before.facts;
        let had = |message: Option<u32>| message.is_some_and(|message| message >= at);
        let has = |is: &dyn Fn(&Turn) -> bool| turns.iter().any(|(_, turn)| is(turn));
        let has_system = has(&is_system);
        let begins_with_answer = match turns.first() {
            None => at as usize == count,
            Some((first, turn)) => *first == at as usize && is_answer(turn),
        };
        // Results are sorted by the calls before them, even across answers without calls.
        let mut until_calls = turns.iter().take_while(|(_, turn)| !is_calling(turn));
        let knows_calls = until_calls.all(|(_, turn)| !matches!(turn, Turn::Tool { .. }));
        let same_system = match (self.format, self.style) {
            (DeepSeek::V41, DeepSeekStyle::Publisher) => true,
            // All of it leads.
            (DeepSeek::V4, DeepSeekStyle::Publisher) => !has_system && !had(facts.last_system),
            // The first carries the tools.
            _ => facts.first_system.map_or(!has_system, |first| first < at),
        };
        let same_reasoning =
            !self.drops_reasoning(scene) || had(facts.last_user) == has(&|turn| self.asks(turn));
        begins_with_answer && knows_calls && same_system && same_reasoning
    }

    /// Turns of the messages from `first` on.
    fn turns(&self, scene: &Scene, messages: &Messages<'_>, first: usize) -> Option<Vec<(usize, Turn)>> {
        let Some(start) = messages.messages.get(first) else { return Some(Vec::new()) };
        let end = messages.messages.last()?.end;
        let rest = messages.source.get(start.start as usize..end as usize)?;
        let list = ["[", std::str::from_utf8(rest).ok()?, "]"].concat();
        read_turns(&list, first, scene.thinks(), self.reading()).ok()
    }

    fn facts(&self, turns: &[(usize, Turn)]) -> Facts {
        let number = |found: Option<&(usize, Turn)>| found.map(|(at, _)| *at as u32);
        Facts {
            first_system: number(turns.iter().find(|(_, turn)| is_system(turn))),
            last_system: number(turns.iter().rfind(|(_, turn)| is_system(turn))),
            last_user: number(turns.iter().rfind(|(_, turn)| self.asks(turn))),
        }
    }

    /// Whether earlier reasoning is left out.
    fn drops_reasoning(&self, scene: &Scene) -> bool {
        match (self.format, self.style) {
            (DeepSeek::V32, _) => scene.thinks(),
            (_, DeepSeekStyle::Dynamo) => dynamo::drops_reasoning(scene),
            // Answers are all treated alike, the last one too.
            (_, DeepSeekStyle::Publisher) => false,
        }
    }

    /// Whether reasoning before this turn is left out, if any is.
    fn asks(&self, turn: &Turn) -> bool {
        match self.format {
            DeepSeek::V32 => v32::asks(turn),
            format => dynamo::asks(turn, format),
        }
    }
}

fn is_system(turn: &Turn) -> bool {
    matches!(turn, Turn::System(_))
}

fn is_answer(turn: &Turn) -> bool {
    matches!(turn, Turn::Assistant(_))
}

fn is_calling(turn: &Turn) -> bool {
    matches!(turn, Turn::Assistant(answer) if !answer.calls.is_empty())
}

#[cfg(test)]
mod tests;
