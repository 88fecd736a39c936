//! Tests of the whole machine.

mod dsml;
mod support;
