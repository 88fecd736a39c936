//! The engine behind the recorded exchanges: it does what the prompt tells it to.
//!
//! The last `{…}` between `@@` marks in the decoded prompt is the directive: `out` text to tokenize and emit, `ids` ids
//! to emit, `chunk` ids per frame, `nidx` number of choices, `finish` finish reason of the last frame, `usage` its
//! counts, `raise` an exception before the first frame, `raiseat` one after that many ids. Log probabilities are −0.5
//! for the chosen id and −1.5 for the next one.

use futures_util::stream;
use roost_tokenizer::Tokenizer;
use roost_wire::message::{EngineOutput, EngineRequest};
use roost_worker::{Engine, EngineCard, EngineContext, EngineError, KvChanges, OutputStream, RankLoad};
use serde_json::{Value, json};
use tokio::sync::watch;

/// An engine without a model.
#[derive(Debug)]
pub struct ScriptedEngine {
    card: EngineCard,
    tokenizer: Tokenizer,
    load: watch::Sender<Vec<RankLoad>>,
}

impl ScriptedEngine {
    /// An engine that registers `card` and reads prompts with `tokenizer`.
    pub fn new(card: EngineCard, tokenizer: Tokenizer) -> Self {
        let load = watch::Sender::new(
            card.ranks().map(|dp_rank| RankLoad { dp_rank, ..RankLoad::default() }).collect(),
        );
        ScriptedEngine { card, tokenizer, load }
    }

    fn frames(&self, request: &EngineRequest) -> Vec<Result<EngineOutput, EngineError>> {
        let prompt = self.tokenizer.decode(&request.token_ids, false);
        let directive = directive(&prompt).unwrap_or_else(|| json!({"out": "Hello world"}));
        let text = |member: &str| directive[member].as_str().unwrap_or_default();
        if directive["raise"].is_string() {
            let message = directive["msg"].as_str().unwrap_or("boom").to_owned();
            return vec![Err(match text("raise") {
                "ValueError" | "TypeError" => EngineError::InvalidRequest(message),
                _ => EngineError::Failed(message),
            })];
        }
        let ids: Vec<u32> = match directive["ids"].as_array() {
            Some(ids) => ids.iter().filter_map(|id| id.as_u64()?.try_into().ok()).collect(),
            None => {
                self.tokenizer.encode(directive["out"].as_str().unwrap_or("Hello"), false).unwrap_or_default()
            }
        };
        let number = |member: &str| directive[member].as_u64().map(|n| n as usize);
        let choices = number("nidx").unwrap_or(1);
        let limit = request.stop_conditions.max_tokens.map(|max| max as usize);
        let with_index = |mut frame: Value, index: usize| {
            if choices > 1 {
                frame["index"] = index.into();
            }
            Ok(serde_json::from_value(frame).expect("frames are engine outputs"))
        };
        let mut frames = Vec::new();
        let mut sent = 0;
        for chunk in ids.chunks(number("chunk").unwrap_or(1)) {
            let room = limit.map_or(chunk.len(), |limit| chunk.len().min(limit - sent));
            let mut frame = json!({"token_ids": chunk[..room]});
            if request.output_options.logprobs.is_some() {
                let alternatives = |id: &u32| json!([{"rank": 1, "token_id": id, "logprob": -0.5}, {"rank": 2, "token_id": id + 1, "logprob": -1.5}]);
                frame["log_probs"] = vec![-0.5; room].into();
                frame["top_logprobs"] = chunk[..room].iter().map(alternatives).collect();
            }
            frames.extend((0..choices).map(|index| with_index(frame.clone(), index)));
            sent += room;
            if number("raiseat") == Some(sent) {
                frames.push(Err(EngineError::Failed("mid-stream boom".into())));
                return frames;
            }
            if limit.is_some_and(|limit| sent >= limit) {
                let last = json!({"token_ids": [], "finish_reason": "length"});
                frames.extend((0..choices).map(|index| with_index(last.clone(), index)));
                return frames;
            }
        }
        let mut last =
            json!({"token_ids": [], "finish_reason": directive["finish"].as_str().unwrap_or("stop")});
        if directive["usage"].is_object() {
            last["completion_usage"] = directive["usage"].clone();
        }
        frames.extend((0..choices).map(|index| with_index(last.clone(), index)));
        frames
    }
}

/// The last directive of a prompt.
fn directive(prompt: &str) -> Option<Value> {
    let mut rest = prompt;
    let mut last = None;
    while let Some((_, after)) = rest.split_once("@@{") {
        let Some((inner, behind)) = after.split_once("}@@") else { break };
        last = Some(format!("{{{inner}}}"));
        rest = behind;
    }
    serde_json::from_str(&last?).ok()
}

impl Engine for ScriptedEngine {
    fn card(&self) -> &EngineCard {
        &self.card
    }

    fn generate(&self, request: EngineRequest, _: EngineContext) -> OutputStream {
        Box::pin(stream::iter(self.frames(&request)))
    }

    fn kv_changes(&self, _: u32) -> Option<KvChanges> {
        None
    }

    fn load(&self) -> watch::Receiver<Vec<RankLoad>> {
        self.load.subscribe()
    }
}
