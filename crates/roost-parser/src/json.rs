//! Watching JSON go by.

/// How a character fits into a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The value goes on.
    More,
    /// The value (an object, a list or a string) is complete with this character.
    Done,
    /// A control character inside a string: invalid as it stands, valid once escaped.
    Escape,
    /// This is not JSON.
    Invalid,
}

/// Checks one JSON value, one character at a time, keeping only the nesting.
#[derive(Debug, Clone)]
pub(crate) struct JsonScan {
    /// Open containers, `true` for objects.
    open: Vec<bool>,
    state: State,
}

/// Deeper nesting than this counts as broken, so that the stack stays bounded.
const MAX_DEPTH: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Value,
    /// A value or the end of the list.
    FirstItem,
    /// A key or the end of the object.
    FirstKey,
    Key,
    Colon,
    After,
    Text {
        key: bool,
    },
    Slash {
        key: bool,
    },
    Hex {
        key: bool,
        left: u8,
    },
    Number(Number),
    /// Inside `true`, `false` or `null`; what is still to come.
    Word(&'static str),
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl JsonScan {
    pub(crate) fn new() -> Self {
        JsonScan { open: Vec::new(), state: State::Value }
    }

    /// Takes the next character.
    pub(crate) fn step(&mut self, c: char) -> Step {
        #[cfg(test)]
        crate::tests::work::count();
        match self.advance(c) {
            Some(step) => step,
            None => Step::Invalid,
        }
    }

    /// Whether the text so far is one whole value.
    pub(crate) fn complete(&self) -> bool {
        self.open.is_empty()
            && match self.state {
                State::Done => true,
                State::Number(number) => number.may_end(),
                State::Word(rest) => rest.is_empty(),
                _ => false,
            }
    }

    fn advance(&mut self, c: char) -> Option<Step> {
        let space = matches!(c, ' ' | '\t' | '\n' | '\r');
        match self.state {
            State::Text { key } => return self.text(c, key),
            State::Slash { key } => {
                self.state = match c {
                    'u' => State::Hex { key, left: 4 },
                    '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => State::Text { key },
                    _ => return None,
                };
            }
            State::Hex { key, left } => {
                if !c.is_ascii_hexdigit() {
                    return None;
                }
                self.state = if left == 1 { State::Text { key } } else { State::Hex { key, left: left - 1 } };
            }
            State::Number(number) => {
                if let Some(next) = number.step(c) {
                    self.state = State::Number(next);
                } else if number.may_end() {
                    return self.after(c);
                } else {
                    return None;
                }
            }
            State::Word("") | State::After => return self.after(c),
            State::Word(rest) => self.state = State::Word(rest.strip_prefix(c)?),
            _ if space => {}
            State::FirstItem if c == ']' => return Some(self.close()),
            State::FirstKey if c == '}' => return Some(self.close()),
            State::Value | State::FirstItem => return self.value(c),
            State::FirstKey | State::Key if c == '"' => self.state = State::Text { key: true },
            State::Colon if c == ':' => self.state = State::Value,
            State::FirstKey | State::Key | State::Colon | State::Done => return None,
        }
        Some(Step::More)
    }

    fn value(&mut self, c: char) -> Option<Step> {
        self.state = match c {
            '{' | '[' => {
                if self.open.len() == MAX_DEPTH {
                    return None;
                }
                self.open.push(c == '{');
                if c == '{' { State::FirstKey } else { State::FirstItem }
            }
            '"' => State::Text { key: false },
            '-' => State::Number(Number::Minus),
            '0' => State::Number(Number::Zero),
            '1'..='9' => State::Number(Number::Whole),
            't' => State::Word("rue"),
            'f' => State::Word("alse"),
            'n' => State::Word("ull"),
            _ => return None,
        };
        Some(Step::More)
    }

    fn text(&mut self, c: char, key: bool) -> Option<Step> {
        match c {
            '"' if key => self.state = State::Colon,
            '"' => return Some(self.end_value()),
            '\\' => self.state = State::Slash { key },
            '\0'..='\x1f' => return Some(Step::Escape),
            _ => {}
        }
        Some(Step::More)
    }

    /// Behind a complete value.
    fn after(&mut self, c: char) -> Option<Step> {
        let Some(&object) = self.open.last() else {
            // A number or a word is known to be complete only now.
            self.state = State::Done;
            return matches!(c, ' ' | '\t' | '\n' | '\r').then_some(Step::More);
        };
        self.state = State::After;
        match c {
            ' ' | '\t' | '\n' | '\r' => {}
            ',' => self.state = if object { State::Key } else { State::Value },
            '}' if object => return Some(self.close()),
            ']' if !object => return Some(self.close()),
            _ => return None,
        }
        Some(Step::More)
    }

    fn close(&mut self) -> Step {
        self.open.pop();
        self.end_value()
    }

    fn end_value(&mut self) -> Step {
        if self.open.is_empty() {
            self.state = State::Done;
            Step::Done
        } else {
            self.state = State::After;
            Step::More
        }
    }
}

impl Number {
    fn step(self, c: char) -> Option<Self> {
        let digit = c.is_ascii_digit();
        match self {
            Number::Minus if c == '0' => Some(Number::Zero),
            Number::Minus | Number::Whole if digit => Some(Number::Whole),
            Number::Zero | Number::Whole if c == '.' => Some(Number::Point),
            Number::Point | Number::Fraction if digit => Some(Number::Fraction),
            Number::Zero | Number::Whole | Number::Fraction if matches!(c, 'e' | 'E') => {
                Some(Number::Exponent)
            }
            Number::Exponent if matches!(c, '+' | '-') => Some(Number::ExponentSign),
            Number::Exponent | Number::ExponentSign | Number::ExponentDigits if digit => {
                Some(Number::ExponentDigits)
            }
            _ => None,
        }
    }

    fn may_end(self) -> bool {
        matches!(self, Number::Zero | Number::Whole | Number::Fraction | Number::ExponentDigits)
    }
}

/// Appends `text` to `out` as the inside of a JSON string.
pub(crate) fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let code = c as usize;
                out.push_str("\\u00");
                out.push(char::from(DIGITS[code >> 4]));
                out.push(char::from(DIGITS[code & 15]));
            }
            _ => out.push(c),
        }
    }
}
