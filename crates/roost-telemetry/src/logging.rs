//! Log output: a filter in the syntax of `RUST_LOG`, text or JSON lines, to standard error.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stderr};

use tracing::{Subscriber, field::Field};
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry, field::MakeExt as _, filter::LevelFilter, fmt, fmt::MakeWriter,
    layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::Error;

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    Console {
        /// Colour, where standard error is a terminal.
        ansi: bool,
    },
    /// One JSON object per line, the event's fields at its top level.
    Json,
}

/// Sets up the process's log. To be called once, before the first event.
///
/// `filter` has the syntax of `RUST_LOG`, as `DYN_LOG` has: a level, or `target=level` pairs separated by commas.
///
/// # Errors
/// If the filter cannot be read, or if logs are set up already.
pub fn init(filter: &str, format: Format) -> Result<(), Error> {
    let format = match format {
        Format::Console { ansi } => Format::Console { ansi: ansi && stderr().is_terminal() },
        Format::Json => Format::Json,
    };
    subscriber(filter, format, stderr)?.try_init()?;
    Ok(())
}

/// The subscriber that [`init`] installs, writing elsewhere.
///
/// # Errors
/// If the filter cannot be read.
pub fn subscriber<W>(
    filter: &str,
    format: Format,
    writer: W,
) -> Result<impl Subscriber + Send + Sync + use<W>, Error>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let directives = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse(filter)
        .map_err(|source| Error::Filter { filter: filter.to_owned(), source })?;
    let lines = fmt::layer().with_writer(writer);
    let lines = match format {
        Format::Console { ansi } => {
            lines.with_ansi(ansi).fmt_fields(fmt::format::debug_fn(field).delimited(" ")).boxed()
        }
        Format::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    Ok(Registry::default().with(lines.with_filter(directives)))
}

/// Writes a field of an event. Text comes from clients and workers, too: none of it may end the line or speak to the
/// terminal.
fn field(out: &mut fmt::format::Writer<'_>, field: &Field, value: &dyn std::fmt::Debug) -> std::fmt::Result {
    if field.name() == "message" {
        return write!(Printable(out), "{value:?}");
    }
    if out.has_ansi_escapes() {
        write!(out, "\x1b[3m{field}\x1b[0m\x1b[2m=\x1b[0m")?;
    } else {
        write!(out, "{field}=")?;
    }
    write!(Printable(out), "{value:?}")
}

/// Passes text on with control characters spelled as escapes.
struct Printable<'a, 'w>(&'a mut fmt::format::Writer<'w>);

impl std::fmt::Write for Printable<'_, '_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let mut rest = text;
        while let Some((at, control)) = rest.char_indices().find(|(_, c)| is_control(*c)) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "{}", control.escape_default())?;
            rest = &rest[at + control.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// What moves a cursor, ends a line, or changes the direction of what follows.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no test panics while it writes").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(filter: &str, format: Format) -> Vec<String> {
        logged_of(filter, format, || {
            tracing::info!(target: "roost_router::place", worker = 7, "placed");
            tracing::debug!(target: "roost_wire::client", "connected");
            tracing::warn!(target: "hyper", "closed early");
        })
    }

    fn logged_of(filter: &str, format: Format, events: impl FnOnce()) -> Vec<String> {
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber = subscriber(filter, format, move || writer.clone()).expect("the filter is right");
        tracing::subscriber::with_default(subscriber, events);
        let bytes = captured.0.lock().expect("no test panics while it writes").clone();
        String::from_utf8(bytes).expect("logs are text").lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_level_alone_is_for_everything() {
        let lines = logged("info", Format::Console { ansi: false });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("INFO roost_router::place: placed worker=7"), "{lines:?}");
        assert!(logged("debug", Format::Console { ansi: false }).len() == 3);
    }

    #[test]
    fn targets_have_their_own_levels() {
        let lines = logged("warn,roost_wire=debug", Format::Console { ansi: false });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("connected") && lines[1].contains("closed early"), "{lines:?}");
    }

    #[test]
    fn json_lines_carry_fields_at_the_top() {
        let lines = logged("roost_router=info", Format::Json);
        let [line] = lines.as_slice() else { panic!("one line, not {lines:?}") };
        let value: serde_json::Value = serde_json::from_str(line).expect("the line is JSON");
        assert_eq!(value["level"], "INFO");
        assert_eq!(value["target"], "roost_router::place");
        assert_eq!(value["message"], "placed");
        assert_eq!(value["worker"], 7);
        assert!(value["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
    }

    /// C-SEC-02: a client's text stays one line, and a terminal that shows the log obeys nothing in it.
    #[test]
    fn text_of_clients_cannot_forge_lines() {
        let hostile = "a\u{1b}[31m\nINFO forged\r\u{9b}2J\u{202e}\0";
        for format in [Format::Console { ansi: false }, Format::Console { ansi: true }, Format::Json] {
            let lines = logged_of("info", format, || {
                tracing::info!(shown = %hostile, quoted = hostile, debug = ?hostile, "of {hostile}");
            });
            let [line] = lines.as_slice() else { panic!("one line, not {lines:?}") };
            // The colours of the format itself are in front of the client's text.
            let text = if format == (Format::Console { ansi: true }) {
                line.replace("\u{1b}[", "").replace('\u{1b}', "")
            } else {
                line.clone()
            };
            // Readers of JSON are programs; its strings have no other control characters than those of ISO 6429.
            let is_bad = |c: char| if format == Format::Json { c.is_ascii_control() } else { is_control(c) };
            assert!(!text.chars().any(is_bad), "{format:?}: {text:?}");
            assert!(!line.contains("\u{1b}[31m"), "{format:?}: {line:?}");
        }
        let lines = logged_of("info", Format::Console { ansi: false }, || {
            tracing::info!(shown = %hostile, "of {hostile}");
        });
        let escaped = r"a\u{1b}[31m\nINFO forged\r\u{9b}2J\u{202e}\u{0}";
        assert!(lines[0].ends_with(&format!("of {escaped} shown={escaped}")), "{lines:?}");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_an_error() {
        let error = subscriber("roost=loud", Format::Json, stderr).err().expect("`loud` is not a level");
        assert_eq!(error.to_string(), "cannot read log filter `roost=loud`");
    }
}
