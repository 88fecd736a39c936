//! What a client wants to know beside the text: `nvext` of an answer, and the annotations in front of it.

use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{BufMut as _, BytesMut};
use roost_kv::WorkerRank;
use roost_openai::{Finish, NvExt};
use roost_tokenizer::Tokenizer;
use roost_wire::message::PromptTokens;

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    worker_id: bool,
    timing: bool,
    completion_ids: bool,
    stop_reason: bool,
    finish_detail: bool,
    engine_data: bool,
    routed_experts: bool,
    prompt_logprobs: bool,
    /// Ids of the prompt, on the last chunk.
    prompt: Option<PromptTokens>,
    /// Events that go before the first chunk, as they are written.
    annotations: Box<str>,
}

/// How a choice ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended<'a> {
    pub(crate) finish: Finish,
    /// The stop string that was met.
    pub(crate) stop: Option<&'a str>,
    /// What the engine told about itself.
    pub(crate) engine_data: Option<&'a serde_json::Value>,
    pub(crate) timing: Timing,
}

/// Where the time went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// The head of the request was read.
    pub(crate) received: Instant,
    /// It was ready for a worker.
    pub(crate) prepared: Option<Instant>,
    pub(crate) first_token: Option<Instant>,
    pub(crate) now: Instant,
    /// Part of the prompt that the router expected in the worker's cache, 0 to 1.
    pub(crate) hit_rate: f64,
    /// Requests that wait for room at this moment.
    pub(crate) queued: usize,
}

impl Extras {
    /// What `nvext` asks for of a request with this id and prompt.
    pub(crate) fn of(nvext: &NvExt, id: &str, prompt: &PromptTokens, tokenizer: &Tokenizer) -> Self {
        if nvext.extra_fields.is_empty() && nvext.annotations.is_empty() {
            return Extras::default();
        }
        Extras {
            worker_id: nvext.wants("worker_id"),
            timing: nvext.wants("timing"),
            completion_ids: nvext.wants("completion_token_ids"),
            stop_reason: nvext.wants("stop_reason"),
            finish_detail: nvext.wants("detailed_finish_reason"),
            engine_data: nvext.wants("engine_data"),
            routed_experts: nvext.wants("routed_experts"),
            prompt_logprobs: nvext.wants("prompt_logprobs"),
            prompt: nvext.wants("prompt_token_ids").then(|| prompt.clone()),
            annotations: annotations(&nvext.annotations, id, prompt, tokenizer).into(),
        }
    }

    /// Whether no answer has an `nvext` member.
    pub(crate) fn is_empty(&self) -> bool {
        !(self.worker_id || self.timing || self.completion_ids || self.stop_reason || self.finish_detail)
            && self.prompt.is_none()
            && !self.wants_engine_data()
    }

    /// Whether what the engine tells about itself has to be kept for it.
    pub(crate) fn wants_engine_data(&self) -> bool {
        self.engine_data || self.routed_experts || self.prompt_logprobs
    }

    /// Whether generated ids have to be kept for it.
    pub(crate) fn wants_ids(&self) -> bool {
        self.completion_ids
    }

    /// Writes the events that go before the first chunk.
    pub(crate) fn write_annotations(&self, out: &mut BytesMut) {
        out.put_slice(self.annotations.as_bytes());
    }

    /// The member of one chunk, or of a whole answer: a JSON object. `ranks` are those of prefill and decode, `ids`
    /// what was generated since the last one.
    pub(crate) fn member(
        &self,
        ranks: Option<(WorkerRank, WorkerRank)>,
        ids: &[u32],
        ended: Option<Ended<'_>>,
    ) -> Option<String> {
        let mut json = String::from("{");
        if let Some((prefill, decode)) = ranks.filter(|_| self.worker_id) {
            let _infallible = write!(
                json,
                "\"worker_id\":{{\"prefill_worker_id\":{},\"prefill_dp_rank\":{},\
                 \"decode_worker_id\":{},\"decode_dp_rank\":{}}},",
                prefill.worker.0, prefill.dp_rank, decode.worker.0, decode.dp_rank
            );
        }
        if self.completion_ids {
            json.push_str("\"completion_token_ids\":");
            push_ids(&mut json, ids);
            json.push(',');
        }
        if let Some(ended) = ended {
            self.push_end(&mut json, ended);
        }
        (json.pop() == Some(',')).then(|| {
            json.push('}');
            json
        })
    }

    fn push_end(&self, json: &mut String, Ended { finish, stop, engine_data, timing }: Ended<'_>) {
        if self.timing {
            timing.push(json);
        }
        if let Some(stop) = stop.filter(|_| self.stop_reason) {
            let _infallible = write!(json, "\"stop_reason\":{},", serde_json::Value::from(stop));
        }
        if self.finish_detail {
            let _infallible = write!(json, "\"detailed_finish_reason\":\"{}\",", finish.as_str());
        }
        if let Some(data) = engine_data {
            self.push_engine_data(json, data);
        }
        if let Some(prompt) = &self.prompt {
            json.push_str("\"prompt_token_ids\":");
            push_ids(json, prompt);
            json.push(',');
        }
    }
}

impl Extras {
    /// The whole of what the engine told, and what clients may ask for by its own name.
    fn push_engine_data(&self, json: &mut String, data: &serde_json::Value) {
        let parts = [
            ("engine_data", self.engine_data.then_some(data)),
            ("routed_experts", data.get("routed_experts").filter(|_| self.routed_experts)),
            ("prompt_logprobs", data.get("prompt_logprobs").filter(|_| self.prompt_logprobs)),
        ];
        for (name, value) in parts {
            if let Some(value) = value {
                let _infallible = write!(json, "\"{name}\":{value},");
            }
        }
    }
}

