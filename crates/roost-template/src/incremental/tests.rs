use std::time::SystemTime;

use serde_json::{Value, json};

use super::{Continued, Trace, Turn};
use crate::syntax::main_loop::watch;
use crate::test_files::{real_template, tiny_template};
use crate::{ChatTemplate, RenderInput};

/// A session as the caller of the crate keeps it.
#[derive(Default)]
pub(crate) struct Session {
    messages: Vec<String>,
    prompt: Vec<(String, bool)>,
    trace: Option<Trace>,
}

impl Session {
    /// Renders `messages` as the next turn and compares with a fresh rendering. Returns the iterations left out, and
    /// how many there were.
    pub(crate) fn turn(
        &mut self,
        template: &ChatTemplate,
        messages: &[Value],
        input: &RenderInput<'_>,
    ) -> Option<(usize, usize)> {
        let messages: Vec<String> = messages.iter().map(Value::to_string).collect();
        let list = format!("[{}]", messages.join(","));
        let fresh = template.render(&RenderInput { messages: &list, ..*input }).ok();
        let unchanged = messages.iter().zip(&self.messages).take_while(|(new, old)| new == old).count();
        let turn = turn(&list, &messages, unchanged, self.trace.as_ref());
        let Some(Continued { prompt: rest, reused, skipped, trace }) =
            template.render_continued(input, &turn)
        else {
            *self = Self::default();
            return None;
        };
        let kept = cut(&self.prompt, reused);
        let prompt = joined(kept.iter().map(|(text, special)| (text.as_str(), *special)).chain(rest.parts()));
        let fresh = fresh.as_ref().map(|prompt| joined(prompt.parts()));
        assert_eq!(Some(&prompt), fresh.as_ref(), "{unchanged} {skipped} {list}");
        let mut trace = trace;
        if let Some(trace) = &mut trace {
            trace.set_resumable(std::iter::repeat(true));
            assert!(trace.ends().is_sorted());
        }
        let count = trace.as_ref().map_or(0, |trace| trace.ends().len());
        *self = Self { messages, prompt, trace };
        Some((skipped, count))
    }
}

/// Parts with no two of a kind in a row.
fn joined<'a>(parts: impl Iterator<Item = (&'a str, bool)>) -> Vec<(String, bool)> {
    let mut joined: Vec<(String, bool)> = Vec::new();
    for (text, special) in parts.filter(|(text, _)| !text.is_empty()) {
        match joined.last_mut() {
            Some((last, kind)) if *kind == special => last.push_str(text),
            _ => joined.push((text.to_owned(), special)),
        }
    }
    joined
}

/// The first bytes of a prompt.
fn cut(parts: &[(String, bool)], mut length: usize) -> Vec<(String, bool)> {
    let mut kept = Vec::new();
    for (text, special) in parts {
        let part = &text[..length.min(text.len())];
        length -= part.len();
        kept.push((part.to_owned(), *special));
    }
    assert_eq!(length, 0);
    kept
}

/// The messages as parts of `list`.
fn turn<'a>(list: &str, messages: &[String], unchanged: usize, trace: Option<&'a Trace>) -> Turn<'a> {
    let mut at = 0;
    let ranges = messages.iter().map(|message| {
        let start = at + list[at..].find(message).unwrap();
        at = start + message.len();
        start as u32..at as u32
    });
    Turn { messages: ranges.collect(), source: list.to_owned().into(), unchanged, trace }
}

fn message(random: &mut fastrand::Rng, turn: usize) -> Vec<Value> {
    let texts = [
        "plain",
        " spaced \n",
        "<think>x</think>y",
        "</think>",
        "<tool_response>z</tool_response>",
        "",
        "é漢😀",
    ];
    let text = |random: &mut fastrand::Rng| format!("{}{turn}", random.choice(texts).unwrap_or_default());
    match random.u8(..8) {
        0 | 1 => vec![json!({"role": "user", "content": text(random)})],
        2 => vec![json!({"role": "assistant", "content": text(random)})],
        3 => vec![json!({"role": "assistant", "content": text(random), "reasoning_content": text(random)})],
        _ => {
            let id = format!("call{turn:05}");
            let call = json!({"id": id, "type": "function",
                "function": {"name": "f", "arguments": json!({"a": text(random), "n": turn}).to_string()}});
            let mut list = vec![
                json!({"role": "assistant", "content": text(random), "tool_calls": [call]}),
                json!({"role": "tool", "tool_call_id": id, "name": "f", "content": text(random)}),
            ];
            if random.bool() {
                list[0]["reasoning_content"] = json!(text(random));
            }
            if random.u8(..4) == 0 {
                list.push(list[1].clone());
            }
            list
        }
    }
}

