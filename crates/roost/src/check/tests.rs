use roost_config::{Command, Environment};

use super::*;

fn options(line: &str) -> Check {
    match roost_config::parse(line.split_whitespace(), &Environment::default()) {
        Ok(Command::Check(check)) => *check,
        other => panic!("{line}: {other:?}"),
    }
}

/// What is found with these options, in one runtime.
fn found(line: &str) -> Findings {
    let options = options(line);
    serve::runtime(&options.serve.process).unwrap().block_on(examine(&options))
}

const LOOPBACK: &str = "--http-host 127.0.0.1 --tcp-response-stream-host 127.0.0.1 --discovery-backend file";

#[test]
fn its_own_options_stand_among_those_of_serve() {
    let check = options("check --router-mode kv --wait=3 --json --http-port 81");
    assert_eq!((check.wait, check.json, check.serve.http.port), (Duration::from_secs(3), true, 81));
    let wrong =
        roost_config::parse(["check", "--wait", "never", "--router-mode", "kv"], &Environment::default());
    assert!(wrong.unwrap_err().to_string().contains("--wait"));
    let wrong = roost_config::parse(["check", "--router-mode", "kvv"], &Environment::default());
    assert!(wrong.unwrap_err().to_string().contains("--router-mode"));
}

#[test]
fn a_port_that_is_taken_and_a_store_without_workers() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let store = folder.path().display();
    let text = found(&format!("check {LOOPBACK} --file-kv {store} --http-port {port} --wait 0.3")).text();
    assert!(text.contains(&format!("failed   HTTP: cannot listen on 127.0.0.1:{port}")), "{text}");
    assert!(text.contains("ok       store: reached and read"), "{text}");
    assert!(text.contains("failed   workers: none is registered"), "{text}");
    assert!(text.ends_with("It would not serve."), "{text}");
}

#[test]
fn a_store_that_is_not_there() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let line = format!(
        "check --http-host 127.0.0.1 --http-port 0 --tcp-response-stream-host 127.0.0.1 --discovery-backend etcd \
         --etcd-endpoints http://{gone} --wait 0.5"
    );
    let found = found(&line);
    assert!(!found.is_fit());
    assert!(found.text().contains("failed   store: "), "{}", found.text());
    let json: Value = serde_json::from_str(&found.json()).unwrap();
    assert_eq!(json["fit"], false);
}

#[test]
fn a_fleet_that_could_be_served() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().display();
    let worker = format!("mock-worker --discovery-backend file --file-kv {store} --host 127.0.0.1");
    let Ok(Command::MockWorker(worker)) =
        roost_config::parse(worker.split_whitespace(), &Environment::default())
    else {
        panic!("{worker}")
    };
    std::thread::spawn(move || crate::mock_worker::run(*worker));
    let found = found(&format!("check {LOOPBACK} --file-kv {store} --http-port 0 --wait 60"));
    assert!(found.is_fit(), "{}", found.text());
    let text = found.text();
    assert!(
        text.contains("ok       workers: 1 aggregated, 0 prefill, 0 decode; all that were tried are reached"),
        "{text}"
    );
    assert!(text.contains("ok       model mock-model: "), "{text}");
    assert!(text.ends_with("It would serve."), "{text}");
}
