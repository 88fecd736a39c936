//! API keys: kept and compared as digests, so that neither a log, a core of memory nor the time of a comparison
//! gives one away.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, header};
use roost_openai::{ApiError, ErrorShape};

use crate::config::Paths;
use crate::console;
use crate::reply;
use crate::shared::Shared;

/// Largest key file, bytes.
const FILE_LIMIT: u64 = 1 << 20;

/// Keys of which a client must show one.
pub struct ApiKeys {
    given: Option<blake3::Hash>,
    file: Option<PathBuf>,
    of_file: ArcSwap<Vec<blake3::Hash>>,
}

impl ApiKeys {
    /// One key, or a file of keys, or both. The file has one key a line; empty lines and those that begin with `#`
    /// are skipped.
    ///
    /// # Errors
    /// The file cannot be read or holds no key.
    pub fn new(key: Option<&str>, file: Option<&Path>) -> io::Result<Self> {
        let of_file = file.map(read).transpose()?.unwrap_or_default();
        Ok(ApiKeys {
            given: key.map(|key| blake3::hash(key.trim().as_bytes())),
            file: file.map(Path::to_owned),
            of_file: ArcSwap::from_pointee(of_file),
        })
    }

    /// Reads the file again. What cannot be read leaves the keys before in force. Blocks.
    ///
    /// # Errors
    /// The file cannot be read or holds no key.
    pub fn refresh(&self) -> io::Result<()> {
        if let Some(file) = &self.file {
            self.of_file.store(Arc::new(read(file)?));
        }
        Ok(())
    }

    /// Whether this is one of them. Digests are compared in a time that does not depend on them.
    fn accepts(&self, shown: &[u8]) -> bool {
        let shown = blake3::hash(shown);
        let mut found = self.given.is_some_and(|key| key == shown);
        for key in &**self.of_file.load() {
            found |= *key == shown;
        }
        found
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKeys").field("file", &self.file).finish_non_exhaustive()
    }
}

fn read(path: &Path) -> io::Result<Vec<blake3::Hash>> {
    let wrong =
        |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
    if size > FILE_LIMIT {
        return Err(wrong(format!("larger than {FILE_LIMIT} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let keys = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<_> = keys.map(|key| blake3::hash(key.as_bytes())).collect();
    if keys.is_empty() {
        return Err(wrong("no key in it".to_owned()));
    }
    Ok(keys)
}

/// What a route asks for.
enum Needs {
    Nothing,
    Key,
    AdminKey,
}

/// Anything that is not known to be harmless needs a key.
fn needs(path: &str, paths: &Paths) -> Needs {
    match path {
        "/ready" => Needs::Nothing,
        _ if [&paths.health, &paths.live, &paths.metrics].iter().any(|probe| *probe == path) => {
            Needs::Nothing
        }
        _ if console::is_page(path) => Needs::Nothing,
        "/busy_threshold" | console::STATE => Needs::AdminKey,
        _ if path.starts_with("/debug/") => Needs::AdminKey,
        _ => Needs::Key,
    }
}

/// Turns away who shows no key where one is needed.
pub(crate) async fn authorize(State(app): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let http = &app.config.http;
    let path = request.uri().path();
    let keys = match needs(path, &http.paths) {
        Needs::Nothing => None,
        Needs::Key => http.api_keys.as_ref(),
        Needs::AdminKey => http.admin_keys.as_ref().or(http.api_keys.as_ref()),
    };
    let shape = match path.starts_with(&http.paths.messages) {
        true => ErrorShape::Anthropic,
        false => http.error_shape,
    };
    let shown = shown(request.headers());
    let error = match (keys, shown) {
        (None, _) => return next.run(request).await,
        (Some(keys), Some(shown)) if keys.accepts(shown) => return next.run(request).await,
        (Some(_), Some(_)) => {
            ApiError::new(401, "Incorrect API key provided. Ask the operator of this service for a key.")
                .with_code("invalid_api_key")
        }
        (Some(_), None) => ApiError::new(
            401,
            "You didn't provide an API key. Send it in a header: `Authorization: Bearer KEY`, or `x-api-key: KEY`.",
        ),
    };
    let mut response = reply::error(&error, shape);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer
        .or_else(|| headers.get("x-api-key").map(|value| value.as_bytes().trim_ascii()))
        .filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_keys_is_enough() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "# of the team\nalpha\n\n beta \n").expect("written");
        let keys = ApiKeys::new(Some("gamma"), Some(file.path())).expect("keys");
        for (key, good) in [("alpha", true), ("beta", true), ("gamma", true), ("alph", false), ("", false)] {
            assert_eq!(keys.accepts(key.as_bytes()), good, "{key}");
        }
        std::fs::write(file.path(), "delta").expect("written");
        keys.refresh().expect("read again");
        assert!(keys.accepts(b"delta") && keys.accepts(b"gamma") && !keys.accepts(b"alpha"));
        std::fs::write(file.path(), "# nothing").expect("written");
        assert!(keys.refresh().is_err());
        assert!(keys.accepts(b"delta"), "an unusable file changes nothing");
        assert!(!format!("{keys:?}").contains("gamma"));
    }

    #[test]
    fn keys_are_found_in_both_headers() {
        let headers = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(http::HeaderName::from_static(name), HeaderValue::from_static(value))])
        };
        for (name, value, found) in [
            ("authorization", "Bearer k1", Some("k1")),
            ("authorization", "bearer  k1 ", Some("k1")),
            ("authorization", "Basic k1", None),
            ("authorization", "Bearer ", None),
            ("x-api-key", "k2", Some("k2")),
        ] {
            assert_eq!(shown(&headers(name, value)), found.map(str::as_bytes), "{name}: {value}");
        }
    }
}