pub(crate) const TOOLS: &str = r#"[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}]"#;

/// Random sessions that grow, lose messages at the end, or change in the middle. Returns (skipped, rendered).
fn random_sessions(template: &ChatTemplate, sessions: u64) -> (usize, usize) {
    let mut sums = (0, 0);
    for seed in 0..sessions {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut session = Session::default();
        let mut messages = vec![json!({"role": "user", "content": "first"})];
        if random.bool() {
            messages.insert(0, json!({"role": "system", "content": "S"}));
        }
        let input = RenderInput {
            tools: random.bool().then_some(TOOLS),
            add_generation_prompt: random.u8(..4) > 0,
            ..RenderInput::new("", SystemTime::UNIX_EPOCH)
        };
        for turn in 0..12 {
            match random.u8(..12) {
                0 => messages.truncate(random.usize(1..=messages.len())),
                1 => {
                    let at = random.usize(..messages.len());
                    messages[at]["content"] = json!(format!("changed {turn}"));
                }
                _ => messages.extend(message(&mut random, turn)),
            }
            if let Some((skipped, count)) = session.turn(template, &messages, &input) {
                sums = (sums.0 + skipped, sums.1 + count);
            }
        }
    }
    sums
}

#[test]
fn continued_prompts_are_those_of_a_fresh_rendering() {
    for model in ["qwen3", "llama3_1", "deepseek_v3", "kimi_k25", "minimax_m2", "minimax_m3"] {
        let Some(template) = real_template(model) else { continue };
        let (skipped, count) = random_sessions(&template, 150);
        println!("{model}: {skipped} of {count} iterations left out");
    }
    for model in [
        "tiny-chatml",
        "tiny-think",
        "tiny-dotindex",
        "tiny-fromjson",
        "tiny-items",
        "tiny-pymeth",
        "tiny-raise",
    ] {
        let (skipped, count) = random_sessions(&tiny_template(model), 100);
        println!("{model}: {skipped} of {count} iterations left out");
    }
}

