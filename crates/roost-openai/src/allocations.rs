//! What requests and answers cost in memory of their own, counted.

use bytes::{Bytes, BytesMut};

use crate::{ChatRequest, ChunkWriter, CompletionRequest, FieldPolicy, Flavor, Piece, Usage};

/// A tree of JSON of about this many bytes: a few hundred thousand values.
fn tree(bytes: usize) -> String {
    let leaf = r#"{"a":[1,2,{"b":"text"}],"c":null},"#;
    format!("[{}0]", leaf.repeat(bytes / leaf.len()))
}

fn body(content: &str, more: &str) -> Bytes {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{content}"}}]{more}}}"#).into()
}

#[test]
fn what_nobody_reads_costs_no_tree() {
    let body = body("hi", &format!(r#","unknown":{}"#, tree(5 << 20)));
    let mut ignored = 0;
    let info = allocation_counter::measure(|| {
        let request = ChatRequest::parse(&body, FieldPolicy::Ignore).expect("a good request");
        ignored = request.ignored.0.len();
    });
    assert_eq!(ignored, 1);
    assert!(info.bytes_max < 16 << 10 && info.count_total < 100, "{info:?}");
}

#[test]
fn large_members_are_borrowed() {
    let tools = format!(r#","tools":[{{"type":"function","x":{}}}]"#, tree(1 << 20));
    let body = body(&"word ".repeat(1 << 20), &tools);
    let info = allocation_counter::measure(|| {
        let request = ChatRequest::parse(&body, FieldPolicy::Ignore).expect("a good request");
        assert!(request.messages.as_bytes().len() > 5 << 20 && request.tools.is_some());
    });
    assert!(info.bytes_max < 16 << 10 && info.count_total < 100, "{info:?}");
    let text: Bytes = format!(r#"{{"model":"m","prompt":"{}"}}"#, "word ".repeat(1 << 20)).into();
    let info = allocation_counter::measure(|| {
        CompletionRequest::parse(&text, FieldPolicy::Ignore).expect("a good request");
    });
    assert!(info.bytes_max < 6 << 20, "one copy, without its escapes: {info:?}");
}

#[test]
fn a_chunk_costs_no_allocation() {
    let usage = Usage { prompt_tokens: 10, ..Usage::default() };
    let mut out = BytesMut::with_capacity(1 << 20);
    for flavor in [Flavor::Chat, Flavor::Completion] {
        let mut writer = ChunkWriter::new(flavor, "chatcmpl-1", "model", 1_700_000_000);
        writer.set_running_usage(true);
        let info = allocation_counter::measure(|| {
            for _ in 0..500 {
                writer.piece(&mut out, 0, Piece::Content("some \"text\"\n"), &[], &usage);
                writer.piece(&mut out, 0, Piece::Reasoning("thought"), &[], &usage);
            }
        });
        assert_eq!(info.count_total, 0, "{flavor:?}: {info:?}");
        assert!(out.len() > 100_000);
        out.clear();
    }
}
