use bytes::{BufMut, BytesMut};

use crate::json::{write_string, write_u64};
use crate::{Finish, Flavor, TokenLogprob, Usage, logprobs};

/// What a unary answer says.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// The generated sequences, in order.
    pub choices: &'a [AnswerChoice<'a>],
    /// Name of the member that carries reasoning.
    pub reasoning_field: &'a str,
    /// Token counts.
    pub usage: Usage,
    /// `nvext` member, a complete JSON object.
    pub nvext: Option<&'a str>,
}

/// One generated sequence.
#[derive(Debug, Clone, Copy)]
pub struct AnswerChoice<'a> {
    /// Generated text; empty is written as `null` in a chat message.
    pub text: &'a str,
    /// Text of the reasoning; left out when empty.
    pub reasoning: &'a str,
    /// Tool calls, in order.
    pub tool_calls: &'a [ToolCall],
    /// Why it ended.
    pub finish: Finish,
    /// Log probabilities of its tokens; empty when they are not known or not wanted.
    pub logprobs: &'a [TokenLogprob],
}

/// One complete tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Id of the call.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// Arguments, JSON as the model wrote it.
    pub arguments: String,
}

/// Writes the body of a unary answer.
#[derive(Debug)]
pub struct AnswerWriter<'a> {
    /// The API.
    pub flavor: Flavor,
    /// Answer id with its prefix.
    pub id: &'a str,
    /// Served model name.
    pub model: &'a str,
    /// Unix seconds.
    pub created: u64,
}

impl AnswerWriter<'_> {
    /// Appends the JSON body to `out`.
    pub fn write(&self, out: &mut BytesMut, answer: &Answer<'_>) {
        out.put_slice(b"{\"id\":");
        write_string(out, self.id);
        out.put_slice(b",\"choices\":[");
        for (index, choice) in (0u64..).zip(answer.choices) {
            if index > 0 {
                out.put_u8(b',');
            }
            self.choice(out, index, choice, answer.reasoning_field);
        }
        out.put_u8(b']');
        out.put_slice(b",\"created\":");
        write_u64(out, self.created);
        out.put_slice(b",\"model\":");
        write_string(out, self.model);
        out.put_slice(match self.flavor {
            Flavor::Chat => b",\"object\":\"chat.completion\",\"usage\":".as_slice(),
            Flavor::Completion => {
                b",\"system_fingerprint\":null,\"object\":\"text_completion\",\"usage\":".as_slice()
            }
        });
        answer.usage.write(out);
        if let Some(nvext) = answer.nvext {
            out.put_slice(b",\"nvext\":");
            out.put_slice(nvext.as_bytes());
        }
        out.put_u8(b'}');
    }

    fn choice(&self, out: &mut BytesMut, index: u64, choice: &AnswerChoice<'_>, reasoning_field: &str) {
        match self.flavor {
            Flavor::Chat => {
                out.put_slice(b"{\"index\":");
                write_u64(out, index);
                out.put_slice(b",\"message\":{\"content\":");
                if choice.text.is_empty() {
                    out.put_slice(b"null");
                } else {
                    write_string(out, choice.text);
                }
                out.put_slice(b",\"refusal\":null");
                write_calls(out, choice.tool_calls);
                out.put_slice(b",\"role\":\"assistant\"");
                if !choice.reasoning.is_empty() {
                    out.put_u8(b',');
                    write_string(out, reasoning_field);
                    out.put_u8(b':');
                    write_string(out, choice.reasoning);
                }
                out.put_slice(b"},\"finish_reason\":");
                write_string(out, choice.finish.as_str());
                out.put_slice(b",\"logprobs\":");
                logprobs::write(out, self.flavor, choice.logprobs);
            }
            Flavor::Completion => {
                out.put_slice(b"{\"text\":");
                write_string(out, choice.text);
                out.put_slice(b",\"index\":");
                write_u64(out, index);
                if !choice.logprobs.is_empty() {
                    out.put_slice(b",\"logprobs\":");
                    logprobs::write(out, self.flavor, choice.logprobs);
                }
                out.put_slice(b",\"finish_reason\":");
                write_string(out, choice.finish.as_str());
            }
        }
        out.put_u8(b'}');
    }
}

