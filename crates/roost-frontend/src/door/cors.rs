//! Which web pages may call from a browser.

use http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// How long a browser may remember the answer to its question, in seconds.
const REMEMBERED: std::time::Duration = std::time::Duration::from_secs(600);

/// Origins whose pages may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsOrigins(Option<Vec<HeaderValue>>);

impl CorsOrigins {
    /// Reads a list of origins such as `https://chat.example.com`, separated by commas; `*` alone is any origin.
    ///
    /// # Errors
    /// The part that is no origin: scheme and host, perhaps a port, and nothing behind it.
    pub fn parse(list: &str) -> Result<Self, String> {
        if list.trim() == "*" {
            return Ok(CorsOrigins(None));
        }
        let origin = |text: &str| {
            let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
            let plain = !host.is_empty() && text.is_ascii() && !host.contains(['/', '*', ' ', '?', '#']);
            plain.then(|| HeaderValue::from_str(text).ok()).flatten()
        };
        let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
        let origins: Result<Vec<_>, _> =
            parts.map(|part| origin(part).ok_or_else(|| part.to_owned())).collect();
        origins.map(|origins| CorsOrigins(Some(origins)))
    }
}

/// Answers the questions that browsers ask before a call, and says in each answer who may read it. Credentials that
/// a browser would add by itself (cookies) are not allowed: keys travel in headers.
pub(crate) fn layer(origins: &CorsOrigins) -> CorsLayer {
    let layer = match &origins.0 {
        None => CorsLayer::new().allow_origin(AllowOrigin::any()),
        Some(list) => CorsLayer::new().allow_origin(AllowOrigin::list(list.iter().cloned())),
    };
    layer
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([header::RETRY_AFTER, HeaderName::from_static("x-request-id")])
        .max_age(REMEMBERED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read() {
        assert_eq!(CorsOrigins::parse(" * "), Ok(CorsOrigins(None)));
        let two = CorsOrigins::parse("https://a.example, http://localhost:3000").expect("both are origins");
        assert_eq!(two.0.as_ref().map(Vec::len), Some(2));
        for wrong in
            ["a.example", "https://", "https://a/b", "https://*.a.example", "*, https://a", "https://ä"]
        {
            assert!(CorsOrigins::parse(wrong).is_err(), "{wrong}");
        }
    }
}
