//! How the process ends, as its supervisor sees it. The test program runs itself again as `roost`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The command line of the child, one argument a line.
const ARGUMENTS: &str = "ROOST_EXIT_TEST_ARGUMENTS";
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test: what [`roost`] starts.
#[test]
#[ignore = "the process that other tests start"]
#[expect(clippy::exit, clippy::disallowed_methods, reason = "this stands for the whole process")]
fn child() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let code = crate::run(arguments.lines().map(Into::into));
    let known = (0..=2).find(|status| ExitCode::from(*status) == code);
    std::process::exit(known.map_or(99, i32::from));
}

/// A running `roost`; killed when dropped.
pub(crate) struct Roost(Child);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["exits::child", "--exact", "--ignored", "--nocapture"])
        .env(ARGUMENTS, arguments.join("\n"))
        .stdin(Stdio::null());
    command
}

fn roost(arguments: &[&str]) -> Roost {
    Roost(command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// The exit status of a short run, and what it printed; the test program's own words are before it.
pub(crate) fn said(arguments: &[&str]) -> (i32, String) {
    let output = command(arguments).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap())
}

impl Roost {
    fn signal(&self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits for the end; returns the exit status.
    fn status(&mut self) -> i32 {
        until("it ends", || self.0.try_wait().unwrap()).code().expect("it ends by itself")
    }
}

impl Drop for Roost {
    fn drop(&mut self) {
        // It may have ended.
        let _already = self.0.kill();
        let _status = self.0.wait();
    }
}

fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A worker and a frontend that knows it, with these further options.
pub(crate) fn deployment(store: &TempDir, options: &[&str]) -> (Roost, Roost, SocketAddr) {
    let folder = store.path().to_str().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = address.port().to_string();
    let discovery = ["--discovery-backend", "file", "--file-kv", folder];
    let worker = ["mock-worker", "--answer", "random", "--inter-token-latency-ms", "50"];
    let worker = roost(&[&worker[..], &discovery].concat());
    let serve =
        ["serve", "--http-host", "127.0.0.1", "--http-port", &port, "--http-shutdown-notice-secs", "0"];
    let frontend = roost(&[&serve[..], &discovery, options].concat());
    until("the model is ready", || {
        let mut stream = TcpStream::connect(address).ok()?;
        stream
            .write_all(b"GET /v1/models/mock-model HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())
    });
    (worker, frontend, address)
}

/// Begins a streamed answer of so many tokens, for the session "s"; returns when the first of it is there.
pub(crate) fn begin(address: SocketAddr, tokens: u32) -> BufReader<TcpStream> {
    let body = format!(
        "{{\"model\":\"mock-model\",\"stream\":true,\"max_tokens\":{tokens},\"ignore_eos\":true,\
         \"messages\":[{{\"role\":\"user\",\"content\":\"go on\"}}]}}"
    );
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/json\r\nx-dynamo-session-id: s\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "an answer comes");
    }
    lines
}

fn rest(mut answer: BufReader<TcpStream>) -> String {
    let mut text = String::new();
    answer.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn zero_when_every_answer_came_to_its_end() {
    let store = TempDir::new().unwrap();
    let (mut worker, mut frontend, address) =
        deployment(&store, &["--http-graceful-shutdown-timeout-secs", "60"]);
    let answer = begin(address, 20);
    frontend.signal();
    let text = rest(answer);
    assert!(text.contains("\"finish_reason\":\"length\"") && !text.contains("error"), "{text}");
    assert_eq!(frontend.status(), 0);
    worker.signal();
    assert_eq!(worker.status(), 0);
}

#[test]
fn one_when_answers_were_cut_at_the_end_of_the_drain() {
    let store = TempDir::new().unwrap();
    let (_worker, mut frontend, address) =
        deployment(&store, &["--http-graceful-shutdown-timeout-secs", "0.3"]);
    let answer = begin(address, 100_000);
    frontend.signal();
    let text = rest(answer);
    assert!(text.contains("\"error\"") && !text.contains("\"finish_reason\":\""), "{text}");
    assert_eq!(frontend.status(), 1);
}

#[test]
fn one_when_asked_twice() {
    let store = TempDir::new().unwrap();
    let (_worker, mut frontend, address) =
        deployment(&store, &["--http-graceful-shutdown-timeout-secs", "3600"]);
    let answer = begin(address, 100_000);
    frontend.signal();
    until("it goes down", || TcpStream::connect(address).is_err().then_some(()));
    frontend.signal();
    assert_eq!(frontend.status(), 1);
    drop(answer);
}

#[test]
fn two_when_it_cannot_understand_what_it_is_told() {
    assert_eq!(roost(&["serve", "--http-prot", "80"]).status(), 2);
    assert_eq!(roost(&["serve", "--router-mode", "fastest"]).status(), 2);
}

#[test]
fn one_when_it_cannot_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let serve = ["serve", "--discovery-backend", "mem", "--http-host", "127.0.0.1", "--http-port", &port];
    assert_eq!(roost(&serve).status(), 1);
}
