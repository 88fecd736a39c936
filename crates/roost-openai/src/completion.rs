use bytes::Bytes;
use serde::Deserialize;

use crate::fields::Fields;
use crate::{ApiError, FieldPolicy, Flavor, Generation, Ignored};

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
    /// What to continue.
    pub prompt: Prompt,
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
        let prompt = prompt(serde_json::from_str(raw.get()).map_err(|_| {
            ApiError::invalid(
                "prompt",
                "`prompt` must be a string, a list of token ids, or a list with one of these",
            )
        })?)?;
        for (name, off) in [("echo", "false"), ("suffix", "null"), ("best_of", "1")] {
            if fields.raw(name).is_some_and(|value| value.get() != off) {
                return Err(ApiError::invalid(name, format!("`{name}` is not supported")));
            }
        }
        let generation = Generation::take(&mut fields, Flavor::Completion, policy, &mut ignored)?;
        let request = CompletionRequest { model, prompt, generation, ignored: Ignored::default() };
        fields.accept(&["user"]);
        fields.rest(policy, &mut ignored)?;
        Ok(CompletionRequest { ignored, ..request })
    }
}

fn prompt(wire: WirePrompt) -> Result<Prompt, ApiError> {
    let prompt = match wire {
        WirePrompt::Text(text) => Prompt::Text(text),
        WirePrompt::Ids(ids) => Prompt::Ids(ids),
        WirePrompt::Texts(mut texts) if texts.len() == 1 => Prompt::Text(texts.remove(0)),
        WirePrompt::IdLists(mut lists) if lists.len() == 1 => Prompt::Ids(lists.remove(0)),
        WirePrompt::Texts(_) | WirePrompt::IdLists(_) => {
            return Err(ApiError::not_implemented(
                "prompt",
                "More than one prompt per request is not served yet.",
            ));
        }
    };
    match &prompt {
        Prompt::Text(text) if text.is_empty() => {
            Err(ApiError::invalid("prompt", "Validation: Prompt string cannot be empty"))
        }
        Prompt::Ids(ids) if ids.is_empty() => {
            Err(ApiError::invalid("prompt", "Validation: `prompt` has no token ids"))
        }
        _ => Ok(prompt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<CompletionRequest, ApiError> {
        CompletionRequest::parse(&Bytes::copy_from_slice(body.as_bytes()), FieldPolicy::Ignore)
    }

    #[test]
    fn prompts() {
        let prompt = |body: &str| parse(body).unwrap().prompt;
        assert_eq!(prompt(r#"{"model":"m","prompt":"a"}"#), Prompt::Text("a".into()));
        assert_eq!(prompt(r#"{"model":"m","prompt":["a"]}"#), Prompt::Text("a".into()));
        assert_eq!(prompt(r#"{"model":"m","prompt":[1,2]}"#), Prompt::Ids(vec![1, 2]));
        assert_eq!(prompt(r#"{"model":"m","prompt":[[1,2]]}"#), Prompt::Ids(vec![1, 2]));
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
            (r#"{"model":"m","prompt":["a","b"]}"#, 501),
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
