use std::time::Duration;

use super::{Script, ScriptBook, Step};
use crate::Role;

const BOOK: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/cases/fixtures/worker-scripts.json"
));

#[test]
fn the_book_of_the_cases_is_read_whole() {
    let book = ScriptBook::from_json(BOOK).unwrap();
    let names: serde_json::Map<String, serde_json::Value> = serde_json::from_str(BOOK).unwrap();
    assert_eq!(book.len(), names.len());
    assert_eq!(book.get("hello"), Some(&Script::say("hello")));
    assert_eq!(
        book.get("die"),
        Some(&Script::new([
            Step::text("partial answer").paced(3, Duration::from_millis(50)),
            Step::raise("engine exploded at /secret/path.py line 12"),
        ]))
    );
    let cached = &book.get("cached").unwrap().steps[1];
    assert_eq!((cached.finish.as_deref(), cached.cached, cached.usage), (Some("stop"), Some(16), None));
    let flood = &book.get("flood").unwrap().steps[0];
    assert_eq!((flood.text_repeat.clone(), flood.per), (Some(("z".to_owned(), 1_500_000)), Some(30)));
}

#[test]
fn every_script_of_every_case_is_read() {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/cases");
    let mut scripts = 0;
    for entry in std::fs::read_dir(cases).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let case: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            scripts += ScriptBook::from_json(&case["worker_scripts"].to_string()).unwrap().len();
        }
    }
    assert!(scripts > 40, "{scripts} scripts");
}

#[test]
fn roles_choose_their_steps() {
    let book = ScriptBook::from_json(BOOK).unwrap();
    let script = book.get("prefill_fails").unwrap();
    let raised = |role| script.steps_for(role).filter_map(|step| step.raise.clone()).collect::<Vec<_>>();
    assert_eq!(raised(Role::Prefill), ["prefill exploded"]);
    assert_eq!(raised(Role::Decode), ["no KV arrived"]);
    assert!(raised(Role::Aggregated).is_empty());
}

#[test]
fn the_last_known_name_is_chosen() {
    let mut book = ScriptBook::default();
    book.insert("a", Script::say("first"));
    book.insert("b", Script::say("second"));
    let chosen = |prompt: &str| book.select(prompt).map(|script| script.steps[0].text.clone().unwrap());
    assert_eq!(chosen("x @@a@@ y @@b@@ z").as_deref(), Some("second"));
    assert_eq!(chosen("x @@b@@ y @@unknown@@ z").as_deref(), Some("second"));
    assert_eq!(chosen("@@a@@").as_deref(), Some("first"));
    assert_eq!(chosen("@@a@ @b@@ @@"), None);
    assert_eq!(chosen("é@@a@@é").as_deref(), Some("first"));
    assert_eq!(chosen(""), None);
}

#[test]
fn a_misspelt_step_is_refused() {
    assert!(ScriptBook::from_json(r#"{"x": [{"txet": "hello"}]}"#).is_err());
    assert!(ScriptBook::from_json(r#"{"x": [{"sleep_s": -1}]}"#).is_err());
    assert!(ScriptBook::from_json(r#"{"x": [{"role": "router"}]}"#).is_err());
}
