use std::{convert::Infallible, io, pin::pin, sync::Arc, task::Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::{
    io::{self as tokio_io, AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf},
    task,
    time::{self, Instant},
};

use super::{Cancellation, Handler, Item, ItemStream, Misbehaviour, RequestContext, Shared};
use crate::{
    Codec,
    frame::{self, TwoPart},
    line,
    message::{
        Annotated, ControlMessage, ControlSignal, DynamoError, HandshakeMessage, Prologue, ResponseAddress,
        envelope,
    },
    stats::WorkerCounters,
    transport::Socket,
};

/// Bytes of items after which they are written although more are ready.
const MAX_BATCH_BYTES: usize = 64 * 1024;
/// Largest frame that a frontend may send on a call-home connection.
const MAX_CONTROL_BYTES: usize = 16 * 1024;

/// A request that has been acknowledged.
pub(super) struct Request {
    pub(super) path: Arc<str>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) control: ControlMessage,
    pub(super) home: ResponseAddress,
    pub(super) body: Bytes,
    /// What is to be done wrong with its answer.
    pub(super) misbehaviour: Option<Misbehaviour>,
}

/// How an answer ended.
enum End {
    /// The prologue refused it.
    Refused,
    /// It went out to its end.
    Complete,
    /// The handler stopped as asked, or broke it off.
    Incomplete,
}

/// Waits for a handler slot, calls home and sends the answer.
pub(super) async fn answer(shared: Arc<Shared>, request: Request, handler: Arc<dyn Handler>) {
    let counters = &shared.counters;
    let queued = counters.open_queued.hold();
    let Ok(_slot) = shared.slots.acquire().await else { return };
    drop(queued);
    let _open = counters.open_streams.hold();
    let address = request.home.address;
    let dialled = time::timeout(shared.config.dial_timeout, shared.config.transport.connect(address));
    let socket = match dialled.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(socket) => socket,
        Err(error) => {
            counters.dial_failures.increment();
            tracing::debug!(request = %request.control.id, %address, %error, "cannot call home");
            return;
        }
    };
    let (reader, writer) = tokio_io::split(socket);
    let id: Arc<str> = request.control.id.as_str().into();
    let mut controls = Controls { reader, inbox: BytesMut::new() };
    let cancellation = Cancellation::default();
    let mut writing = pin!(
        Writer { writer, out: Vec::new(), counters, cancellation: cancellation.clone() }
            .write(request, handler)
    );
    let mut stop_deadline = None;
    let end = loop {
        tokio::select! {
            biased;
            signal = controls.next() => match signal {
                Some(ControlSignal::Stop) => {
                    cancellation.stop();
                    stop_deadline.get_or_insert_with(|| Instant::now() + shared.config.stop_grace);
                }
                _ => break None,
            },
            end = &mut writing => break Some(end),
            () = time::sleep_until(stop_deadline.unwrap_or_else(Instant::now)), if stop_deadline.is_some() => {
                break None;
            }
        }
    };
    match end {
        Some(Ok(End::Complete)) => {
            counters.completed.increment();
            // A kill that comes now has lost the race.
            let closing = async { while controls.next().await.is_some() {} };
            let _ = time::timeout(shared.config.close_timeout, closing).await;
        }
        Some(Ok(End::Refused)) => counters.refused.increment(),
        Some(Ok(End::Incomplete)) if !cancellation.is_stopped() => counters.aborted.increment(),
        Some(Ok(End::Incomplete) | Err(_)) | None => {
            counters.cancelled.increment();
            cancellation.kill();
            tracing::debug!(request = %id, "answer cancelled by the frontend");
        }
    }
}

/// The frontend's half of a call-home connection.
struct Controls {
    reader: ReadHalf<Socket>,
    inbox: BytesMut,
}

impl Controls {
    /// Waits for a signal; `None` when the frontend closes or sends what it must not. Cancel safe.
    async fn next(&mut self) -> Option<ControlSignal> {
        loop {
            if let Some((frame, len)) = TwoPart::decode(&self.inbox, MAX_CONTROL_BYTES).ok()? {
                let signal = serde_json::from_slice(frame.header).ok();
                self.inbox.advance(len);
                return signal;
            }
            if self.reader.read_buf(&mut self.inbox).await.ok()? == 0 {
                return None;
            }
        }
    }
}

