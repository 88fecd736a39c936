//! Which servers are meant, by name. Pure.

use anyhow::{Context as _, Result, bail};
use roost_sglang::ServerUrl;
use roost_worker::Role;

/// A server, or several behind one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Named {
    /// Where it is.
    pub url: ServerUrl,
    /// What it ought to be.
    pub part: Part,
}

/// The part that a server ought to play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// All of a request.
    Aggregated,
    /// Prefill; with the port of its bootstrap server if it is another than it says.
    Prefill(Option<u16>),
    /// Decode.
    Decode,
}

impl Part {
    /// Whether a server of that role can play it.
    pub(crate) fn is(self, role: Role) -> bool {
        matches!(
            (self, role),
            (Part::Aggregated, Role::Aggregated)
                | (Part::Prefill(_), Role::Prefill)
                | (Part::Decode, Role::Decode)
        )
    }

    /// The option that names servers of this part.
    pub fn option(self) -> &'static str {
        match self {
            Part::Aggregated => "--sglang",
            Part::Prefill(_) => "--sglang-prefill",
            Part::Decode => "--sglang-decode",
        }
    }
}

/// The servers that a file names, one a line: `URL`, `prefill URL [PORT]`, `decode URL`; `#` begins a remark.
///
/// # Errors
/// The line that is none of these.
pub fn listed(text: &str) -> Result<Vec<Named>> {
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = || format!("line {}", number + 1);
        let (url, part) = match words[..] {
            [] => continue,
            ["prefill", url] => (url, Part::Prefill(None)),
            ["prefill", url, port] => (url, Part::Prefill(Some(port.parse().with_context(at)?))),
            ["decode", url] => (url, Part::Decode),
            [url] if url != "prefill" && url != "decode" => (url, Part::Aggregated),
            _ => bail!("{}: expected `URL`, `prefill URL [PORT]` or `decode URL`", at()),
        };
        all.push(Named { url: url.parse().with_context(at)?, part });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_file() {
        let text = "# fleet\nhttp://a:1\n\nprefill http://b:2 8998 # one\n prefill http://c:3\ndecode d:4\n";
        let listed = listed(text).unwrap();
        let shown: Vec<String> =
            listed.iter().map(|named| format!("{} {:?}", named.url, named.part)).collect();
        assert_eq!(
            shown,
            [
                "http://a:1 Aggregated",
                "http://b:2 Prefill(Some(8998))",
                "http://c:3 Prefill(None)",
                "http://d:4 Decode"
            ]
        );
        for (text, place) in [
            ("http://a:1\nprefill", "line 2"),
            ("http://a:1 8998", "line 1"),
            ("prefill http://a:1 x", "line 1"),
            ("decode http://a:1 9 9", "line 1"),
            ("ftp://a", "line 1"),
        ] {
            let error = format!("{:#}", super::listed(text).unwrap_err());
            assert!(error.contains(place), "{text}: {error}");
        }
    }
}
