//! A streamed token: a worker's frame in, an event of the answer out.

use std::path::Path;

use anyhow::Context;
use bytes::BytesMut;
use roost_openai::{ChunkWriter, Flavor, Piece, Usage};
use roost_wire::Codec;
use roost_wire::frame::TwoPart;
use roost_wire::message::{Annotated, EngineOutput, Envelope};
use serde::Serialize;

use super::{Runner, measured};
use crate::route::load_tokenizer;

/// Frames of one answer, one token each.
pub(super) const FRAMES: u64 = 512;

/// An envelope as a worker writes it.
#[derive(Serialize)]
struct Written {
    data: Annotated<EngineOutput>,
    complete_final: bool,
}

/// What a worker sends for some text, token by token.
fn frames(ids: &[u32]) -> anyhow::Result<Vec<u8>> {
    let mut frames = Vec::new();
    for id in ids {
        let output = EngineOutput { index: Some(0), token_ids: vec![*id].into(), ..EngineOutput::default() };
        let envelope = Written { data: Annotated::from_data(output), complete_final: false };
        let body = Codec::Msgpack.encode(&envelope)?;
        TwoPart { header: &[], body: &body }.encode(&mut frames);
    }
    Ok(frames)
}

pub(super) fn run(model: &Path, run: Runner<'_>) -> anyhow::Result<()> {
    let tokenizer = load_tokenizer(model)?;
    let mut rng = fastrand::Rng::with_seed(3);
    let ids = tokenizer.encode(&crate::text::prose(&mut rng, 600), false)?;
    let frames = frames(ids.get(..FRAMES as usize).context("the text is too short")?)?;
    run(Box::new(move || {
        let mut decode = tokenizer.decode_stream(&[], true);
        let mut writer = ChunkWriter::new(Flavor::Chat, "chatcmpl-0", "model", 1_700_000_000);
        let (mut out, mut text) = (BytesMut::with_capacity(1024), String::new());
        let usage = Usage::default();
        measured(|| {
            let mut rest = &frames[..];
            while let Some((frame, len)) = TwoPart::decode(rest, 1 << 20)? {
                rest = &rest[len..];
                let envelope = Envelope::decode(Codec::Msgpack, frame.body)?;
                let item: Annotated<EngineOutput> =
                    Codec::Msgpack.decode(envelope.data.context("an item in every frame")?)?;
                for id in item.data.context("a token in every item")?.token_ids.iter() {
                    decode.push(*id, &mut text);
                }
                writer.piece(&mut out, 0, Piece::Content(&text), &[], &usage);
                text.clear();
                // As the server does: what is written goes out at once.
                drop(out.split().freeze());
            }
            Ok(())
        })
    }))
}
