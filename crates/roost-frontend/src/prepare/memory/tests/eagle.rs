//! Workers that hash a block with the token behind it.

use super::*;

#[test]
fn prompts_for_eagle_workers_grow_block_by_block() {
    let (model, memory) = (Model::tiny(), PromptMemory::new(MemoryConfig::default()));
    let mut messages = vec![user("one")];
    // Small blocks, so that turns end at every place of a block.
    let cut = Cut { block_size: 3, eagle: true };
    for number in 0..20 {
        let list = json!(messages).to_string();
        let request = PromptRequest { cut, ..model.request(Some("s"), &list) };
        let prompt = check(&memory, &request);
        assert!(number == 0 || prompt.reused_tokens > 0);
        assert_eq!(*prompt.blocks.local, *hash::eagle_block_hashes(&prompt.ids, 3, hash::BASE_SEED));
        messages.extend(turn(number));
        messages.last_mut().unwrap()["content"] = "x".repeat(number + 1).into();
    }
}

#[test]
fn a_block_for_eagle_workers_stays_only_with_the_token_behind_it() {
    let file = std::env::temp_dir().join(format!("roost-eagle-{}.jinja", std::process::id()));
    let text = "{% for m in messages %}{{ '<|im_start|>' if m.role == 'user' else '<|im_end|>' }}\
                {{ m.content }}<|im_end|>{% endfor %}";
    std::fs::write(&file, text).unwrap();
    let files = TemplateFiles { custom: Some(file.clone()), ..TemplateFiles::default() };
    let model = Model { template: ChatTemplate::from_files(&files).unwrap(), ..Model::tiny() };
    std::fs::remove_file(file).unwrap();
    let memory = PromptMemory::new(MemoryConfig::default());
    let mut messages: Vec<Value> = (0..6).map(|n| user(&format!("message {n}"))).collect();
    let cut = Cut { block_size: 1, eagle: true };
    for changed in (0..6).rev() {
        let list = json!(messages).to_string();
        check(&memory, &PromptRequest { cut, ..model.request(Some("s"), &list) });
        // What was behind the message before is another token now.
        messages[changed]["role"] = "assistant".into();
        let list = json!(messages).to_string();
        let prompt = check(&memory, &PromptRequest { cut, ..model.request(Some("s"), &list) });
        assert_eq!(prompt.reused_tokens > 0, changed > 0, "{changed}");
    }
}
