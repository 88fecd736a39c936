//! HTTP to one server: small questions with a limit of size and time, and answers that stream.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::de::DeserializeOwned;

use crate::ServerUrl;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Idle connections are closed after this, before the server's own limit (uvicorn's is 5 s by default).
const IDLE: Duration = Duration::from_secs(4);
/// Largest answer to a small question. `/server_info` has about 10 KB for each rank.
const MAX_SMALL: usize = 16 << 20;

/// A server that can be asked. Clones share connections.
#[derive(Debug, Clone)]
pub struct Server {
    url: ServerUrl,
    client: Client<HttpConnector, Full<Bytes>>,
    key: Option<http::HeaderValue>,
}

/// Why a server has not answered as it should.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// It cannot be reached, or broke off.
    #[error("{url} cannot be reached: {reason}")]
    Unreachable {
        /// The server.
        url: ServerUrl,
        /// What went wrong.
        reason: String,
    },
    /// It took too long.
    #[error("{url}{path} has not answered within {limit:?}")]
    Late {
        /// The server.
        url: ServerUrl,
        /// What was asked.
        path: &'static str,
        /// For how long.
        limit: Duration,
    },
    /// It refused.
    #[error("{url}{path} answers {status}: {text}")]
    Status {
        /// The server.
        url: ServerUrl,
        /// What was asked.
        path: &'static str,
        /// Its answer.
        status: u16,
        /// The beginning of its words.
        text: String,
    },
    /// It answered something else than was asked.
    #[error("{url}{path} does not answer as an SGLang server: {reason}")]
    Shape {
        /// The server.
        url: ServerUrl,
        /// What was asked.
        path: &'static str,
        /// What is wrong.
        reason: String,
    },
}

impl HttpError {
    /// Whether it says that nobody is there.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, HttpError::Unreachable { .. })
    }
}

impl Server {
    /// Connects to nothing yet. `api_key` is sent as bearer token with everything.
    ///
    /// # Errors
    /// The key cannot be a header.
    pub fn new(url: ServerUrl, api_key: Option<&str>) -> Result<Self, http::header::InvalidHeaderValue> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_keepalive(Some(Duration::from_secs(30)));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .http1_max_headers(256)
            .build(connector);
        let key = api_key
            .map(|key| {
                let mut value = http::HeaderValue::try_from(format!("Bearer {key}"))?;
                value.set_sensitive(true);
                Ok(value)
            })
            .transpose()?;
        Ok(Server { url, client, key })
    }

    /// Where it is.
    pub fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// The JSON at a path.
    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        path: &'static str,
        limit: Duration,
    ) -> Result<T, HttpError> {
        let body = self.small(Method::GET, path, Bytes::new(), limit).await?;
        serde_json::from_slice(&body).map_err(|error| HttpError::Shape {
            url: self.url.clone(),
            path,
            reason: error.to_string(),
        })
    }

    /// The text of `/metrics`.
    ///
    /// # Errors
    /// There is none, not in time, or it is no text.
    pub async fn metrics(&self, limit: Duration) -> Result<String, HttpError> {
        const PATH: &str = "/metrics";
        let page = self.small(Method::GET, PATH, Bytes::new(), limit).await?;
        String::from_utf8(page.into()).map_err(|error| HttpError::Shape {
            url: self.url.clone(),
            path: PATH,
            reason: error.to_string(),
        })
    }

    /// A small answer, which is a success.
    pub(crate) async fn small(
        &self,
        method: Method,
        path: &'static str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Bytes, HttpError> {
        let asking = async {
            let answer = self.send(method, path, body).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_SMALL).collect().await;
            let body = body.map_err(|error| self.unreachable(&*error))?.to_bytes();
            if status.is_success() { Ok(body) } else { Err(self.refused(path, status, &body)) }
        };
        let asked = tokio::time::timeout(limit, asking).await;
        asked.unwrap_or_else(|_| Err(HttpError::Late { url: self.url.clone(), path, limit }))
    }

    /// Sends a request; the answer's body is yet to come.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>, HttpError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header(http::header::CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(http::header::AUTHORIZATION, key);
        }
        let request = request.body(Full::new(body)).map_err(|error| self.unreachable(&error))?;
        self.client.request(request).await.map_err(|error| self.unreachable(&error))
    }

    fn refused(&self, path: &'static str, status: StatusCode, body: &[u8]) -> HttpError {
        let text = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
        HttpError::Status { url: self.url.clone(), path, status: status.as_u16(), text }
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> HttpError {
        HttpError::Unreachable { url: self.url.clone(), reason: chain(error) }
    }
}

/// An error with its causes: hyper's own text names none.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