/// A session of tool calls only, as agents have them.
fn tool_session(template: &ChatTemplate) -> (usize, usize) {
    let mut session = Session::default();
    let mut messages =
        vec![json!({"role": "system", "content": "S"}), json!({"role": "user", "content": "go"})];
    let input = RenderInput { tools: Some(TOOLS), ..RenderInput::new("", SystemTime::UNIX_EPOCH) };
    let mut last = (0, 0);
    for turn in 0..30 {
        let call = json!({"id": "call00001", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
        messages.push(json!({"role": "assistant", "content": format!("t{turn}"), "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": "call00001", "name": "f", "content": "r"}));
        last = session.turn(template, &messages, &input).unwrap();
    }
    last
}

#[test]
fn a_session_of_tool_calls_renders_only_its_end() {
    for model in ["qwen3", "llama3_1"] {
        let Some(template) = real_template(model) else { continue };
        let (skipped, count) = tool_session(&template);
        assert!(count >= 60 && count - skipped <= 5, "{model}: {skipped} of {count}");
    }
}

/// A session in which the user speaks in every turn.
fn spoken_session(template: &ChatTemplate) -> (usize, usize) {
    let mut session = Session::default();
    let mut messages = vec![json!({"role": "system", "content": "S"})];
    let input = RenderInput { tools: Some(TOOLS), ..RenderInput::new("", SystemTime::UNIX_EPOCH) };
    let mut last = (0, 0);
    for turn in 0..30 {
        messages.push(json!({"role": "user", "content": format!("q{turn}")}));
        last = session.turn(template, &messages, &input).unwrap();
        messages.push(
            json!({"role": "assistant", "content": format!("a{turn}"), "reasoning_content": format!("r{turn}")}),
        );
    }
    last
}

#[test]
fn a_session_of_questions_renders_only_its_end() {
    for model in ["qwen3", "llama3_1"] {
        let Some(template) = real_template(model) else { continue };
        let (skipped, count) = spoken_session(&template);
        assert!(count >= 58 && count - skipped <= 5, "{model}: {skipped} of {count}");
    }
}

const PLAIN: &str = "{% for m in messages %}{{ loop.index0 }}{{ m.role }}:{{ m.content }};{% endfor %}";

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::from_source(source, Vec::new()).unwrap()
}

/// Renders two turns, the second longer by a message; returns what was left out of the second.
fn skipped(source: &str) -> Option<usize> {
    let messages: Vec<Value> = (0..4).map(|n| json!({"role": "user", "content": format!("m{n}")})).collect();
    let (mut session, template) = (Session::default(), template(source));
    let input = RenderInput::new("", SystemTime::UNIX_EPOCH);
    session.turn(&template, &messages[..3], &input)?;
    session.turn(&template, &messages, &input).map(|(skipped, _)| skipped)
}

#[test]
fn what_an_iteration_looks_at_decides() {
    let around = |body: &str| format!("{{% for m in messages %}}{{{{ m.content }}}}{body}{{% endfor %}}");
    assert_eq!(skipped(PLAIN), Some(3));
    assert_eq!(skipped(&around("{{ '!' if loop.last }}")), Some(2));
    assert_eq!(skipped(&around("{{ messages[loop.index0 + 1] is defined }}")), Some(2));
    assert_eq!(skipped(&around("{{ loop.nextitem is defined }}")), Some(2));
    assert_eq!(skipped(&around("{{ loop.previtem is defined and loop.previtem.content }}")), Some(3));
    assert_eq!(skipped(&around("{{ messages[0].content }}")), Some(3));
    assert_eq!(skipped(&around("{{ messages[-1].content }}")), Some(0));
    assert_eq!(skipped(&around("{{ messages | length }}")), Some(0));
    assert_eq!(skipped(&around("{{ loop.length }}")), Some(0));
    assert_eq!(skipped(&around("{{ loop.revindex }}")), Some(0));
    assert_eq!(skipped(&around("{{ messages }}")), Some(0));
    assert_eq!(skipped(&around("{% for c in m.content %}{{ loop.last }}{% endfor %}")), Some(3));
    assert_eq!(skipped(&around("{% for o in messages %}{{ o.content }}{% endfor %}")), Some(0));
}

#[test]
fn names_that_stand_for_something_else_decide() {
    let counted = "{% set ns = namespace(n=messages | length) %}{% for m in messages %}{{ m.content }}{{ ns.n }}{% endfor %}";
    assert_eq!(skipped(counted), Some(0));
    let unrelated =
        "{% set n = messages | length %}{% for m in messages %}{{ m.content }}{% endfor %}{{ n }}";
    assert_eq!(skipped(unrelated), Some(3));
    let through_macro = "{% set n = messages | length %}{% macro f() %}{{ n }}{% endmacro %}\
        {% for m in messages %}{{ m.content }}{{ f() }}{% endfor %}";
    assert_eq!(skipped(through_macro), Some(0));
    let head = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_eq!(skipped(head), Some(0), "the text before the loop differs");
    let running =
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endfor %}";
    assert_eq!(skipped(running), Some(0), "each iteration needs what the one before left");
    let once = "{% set ns = namespace(f=0) %}{% for m in messages %}{% if m.content == 'm2' %}{% set ns.f = 1 %}{% endif %}\
        {{ ns.f }}{{ m.content }}{% endfor %}{{ ns.f }}";
    assert_eq!(skipped(once), Some(2), "up to where the namespace changes");
    let joined = "{% set j = joiner(',') %}{% for m in messages %}{{ j() }}{{ m.content }}{% endfor %}";
    assert_eq!(skipped(joined), Some(0), "a joiner remembers");
    let part = "{% for m in messages[1:] %}{{ m.content }};{% endfor %}";
    assert_eq!(skipped(part), Some(2));
}

