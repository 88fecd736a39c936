//! What is read from a streamed answer.

use std::time::{Duration, Instant};

use memchr::memmem;
use serde::Deserialize;

/// One request's answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    /// From sending to the first text.
    pub(crate) first_token: Option<Duration>,
    /// From sending to the last text.
    pub(crate) last_token: Option<Duration>,
    /// From sending to the end.
    pub(crate) total: Duration,
    /// As the server counts.
    pub(crate) prompt_tokens: u64,
    /// As the server counts.
    pub(crate) cached_tokens: u64,
    /// As the server counts.
    pub(crate) output_tokens: u64,
    /// The worker that answered, where the server tells.
    pub(crate) worker: Option<String>,
}

/// Reads the events of one answer as their bytes arrive.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    sent: Instant,
    open: Vec<u8>,
    answer: Answer,
    finished: bool,
    done: bool,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Chunk {
    usage: Option<Usage>,
    nvext: Option<serde_json::Value>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl AnswerReader {
    pub(crate) fn new(sent: Instant) -> Self {
        Self { sent, open: Vec::new(), answer: Answer::default(), finished: false, done: false, error: None }
    }

    /// Takes bytes that arrived at `now`.
    pub(crate) fn push(&mut self, bytes: &[u8], now: Instant) {
        let mut open = std::mem::take(&mut self.open);
        open.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(end) = memmem::find(&open[start..], b"\n\n") {
            self.event(&open[start..start + end], now);
            start += end + 2;
        }
        open.drain(..start);
        self.open = open;
    }

    fn event(&mut self, event: &[u8], now: Instant) {
        let Some(data) = event.strip_prefix(b"data: ") else {
            if event.starts_with(b"event: error") {
                self.error = Some(String::from_utf8_lossy(event).into_owned());
            }
            return;
        };
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let has = |needle: &[u8]| memmem::find(data, needle).is_some();
        let text = [&b"\"content\":\""[..], b"\"reasoning_content\":\"", b"\"arguments\":\""];
        if text.iter().any(|name| memmem::find(data, name).is_some_and(|at| data[at + name.len()] != b'"')) {
            let since = now.saturating_duration_since(self.sent);
            self.answer.first_token.get_or_insert(since);
            self.answer.last_token = Some(since);
        }
        self.finished |= has(b"\"finish_reason\":\"");
        if !(has(b"\"usage\":{") || has(b"\"worker_id\"") || has(b"\"error\"")) {
            return;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk>(data) else {
            self.error = Some("an event is not JSON".to_owned());
            return;
        };
        if let Some(usage) = chunk.usage {
            self.answer.prompt_tokens = usage.prompt_tokens;
            self.answer.output_tokens = usage.completion_tokens;
            self.answer.cached_tokens =
                usage.prompt_tokens_details.and_then(|d| d.cached_tokens).unwrap_or(0);
        }
        let worker = chunk.nvext.as_ref().map(|nvext| &nvext["worker_id"]);
        if let Some(worker) = worker.filter(|worker| !worker.is_null()) {
            let decode = &worker["decode_worker_id"];
            self.answer.worker = Some(if decode.is_null() { worker } else { decode }.to_string());
        }
        if let Some(error) = chunk.error {
            self.error = Some(error.to_string());
        }
    }

    /// The stream has ended. An answer without text, finish reason or `[DONE]` is none.
    pub(crate) fn end(mut self, now: Instant) -> Result<Answer, String> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.finished || !self.done {
            return Err("the answer was cut".to_owned());
        }
        self.answer.total = now.saturating_duration_since(self.sent);
        Ok(self.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&str]) -> Result<Answer, String> {
        let sent = Instant::now();
        let mut reader = AnswerReader::new(sent);
        for (at, part) in parts.iter().enumerate() {
            reader.push(part.as_bytes(), sent + Duration::from_millis(at as u64 + 1));
        }
        reader.end(sent + Duration::from_millis(100))
    }

    const ROLE: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
    const LAST: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n";
    const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\
                         \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    #[test]
    fn events_are_read_however_their_bytes_arrive() {
        let answer = read(&[ROLE, ": alive\n\n", &TEXT[..20], &TEXT[20..], LAST, &[USAGE, DONE].concat()]);
        let answer = answer.expect("it is whole");
        let ms = Duration::from_millis;
        assert_eq!(
            (answer.first_token, answer.last_token, answer.total),
            (Some(ms(4)), Some(ms(5)), ms(100))
        );
        assert_eq!((answer.prompt_tokens, answer.cached_tokens, answer.output_tokens), (9, 4, 2));
    }

    #[test]
    fn what_is_cut_or_failed_is_no_answer() {
        assert_eq!(read(&[ROLE, TEXT]), Err("the answer was cut".into()));
        assert_eq!(read(&[ROLE, TEXT, LAST]), Err("the answer was cut".into()));
        let error = read(&[TEXT, "data: {\"error\":{\"code\":503}}\n\n", DONE]);
        assert_eq!(error, Err("{\"code\":503}".into()));
    }
}
