//! Log output: a filter in the syntax of `RUST_LOG`, text or JSON lines, to standard error.

use std::io::{IsTerminal as _, stderr};

use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry, filter::LevelFilter, fmt, fmt::MakeWriter, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
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
        Format::Console { ansi } => lines.with_ansi(ansi).boxed(),
        Format::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
    };
    Ok(Registry::default().with(lines.with_filter(directives)))
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
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber = subscriber(filter, format, move || writer.clone()).expect("the filter is right");
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "roost_router::place", worker = 7, "placed");
            tracing::debug!(target: "roost_wire::client", "connected");
            tracing::warn!(target: "hyper", "closed early");
        });
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

    #[test]
    fn a_filter_that_cannot_be_read_is_an_error() {
        let error = subscriber("roost=loud", Format::Json, stderr).err().expect("`loud` is not a level");
        assert_eq!(error.to_string(), "cannot read log filter `roost=loud`");
    }
}
