use bytes::{BufMut, BytesMut};

use super::echo::{ResponseEcho, Status};
use super::items::Items;
use crate::blocks::Blocks;
use crate::json::write_u64;
use crate::{Finish, Piece, Usage};

/// A whole response, collected piece by piece.
#[derive(Debug)]
pub struct ResponseAnswer {
    echo: Box<ResponseEcho>,
    id: u128,
    blocks: Blocks,
    items: Items,
    finish: Option<Finish>,
}

impl ResponseAnswer {
    /// An answer with the digits of its id, to a request that shows as `echo`.
    pub fn new(id: u128, echo: Box<ResponseEcho>) -> Self {
        ResponseAnswer { echo, id, blocks: Blocks::default(), items: Items::new(id), finish: None }
    }

    /// Takes the next piece.
    pub fn piece(&mut self, piece: Piece<'_>) {
        if !is_shown(&self.echo, piece) {
            return;
        }
        let (items, names) = (&mut self.items, &self.echo.names);
        self.blocks.push(piece, |step| items.apply(step, names, "completed"));
    }

    /// Takes the end.
    pub fn finish(&mut self, finish: Finish) {
        let (items, names) = (&mut self.items, &self.echo.names);
        self.blocks.end(|step| items.apply(step, names, item_status(finish)));
        items.fill(item_status(finish));
        self.finish = Some(finish);
    }

    /// Writes the body; `created` and `now` are Unix seconds.
    pub fn write(&self, out: &mut BytesMut, (created, now): (u64, u64), usage: &Usage) {
        let status = status(self.finish.unwrap_or(Finish::Stop));
        write(out, &self.echo, self.id, (created, now), status, &self.items, Some(usage));
    }
}

/// Reasoning is left out of answers to those who do not ask for it.
pub(super) fn is_shown(echo: &ResponseEcho, piece: Piece<'_>) -> bool {
    echo.shows_reasoning || !matches!(piece, Piece::Reasoning(_))
}

/// Status of a response that ended so.
pub(super) fn status(finish: Finish) -> Status<'static> {
    match finish {
        Finish::Stop | Finish::ToolCalls => Status::Completed,
        Finish::Length => Status::Incomplete("max_output_tokens"),
        Finish::ContentFilter => Status::Incomplete("content_filter"),
    }
}

/// Status of an item that the end closes.
pub(super) fn item_status(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::ToolCalls => "completed",
        Finish::Length | Finish::ContentFilter => "incomplete",
    }
}

/// Writes a response object.
pub(super) fn write(
    out: &mut BytesMut,
    echo: &ResponseEcho,
    id: u128,
    times: (u64, u64),
    status: Status<'_>,
    items: &Items,
    usage: Option<&Usage>,
) {
    echo.write(out, &format!("resp_{id:032x}"), times, status);
    out.put_slice(b",\"output\":");
    items.write(out);
    out.put_slice(b",\"usage\":");
    match usage {
        Some(usage) => write_usage(out, usage),
        None => out.put_slice(b"null"),
    }
    out.put_u8(b'}');
}

fn write_usage(out: &mut BytesMut, usage: &Usage) {
    out.put_slice(b"{\"input_tokens\":");
    write_u64(out, usage.prompt_tokens);
    out.put_slice(b",\"input_tokens_details\":{\"cached_tokens\":");
    write_u64(out, usage.cached_tokens.unwrap_or(0));
    out.put_slice(b"},\"output_tokens\":");
    write_u64(out, usage.completion_tokens);
    out.put_slice(b",\"output_tokens_details\":{\"reasoning_tokens\":");
    write_u64(out, usage.reasoning_tokens.unwrap_or(0));
    out.put_slice(b"},\"total_tokens\":");
    write_u64(out, usage.prompt_tokens.saturating_add(usage.completion_tokens));
    out.put_u8(b'}');
}
