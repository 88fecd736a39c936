//! Floats of sampling options: the peer holds them as 32-bit values.

use serde::Serializer;

/// Serializes as a 32-bit float when that loses nothing, and as a 64-bit float otherwise.
pub(super) fn narrow<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match *value {
        None => serializer.serialize_none(),
        Some(value) => {
            let narrow = value as f32;
            if f64::from(narrow) == value {
                serializer.serialize_f32(narrow)
            } else {
                serializer.serialize_f64(value)
            }
        }
    }
}
