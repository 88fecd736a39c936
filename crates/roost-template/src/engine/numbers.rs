//! Numbers as Python spells them.

use std::fmt::Write;

/// Appends `number` as `repr(float)` does: shortest digits that read back the same, an exponent below 1e-4
/// and from 1e16, always recognisable as a float.
pub(crate) fn write_float(number: f64, out: &mut String) {
    if number.is_nan() {
        return out.push_str("nan");
    }
    if number.is_infinite() {
        return out.push_str(if number > 0.0 { "inf" } else { "-inf" });
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').expect("`{:e}` always writes an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes a small decimal exponent");
    if (-4..16).contains(&exponent) {
        // `{:?}` keeps the `.0` that tells a float.
        write!(out, "{number:?}").expect("writing to a string cannot fail");
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs())
            .expect("writing to a string cannot fail");
    }
}

/// Spelling of `str(float)`.
pub(super) fn float(number: f64) -> String {
    let mut out = String::new();
    write_float(number, &mut out);
    out
}
