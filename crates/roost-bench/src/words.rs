//! Text like source code, made from the name of a block.

use fastrand::Rng;

/// Words that are one token with a space before them in the vocabularies of current models.
const WORDS: &[&str] = &[
    "return", "value", "index", "function", "const", "result", "error", "string", "length", "count", "data",
    "name", "list", "node", "path", "file", "line", "user", "time", "state", "key", "type", "self", "class",
    "import", "from", "while", "match", "else", "break", "none", "true", "false", "update", "buffer",
    "parse", "token", "cache", "worker", "request", "response", "session", "message", "context", "config",
    "default", "option", "event", "handle", "stream", "the", "which", "with", "this", "that", "when",
    "before", "after", "until", "every", "first", "last", "next", "check", "write", "read", "open", "close",
    "start", "stop", "create", "delete", "insert", "remove", "find", "test",
];
/// What stands between them; each is one token or two.
const MARKS: &[&str] =
    &["(", ")", ", ", ": ", " = ", ".", "[", "]", " == ", " -> ", "_", ";\\n", "\\n", "\\n    ", " + "];

/// Appends about `tokens` tokens of text to `out`, escaped for a JSON string. The same name gives the same text.
pub(crate) fn write(out: &mut String, name: u64, tokens: u32) {
    let mut rng = Rng::with_seed(name);
    let mut left = i64::from(tokens);
    while left > 0 {
        match rng.u32(0..16) {
            0..9 => {
                if rng.u32(0..3) > 0 {
                    out.push(' ');
                }
                out.push_str(WORDS[rng.usize(..WORDS.len())]);
                left -= 1;
            }
            9..15 => {
                out.push_str(MARKS[rng.usize(..MARKS.len())]);
                left -= 1;
            }
            _ => {
                for _ in 0..3 {
                    out.push(char::from(b'0' + rng.u8(0..10)));
                }
                left -= 2;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_text_and_names_differ() {
        let text = |name| {
            let mut text = String::new();
            write(&mut text, name, 64);
            text
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
        let read: String = serde_json::from_str(&format!("\"{}\"", text(3))).expect("it is escaped");
        assert!(read.len() > 64, "{read}");
    }
}