impl Timing {
    fn push(&self, json: &mut String) {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let total = self.now.saturating_duration_since(self.received);
        let received = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(total);
        let _infallible = write!(
            json,
            "\"timing\":{{\"request_received_ms\":{:.3},\"total_time_ms\":{:.3}",
            ms(received),
            ms(total)
        );
        if let Some(prepared) = self.prepared {
            let wait = prepared.saturating_duration_since(self.received);
            let _infallible = write!(json, ",\"prefill_wait_time_ms\":{:.3}", ms(wait));
        }
        if let Some((first, prepared)) = self.first_token.zip(self.prepared) {
            let _infallible = write!(
                json,
                ",\"prefill_time_ms\":{:.3},\"ttft_ms\":{:.3}",
                ms(first.saturating_duration_since(prepared)),
                ms(first.saturating_duration_since(self.received))
            );
        }
        let _infallible =
            write!(json, ",\"kv_hit_rate\":{:.6},\"router_queue_depth\":{}}},", self.hit_rate, self.queued);
    }
}

fn push_ids(json: &mut String, ids: &[u32]) {
    json.push('[');
    for (at, id) in ids.iter().enumerate() {
        if at > 0 {
            json.push(',');
        }
        let _infallible = write!(json, "{id}");
    }
    json.push(']');
}

/// The events of the annotations that are made here; an engine may know others. The value stands in a comment, as in
/// the peer, so that readers of events skip it.
fn annotations(wanted: &[String], id: &str, prompt: &[u32], tokenizer: &Tokenizer) -> String {
    let mut events = String::new();
    for name in wanted {
        let value = match name.as_str() {
            "request_id" => format!("\"{id}\""),
            "token_ids" => {
                let mut ids = String::from("\"");
                push_ids(&mut ids, prompt);
                ids.push('"');
                ids
            }
            "formatted_prompt" => serde_json::Value::from(tokenizer.decode(prompt, false)).to_string(),
            _ => continue,
        };
        let _infallible = write!(events, "event: {name}\n: {value}\n\n");
    }
    events
}

#[cfg(test)]
mod tests {
    use roost_kv::WorkerId;
    use serde_json::{Value, json};

    use super::*;

    fn rank(worker: u64, dp_rank: u32) -> WorkerRank {
        WorkerRank { worker: WorkerId(worker), dp_rank }
    }

    fn read(text: Option<String>) -> Value {
        serde_json::from_str(&text.expect("a member")).expect("JSON")
    }

    #[test]
    fn nothing_asked_nothing_said() {
        let ended = Ended { finish: Finish::Stop, stop: Some("x"), engine_data: None, timing: timing() };
        assert_eq!(Extras::default().member(Some((rank(1, 0), rank(2, 0))), &[1], Some(ended)), None);
        let only_at_the_end = Extras { timing: true, ..Extras::default() };
        assert_eq!(only_at_the_end.member(None, &[1], None), None);
    }

    fn timing() -> Timing {
        let received = Instant::now();
        let ms = |n| received + Duration::from_millis(n);
        Timing {
            received,
            prepared: Some(ms(5)),
            first_token: Some(ms(25)),
            now: ms(100),
            hit_rate: 0.5,
            queued: 3,
        }
    }

    #[test]
    fn members_in_their_places() {
        let extras = Extras {
            worker_id: true,
            timing: true,
            completion_ids: true,
            stop_reason: true,
            finish_detail: true,
            engine_data: true,
            routed_experts: true,
            prompt_logprobs: true,
            prompt: Some(PromptTokens::from([7, 8])),
            annotations: "".into(),
        };
        let ranks = Some((rank(1, 3), rank(u64::MAX, 0)));
        assert_eq!(
            read(extras.member(ranks, &[4, 5], None)),
            json!({
                "worker_id": {"prefill_worker_id": 1, "prefill_dp_rank": 3,
                    "decode_worker_id": u64::MAX, "decode_dp_rank": 0},
                "completion_token_ids": [4, 5],
            })
        );
        let data = json!({"routed_experts": [1], "cached_tokens_details": {"host": 3}});
        let ended =
            Ended { finish: Finish::Stop, stop: Some("a\"b"), engine_data: Some(&data), timing: timing() };
        let last = read(extras.member(None, &[], Some(ended)));
        assert_eq!(last["prompt_token_ids"], json!([7, 8]));
        assert_eq!((&last["stop_reason"], &last["detailed_finish_reason"]), (&json!("a\"b"), &json!("stop")));
        assert_eq!((&last["engine_data"], &last["routed_experts"]), (&data, &json!([1])));
        assert_eq!(last.get("prompt_logprobs"), None, "the engine told none");
        let times = &last["timing"];
        assert_eq!(
            [
                &times["prefill_wait_time_ms"],
                &times["prefill_time_ms"],
                &times["ttft_ms"],
                &times["total_time_ms"]
            ],
            [&json!(5.0), &json!(20.0), &json!(25.0), &json!(100.0)]
        );
        assert_eq!((&times["kv_hit_rate"], &times["router_queue_depth"]), (&json!(0.5), &json!(3)));
        assert!(times["request_received_ms"].as_f64().is_some_and(|ms| ms > 1.5e12));
    }
}
