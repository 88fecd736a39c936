use bytes::Bytes;
use serde::Deserialize;

use crate::fields::Fields;
use crate::{ApiError, FieldPolicy, Flavor, Generation, Ignored};

/// Most prompts of one request.
pub const MAX_PROMPTS: usize = 128;

/// What a completion continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Text, encoded with the tokens that the tokenizer puts around text.
    Text(String),
    /// Token ids, checked against the vocabulary later.
    Ids(Vec<u32>),
}

/// `POST /v1/completions`, checked.
#[derive(Debug, Clone)]
pub struct CompletionRequest {
    /// Served model name.
    pub model: String,
    /// What to continue: at least one prompt, at most [`MAX_PROMPTS`].
    pub prompts: Vec<Prompt>,
    /// How to generate and how to answer.
    pub generation: Generation,
    /// Members that had no effect.
    pub ignored: Ignored,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WirePrompt {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    IdLists(Vec<Vec<u32>>),
}

impl CompletionRequest {
    /// Splits and checks a request body.
    pub fn parse(body: &Bytes, policy: FieldPolicy) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let mut ignored = Ignored::default();
        let model: String = fields.required("model")?;
        if model.is_empty() {
            return Err(ApiError::invalid("model", "Validation: `model` must not be empty"));
        }
        let raw = fields.raw("prompt").ok_or_else(|| fields.missing("prompt"))?;
        let prompts = prompts(serde_json::from_str(raw.get()).map_err(|_| {
            ApiError::invalid("prompt", "`prompt` must be a string, a list of token ids, or a list of these")
        })?)?;
        for (name, off) in [("echo", "false"), ("suffix", "null"), ("best_of", "1")] {
            if fields.raw(name).is_some_and(|value| value.get() != off) {
                return Err(ApiError::invalid(name, format!("`{name}` is not supported")));
            }
        }
        let generation = Generation::take(&mut fields, Flavor::Completion, policy, &mut ignored)?;
        if generation.nvext.token_data.is_some() && prompts.len() > 1 {
            let text = "Validation: `nvext.token_data` stands for one prompt; `prompt` has several";
            return Err(ApiError::invalid("nvext.token_data", text));
        }
        let request = CompletionRequest { model, prompts, generation, ignored: Ignored::default() };
        fields.accept(&["user"]);
        fields.rest(policy, &mut ignored)?;
        Ok(CompletionRequest { ignored, ..request })
    }
}

fn prompts(wire: WirePrompt) -> Result<Vec<Prompt>, ApiError> {
    let prompts = match wire {
        WirePrompt::Text(text) => vec![Prompt::Text(text)],
        WirePrompt::Ids(ids) => vec![Prompt::Ids(ids)],
        WirePrompt::Texts(texts) => texts.into_iter().map(Prompt::Text).collect(),
        WirePrompt::IdLists(lists) => lists.into_iter().map(Prompt::Ids).collect(),
    };
    let invalid = |text: String| Err(ApiError::invalid("prompt", text));
    if prompts.len() > MAX_PROMPTS {
        let count = prompts.len();
        return invalid(format!(
            "Validation: `prompt` has {count} entries; one request is served for at most {MAX_PROMPTS}"
        ));
    }
    for prompt in &prompts {
        match prompt {
            Prompt::Text(text) if text.is_empty() => {
                return invalid("Validation: Prompt string cannot be empty".into());
            }
            Prompt::Ids(ids) if ids.is_empty() => {
                return invalid("Validation: `prompt` has no token ids".into());
            }
            Prompt::Text(_) | Prompt::Ids(_) => {}
        }
    }
    Ok(prompts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<CompletionRequest, ApiError> {
        CompletionRequest::parse(&Bytes::copy_from_slice(body.as_bytes()), FieldPolicy::Ignore)
    }

    #[test]
    fn prompts() {
        let prompts = |body: &str| parse(body).unwrap().prompts;
        let (text, ids) = (|text: &str| Prompt::Text(text.into()), |ids: &[u32]| Prompt::Ids(ids.into()));
        assert_eq!(prompts(r#"{"model":"m","prompt":"a"}"#), [text("a")]);
        assert_eq!(prompts(r#"{"model":"m","prompt":["a"]}"#), [text("a")]);
        assert_eq!(prompts(r#"{"model":"m","prompt":["a","b","a"]}"#), [text("a"), text("b"), text("a")]);
        assert_eq!(prompts(r#"{"model":"m","prompt":[1,2]}"#), [ids(&[1, 2])]);
        assert_eq!(prompts(r#"{"model":"m","prompt":[[1,2]]}"#), [ids(&[1, 2])]);
        assert_eq!(prompts(r#"{"model":"m","prompt":[[1,2],[3]]}"#), [ids(&[1, 2]), ids(&[3])]);
        let many = |count: usize| format!(r#"{{"model":"m","prompt":{:?}}}"#, vec!["a"; count]);
        assert_eq!(prompts(&many(MAX_PROMPTS)).len(), MAX_PROMPTS);
        let refused = parse(&many(MAX_PROMPTS + 1)).unwrap_err();
        assert_eq!(refused.status(), 400);
        assert!(refused.message().contains("129 entries"), "{}", refused.message());
    }

    #[test]
    fn probabilities_and_biases() {
        let r = parse(r#"{"model":"m","prompt":"a","logprobs":0,"logit_bias":{"5":-1.5,"12":100}}"#).unwrap();
        assert_eq!(r.generation.output.logprobs, Some(0));
        assert_eq!(r.generation.sampling.logit_bias, [(5, -1.5), (12, 100.0)].into());
        let none = parse(r#"{"model":"m","prompt":"a","logit_bias":{}}"#).unwrap();
        assert!(none.generation.output.logprobs.is_none() && none.generation.sampling.logit_bias.is_empty());
    }

    #[test]
    fn refusals() {
        for (body, status) in [
            (r#"{"model":"m","prompt":""}"#, 400),
            (r#"{"model":"m","prompt":[]}"#, 400),
            (r#"{"model":"m","prompt":{}}"#, 400),
            (r#"{"model":"m"}"#, 400),
            (r#"{"model":"m","prompt":["a",""]}"#, 400),
            (r#"{"model":"m","prompt":[[1],[]]}"#, 400),
            (r#"{"model":"m","prompt":["a",1]}"#, 400),
            (r#"{"model":"m","prompt":["a","b"],"nvext":{"token_data":[1]}}"#, 400),
            (r#"{"model":"m","prompt":"a","echo":true}"#, 400),
            (r#"{"model":"m","prompt":"a","best_of":2}"#, 400),
            (r#"{"model":"m","prompt":"a","logprobs":6}"#, 400),
            (r#"{"model":"m","prompt":"a","logit_bias":{"x":1}}"#, 400),
            (r#"{"model":"m","prompt":"a","logit_bias":{"5":101}}"#, 400),
        ] {
            assert_eq!(parse(body).expect_err(body).status(), status, "{body}");
        }
        assert!(parse(r#"{"model":"m","prompt":"a","echo":false,"suffix":null,"best_of":1}"#).is_ok());
    }
}
