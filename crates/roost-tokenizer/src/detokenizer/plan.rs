//! The `decoder` section of `tokenizer.json` as a rule per token.

use std::sync::LazyLock;

use serde_json::Value;

/// What the bytes of one token are, and what happens at the start of a text.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    steps: Vec<Step>,
    /// Characters to drop from the very start of a text: which one and how many at most.
    pub(crate) strip_start: Option<(char, usize)>,
    /// The first token of a text loses its space markers.
    pub(crate) first_differs: bool,
    /// How bytes that are not UTF-8 are shown.
    pub(crate) invalid: InvalidBytes,
}

/// How many replacement characters an invalid run of bytes becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum InvalidBytes {
    /// One per maximal invalid sequence (byte-level models).
    PerSequence,
    /// One per byte (models with byte fallback tokens).
    PerByte,
}

#[derive(Debug, PartialEq)]
enum Step {
    Replace { pattern: String, content: String },
    Metaspace { replacement: char, drop_in_first: bool },
    StripToken { content: char, start: usize },
    ByteFallback,
    ByteLevel,
}

impl Plan {
    /// Tokens are spelled in the byte-level alphabet.
    pub(crate) fn byte_level() -> Self {
        Self {
            steps: vec![Step::ByteLevel],
            strip_start: None,
            first_differs: false,
            invalid: InvalidBytes::PerSequence,
        }
    }

    pub(crate) fn from_json(decoder: &Value) -> Option<Self> {
        let mut plan = Self {
            steps: Vec::new(),
            strip_start: None,
            first_differs: false,
            invalid: InvalidBytes::PerSequence,
        };
        let single = std::slice::from_ref(decoder);
        let parts = match kind(decoder)? {
            "Sequence" => decoder.get("decoders")?.as_array()?.as_slice(),
            _ => single,
        };
        let mut fused = false;
        for part in parts {
            fused |= plan.add(part, fused)?;
        }
        Some(plan)
    }

    /// Adds one decoder of the chain. True when the tokens are one string after it.
    fn add(&mut self, part: &Value, fused: bool) -> Option<bool> {
        match kind(part)? {
            "Fuse" => return Some(true),
            "Strip" => {
                let content = single_char(part.get("content")?)?;
                let start = part.get("start")?.as_u64()? as usize;
                // A cut at the end of the text is not known while the text still grows.
                if part.get("stop")?.as_u64()? != 0 {
                    return None;
                }
                match (fused, start) {
                    (_, 0) => {}
                    (true, _) => self.strip_start = Some((content, start)),
                    (false, _) => self.steps.push(Step::StripToken { content, start }),
                }
            }
            _ if fused => return None,
            "ByteLevel" => {
                self.steps.push(Step::ByteLevel);
                return Some(true);
            }
            "ByteFallback" => {
                self.invalid = InvalidBytes::PerByte;
                self.steps.push(Step::ByteFallback);
            }
            "Metaspace" => {
                let never = part.get("prepend_scheme").and_then(Value::as_str) == Some("never")
                    || part.get("add_prefix_space").and_then(Value::as_bool) == Some(false);
                let replacement = single_char(part.get("replacement")?)?;
                self.first_differs |= !never;
                self.steps.push(Step::Metaspace { replacement, drop_in_first: !never });
            }
            "Replace" => {
                let pattern = part.get("pattern")?.get("String")?.as_str()?.to_owned();
                let content = part.get("content")?.as_str()?.to_owned();
                self.steps.push(Step::Replace { pattern, content });
            }
            _ => return None,
        }
        Some(false)
    }

    /// Appends the bytes of `token`. `first`: it is the first token of the text.
    pub(crate) fn bytes(&self, token: &str, first: bool, out: &mut Vec<u8>) {
        let mut text = std::borrow::Cow::Borrowed(token);
        for step in &self.steps {
            match step {
                Step::Replace { pattern, content } if text.contains(pattern.as_str()) => {
                    text = text.replace(pattern.as_str(), content).into();
                }
                Step::Replace { .. } => {}
                Step::Metaspace { replacement, drop_in_first } => {
                    let space = if first && *drop_in_first { "" } else { " " };
                    text = text.replace(*replacement, space).into();
                }
                Step::StripToken { content, start } => {
                    let cut = text.chars().take(*start).take_while(|c| c == content).count();
                    text = text.chars().skip(cut).collect::<String>().into();
                }
                Step::ByteFallback => {
                    if let Some(byte) = fallback_byte(&text) {
                        out.push(byte);
                        return;
                    }
                }
                Step::ByteLevel => {
                    let start = out.len();
                    for c in text.chars() {
                        match byte_of_char(c) {
                            Some(byte) => out.push(byte),
                            None => {
                                // A token with a character outside the alphabet stands for its own spelling.
                                out.truncate(start);
                                out.extend_from_slice(text.as_bytes());
                                return;
                            }
                        }
                    }
                    return;
                }
            }
        }
        out.extend_from_slice(text.as_bytes());
    }
}

fn kind(decoder: &Value) -> Option<&str> {
    decoder.get("type")?.as_str()
}

fn single_char(value: &Value) -> Option<char> {
    let mut chars = value.as_str()?.chars();
    let first = chars.next()?;
    chars.next().is_none().then_some(first)
}

/// The byte of a `<0xNN>` token.
fn fallback_byte(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 { u8::from_str_radix(hex, 16).ok() } else { None }
}

/// Bytes as the byte-level alphabet spells them.
pub(crate) fn spelled(bytes: &[u8]) -> String {
    static ALPHABET: LazyLock<[char; 256]> = LazyLock::new(|| {
        let mut alphabet = ['\0'; 256];
        for c in (0x21..=0x143).filter_map(char::from_u32) {
            if let Some(byte) = byte_of_char(c) {
                alphabet[usize::from(byte)] = c;
            }
        }
        alphabet
    });
    bytes.iter().map(|byte| ALPHABET[usize::from(*byte)]).collect()
}

/// Inverse of the byte-level alphabet: printable Latin-1 stands for itself, the other 68 bytes are
/// numbered from U+0100 in byte order.
fn byte_of_char(c: char) -> Option<u8> {
    match c as u32 {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}
