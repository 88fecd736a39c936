use std::path::{Path, PathBuf};
use std::time::SystemTime;

use roost_kv::{Cut, hash};
use roost_openai::{ChatRequest, FieldPolicy};
use roost_template::{DeepSeekStyle, TemplateFiles};
use roost_tokenizer::Backend;
use serde_json::{Value, json};

use super::*;

mod eagle;

struct Model {
    template: ChatTemplate,
    tokenizer: Tokenizer,
}

impl Model {
    fn in_folder(folder: &Path) -> Self {
        let template = ChatTemplate::from_files(&TemplateFiles::in_folder(folder)).unwrap();
        Model { template, tokenizer: load(folder) }
    }

    fn tiny() -> Self {
        let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/cases/fixtures/models");
        Self::in_folder(&Path::new(models).join("tiny-chatml"))
    }

    /// A model with a real vocabulary; `None`, with a message, where its files are not installed.
    fn real(name: &str) -> Option<Self> {
        Some(Self::in_folder(&installed(name)?))
    }

    /// All built-in renderers on a real vocabulary.
    fn deepseeks() -> impl Iterator<Item = (String, Self)> {
        let tokenizer = installed("deepseek_v4").map(|folder| load(&folder));
        let styles = [DeepSeekStyle::Publisher, DeepSeekStyle::Dynamo];
        let all = ["deepseek-v3.2", "deepseek-v4", "deepseek-v4.1"].into_iter();
        all.flat_map(move |name| styles.map(|style| (name, style))).filter_map(move |(name, deepseek)| {
            let files = TemplateFiles { model_name: name.into(), deepseek, ..TemplateFiles::default() };
            let template = ChatTemplate::from_files(&files).unwrap();
            Some((format!("{name} {deepseek:?}"), Model { template, tokenizer: tokenizer.clone()? }))
        })
    }

    fn request<'a>(&'a self, session: Option<&'a str>, messages: &'a str) -> PromptRequest<'a> {
        PromptRequest {
            model: "m",
            session,
            parent: None,
            template: &self.template,
            tokenizer: &self.tokenizer,
            body: Bytes::copy_from_slice(messages.as_bytes()),
            messages_at: 0,
            recalled: None,
            input: RenderInput::new(messages, SystemTime::UNIX_EPOCH),
            cut: 16.into(),
            seed: hash::BASE_SEED,
        }
    }
}

fn load(folder: &Path) -> Tokenizer {
    Tokenizer::load(&folder.join("tokenizer.json"), Backend::Fast, true).unwrap()
}

fn installed(name: &str) -> Option<PathBuf> {
    let folder = match option_env!("ROOST_TOKENIZERS") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::home_dir()?.join(".cache/roost-peers/tokenizers"),
    };
    let folder = folder.join(name);
    if !folder.exists() {
        println!("skipped: {} is not installed", folder.display());
        return None;
    }
    Some(folder)
}

/// Makes the prompt with and without memory, compares, and returns it.
fn check(memory: &PromptMemory, request: &PromptRequest<'_>) -> HashedPrompt {
    let (warm, cold) = (memory.prompt(request).unwrap(), fresh(request).unwrap());
    assert_eq!(warm.ids, cold.ids, "{}", request.input.messages);
    assert_eq!(warm.blocks, cold.blocks);
    assert_eq!(cold.reused_tokens, 0);
    warm
}

/// Reads a body with what is recalled of it, which has to make no difference.
fn read(body: &Bytes, recalled: Option<&Recalled>) -> ChatRequest {
    let whole = ChatRequest::parse(body, FieldPolicy::Ignore).unwrap();
    if let Some(recalled) = recalled {
        let short = ChatRequest::parse_familiar(body, recalled.familiar, FieldPolicy::Ignore).unwrap();
        assert_eq!(short.messages.as_str(), whole.messages.as_str());
        assert_eq!(format!("{short:?}"), format!("{whole:?}"));
        return short;
    }
    whole
}

