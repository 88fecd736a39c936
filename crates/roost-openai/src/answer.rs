use bytes::{BufMut, BytesMut};

use crate::json::{write_string, write_u64};
use crate::{Finish, Flavor, Usage};

/// What a unary answer says.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Generated text; empty is written as `null` in a chat message.
    pub text: &'a str,
    /// Name of the member and text of the reasoning; left out when empty.
    pub reasoning: (&'a str, &'a str),
    /// Tool calls, in order.
    pub tool_calls: &'a [ToolCall],
    /// Why it ended.
    pub finish: Finish,
    /// Token counts.
    pub usage: Usage,
    /// `nvext` member, a complete JSON object.
    pub nvext: Option<&'a str>,
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
        match self.flavor {
            Flavor::Chat => {
                out.put_slice(b",\"choices\":[{\"index\":0,\"message\":{\"content\":");
                if answer.text.is_empty() {
                    out.put_slice(b"null");
                } else {
                    write_string(out, answer.text);
                }
                out.put_slice(b",\"refusal\":null");
                write_calls(out, answer.tool_calls);
                out.put_slice(b",\"role\":\"assistant\"");
                let (member, reasoning) = answer.reasoning;
                if !reasoning.is_empty() {
                    out.put_u8(b',');
                    write_string(out, member);
                    out.put_u8(b':');
                    write_string(out, reasoning);
                }
                out.put_slice(b"},\"finish_reason\":");
                write_string(out, answer.finish.as_str());
                out.put_slice(b",\"logprobs\":null}]");
            }
            Flavor::Completion => {
                out.put_slice(b",\"choices\":[{\"text\":");
                write_string(out, answer.text);
                out.put_slice(b",\"index\":0,\"finish_reason\":");
                write_string(out, answer.finish.as_str());
                out.put_slice(b"}]");
            }
        }
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
                text: "\n",
                reasoning: ("reasoning_content", "need it"),
                tool_calls: &[call],
                finish: Finish::ToolCalls,
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

    /// Bodies of the recorded exchanges `think_tag_passes_through` and `completion_unary`.
    #[test]
    fn equal_to_the_peer() {
        let cases = [
            (
                AnswerWriter { flavor: Flavor::Chat, id: "chatcmpl-<uuid>", model: "qwen3", created: 7 },
                Answer {
                    text: "<think>why</think>ok",
                    reasoning: ("reasoning_content", ""),
                    tool_calls: &[],
                    finish: Finish::Stop,
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
                    text: "Hi there",
                    reasoning: ("reasoning_content", ""),
                    tool_calls: &[],
                    finish: Finish::Stop,
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
