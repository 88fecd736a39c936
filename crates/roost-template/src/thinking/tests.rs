use serde_json::{Map, Value, json};

use super::ThinkingControls;

fn check(effort: Option<&str>, thinking: Option<&str>, kwargs: Value, expected: Value) {
    let mut folded: Map<String, Value> = kwargs.as_object().unwrap().clone();
    ThinkingControls { reasoning_effort: effort, thinking }.apply(&mut folded);
    assert_eq!(Value::from(folded), expected, "{effort:?} {thinking:?} {kwargs}");
}

fn all(on: bool, effort: Option<&str>) -> Value {
    let mode = if on { "enabled" } else { "disabled" };
    let mut all = json!({"thinking": on, "enable_thinking": on, "thinking_mode": mode});
    if let Some(effort) = effort {
        all["reasoning_effort"] = effort.into();
    }
    all
}

#[test]
fn every_control_decides_for_all_variables() {
    check(None, None, json!({}), json!({}));
    check(None, None, json!({"other": 1}), json!({"other": 1}));
    for effort in ["minimal", "low", "medium", "high", "xhigh", "max"] {
        check(Some(effort), None, json!({}), all(true, Some(effort)));
        check(None, None, json!({"reasoning_effort": effort}), all(true, Some(effort)));
    }
    check(Some("none"), None, json!({}), all(false, Some("none")));
    check(None, Some("enabled"), json!({}), all(true, None));
    check(None, Some("disabled"), json!({}), all(false, None));
    check(None, None, json!({"enable_thinking": false}), all(false, None));
    check(None, None, json!({"thinking_mode": "Enabled"}), all(true, None));
    check(None, None, json!({"thinking": true, "reasoning_effort": "high"}), all(true, Some("high")));
}

#[test]
fn the_requests_own_members_and_toggles_win() {
    check(Some("none"), None, json!({"reasoning_effort": "high"}), all(false, Some("none")));
    check(Some("none"), None, json!({"enable_thinking": true}), all(true, Some("none")));
    check(Some("high"), None, json!({"thinking": false}), all(false, Some("high")));
    check(None, Some("disabled"), json!({"thinking": true}), all(false, None));
    check(None, None, json!({"thinking": true, "enable_thinking": false}), all(true, None));
}

#[test]
fn adaptive_leaves_the_decision_to_the_model() {
    check(None, Some("adaptive"), json!({"thinking": true}), json!({"thinking_mode": "adaptive"}));
    let expected = json!({"thinking_mode": "adaptive", "reasoning_effort": "none"});
    check(Some("none"), Some("adaptive"), json!({"enable_thinking": true}), expected);
    check(None, None, json!({"reasoning_effort": null}), json!({"reasoning_effort": null}));
    check(None, None, json!({"reasoning_effort": 3}), json!({"reasoning_effort": 3}));
}
