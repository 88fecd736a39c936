//! Tests of the whole machine.

mod cases;
mod dsml;
mod families;
mod guided;
mod names;
mod properties;
mod support;
mod values;
mod wire;
pub(crate) mod work;