#[test]
fn where_the_last_question_stands_decides_by_its_order() {
    let with = |set: &str, body: &str| {
        format!(
            "{{% set ns = namespace(n=messages | length - 2, k=1) %}}{set}{{% for m in messages %}}{{{{ m.content }}}}{body}{{% endfor %}}"
        )
    };
    // Of 3 messages the question is number 1, of 4 number 2.
    assert_eq!(skipped(&with("", "{{ 'x' if loop.index0 > ns.n }}")), Some(2));
    assert_eq!(skipped(&with("", "{{ 'x' if loop.index0 >= ns.n }}")), Some(1));
    assert_eq!(skipped(&with("", "{% if ns.k and (not loop.index0 < ns.n or m.x) %}x{% endif %}")), Some(1));
    assert_eq!(skipped(&with("", "{% set after = loop.index0 > ns.n %}{{ after }}{{ ns.k }}")), Some(2));
    let other = "{{ 'x' if loop.index0 > ns.n }}{{ ns.n }}";
    assert_eq!(skipped(&with("", other)), Some(0), "the member is shown, too");
    assert_eq!(skipped(&with("", "{{ loop.index0 > ns.n + 1 }}")), Some(0), "a sum");
    assert_eq!(
        skipped(&with("", "{{ 'x' if loop.index0 > ns.n }}{{ ns }}")),
        Some(0),
        "the namespace as a whole"
    );
    let inner = "{% for c in m.content %}{{ 'x' if loop.index0 > ns.n }}{% endfor %}";
    assert_eq!(skipped(&with("", inner)), Some(0), "another loop's index");
    let in_macro = "{% macro f() %}{{ ns.n }}{% endmacro %}";
    assert_eq!(skipped(&with(in_macro, "{{ 'x' if loop.index0 > ns.n }}{{ f() }}")), Some(0));
    let text = "{% set ns.n = 'a' %}";
    assert_eq!(skipped(&with(text, "{{ 'x' if loop.index0 == ns.n }}")), None, "no number");
    let set = "{{ 'x' if loop.index0 > ns.n }}{% set ns.k = 2 %}";
    assert_eq!(skipped(&with("", set)), Some(0), "an iteration sets members");
    let own = "{% set ns = namespace(n=0) %}{{ 'x' if loop.index0 > ns.n }}";
    assert_eq!(skipped(&with("", own)), Some(0), "another namespace of that name");
}

#[test]
fn loops_that_cannot_be_watched_are_left_alone() {
    for body in [
        "{% break %}",
        "{% include 'x' %}",
        "{{ strftime_now('%Y') }}",
        "{{ loop.cycle(1, 2) }}",
        "{{ loop.changed(m) }}",
        "{{ loop }}",
        "{{ loop['index'] }}",
        "{% for x in [loop.index] %}{% endfor %}",
        "{% else %}",
        "{% macro f() %}{% endmacro %}",
    ] {
        assert_eq!(watch(&format!("{{% for m in messages %}}{body}{{% endfor %}}")), None, "{body}");
    }
    for source in [
        "{% for m in messages if m %}{% endfor %}",
        "{% for m in messages recursive %}{% endfor %}",
        "{% for a, b in messages %}{% endfor %}",
        "{% if x %}{% for m in messages %}{% endfor %}{% endif %}",
        "no loop",
    ] {
        assert_eq!(watch(source), None, "{source}");
    }
    let white_space = "a\n {%- for m in messages -%}\n b {{ loop.index }} \n{%- endfor +%} c";
    let watched = watch(white_space).unwrap();
    assert_eq!(
        watched,
        "a\n {%- for __loop, m in __watch(false, messages, []) -%}\n b {{ __loop.index }} \n{%- endfor +%} c"
    );
}

#[test]
fn a_broken_message_is_left_to_the_full_rendering() {
    let template = template(PLAIN);
    let input = RenderInput::new("", SystemTime::UNIX_EPOCH);
    for broken in ["{", "{}", "3", r#"{"role":1}"#, r#"{"role":"user","content":3}"#] {
        let messages = [r#"{"role":"user","content":"x"}"#, broken].map(str::to_owned);
        let turn = turn(&messages.join(","), &messages, 0, None);
        assert!(template.render_continued(&input, &turn).is_none(), "{broken}");
    }
    assert!(template.render_continued(&input, &turn("[]", &[], 0, None)).is_none());
}
