//! Cuts a template into text and tags, and tags into tokens.

/// A piece of a template; all pieces together are the template.
#[derive(Debug)]
pub(super) enum Part<'a> {
    /// Text, comments, and everything inside `{% raw %}`.
    Text(&'a str),
    Tag(Tag<'a>),
}

/// `{{ … }}` or `{% … %}`.
#[derive(Debug)]
pub(super) struct Tag<'a> {
    /// Delimiter with its white-space control: `{%-`.
    pub(super) open: &'a str,
    pub(super) body: &'a str,
    pub(super) close: &'a str,
    pub(super) tokens: Vec<Token<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// Offset in the body.
    pub(super) start: usize,
}

impl<'a> Tag<'a> {
    /// First word of a statement tag.
    pub(super) fn keyword(&self) -> Option<&'a str> {
        if !self.open.starts_with("{%") {
            return None;
        }
        self.tokens.first().map(|token| token.text)
    }
}

impl Token<'_> {
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// A name, number or string.
    pub(super) fn is_operand(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '\'' | '"'))
            && !self.is_word_operator()
    }

    pub(super) fn is_word_operator(&self) -> bool {
        matches!(
            self.text,
            "and"
                | "or"
                | "not"
                | "in"
                | "is"
                | "if"
                | "else"
                | "elif"
                | "for"
                | "set"
                | "print"
                | "do"
                | "filter"
                | "call"
                | "recursive"
                | "with"
                | "import"
                | "from"
                | "include"
        )
    }
}

pub(super) fn scan(source: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut text_start = 0;
    let mut at = 0;
    while let Some(brace) = source[at..].find('{').map(|found| at + found) {
        let rest = &source[brace..];
        at = brace + 1;
        if rest.starts_with("{#") {
            at = rest.find("#}").map_or(source.len(), |end| brace + end + 2);
        } else if let Some(tag) = rest
            .starts_with("{{")
            .then(|| tag(rest, "}}"))
            .flatten()
            .or_else(|| rest.starts_with("{%").then(|| tag(rest, "%}")).flatten())
        {
            let end = brace + tag.open.len() + tag.body.len() + tag.close.len();
            at = end;
            if tag.keyword() == Some("raw") {
                // The text is not looked into; its end tag is an ordinary tag again.
                at = end_of_raw(&source[end..]).map_or(source.len(), |found| end + found);
                continue;
            }
            parts.push(Part::Text(&source[text_start..brace]));
            parts.push(Part::Tag(tag));
            text_start = end;
        }
    }
    parts.push(Part::Text(&source[text_start..]));
    parts
}

fn end_of_raw(source: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = at + source[at..].find("{%")?;
        let word = source[found + 2..].trim_start_matches(['-', '+']).trim_start();
        if word.starts_with("endraw") {
            return Some(found);
        }
        at = found + 2;
    }
}

/// Reads the tag at the start of `rest`; `None` when it does not end.
fn tag<'a>(rest: &'a str, closing: &str) -> Option<Tag<'a>> {
    let control = |at: usize| usize::from(rest[at..].starts_with(['-', '+']));
    let body_start = 2 + control(2);
    let mut tokens = Vec::new();
    let mut depth = 0usize;
    let mut at = body_start;
    loop {
        let c = rest[at..].chars().next()?;
        if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        }
        let trimmed = at + usize::from(matches!(c, '-' | '+'));
        if depth == 0 && rest[trimmed..].starts_with(closing) {
            let close_end = trimmed + closing.len();
            return Some(Tag {
                open: &rest[..body_start],
                body: &rest[body_start..at],
                close: &rest[at..close_end],
                tokens,
            });
        }
        let length = token_length(&rest[at..])?;
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        tokens.push(Token { text: &rest[at..at + length], start: at - body_start });
        at += length;
    }
}

fn token_length(rest: &str) -> Option<usize> {
    let first = rest.chars().next()?;
    if first == '\'' || first == '"' {
        let mut escaped = false;
        return rest.char_indices().skip(1).find_map(|(at, c)| {
            let ends = c == first && !escaped;
            escaped = c == '\\' && !escaped;
            ends.then_some(at + 1)
        });
    }
    if first.is_alphanumeric() || first == '_' {
        return Some(rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len()));
    }
    let two = ["**", "//", "==", "!=", "<=", ">="].iter().any(|operator| rest.starts_with(operator));
    Some(if two { 2 } else { first.len_utf8() })
}
