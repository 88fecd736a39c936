use std::time::SystemTime;

use serde_json::{Value, json};

use crate::incremental::tests::{Session, TOOLS};
use crate::{ChatTemplate, DeepSeekStyle, RenderInput, TemplateFiles};

const MODELS: [&str; 3] = ["deepseek-v3.2", "deepseek-v4", "deepseek-v4.1"];
const STYLES: [DeepSeekStyle; 2] = [DeepSeekStyle::Publisher, DeepSeekStyle::Dynamo];

fn template(name: &str, deepseek: DeepSeekStyle) -> ChatTemplate {
    let files = TemplateFiles { model_name: name.to_owned(), deepseek, ..TemplateFiles::default() };
    ChatTemplate::from_files(&files).unwrap()
}

/// All six renderers.
fn templates() -> impl Iterator<Item = (String, ChatTemplate)> {
    let all = MODELS.into_iter().flat_map(|name| STYLES.map(|style| (name, style)));
    all.map(|(name, style)| (format!("{name} {style:?}"), template(name, style)))
}

/// One to four messages, also of shapes that no well-behaved client sends.
fn messages(random: &mut fastrand::Rng, turn: usize) -> Vec<Value> {
    let texts = ["plain", " spaced \n", "<｜User｜>", "</think>", "<｜ref｜>", "", "é漢😀"];
    let text = |random: &mut fastrand::Rng| format!("{}{turn}", random.choice(texts).unwrap_or_default());
    let call = |random: &mut fastrand::Rng, id: &str| {
        let arguments = random.choice([r#"{"a":1,"b":"x"}"#, "{}", "broken"]).unwrap_or_default();
        json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}})
    };
    let result = |random: &mut fastrand::Rng, id: &str| json!({"role": "tool", "tool_call_id": id, "content": text(random)});
    match random.u8(..16) {
        0 | 1 => vec![json!({"role": "user", "content": text(random)})],
        2 => vec![json!({"role": "user", "content": ""}), json!({"role": "user", "content": text(random)})],
        3 => vec![json!({"role": "assistant", "content": text(random)})],
        4 => vec![json!({"role": "assistant", "content": text(random), "reasoning_content": text(random)})],
        5 if random.u8(..3) == 0 => vec![json!({"role": "system", "content": text(random)})],
        6 if random.u8(..3) == 0 => vec![json!({"role": "system", "content": ""})],
        7 => vec![json!({"role": "developer", "content": text(random)})],
        8 => vec![json!({"role": "latest_reminder", "content": text(random)})],
        9 => vec![result(random, "a")],
        count => {
            // Calls whose results may come in another order, too late, twice, or never.
            let mut ids: Vec<&str> = ["b", "a", "c"][..usize::from(count % 3 + 1)].to_vec();
            let calls: Vec<Value> = ids.iter().map(|id| call(random, id)).collect();
            let mut list = vec![
                json!({"role": "assistant", "content": text(random), "reasoning": text(random), "tool_calls": calls}),
            ];
            random.shuffle(&mut ids);
            match random.u8(..6) {
                0 => _ = ids.pop(),
                1 => ids.push("x"),
                _ => {}
            }
            list.extend(ids.into_iter().map(|id| result(random, id)));
            list
        }
    }
}

/// Random sessions that grow, lose messages at the end, change in the middle, and now and then are asked for with
/// other tools and arguments. Returns places kept and places.
fn random_sessions(template: &ChatTemplate, sessions: u64) -> (usize, usize) {
    let kwargs = [
        None,
        Some(r#"{"thinking":false}"#),
        Some(r#"{"reasoning_effort":"max"}"#),
        Some(r#"{"drop_thinking":false}"#),
    ];
    let formats = [None, None, None, Some(r#"{"type":"json_object"}"#)];
    let mut sums = (0, 0);
    for seed in 0..sessions {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut session = Session::default();
        let mut list = vec![json!({"role": "user", "content": "first"})];
        if random.bool() {
            list.insert(0, json!({"role": "system", "content": "S"}));
        }
        let mut input = RenderInput::new("", SystemTime::UNIX_EPOCH);
        for turn in 0..14 {
            if turn == 0 || random.u8(..16) == 0 {
                input.tools = random.bool().then_some(TOOLS);
                input.kwargs = kwargs[random.usize(..kwargs.len())];
                input.response_format = formats[random.usize(..formats.len())];
            }
            match random.u8(..12) {
                0 => list.truncate(random.usize(1..=list.len())),
                1 => {
                    let at = random.usize(..list.len());
                    list[at]["content"] = json!(format!("changed {turn}"));
                }
                2 => {
                    let at = random.usize(..list.len());
                    list.remove(at);
                    list.extend(messages(&mut random, turn));
                }
                _ => list.extend(messages(&mut random, turn)),
            }
            if let Some((kept, count)) = session.turn(template, &list, &input) {
                sums = (sums.0 + kept, sums.1 + count);
            }
        }
    }
    sums
}

#[test]
fn continued_prompts_are_those_of_a_fresh_rendering() {
    for (name, template) in templates() {
        let (kept, count) = random_sessions(&template, 400);
        println!("{name}: {kept} of {count} places kept");
        assert!(kept * 4 > count, "{name}: {kept} of {count}");
    }
}

/// Agents' sessions of calls and results: of each turn only the end is rendered.
#[test]
fn a_session_of_calls_renders_only_its_end() {
    for (name, template) in templates() {
        for (tools, kwargs) in [
            (Some(TOOLS), None),
            (Some(TOOLS), Some(r#"{"thinking":false}"#)),
            (None, Some(r#"{"thinking":false}"#)),
        ] {
            let mut session = Session::default();
            let mut list =
                vec![json!({"role": "system", "content": "S"}), json!({"role": "user", "content": "go"})];
            let input = RenderInput { tools, kwargs, ..RenderInput::new("", SystemTime::UNIX_EPOCH) };
            for turn in 0..12 {
                let (kept, count) = session.turn(&template, &list, &input).unwrap();
                assert_eq!((kept, count), (turn, turn + 1), "{name}");
                let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
                list.push(json!({"role": "assistant", "content": "t", "reasoning_content": "r", "tool_calls": [call]}));
                list.push(json!({"role": "tool", "tool_call_id": "a", "content": "r"}));
            }
            let again = session.turn(&template, &list, &input).unwrap();
            assert_eq!(
                session.turn(&template, &list, &input).unwrap(),
                (again.1, again.1),
                "{name}, asked again"
            );
        }
    }
}

/// A conversation without tools, where some formats drop what was thought before the last user.
#[test]
fn a_chat_renders_no_more_than_its_last_turns() {
    for (name, template) in templates() {
        let mut session = Session::default();
        let mut list = vec![json!({"role": "user", "content": "hello"})];
        let input = RenderInput::new("", SystemTime::UNIX_EPOCH);
        for turn in 0..12 {
            let (kept, count) = session.turn(&template, &list, &input).unwrap();
            assert!(count == turn + 1 && count - kept <= 3, "{name}: {kept} of {count}");
            list.push(json!({"role": "assistant", "content": "t", "reasoning_content": "r"}));
            list.push(json!({"role": "user", "content": "and"}));
        }
    }
}
