//! File names: the key with every byte that is not ASCII alphanumeric escaped.

use crate::record::{percent_decode, percent_encode_into};

pub(super) fn file_name(key: &str) -> String {
    let mut name = String::with_capacity(key.len() + 16);
    percent_encode_into(&mut name, key, |byte| byte.is_ascii_alphanumeric());
    name
}

/// The key behind a file name; `None` for files that are not records, such as temporary ones.
pub(super) fn key(file_name: &str) -> Option<String> {
    if file_name.starts_with('.') { None } else { percent_decode(file_name) }
}