fn write_calls(out: &mut BytesMut, calls: &[ToolCall]) {
    if calls.is_empty() {
        return;
    }
    out.put_slice(b",\"tool_calls\":[");
    for (at, call) in calls.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        out.put_slice(b"{\"id\":");
        write_string(out, &call.id);
        out.put_slice(b",\"type\":\"function\",\"function\":{\"name\":");
        write_string(out, &call.name);
        out.put_slice(b",\"arguments\":");
        write_string(out, &call.arguments);
        out.put_slice(b"}}");
    }
    out.put_u8(b']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Likely;

    /// Body of the recorded exchange `tool_with_reasoning`.
    #[test]
    fn reasoning_and_calls_equal_the_peer() {
        let call = ToolCall {
            id: "call-<uuid>".into(),
            name: "get_weather".into(),
            arguments: r#"{"city": "Paris"}"#.into(),
        };
        let mut out = BytesMut::new();
        AnswerWriter { flavor: Flavor::Chat, id: "chatcmpl-<uuid>", model: "qwen3", created: 7 }.write(
            &mut out,
            &Answer {
                choices: &[AnswerChoice {
                    text: "\n",
                    reasoning: "need it",
                    tool_calls: &[call],
                    finish: Finish::ToolCalls,
                    logprobs: &[],
                }],
                reasoning_field: "reasoning_content",
                usage: Usage {
                    prompt_tokens: 177,
                    completion_tokens: 24,
                    cached_tokens: None,
                    reasoning_tokens: Some(3),
                },
                nvext: None,
            },
        );
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            r#"{"id":"chatcmpl-<uuid>","choices":[{"index":0,"message":{"content":"\n","refusal":null,"tool_calls":[{"id":"call-<uuid>","type":"function","function":{"name":"get_weather","arguments":"{\"city\": \"Paris\"}"}}],"role":"assistant","reasoning_content":"need it"},"finish_reason":"tool_calls","logprobs":null}],"created":7,"model":"qwen3","object":"chat.completion","usage":{"prompt_tokens":177,"completion_tokens":24,"total_tokens":201,"completion_tokens_details":{"reasoning_tokens":3}}}"#
        );
    }

    /// Body of a recorded exchange.
    fn golden(name: &str) -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/http/wire_parsers.json");
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let case = json["cases"].as_array().unwrap().iter().find(|c| c["name"] == name).unwrap();
        case["response"]["body"].to_string().replace("\"<time>\"", "7")
    }

    /// The recorded exchanges `logprobs`, `completion_logprobs` and `n2_unary`.
    #[test]
    fn log_probabilities_and_choices_equal_the_peer() {
        let likely =
            |token: &str, logprob| Likely { token: token.into(), bytes: token.as_bytes().into(), logprob };
        let token = |id, text: &str, other: &str| TokenLogprob {
            id,
            chosen: likely(text, -0.5),
            top: vec![likely(text, -0.5), likely(other, -1.5)],
        };
        let chat = [token(13048, "Hi", " nob"), token(3958, " é", "ball")];
        let completion = [token(13048, "Hi", " nob"), token(1052, " there", " said")];
        let choice = |text, logprobs| AnswerChoice {
            text,
            reasoning: "",
            tool_calls: &[],
            finish: Finish::Stop,
            logprobs,
        };
        let none = choice("Hi", &[]);
        let cases = [
            (Flavor::Chat, "logprobs", vec![choice("Hi é", &chat)], (17, 2, Some(0))),
            (Flavor::Completion, "completion_logprobs", vec![choice("Hi there", &completion)], (8, 2, None)),
            (Flavor::Chat, "n2_unary", vec![none, none], (23, 2, Some(0))),
        ];
        for (flavor, name, choices, (prompt_tokens, completion_tokens, reasoning_tokens)) in cases {
            let id = if flavor == Flavor::Chat { "chatcmpl-<uuid>" } else { "cmpl-<uuid>" };
            let mut out = BytesMut::new();
            AnswerWriter { flavor, id, model: "qwen3", created: 7 }.write(
                &mut out,
                &Answer {
                    choices: &choices,
                    reasoning_field: "reasoning_content",
                    usage: Usage { prompt_tokens, completion_tokens, cached_tokens: None, reasoning_tokens },
                    nvext: None,
                },
            );
            assert_eq!(std::str::from_utf8(&out).unwrap(), golden(name));
        }
    }

    /// Bodies of the recorded exchanges `think_tag_passes_through` and `completion_unary`.
    #[test]
    fn equal_to_the_peer() {
        let cases = [
            (
                AnswerWriter { flavor: Flavor::Chat, id: "chatcmpl-<uuid>", model: "qwen3", created: 7 },
                Answer {
                    choices: &[AnswerChoice {
                        text: "<think>why</think>ok",
                        reasoning: "",
                        tool_calls: &[],
                        finish: Finish::Stop,
                        logprobs: &[],
                    }],
                    reasoning_field: "reasoning_content",
                    usage: Usage {
                        prompt_tokens: 19,
                        completion_tokens: 4,
                        cached_tokens: None,
                        reasoning_tokens: None,
                    },
                    nvext: None,
                },
                r#"{"id":"chatcmpl-<uuid>","choices":[{"index":0,"message":{"content":"<think>why</think>ok","refusal":null,"role":"assistant"},"finish_reason":"stop","logprobs":null}],"created":7,"model":"qwen3","object":"chat.completion","usage":{"prompt_tokens":19,"completion_tokens":4,"total_tokens":23}}"#,
            ),
            (
                AnswerWriter { flavor: Flavor::Completion, id: "cmpl-<uuid>", model: "qwen3", created: 7 },
                Answer {
                    choices: &[AnswerChoice {
                        text: "Hi there",
                        reasoning: "",
                        tool_calls: &[],
                        finish: Finish::Stop,
                        logprobs: &[],
                    }],
                    reasoning_field: "reasoning_content",
                    usage: Usage {
                        prompt_tokens: 8,
                        completion_tokens: 2,
                        cached_tokens: None,
                        reasoning_tokens: None,
                    },
                    nvext: None,
                },
                r#"{"id":"cmpl-<uuid>","choices":[{"text":"Hi there","index":0,"finish_reason":"stop"}],"created":7,"model":"qwen3","system_fingerprint":null,"object":"text_completion","usage":{"prompt_tokens":8,"completion_tokens":2,"total_tokens":10}}"#,
            ),
        ];
        for (writer, answer, expected) in cases {
            let mut out = BytesMut::new();
            writer.write(&mut out, &answer);
            assert_eq!(std::str::from_utf8(&out).unwrap(), expected);
        }
    }
}