/// The worker's half of a call-home connection.
struct Writer<'a> {
    writer: WriteHalf<Socket>,
    /// Frames not written yet.
    out: Vec<u8>,
    counters: &'a WorkerCounters,
    cancellation: Cancellation,
}

impl Writer<'_> {
    async fn write(mut self, request: Request, handler: Arc<dyn Handler>) -> io::Result<End> {
        let Request { path, headers, control, home, body, misbehaviour } = request;
        let handshake = HandshakeMessage { subject: home.subject, stream_type: "response".to_owned() };
        self.put_control(&handshake);
        self.flush().await?;
        match misbehaviour {
            Some(Misbehaviour::CloseBeforePrologue) => return Ok(End::Incomplete),
            Some(Misbehaviour::GarbledPrologue) => {
                self.out.extend_from_slice(&[0xff; 64]);
                self.flush().await?;
                return std::future::pending().await;
            }
            _ => {}
        }
        let codec = control.codec();
        let refusal = if home.context != control.id {
            Some(DynamoError::invalid_argument("context of the answer is not the request id"))
        } else if control.request_type != "single_in" {
            Some(DynamoError::invalid_argument("request streams are not served"))
        } else {
            None
        };
        let context = RequestContext {
            id: control.id.into(),
            metadata: control.metadata,
            path,
            codec,
            headers,
            cancellation: self.cancellation.clone(),
        };
        let accepted = match refusal {
            None => handler.handle(context, body).await,
            Some(error) => Err(error),
        };
        match accepted {
            Ok(items) => {
                self.put_control(&Prologue::default());
                self.write_items(items, codec).await
            }
            Err(error) => {
                self.put_control(&Prologue::refused(error));
                self.flush().await?;
                self.writer.shutdown().await?;
                Ok(End::Refused)
            }
        }
    }

    async fn write_items(&mut self, mut items: ItemStream, codec: Codec) -> io::Result<End> {
        let complete = loop {
            // Items that are ready together are written together.
            let ready = std::future::poll_fn(|cx| Poll::Ready(items.as_mut().poll_next(cx))).await;
            let item = match ready {
                Poll::Ready(item) => item,
                Poll::Pending => {
                    self.flush().await?;
                    std::future::poll_fn(|cx| items.as_mut().poll_next(cx)).await
                }
            };
            match item {
                None => break !self.cancellation.is_stopped(),
                Some(Item::Abort) => break false,
                Some(item) => {
                    let last = matches!(item, Item::Error(_));
                    self.put_item(codec, item);
                    if last {
                        break true;
                    }
                }
            }
            if self.out.len() >= MAX_BATCH_BYTES {
                self.flush().await?;
            }
            // A stream that is always ready must not keep a kill from being noticed.
            task::consume_budget().await;
        };
        if complete {
            let Ok(()) = frame::put_data(&mut self.out, |out| {
                out.extend_from_slice(envelope::end(codec));
                Ok::<_, Infallible>(())
            });
            self.out.extend_from_slice(&line::control_frame(ControlSignal::Sentinel));
        }
        self.flush().await?;
        Ok(if complete { End::Complete } else { End::Incomplete })
    }

    fn put_control(&mut self, message: &impl serde::Serialize) {
        let header = serde_json::to_vec(message).expect("control messages are JSON");
        TwoPart { header: &header, body: &[] }.encode(&mut self.out);
    }

    fn put_item(&mut self, codec: Codec, item: Item) {
        let item = match item {
            Item::Output(output) => Ok(Annotated::from_data(*output)),
            Item::Annotated(item) => Ok(*item),
            Item::Error(error) => Ok(Annotated::from_error(error)),
            Item::Encoded(bytes) => Err(bytes),
            Item::Abort => return,
        };
        let written = frame::put_data(&mut self.out, |out| {
            envelope::put_item(codec, out, |out| match &item {
                Ok(item) => codec.encode_into(item, out),
                Err(bytes) => {
                    out.extend_from_slice(bytes);
                    Ok(())
                }
            })
        });
        if let Err(error) = written {
            // Only a number or key that the codec cannot hold can do this.
            tracing::warn!(%error, "item left out of an answer");
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.counters.sent_bytes.add(self.out.len() as u64);
            let written = async {
                self.writer.write_all(&self.out).await?;
                self.writer.flush().await
            };
            // The handler's stream is dropped next and must know why.
            written.await.inspect_err(|_| self.cancellation.kill())?;
            self.out.clear();
        }
        Ok(())
    }
}
