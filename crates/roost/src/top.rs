//! `roost top`: what the console shows, in a terminal.

mod text;
mod view;

#[cfg(test)]
mod tests;

use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use roost_config::Top;
use serde_json::Value;

use crate::frontend::{Frontend, escape};
use crate::output;

/// Size of a terminal that does not tell its own.
const USUAL: (usize, usize) = (120, 40);

/// Asks and shows, once or again and again.
pub(crate) fn run(options: &Top) -> Result<ExitCode> {
    let frontend = Frontend::of(&options.frontend)?;
    let path = format!("/console/state?session={}", escape(&options.filter));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if options.once || !stdout().is_terminal() {
            let state = frontend.ask(&path).await?;
            let size = (usize::MAX, usize::MAX);
            output::result(&view::screen(options, None, &state, view::Style { size, is_coloured: false }));
            return Ok(ExitCode::SUCCESS);
        }
        watch(options, &frontend, &path).await
    })
}

/// Redraws until it is interrupted. A frontend that does not answer for a while is said to, and asked again.
async fn watch(options: &Top, frontend: &Frontend, path: &str) -> Result<ExitCode> {
    let mut before: Option<Value> = None;
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let screen = Screen::enter();
    loop {
        let style = view::Style { size: size(), is_coloured: coloured() };
        match frontend.ask(path).await {
            Ok(state) => {
                screen.draw(&view::screen(options, before.as_ref(), &state, style));
                before = Some(state);
            }
            // The first question tells whether there is anything to watch.
            Err(error) if before.is_none() => return Err(error),
            Err(error) => screen.draw(&format!("{error:#}; asking again")),
        }
        tokio::select! {
            _ = &mut interrupted => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(options.interval.max(Duration::from_millis(200))) => {}
        }
    }
}

/// Rows and columns of the terminal.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => USUAL,
    }
}

/// See no-color.org.
#[expect(clippy::disallowed_methods, reason = "a convention of terminals, not an option of ours")]
fn coloured() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The terminal's other screen, without a cursor; given back when dropped.
struct Screen;

impl Screen {
    fn enter() -> Self {
        Self::write("\x1b[?1049h\x1b[?25l");
        Screen
    }

    /// Shows a text in place of what was there, without flicker.
    fn draw(&self, text: &str) {
        Self::write(&format!("\x1b[H{}\x1b[K\x1b[J", text.replace('\n', "\x1b[K\n")));
    }

    fn write(text: &str) {
        let mut out = stdout().lock();
        let _gone = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        Self::write("\x1b[?25h\x1b[?1049l");
    }
}
