//! One client's connection, opened again when the server has closed it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::answer::{Answer, AnswerReader};

/// A connection to one endpoint that is used by one session.
#[derive(Debug)]
pub(crate) struct Connection {
    authority: String,
    sender: Option<SendRequest<Full<Bytes>>>,
    patience: Duration,
}

impl Connection {
    pub(crate) fn new(authority: &str, patience: Duration) -> Self {
        Self { authority: authority.to_owned(), sender: None, patience }
    }

    /// Sends a chat request for a streamed answer and reads it to its end.
    pub(crate) async fn chat(
        &mut self,
        body: Bytes,
        session: Option<&str>,
        parent: Option<&str>,
    ) -> Result<Answer, String> {
        let mut request = Request::post("/v1/chat/completions")
            .header("host", &self.authority)
            .header("content-type", "application/json")
            .header("accept", "text/event-stream");
        if let Some(session) = session {
            request = request.header("x-dynamo-session-id", session);
        }
        if let Some(parent) = parent {
            request = request.header("x-dynamo-parent-session-id", parent);
        }
        let request = request.body(Full::new(body)).map_err(|e| e.to_string())?;
        let (sent, patience) = (Instant::now(), self.patience);
        let whole = async {
            let response = self.send(request).await?;
            let status = response.status();
            let mut body = response.into_body();
            if status != StatusCode::OK {
                let text = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
                return Err(format!("{status}: {}", String::from_utf8_lossy(&text[..text.len().min(200)])));
            }
            let mut reader = AnswerReader::new(sent);
            while let Some(frame) = body.frame().await {
                if let Ok(data) = frame.map_err(|e| e.to_string())?.into_data() {
                    reader.push(&data, Instant::now());
                }
            }
            reader.end(Instant::now())
        };
        let answer = tokio::time::timeout(patience, whole).await;
        answer.unwrap_or_else(|_| {
            self.sender = None;
            Err("no end in time".to_owned())
        })
    }

    /// Reads a document.
    pub(crate) async fn get(&mut self, path: &str) -> Result<(StatusCode, Bytes), String> {
        let request = Request::get(path).header("host", &self.authority).body(Full::default());
        let response = self.send(request.map_err(|e| e.to_string())?).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes()))
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String> {
        if let Some(mut sender) = self.sender.take_if(|sender| !sender.is_closed())
            && sender.ready().await.is_ok()
        {
            let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
            self.sender = Some(sender);
            return Ok(response);
        }
        let stream = TcpStream::connect(&self.authority).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        tokio::spawn(async move {
            let _closed = connection.await;
        });
        let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
        self.sender = Some(sender);
        Ok(response)
    }
}
