//! Numbers and times in few characters, and cells of a table.

/// A count: `999`, `12.3k`, `4.5M`.
pub(super) fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match value {
        v if v < 1e3 => format!("{}", (v * 10.0).round() / 10.0),
        v if v < 1e6 => format!("{:.1}k", v / 1e3),
        v if v < 1e9 => format!("{:.1}M", v / 1e6),
        v => format!("{:.1}G", v / 1e9),
    }
}

/// A part of a whole.
pub(super) fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.0}%", part * 100.0))
}

/// A time in seconds: `12ms`, `3.4s`, `5m`, `2.1h`.
pub(super) fn seconds(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match value {
        v if v < 1.0 => format!("{:.0}ms", v * 1e3),
        v if v < 100.0 => format!("{v:.1}s"),
        v if v < 6000.0 => format!("{:.0}m", v / 60.0),
        v => format!("{:.1}h", v / 3600.0),
    }
}

/// What a terminal shows of text from elsewhere: no control characters, at most `width` characters.
pub(super) fn plain(text: &str, width: usize) -> String {
    let mut shown: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if let Some((end, _)) = shown.char_indices().nth(width) {
        shown.truncate(end);
        shown.pop();
        shown.push('…');
    }
    shown
}
