use bytes::{BufMut, BytesMut};

use crate::Flavor;
use crate::json::{write_string, write_u64};

/// Log probability that stands for minus infinity, which JSON cannot say; OpenAI's own value.
const LEAST: f64 = -9999.0;

/// What `logprobs` says about one generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub id: u32,
    /// Its text and probability.
    pub chosen: Likely,
    /// The likeliest tokens at its place, the likeliest first.
    pub top: Vec<Likely>,
}

/// A token and how likely it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Likely {
    /// Text of the token alone; bytes that are no character are U+FFFD.
    pub token: String,
    /// Bytes of the token; those of neighbours make up whole characters.
    pub bytes: Box<[u8]>,
    /// Natural logarithm of its probability.
    pub logprob: f64,
}

/// Writes the value of a `logprobs` member. A chat chunk without any says `null`.
pub(crate) fn write(out: &mut BytesMut, flavor: Flavor, tokens: &[TokenLogprob]) {
    match flavor {
        Flavor::Chat if tokens.is_empty() => out.put_slice(b"null"),
        Flavor::Chat => chat(out, tokens),
        Flavor::Completion => completion(out, tokens),
    }
}

fn chat(out: &mut BytesMut, tokens: &[TokenLogprob]) {
    out.put_slice(b"{\"content\":[");
    list(out, tokens, |out, token| {
        head(out, &token.chosen);
        out.put_slice(b",\"token_id\":");
        write_u64(out, u64::from(token.id));
        bytes(out, &token.chosen.bytes);
        out.put_slice(b",\"top_logprobs\":[");
        list(out, &token.top, |out, likely| {
            head(out, likely);
            bytes(out, &likely.bytes);
            out.put_u8(b'}');
        });
        out.put_slice(b"]}");
    });
    out.put_slice(b"],\"refusal\":null}");
}

fn completion(out: &mut BytesMut, tokens: &[TokenLogprob]) {
    out.put_slice(b"{\"tokens\":[");
    list(out, tokens, |out, token| write_string(out, &token.chosen.token));
    out.put_slice(b"],\"token_logprobs\":[");
    list(out, tokens, |out, token| number(out, token.chosen.logprob));
    out.put_slice(b"],\"top_logprobs\":[");
    list(out, tokens, |out, token| {
        out.put_u8(b'{');
        // Tokens that are parts of characters can look the same; the likeliest of them is shown.
        let distinct: Vec<&Likely> = (token.top.iter().enumerate())
            .filter(|(at, likely)| token.top[..*at].iter().all(|before| before.token != likely.token))
            .map(|(_, likely)| likely)
            .collect();
        list(out, &distinct, |out, likely| {
            write_string(out, &likely.token);
            out.put_u8(b':');
            number(out, likely.logprob);
        });
        out.put_u8(b'}');
    });
    out.put_slice(b"],\"text_offset\":[]}");
}

fn head(out: &mut BytesMut, likely: &Likely) {
    out.put_slice(b"{\"token\":");
    write_string(out, &likely.token);
    out.put_slice(b",\"logprob\":");
    number(out, likely.logprob);
}

fn bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_slice(b",\"bytes\":[");
    list(out, bytes, |out, byte| write_u64(out, u64::from(*byte)));
    out.put_u8(b']');
}

/// Engines compute in single precision: more digits than that say nothing.
fn number(out: &mut BytesMut, value: f64) {
    let value = if value.is_finite() { value } else { LEAST };
    serde_json::to_writer(out.writer(), &(value as f32)).expect("a buffer takes every number");
}

fn list<T>(out: &mut BytesMut, items: &[T], mut write: impl FnMut(&mut BytesMut, &T)) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        write(out, item);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn likely(token: &str, bytes: &[u8], logprob: f64) -> Likely {
        Likely { token: token.into(), bytes: bytes.into(), logprob }
    }

    fn written(flavor: Flavor, tokens: &[TokenLogprob]) -> String {
        let mut out = BytesMut::new();
        write(&mut out, flavor, tokens);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn infinities_and_single_precision() {
        let top = vec![likely("a", b"a", f64::NEG_INFINITY), likely("b", b"b", -0.123_456_701_636_314_4)];
        let token = TokenLogprob { id: 7, chosen: likely("a", b"a", f64::NAN), top };
        let value: Value = serde_json::from_str(&written(Flavor::Chat, &[token])).unwrap();
        assert_eq!(value["content"][0]["logprob"], json!(-9999.0));
        assert_eq!(value["content"][0]["top_logprobs"][0]["logprob"], json!(-9999.0));
        assert_eq!(value["content"][0]["top_logprobs"][1]["logprob"].to_string(), "-0.1234567");
    }

    #[test]
    fn tokens_that_look_the_same_are_one_member() {
        let half = |byte: u8, logprob| likely("\u{fffd}", &[byte], logprob);
        let token =
            TokenLogprob { id: 7, chosen: half(240, -1.0), top: vec![half(240, -1.0), half(159, -2.0)] };
        let text = written(Flavor::Completion, &[token]);
        assert_eq!(text.matches("\u{fffd}\":").count(), 1, "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["top_logprobs"][0]["\u{fffd}"], json!(-1.0));
    }
}
