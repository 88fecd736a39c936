//! Log probabilities of generated tokens, each given out with the text it belongs to.

use std::collections::VecDeque;

use roost_openai::{Likely, TokenLogprob};
use roost_tokenizer::Tokenizer;
use roost_wire::message::{EngineOutput, TopLogprob};

/// What the request wants to know.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Says what tokens spell.
    pub(crate) tokenizer: Tokenizer,
    /// Alternatives are shown.
    pub(crate) alternatives: bool,
    /// Tokens are named by their ids.
    pub(crate) as_ids: bool,
}

/// Log probabilities of one sequence: those of text that is held back wait with it.
#[derive(Debug)]
pub(crate) struct Logprobs {
    wanted: Wanted,
    waiting: VecDeque<Waiting>,
    /// Bytes of decoded text.
    decoded: usize,
    /// Bytes of it that have passed the stop strings.
    passed: usize,
    ready: Vec<TokenLogprob>,
}

/// A token whose text has not passed yet: bytes `start..end` of the decoded text.
#[derive(Debug)]
struct Waiting {
    token: TokenLogprob,
    start: usize,
    end: usize,
}

impl Logprobs {
    pub(crate) fn new(wanted: Wanted) -> Self {
        Logprobs { wanted, waiting: VecDeque::new(), decoded: 0, passed: 0, ready: Vec::new() }
    }

    /// Takes token `at` of an item, which completed `text_len` bytes of text. A token without a probability is left
    /// out; one without text of its own, be it a part of a character, goes with the text after it.
    pub(crate) fn token(&mut self, output: &EngineOutput, at: usize, text_len: usize) {
        let start = self.decoded;
        self.decoded += text_len;
        let Some(logprob) = output.log_probs.as_ref().and_then(|list| list.get(at)) else { return };
        let id = output.token_ids[at];
        let chosen = self.wanted.likely(id, None, *logprob);
        let mut top = Vec::new();
        if self.wanted.alternatives {
            let told =
                output.top_logprobs.as_ref().and_then(|list| list.get(at)).map_or(&[][..], Vec::as_slice);
            top.extend(told.iter().map(|told| self.wanted.likely(told.token_id, Some(told), told.logprob)));
            if told.iter().all(|told| told.token_id != id) {
                top.push(chosen.clone());
            }
        }
        let token = TokenLogprob { id, chosen, top };
        self.waiting.push_back(Waiting { token, start, end: start + text_len.max(1) });
    }

    /// So many more bytes of text have passed: what belongs to them is ready.
    pub(crate) fn passed(&mut self, bytes: usize) {
        self.passed += bytes;
        let count = self.waiting.iter().take_while(|waiting| waiting.end <= self.passed).count();
        self.ready.extend(self.waiting.drain(..count).map(|waiting| waiting.token));
    }

    /// The sequence has ended. After a stop string, tokens that lie wholly in what was cut off are left out.
    pub(crate) fn finish(&mut self, stopped: bool) {
        let shown = |waiting: &Waiting| !stopped || waiting.start < self.passed;
        self.ready.extend(self.waiting.drain(..).filter(shown).map(|waiting| waiting.token));
    }

    /// What is ready; the taker empties it.
    pub(crate) fn ready(&mut self) -> &mut Vec<TokenLogprob> {
        &mut self.ready
    }
}

impl Wanted {
    fn likely(&self, id: u32, told: Option<&TopLogprob>, logprob: f64) -> Likely {
        if self.as_ids {
            let token = format!("token_id:{id}");
            return Likely { bytes: token.as_bytes().into(), token, logprob };
        }
        match (self.tokenizer.id_to_bytes(id), told) {
            (Some(bytes), _) => {
                Likely { token: String::from_utf8_lossy(bytes).into_owned(), bytes: bytes.into(), logprob }
            }
            // A token that our files do not have: the worker's word counts.
            (None, told) => {
                let token = told.and_then(|told| told.token.clone()).unwrap_or_default();
                let bytes =
                    told.and_then(|told| told.bytes.clone()).unwrap_or_else(|| token.clone().into_bytes());
                Likely { token, bytes: bytes.into(), logprob }
            }
        }
    }
}
