//! A real browser without a screen, driven over its debugging pipe.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long the browser may take for anything, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page. Calls block. Dropping it ends the browser.
#[derive(Debug)]
pub struct Chromium {
    child: Child,
    commands: File,
    messages: Receiver<Value>,
    /// Events that came while an answer was waited for.
    events: VecDeque<Value>,
    session: String,
    next: u64,
    _home: TempDir,
}

impl Chromium {
    /// Starts the browser with an empty page of this size; `None` if there is no browser on this machine.
    pub fn start(width: u32, height: u32) -> Result<Option<Self>> {
        let is_there = |program: &&str| {
            let mut version = Command::new(program);
            version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            version.status().is_ok_and(|status| status.success())
        };
        let Some(program) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there)
        else {
            return Ok(None);
        };
        let home = tempfile::tempdir()?;
        let [to, from] = ["to", "from"].map(|name| home.path().join(name));
        let made = Command::new("mkfifo").args([&to, &from]).status()?;
        anyhow::ensure!(made.success(), "no pipes");
        // Descriptors 3 and 4 are where the browser reads commands and writes answers.
        let mut child = Command::new("sh")
            .args(["-c", "to=$1 from=$2; shift 2; exec \"$@\" 3< \"$to\" 4> \"$from\"", "sh"])
            .args([&to, &from])
            .args([
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--hide-scrollbars",
            ])
            .args(["--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
            .arg(format!("--window-size={width},{height}"))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // Opened both ways, so that opening waits for nobody.
        let open = |path| File::options().read(true).write(true).open(path);
        let pipes = open(&to).and_then(|to| Ok((to, open(&from)?)));
        let (commands, answers) = match pipes {
            Ok(pipes) => pipes,
            Err(error) => {
                child.kill()?;
                bail!(error);
            }
        };
        let mut browser = Chromium {
            child,
            commands,
            messages: read(answers),
            events: VecDeque::new(),
            session: String::new(),
            next: 0,
            _home: home,
        };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().context("a session")?.to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", size)?;
        Ok(Some(browser))
    }

    /// Sends one command of the DevTools protocol and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.next += 1;
        let mut command = json!({"id": self.next, "method": method, "params": params});
        if !self.session.is_empty() {
            command["sessionId"] = self.session.as_str().into();
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes)?;
        loop {
            let message =
                self.messages.recv_timeout(PATIENCE).with_context(|| format!("no answer to {method}"))?;
            if message["id"] != self.next {
                self.events.push_back(message);
                continue;
            }
            if let Some(error) = message.get("error") {
                bail!("{method}: {error}");
            }
            return Ok(message["result"].clone());
        }
    }

    /// Opens an address.
    pub fn open(&mut self, url: &str) -> Result<()> {
        let opened = self.call("Page.navigate", json!({"url": url}))?;
        anyhow::ensure!(opened.get("errorText").is_none(), "{url}: {opened}");
        Ok(())
    }

    /// The value of a JavaScript expression; promises are awaited.
    pub fn value(&mut self, expression: &str) -> Result<Value> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let said = self.call("Runtime.evaluate", asked)?;
        if let Some(thrown) = said.get("exceptionDetails") {
            bail!("{expression}: {thrown}");
        }
        Ok(said["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) -> Result<()> {
        let begun = Instant::now();
        while self.value(&format!("Boolean({expression})"))? != true {
            if begun.elapsed() > PATIENCE {
                let page = self.value("document.body.innerText")?;
                bail!("not within {PATIENCE:?}: {expression}\n{}", page.as_str().unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Presses and releases a key, by its name in `KeyboardEvent.key`.
    pub fn press(&mut self, key: &str) -> Result<()> {
        let text = if key == "Enter" { "\r" } else { "" };
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "End" => 35,
            "Home" => 36,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Types text where the focus is.
    pub fn type_text(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({"text": text})).map(|_| ())
    }

    /// Clicks the middle of an element with the mouse.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        let place = self.value(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ))?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Shows pages as to somebody who prefers `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) -> Result<()> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features})).map(|_| ())
    }

    /// The page as a PNG file, in base64.
    pub fn picture(&mut self) -> Result<String> {
        let taken = self.call("Page.captureScreenshot", json!({"format": "png"}))?;
        Ok(taken["data"].as_str().context("a picture")?.to_owned())
    }

    /// Everything that went wrong on the page so far: exceptions, and errors in its log.
    pub fn complaints(&mut self) -> Vec<String> {
        self.events.extend(self.messages.try_iter());
        let is_complaint = |event: &&Value| {
            event["method"] == "Runtime.exceptionThrown"
                || event["method"] == "Log.entryAdded" && event["params"]["entry"]["level"] == "error"
        };
        self.events.iter().filter(is_complaint).map(Value::to_string).collect()
    }

    /// The addresses that the page has asked.
    pub fn asked(&mut self) -> Vec<String> {
        self.events.extend(self.messages.try_iter());
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.filter_map(|event| event["params"]["request"]["url"].as_str().map(str::to_owned)).collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _closing = self.call("Browser.close", json!({}));
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Messages end with a zero byte.
fn read(pipe: File) -> Receiver<Value> {
    let (sender, receiver) = sync_channel(4096);
    std::thread::spawn(move || {
        for message in BufReader::new(pipe).split(0).map_while(Result::ok) {
            let Ok(message) = serde_json::from_slice(&message) else { continue };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}
