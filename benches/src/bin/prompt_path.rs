//! What a session's next turn costs between body bytes and wire bytes, stage by stage.
//!
//! `cargo run --release -p roost-benches --bin prompt_path -- MODEL_DIR [context bytes] [runs]`

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, anyhow};
use roost_benches::time::{Timing, timed};
use roost_benches::{Conversation, Size};
use roost_kv::{Blocks, hash};
use roost_openai::{ChatRequest, FieldPolicy, Raw};
use roost_template::{ChatTemplate, RenderInput, TemplateFiles};
use roost_tokenizer::{Backend, Tokenizer};
use roost_wire::Codec;
use roost_wire::message::{EngineRequest, TokenIdFormat};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder =
        PathBuf::from(arguments.next().context("usage: prompt_path MODEL_DIR [context bytes] [runs]")?);
    let context = arguments.next().map_or(Ok(300_000), |n| n.parse())?;
    let runs = arguments.next().map_or(Ok(31), |n| n.parse())?;
    let template = ChatTemplate::from_files(&TemplateFiles::in_folder(&folder))?;
    let tokenizer = Tokenizer::load(&folder.join("tokenizer.json"), Backend::Fast, true)?;
    let mut conversation = Conversation::new("m", 1, Size { context, turn: 2400, tools: 12 });
    let body = conversation.body();
    conversation.grow();
    let next = conversation.body();

    let api = |e: roost_openai::ApiError| anyhow!("{}", e.message());
    let parse = |body| ChatRequest::parse(body, FieldPolicy::Ignore);
    let request = parse(&next).map_err(api)?;
    let render = |request: &ChatRequest| {
        template.render(&RenderInput {
            tools: request.tools.as_ref().map(Raw::as_str),
            ..RenderInput::new(request.messages.as_str(), SystemTime::now())
        })
    };
    let prompt = render(&request)?;
    let cold = Tokenizer::load(&folder.join("tokenizer.json"), Backend::Fast, true)?;
    let first = timed(1, || (), |()| cold.encode(&prompt.text, false));
    let ids: Arc<[u32]> = tokenizer.encode(&prompt.text, false)?.into();
    let before = tokenizer.encode(&render(&parse(&body).map_err(api)?)?.text, false)?;
    let engine =
        EngineRequest { model: "m".to_owned(), token_ids: Arc::clone(&ids), ..EngineRequest::default() };

    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "body {} bytes, prompt {} bytes, {} tokens, {} new",
        next.len(),
        prompt.text.len(),
        ids.len(),
        ids.len() - before.len()
    )?;
    let mut row = |name: &str, timing: Timing| {
        writeln!(out, "{name:28} {:8.3} ms  (min {:.3})", timing.ms(), timing.min.as_secs_f64() * 1e3)
    };
    row("parse", timed(runs, || (), |()| parse(&next)))?;
    row("render", timed(runs, || (), |()| render(&request)))?;
    row("tokenize, first time", first)?;
    row("tokenize, seen text", timed(runs, || (), |()| tokenizer.encode(&prompt.text, false)))?;
    row("hash", timed(runs, || (), |()| Blocks::compute(&ids, 64, hash::BASE_SEED)))?;
    row("wire", timed(runs, || (), |()| engine.encode(Codec::Msgpack, TokenIdFormat::Array)))?;
    row(
        "whole turn, stateless",
        timed(
            runs,
            || (),
            |()| {
                let request = parse(&next).map_err(api)?;
                let ids: Arc<[u32]> = tokenizer.encode(&render(&request)?.text, false)?.into();
                let blocks = Blocks::compute(&ids, 64, hash::BASE_SEED);
                let engine =
                    EngineRequest { model: request.model, token_ids: ids, ..EngineRequest::default() };
                anyhow::Ok((blocks, engine.encode(Codec::Msgpack, TokenIdFormat::Array)?))
            },
        ),
    )?;
    Ok(())
}
