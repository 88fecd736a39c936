//! The request body, read once into one buffer.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;
use roost_openai::ApiError;

/// Reads a whole body of at most `limit` bytes; `stall` bounds the pause between two pieces.
pub(crate) async fn read(mut body: Body, limit: usize, stall: Option<Duration>) -> Result<Bytes, ApiError> {
    let hint = body.size_hint().exact();
    if hint.is_some_and(|size| size > limit as u64) {
        return Err(too_large(limit));
    }
    let Some(first) = piece(&mut body, stall).await? else { return Ok(Bytes::new()) };
    if first.len() > limit {
        return Err(too_large(limit));
    }
    if hint == Some(first.len() as u64) {
        return Ok(first);
    }
    let expected = hint.and_then(|size| usize::try_from(size).ok()).unwrap_or(first.len() * 2);
    let mut whole = BytesMut::with_capacity(expected);
    whole.extend_from_slice(&first);
    while let Some(next) = piece(&mut body, stall).await? {
        if whole.len() + next.len() > limit {
            return Err(too_large(limit));
        }
        whole.extend_from_slice(&next);
    }
    Ok(whole.freeze())
}

async fn piece(body: &mut Body, stall: Option<Duration>) -> Result<Option<Bytes>, ApiError> {
    loop {
        let frame = match stall {
            Some(limit) => tokio::time::timeout(limit, body.frame()).await.map_err(|_| {
                ApiError::new(
                    408,
                    format!("No part of the request body arrived for {} s.", limit.as_secs_f64()),
                )
            })?,
            None => body.frame().await,
        };
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(ApiError::new(400, "The request body ended early.")),
            // Trailers carry nothing of ours.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(_trailers) => continue,
            },
        }
    }
}

fn too_large(limit: usize) -> ApiError {
    let shown = limit as f64 / f64::from(1 << 20);
    ApiError::new(413, format!("Request body exceeds the limit of {shown} MB set by DYN_HTTP_BODY_LIMIT_MB"))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    fn chunked(parts: &[&'static str]) -> Body {
        let frames: Vec<_> = parts
            .iter()
            .map(|part| Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(part.as_bytes()))))
            .collect();
        Body::new(StreamBody::new(stream::iter(frames)))
    }

    #[tokio::test]
    async fn pieces_become_one_buffer() {
        assert_eq!(read(chunked(&["ab", "cd", "e"]), 5, None).await.unwrap(), "abcde");
        assert_eq!(read(Body::empty(), 5, None).await.unwrap(), "");
        assert_eq!(read(Body::from("abcde"), 5, None).await.unwrap(), "abcde");
    }

    #[tokio::test]
    async fn too_large_with_and_without_a_length() {
        assert_eq!(read(Body::from("abcdef"), 5, None).await.unwrap_err().status(), 413);
        assert_eq!(read(chunked(&["abc", "def"]), 5, None).await.unwrap_err().status(), 413);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_body_ends() {
        let body = Body::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, std::io::Error>>()));
        assert_eq!(read(body, 5, Some(Duration::from_secs(1))).await.unwrap_err().status(), 408);
    }
}