#[test]
fn a_body_is_recalled_as_far_as_it_is_that_of_the_last_turn() {
    let (model, memory) = (Model::tiny(), PromptMemory::new(MemoryConfig::default()));
    let (first, second) = (user("one").to_string(), user("two").to_string());
    let list = format!("[{first}, {second}]");
    let body = Bytes::from(format!("{{\"model\":\"m\", \"messages\": {list}}}"));
    assert!(memory.recall("s", &body).is_none(), "a new session");
    let mut request = model.request(Some("s"), &list);
    request.body = body.clone();
    request.messages_at = read(&body, None).messages.offset_in(&body).unwrap();
    check(&memory, &request);
    let end = |text: &str, body: &Bytes| {
        let at = std::str::from_utf8(body).unwrap().find(text).unwrap();
        at + text.len()
    };
    for (other, known) in [
        (format!("{{\"model\":\"m\", \"messages\": [{first}, {second} ,{first}],\"n\":1}}"), Some(&second)),
        (format!("{{\"model\":\"m\", \"messages\": [{first}, {first}]}}"), Some(&first)),
        (format!("{{\"model\":\"m\", \"messages\": [{second}, {second}]}}"), None),
        (format!("{{\"model\":\"n\", \"messages\": [{first}, {second}]}}"), None),
        (format!("{{ \"model\":\"m\",\"messages\": [{first}, {second}]}}"), None),
    ] {
        let other = Bytes::from(other);
        let recalled = memory.recall("s", &other);
        let familiar = recalled.as_ref().map(|recalled| recalled.familiar.end);
        assert_eq!(familiar, known.map(|known| end(known, &other)), "{other:?}");
        read(&other, recalled.as_ref());
        assert!(memory.recall("t", &other).is_none());
    }
    memory.forget("m", "s");
    assert!(memory.recall("s", &body).is_none());
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn turn(number: usize) -> [Value; 2] {
    [
        json!({"role": "assistant", "content": format!("answer {number}\n")}),
        user(&format!(" question {number} 漢字 ")),
    ]
}

#[test]
fn the_next_turn_reuses_all_but_its_end() {
    let (model, memory) = (Model::tiny(), PromptMemory::new(MemoryConfig::default()));
    let mut messages = vec![json!({"role": "system", "content": "S".repeat(200)}), user("hello")];
    let mut before = 0;
    for number in 0..20 {
        let prompt = check(&memory, &model.request(Some("s"), &json!(messages).to_string()));
        assert!(prompt.reused_tokens <= before);
        // The opening of the answer, which the next turn replaces, and what may merge with it.
        assert!(number == 0 || before - prompt.reused_tokens < 64, "{} of {before}", prompt.reused_tokens);
        before = prompt.ids.len();
        messages.extend(turn(number));
    }
    let tokens = before as f64;
    assert!(memory.bytes() as f64 / tokens < 12.0, "small turns cost more: {} for {tokens}", memory.bytes());
}

#[test]
fn what_is_not_a_continuation_is_made_anew() {
    let (model, memory) = (Model::tiny(), PromptMemory::new(MemoryConfig::default()));
    let mut messages = vec![user("one")];
    messages.extend((0..6).flat_map(turn));
    let list = json!(messages).to_string();
    check(&memory, &model.request(Some("s"), &list));
    assert!(check(&memory, &model.request(Some("s"), &list)).reused_tokens > 0, "a repetition");
    let mut edited = messages.clone();
    edited[4] = user("changed");
    let edited = check(&memory, &model.request(Some("s"), &json!(edited).to_string()));
    assert!(edited.reused_tokens > 0 && edited.reused_tokens < edited.ids.len() / 2 + 40);
    let shorter = check(&memory, &model.request(Some("s"), &json!(messages[..3]).to_string()));
    assert!(shorter.reused_tokens > 0);
    assert_eq!(check(&memory, &model.request(Some("t"), &list)).reused_tokens, 0, "another session");
    let mut child = model.request(Some("child"), &list);
    child.parent = Some("t");
    assert!(check(&memory, &child).reused_tokens > 0, "a new session starts from its parent");
    let mut other_seed = model.request(Some("child"), &list);
    other_seed.seed = 7;
    check(&memory, &other_seed);
    let mut other_blocks = model.request(Some("child"), &list);
    other_blocks.cut = 32.into();
    check(&memory, &other_blocks);
    other_blocks.cut = Cut { block_size: 32, eagle: true };
    check(&memory, &other_blocks);
    let mut other_model = model.request(Some("s"), &list);
    other_model.model = "n";
    assert_eq!(check(&memory, &other_model).reused_tokens, 0);
    memory.forget("m", "t");
    assert_eq!(check(&memory, &model.request(Some("t"), &list)).reused_tokens, 0);
}

#[test]
fn requests_without_session_are_known_by_their_opening() {
    let (model, memory) = (Model::tiny(), PromptMemory::new(MemoryConfig::default()));
    let mut messages = vec![json!({"role": "system", "content": "S"}), user("one")];
    messages.extend(turn(0));
    check(&memory, &model.request(None, &json!(messages).to_string()));
    messages.extend(turn(1));
    let list = json!(messages).to_string();
    assert!(check(&memory, &model.request(None, &list)).reused_tokens > 0);
    messages[1] = user("two");
    assert_eq!(check(&memory, &model.request(None, &json!(messages).to_string())).reused_tokens, 0);
}

#[test]
fn nul_characters_are_left_out_and_nothing_is_remembered_of_them() {
    let (model, memory) = (Model::tiny(), PromptMemory::new(MemoryConfig::default()));
    let list = json!([user("a\0b"), user("c")]).to_string();
    for _ in 0..2 {
        assert_eq!(check(&memory, &model.request(Some("s"), &list)).reused_tokens, 0);
    }
    assert_eq!(memory.bytes(), 0);
}

#[test]
fn errors_are_those_of_the_template() {
    let (model, memory) = (Model::tiny(), PromptMemory::new(MemoryConfig::default()));
    for list in ["[]", "[{}]", "[{\"role\":\"user\",\"content\":3}]", "{}"] {
        let warm = memory.prompt(&model.request(Some("s"), list)).unwrap_err();
        let cold = fresh(&model.request(Some("s"), list)).unwrap_err();
        assert_eq!(warm.to_string(), cold.to_string(), "{list}");
    }
}

#[test]
fn the_budget_holds_and_what_was_used_last_stays() {
    let model = Model::tiny();
    let budget = 64 << 10;
    let memory = PromptMemory::new(MemoryConfig { session_bytes: budget, segment_bytes: 0 });
    let list = json!([user(&"x".repeat(300))]).to_string();
    for number in 0..200 {
        check(&memory, &model.request(Some(&format!("s{number}")), &list));
        check(&memory, &model.request(Some("kept"), &list));
        assert!(memory.bytes() <= budget);
    }
    assert!(memory.bytes() > budget / 2);
    assert!(check(&memory, &model.request(Some("kept"), &list)).reused_tokens > 0);
    assert_eq!(check(&memory, &model.request(Some("s0"), &list)).reused_tokens, 0);
    let large = json!([user(&"x".repeat(budget / 8))]).to_string();
    for _ in 0..2 {
        assert_eq!(check(&memory, &model.request(Some("large"), &large)).reused_tokens, 0);
    }
    let off = PromptMemory::new(MemoryConfig { session_bytes: 0, segment_bytes: 0 });
    for _ in 0..2 {
        assert_eq!(check(&off, &model.request(Some("s"), &list)).reused_tokens, 0);
    }
    assert_eq!(off.bytes(), 0);
}

/// Random agents' sessions with branches, edits and texts that like to merge, on real models.
#[test]
fn random_sessions_have_the_prompts_of_a_fresh_process() {
    for name in ["qwen3", "llama3_1", "deepseek_v3"] {
        let Some(model) = Model::real(name) else { continue };
        random_sessions(name, &model, 30);
    }
}

#[test]
fn random_sessions_have_the_prompts_of_a_fresh_process_with_built_in_renderers() {
    for (name, model) in Model::deepseeks() {
        random_sessions(&name, &model, 30);
    }
}

fn random_sessions(name: &str, model: &Model, sessions: u64) {
    let texts = [
        " ",
        "\n",
        "\n\n ",
        "e\u{301}",
        "\u{301}",
        "<|im_end|>",
        "<|im_",
        "<think>a</think>b",
        "</think>",
        "don't",
        "12",
        "fn main() {}\n",
        "漢字😀",
        "<|eot_id|>",
        "<｜User｜>",
        "｜DSML｜",
        "<｜ref｜>",
        "<｜end▁of▁sentence｜>",
        "",
    ];
    let memory = PromptMemory::new(MemoryConfig { session_bytes: 4 << 20, segment_bytes: 0 });
    let (mut reused, mut all, mut recalls) = (0, 0, 0);
    for seed in 0..sessions {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut text =
            move || (0..random.usize(..6)).filter_map(|_| random.choice(texts)).collect::<String>();
        let mut random = fastrand::Rng::with_seed(seed + 1000);
        let mut messages = vec![user(&text())];
        let tools = random.bool().then_some(TOOLS);
        let kwargs = (random.u8(..3) == 0).then_some(r#"{"thinking":false,"enable_thinking":false}"#);
        for number in 0..15 {
            match random.u8(..10) {
                0 => messages.truncate(random.usize(1..=messages.len())),
                1 => {
                    let at = random.usize(..messages.len());
                    messages[at]["content"] = text().into();
                }
                2 | 3 => messages.push(user(&text())),
                4 => {
                    messages
                        .push(json!({"role": "assistant", "content": text(), "reasoning_content": text()}));
                    messages.push(user(&text()));
                }
                _ => {
                    let call = json!({"id": "call00001", "type": "function", "function":
                        {"name": "f", "arguments": json!({"a": text()}).to_string()}});
                    messages.push(json!({"role": "assistant", "content": text(), "tool_calls": [call]}));
                    messages.push(json!({"role": "tool", "tool_call_id": "call00001", "content": text()}));
                }
            }
            let list = json!(messages).to_string();
            let session = format!("s{}", random.u8(..2));
            let body = format!("{{\"model\":\"m\",\"messages\":{list},\"seed\":{}}}", random.u8(..));
            let body = Bytes::from(body);
            let recalled = memory.recall(&session, &body);
            recalls += usize::from(recalled.is_some());
            let read = read(&body, recalled.as_ref());
            let mut request = model.request(Some(&session), read.messages.as_str());
            (request.body, request.recalled) = (body.clone(), recalled);
            request.messages_at = read.messages.offset_in(&body).unwrap();
            request.input.add_generation_prompt = random.u8(..4) > 0;
            (request.input.tools, request.input.kwargs) = (tools, kwargs);
            let warm = memory.prompt(&request);
            let Ok(cold) = fresh(&request) else {
                assert!(warm.is_err(), "{name} {seed} {number}");
                continue;
            };
            let warm = warm.unwrap();
            assert_eq!(warm.ids, cold.ids, "{name} {seed} {number} {list}");
            assert_eq!(warm.blocks, cold.blocks);
            reused += warm.reused_tokens;
            all += warm.ids.len();
        }
    }
    println!("{name}: {reused} of {all} tokens reused, {recalls} bodies recalled");
    // Edits make most of it new, and some templates look ahead.
    assert!(reused * 10 > all, "{name}: {reused} of {all}");
    assert!(recalls > 100, "{name}: {recalls}");
}

const TOOLS: &str = r#"[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]"#;

/// An agent's session on the built-in renderers: every turn reuses the whole prompt before, but for its opening of an
/// answer.
#[test]
fn an_agents_next_turn_reuses_the_whole_prompt_before() {
    for (name, model) in Model::deepseeks() {
        let memory = PromptMemory::new(MemoryConfig::default());
        let mut messages = vec![json!({"role": "system", "content": "S".repeat(200)}), user("hello")];
        let mut before = 0;
        for number in 0..12 {
            let list = json!(messages).to_string();
            let mut request = model.request(Some("s"), &list);
            request.input.tools = Some(TOOLS);
            let prompt = check(&memory, &request);
            assert!(number == 0 || prompt.reused_tokens + 3 >= before, "{name}");
            before = prompt.ids.len();
            let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
            let text = format!("text {number}");
            messages.push(json!({"role": "assistant", "content": text, "tool_calls": [call]}));
            messages.push(json!({"role": "tool", "tool_call_id": "a", "content": "file\n".repeat(40)}));
        }
    }
}
