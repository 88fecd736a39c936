//! The request body, read once into one buffer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use roost_openai::ApiError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Bytes per second that a body must bring on average, after the time that it may pause. Slower than any modem; a
/// client that sends a byte now and then only to stay is slower still.
const LEAST_RATE: u64 = 1 << 10;

/// Bodies up to this size are not counted: the number of connections bounds them.
const SMALL: usize = 64 << 10;

/// Unit of the account of larger ones.
const UNIT: usize = 4 << 10;

/// Whether a body of this kind can be read.
pub(crate) fn accepts(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim();
    let essence = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::new(415, "Expected request with Content-Type application/json"));
    }
    let coding = text(header::CONTENT_ENCODING);
    if !coding.is_empty() && !coding.eq_ignore_ascii_case("identity") {
        return Err(ApiError::new(
            415,
            "Compressed request bodies are not accepted: send it without Content-Encoding.",
        ));
    }
    Ok(())
}

/// How bodies are read.
#[derive(Debug)]
pub(crate) struct Bodies {
    stall: Option<Duration>,
    memory: Option<Arc<Semaphore>>,
}

/// A body in one piece, with its share of the memory for bodies.
struct Counted {
    bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    /// `stall` bounds the pause between two pieces, `memory` the bytes of all bodies that are kept.
    pub(crate) fn new(stall: Option<Duration>, memory: Option<usize>) -> Self {
        let units = |bytes: usize| (bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS);
        Bodies { stall, memory: memory.map(|bytes| Arc::new(Semaphore::new(units(bytes)))) }
    }

    /// Reads a whole body of at most `limit` bytes. Its memory is counted until the last part of it is dropped.
    pub(crate) async fn read(&self, mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
        let hint = body.size_hint().exact();
        if hint.is_some_and(|size| size > limit as u64) {
            return Err(too_large(limit));
        }
        let started = Instant::now();
        let Some(first) = self.piece(&mut body, started, 0).await? else { return Ok(Bytes::new()) };
        if first.len() > limit {
            return Err(too_large(limit));
        }
        if hint == Some(first.len() as u64) {
            return Ok(first);
        }
        let expected = hint.and_then(|size| usize::try_from(size).ok()).unwrap_or(first.len() * 2);
        // What is only announced gets no memory.
        let mut whole = BytesMut::with_capacity(expected.min(SMALL).max(first.len()));
        whole.extend_from_slice(&first);
        let mut share = None;
        while let Some(next) = self.piece(&mut body, started, whole.len()).await? {
            let size = whole.len() + next.len();
            if size > limit {
                return Err(too_large(limit));
            }
            self.count(&mut share, size)?;
            if size > whole.capacity() {
                whole.reserve(expected.saturating_sub(whole.len()).max(next.len()));
            }
            whole.extend_from_slice(&next);
        }
        let bytes = whole.freeze();
        Ok(match share {
            None => bytes,
            Some(share) => Bytes::from_owner(Counted { bytes, _share: share }),
        })
    }

    /// Reads a body of a request that is refused, and keeps nothing of it. Ends early where [`Bodies::read`] would fail.
    pub(crate) async fn discard(&self, mut body: Body, limit: usize) {
        let (started, mut read) = (Instant::now(), 0);
        while let Ok(Some(piece)) = self.piece(&mut body, started, read).await {
            read += piece.len();
            if read > limit {
                return;
            }
        }
    }

    /// Makes `share` large enough for a body of `size` bytes.
    fn count(&self, share: &mut Option<OwnedSemaphorePermit>, size: usize) -> Result<(), ApiError> {
        let Some(memory) = self.memory.as_ref().filter(|_| size > SMALL) else { return Ok(()) };
        let held = share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = size.div_ceil(UNIT).saturating_sub(held);
        if missing == 0 {
            return Ok(());
        }
        let more =
            u32::try_from(missing).ok().and_then(|n| Arc::clone(memory).try_acquire_many_owned(n).ok());
        let more = more.ok_or_else(|| {
            ApiError::new(
                503,
                "Too many large request bodies are being read. Please retry after a short wait.",
            )
        })?;
        match share {
            Some(share) => share.merge(more),
            None => *share = Some(more),
        }
        Ok(())
    }

