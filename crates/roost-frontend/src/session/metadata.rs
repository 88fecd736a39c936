//! Headers that a client sends for the worker to read.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use roost_openai::ApiError;

/// Most of them.
const ENTRIES: usize = 64;
/// Bytes of all names and values together.
const BYTES: usize = 64 << 10;
/// The peer's own entry, which clients may not set.
const RESERVED: &str = "dynamo.lifecycle.root";

/// The headers whose names begin with `prefix`, without it. The first of equal names counts; credentials stay here.
///
/// # Errors
/// 431: too many, or too large.
pub(crate) fn of(
    headers: &HeaderMap,
    prefix: &str,
) -> Result<Option<Arc<BTreeMap<String, String>>>, ApiError> {
    let mut found = BTreeMap::new();
    let mut bytes = 0;
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(prefix) else { continue };
        let Ok(value) = value.to_str().map(str::trim) else { continue };
        if name == RESERVED || is_credential(name, value) || found.contains_key(name) {
            continue;
        }
        bytes += name.len() + value.len();
        if found.len() == ENTRIES || bytes > BYTES {
            let text = format!(
                "More than {ENTRIES} headers that begin with `{prefix}`, or more than {} KiB of them.",
                BYTES >> 10
            );
            return Err(ApiError::new(431, text));
        }
        found.insert(name.to_owned(), value.to_owned());
    }
    Ok((!found.is_empty()).then(|| Arc::new(found)))
}

fn is_credential(name: &str, value: &str) -> bool {
    name == "authorization" || value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(list: &[(String, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            let name = HeaderName::try_from(name).expect("a name");
            headers.append(name, HeaderValue::try_from(*value).expect("a value"));
        }
        headers
    }

    #[test]
    fn names_lose_their_prefix_and_credentials_stay() {
        let list = [
            ("x-meta-tenant", " acme "),
            ("x-meta-tenant", "other"),
            ("x-meta-authorization", "k"),
            ("x-meta-token", "Bearer k"),
            ("x-other", "1"),
        ];
        let list: Vec<_> = list.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let found = of(&headers(&list), "x-meta-").expect("few").expect("some");
        assert_eq!(*found, BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]));
        assert_eq!(of(&headers(&list), "x-none-"), Ok(None));
    }

    #[test]
    fn too_many_and_too_large() {
        let many = |n: usize| (0..n).map(|at| (format!("x-meta-{at}"), "v")).collect::<Vec<_>>();
        assert!(of(&headers(&many(64)), "x-meta-").is_ok());
        assert_eq!(of(&headers(&many(65)), "x-meta-").map_err(|e| e.status()), Err(431));
        let large = "v".repeat(BYTES);
        assert_eq!(of(&headers(&[("x-meta-a".into(), &large)]), "x-meta-").map_err(|e| e.status()), Err(431));
    }
}
