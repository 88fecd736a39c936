use bytes::{BufMut, BytesMut};

use crate::json::{write_string, write_u64};
use crate::{Finish, Flavor, Usage};

/// What a unary answer says.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// Generated text; empty is written as `null` in a chat message.
    pub text: &'a str,
    /// Why it ended.
    pub finish: Finish,
    /// Token counts.
    pub usage: Usage,
    /// `nvext` member, a complete JSON object.
    pub nvext: Option<&'a str>,
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
                out.put_slice(b",\"refusal\":null,\"role\":\"assistant\"},\"finish_reason\":");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bodies of the recorded exchanges `think_tag_passes_through` and `completion_unary`.
    #[test]
    fn equal_to_the_peer() {
        let cases = [
            (
                AnswerWriter { flavor: Flavor::Chat, id: "chatcmpl-<uuid>", model: "qwen3", created: 7 },
                Answer {
                    text: "<think>why</think>ok",
                    finish: Finish::Stop,
                    usage: Usage { prompt_tokens: 19, completion_tokens: 4, cached_tokens: None },
                    nvext: None,
                },
                r#"{"id":"chatcmpl-<uuid>","choices":[{"index":0,"message":{"content":"<think>why</think>ok","refusal":null,"role":"assistant"},"finish_reason":"stop","logprobs":null}],"created":7,"model":"qwen3","object":"chat.completion","usage":{"prompt_tokens":19,"completion_tokens":4,"total_tokens":23}}"#,
            ),
            (
                AnswerWriter { flavor: Flavor::Completion, id: "cmpl-<uuid>", model: "qwen3", created: 7 },
                Answer {
                    text: "Hi there",
                    finish: Finish::Stop,
                    usage: Usage { prompt_tokens: 8, completion_tokens: 2, cached_tokens: None },
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