    /// The next piece of a body of which `so_far` bytes came since `started`.
    async fn piece(
        &self,
        body: &mut Body,
        started: Instant,
        so_far: usize,
    ) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = match self.stall {
                Some(stall) => {
                    let earned = Duration::from_secs(so_far as u64 / LEAST_RATE);
                    let until = (Instant::now() + stall).min(started + stall + earned);
                    tokio::time::timeout_at(until, body.frame()).await.map_err(|_| too_slow(stall))?
                }
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
}

fn too_large(limit: usize) -> ApiError {
    let shown = limit as f64 / f64::from(1 << 20);
    ApiError::new(413, format!("Request body exceeds the limit of {shown} MB set by DYN_HTTP_BODY_LIMIT_MB"))
}

fn too_slow(stall: Duration) -> ApiError {
    let seconds = stall.as_secs_f64();
    ApiError::new(408, format!("The request body came too slowly: it may pause for at most {seconds} s."))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    const FREE: Bodies = Bodies { stall: None, memory: None };

    fn chunked(parts: &[&'static str]) -> Body {
        let frames: Vec<_> = parts
            .iter()
            .map(|part| Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(part.as_bytes()))))
            .collect();
        Body::new(StreamBody::new(stream::iter(frames)))
    }

    fn pieces(size: usize, count: usize) -> Body {
        let frames: Vec<_> =
            (0..count).map(|_| Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![b'x'; size])))).collect();
        Body::new(StreamBody::new(stream::iter(frames)))
    }

    #[tokio::test]
    async fn pieces_become_one_buffer() {
        assert_eq!(FREE.read(chunked(&["ab", "cd", "e"]), 5).await.unwrap(), "abcde");
        assert_eq!(FREE.read(Body::empty(), 5).await.unwrap(), "");
        assert_eq!(FREE.read(Body::from("abcde"), 5).await.unwrap(), "abcde");
        assert_eq!(FREE.read(pieces(50_000, 20), 1_000_000).await.unwrap(), vec![b'x'; 1_000_000]);
    }

    #[tokio::test]
    async fn too_large_with_and_without_a_length() {
        assert_eq!(FREE.read(Body::from("abcdef"), 5).await.unwrap_err().status(), 413);
        assert_eq!(FREE.read(chunked(&["abc", "def"]), 5).await.unwrap_err().status(), 413);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_body_ends() {
        let body = Body::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, std::io::Error>>()));
        let bodies = Bodies::new(Some(Duration::from_secs(1)), None);
        assert_eq!(bodies.read(body, 5).await.unwrap_err().status(), 408);
    }

    /// `size` bytes every `pause`, for ever.
    fn trickle(size: usize, pause: Duration) -> Body {
        let piece = move || Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![b'x'; size])));
        Body::new(StreamBody::new(stream::unfold((), move |()| async move {
            tokio::time::sleep(pause).await;
            Some((piece(), ()))
        })))
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_ends_and_a_slow_line_does_not() {
        let bodies = Bodies::new(Some(Duration::from_secs(60)), None);
        let started = Instant::now();
        let error = bodies.read(trickle(1, Duration::from_secs(20)), 1 << 20).await.unwrap_err();
        assert_eq!(error.status(), 408);
        assert_eq!(started.elapsed(), Duration::from_secs(60));
        // 2 KiB a second up to the limit of the size, which takes far longer than the pause.
        let error = bodies.read(trickle(2 << 10, Duration::from_secs(1)), 1 << 20).await.unwrap_err();
        assert_eq!(error.status(), 413);
    }

    #[tokio::test]
    async fn large_bodies_share_their_memory() {
        let bodies = Bodies::new(None, Some(1 << 20));
        let first = bodies.read(pieces(50_000, 16), 2_000_000).await.unwrap();
        let refused = bodies.read(pieces(50_000, 16), 2_000_000).await.unwrap_err();
        assert_eq!(refused.status(), 503);
        assert_eq!(bodies.read(pieces(1_000, 16), 2_000_000).await.unwrap().len(), 16_000, "small ones pass");
        let part = first.slice(10..20);
        drop(first);
        assert!(bodies.read(pieces(50_000, 16), 2_000_000).await.is_err(), "a part keeps the whole");
        drop(part);
        assert!(bodies.read(pieces(50_000, 16), 2_000_000).await.is_ok());
    }
}
