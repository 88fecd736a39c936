//! Digests of template values, for comparing what names stand for.

use std::hash::{BuildHasher, Hasher, RandomState};

use minijinja::Value;
use minijinja::value::ValueKind;

use super::messages::{Lazy, LazyMessage};
use crate::engine::is_stateful;

/// Values looked into for one digest; more cannot be compared.
const VALUES: usize = 2048;
const DEPTH: usize = 8;

/// Two keyed hashes, 128 bits. Digests of two digesters cannot be compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digester([RandomState; 2]);

impl Digester {
    pub(crate) fn texts(&self, texts: &[&[u8]]) -> u128 {
        self.run(|hasher| {
            for text in texts {
                hasher.write_usize(text.len());
                hasher.write(text);
            }
        })
    }

    /// What some names stand for; `None` where that cannot be told.
    pub(crate) fn values(&self, values: &[Value]) -> Option<u128> {
        let mut known = true;
        let digest = self.run(|hasher| {
            let mut left = VALUES;
            known = values.iter().all(|value| feed(hasher, value, &mut left, 0).is_some());
        });
        known.then_some(digest)
    }

    fn run(&self, mut feed: impl FnMut(&mut dyn Hasher)) -> u128 {
        let [high, low] = [0, 1].map(|n| {
            let mut hasher = self.0[n].build_hasher();
            feed(&mut hasher);
            hasher.finish()
        });
        u128::from(high) << 64 | u128::from(low)
    }
}

fn feed(hasher: &mut dyn Hasher, value: &Value, left: &mut usize, depth: usize) -> Option<()> {
    *left = left.checked_sub(1)?;
    let kind = value.kind();
    hasher.write_u8(kind as u8);
    match kind {
        ValueKind::Undefined | ValueKind::None => {}
        ValueKind::Bool | ValueKind::Number => text(hasher, &format!("{value:?}")),
        ValueKind::String => {
            hasher.write_u8(u8::from(value.is_safe()));
            text(hasher, value.as_str()?);
        }
        // What is read through them is watched.
        _ if value.downcast_object_ref::<Lazy>().is_some() => hasher.write_u8(1),
        _ if value.downcast_object_ref::<LazyMessage>().is_some() => {
            hasher.write_u32(value.downcast_object_ref::<LazyMessage>()?.index);
        }
        ValueKind::Map if depth < DEPTH => {
            hasher.write_usize(value.len()?);
            for key in value.try_iter().ok()? {
                feed(hasher, &key, left, depth + 1)?;
                feed(hasher, &value.get_item(&key).ok()?, left, depth + 1)?;
            }
        }
        ValueKind::Seq if depth < DEPTH => {
            hasher.write_usize(value.len()?);
            for item in value.try_iter().ok()? {
                feed(hasher, &item, left, depth + 1)?;
            }
        }
        // Macros and functions; what they reach is among the names.
        ValueKind::Plain if !is_stateful(value) => text(hasher, &value.to_string()),
        _ => return None,
    }
    Some(())
}

fn text(hasher: &mut dyn Hasher, text: &str) {
    hasher.write_usize(text.len());
    hasher.write(text.as_bytes());
}
