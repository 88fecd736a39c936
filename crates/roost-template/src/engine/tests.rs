use minijinja::Value;

use super::{Engine, NOW, render_error};
use crate::error::RenderError;
use crate::messages::parse_object;
use crate::test_files::fixture_json;

/// Renders one template; `context` is a JSON object.
fn render(template: &str, context: &str) -> Result<String, String> {
    let mut engine = Engine::new();
    engine.add("t", template).map_err(|e| e.to_string())?;
    let mut variables = parse_object(context).unwrap();
    variables.push((NOW.into(), Value::from(1_700_000_000)));
    engine.render("t", Value::from_pairs(variables), 1 << 20).map_err(|e| render_error(&e).to_string())
}

/// Cases that are known to differ, each with its reason in `DEVIATIONS.md`.
const DEVIATIONS: [&str; 0] = [];

#[test]
fn engine_cases_equal_the_oracle() {
    let golden = fixture_json("http/jinja_engine.json");
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 100);
    let mut differing = Vec::new();
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let context = case.get("context").map_or("{}".to_owned(), ToString::to_string);
        let got = render(case["template"].as_str().unwrap(), &context);
        let same = match case["expect"].as_str() {
            Some(expected) => got.as_deref() == Ok(expected),
            None => got.is_err(),
        };
        if !same {
            println!("{name}\n  got      {got:?}\n  expected {}", case["expect"]);
            differing.push(name);
        }
    }
    assert_eq!(differing, DEVIATIONS);
}
