//! A small chat model without weights, made from code: enough for a frontend to serve.

use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::ModelFiles;

/// Special and added tokens after the 256 byte tokens: text, and whether the tokenizer hides it.
pub(crate) const ADDED_TOKENS: [(&str, bool); 8] = [
    ("<|endoftext|>", true),
    ("<|im_start|>", true),
    ("<|im_end|>", true),
    ("<|bos|>", true),
    ("<think>", false),
    ("</think>", false),
    ("<tool_call>", false),
    ("</tool_call>", false),
];

const ENDOFTEXT: u32 = 256;
const IM_END: u32 = 258;

/// ChatML; tools are listed in the system turn, and calls are written as Hermes does. No line
/// break follows a tag, so that it renders alike whether or not the environment trims blocks.
const TEMPLATE: &str = concat!(
    "{% if tools %}<|im_start|>system\n",
    "{% if messages and messages[0].role == 'system' %}{{ messages[0].content }}\n{% endif %}",
    "You may call these functions:\n",
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}",
    "Answer a call as <tool_call>{\"name\": ..., \"arguments\": ...}</tool_call><|im_end|>\n{% endif %}",
    "{% for message in messages %}",
    "{% if not (tools and loop.first and message.role == 'system') %}",
    "<|im_start|>{{ message.role }}\n",
    "{{ message.content if message.content is string else '' }}",
    "{% for call in message.tool_calls or [] %}",
    "<tool_call>{\"name\": {{ call.function.name | tojson }}, \"arguments\": ",
    "{{ call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}}",
    "</tool_call>{% endfor %}",
    "<|im_end|>\n{% endif %}{% endfor %}",
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
);

/// Writes a byte-level chat model into `dir`, which is created if needed, and names its files.
///
/// Tokens 0–255 are the bytes, 256 `<|endoftext|>`, 257 `<|im_start|>`, 258 `<|im_end|>` (end of turn),
/// 259 `<|bos|>`, 260–263 the tags of thinking and tool calls. Context 262,144 tokens. Text and ids are
/// thus the same thing, and every cut of an answer, even inside a character, can be made.
pub fn tiny_chat(dir: impl AsRef<Path>) -> io::Result<ModelFiles> {
    let dir = dir.as_ref();
    std::fs::create_dir_all(dir)?;
    for (name, content) in [
        ("config.json", config()),
        ("generation_config.json", json!({"eos_token_id": [IM_END, ENDOFTEXT]})),
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", tokenizer_config()),
    ] {
        std::fs::write(dir.join(name), serde_json::to_vec_pretty(&content)?)?;
    }
    Ok(ModelFiles::in_dir(dir))
}

fn config() -> Value {
    json!({
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": 512,
        "max_position_embeddings": 262_144,
        "eos_token_id": IM_END,
        "bos_token_id": null,
        "torch_dtype": "bfloat16",
    })
}

fn tokenizer() -> Value {
    let vocabulary: Map<String, Value> =
        byte_alphabet().into_iter().zip(0..).map(|(letter, id)| (letter.to_string(), json!(id))).collect();
    let added: Vec<Value> = (ENDOFTEXT..)
        .zip(ADDED_TOKENS)
        .map(|(id, (content, special))| {
            json!({
                "id": id, "content": content, "special": special,
                "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
        .collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": [],
        },
    })
}

fn tokenizer_config() -> Value {
    let decoder: Map<String, Value> = (ENDOFTEXT..)
        .zip(ADDED_TOKENS)
        .map(|(id, (content, special))| {
            let token = json!({
                "content": content, "special": special,
                "normalized": false, "lstrip": false, "rstrip": false, "single_word": false,
            });
            (id.to_string(), token)
        })
        .collect();
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 262_144,
        "added_tokens_decoder": decoder,
        "chat_template": TEMPLATE,
    })
}

/// The letters that stand for the bytes 0–255 in a byte-level vocabulary, in byte order.
///
/// Printable Latin-1 bytes stand for themselves; the others take letters from U+0100 on, in turn.
fn byte_alphabet() -> Vec<char> {
    let mut substitutes = (0x100..).map_while(char::from_u32);
    (0..=255u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            _ => substitutes.next().expect("there are enough letters"),
        })
        .collect()
}

#[cfg(test)]
mod tests;
