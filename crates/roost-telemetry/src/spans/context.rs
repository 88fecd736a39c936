//! A request's place in a trace, and how it is told to others: W3C's `traceparent`.

use std::time::Instant;

use super::{Kind, Span};

/// A caller's place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: u128,
    /// The caller's span.
    pub span: u64,
    /// The caller tells of it.
    pub sampled: bool,
}

/// A request's place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace.
    pub trace: u128,
    /// The request's own span.
    pub span: u64,
    /// The caller's span.
    pub parent: Option<u64>,
    /// It is told of.
    pub sampled: bool,
}

impl TraceParent {
    /// Reads the header; `None` if it is not in order.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |part: &&str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let mut parts = text.trim().split('-');
        let mut part = |len: usize| parts.next().filter(|part| part.len() == len).filter(is_hex);
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        // Later versions may have more; this one has not.
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(TraceParent { trace, span, sampled: flags & 1 == 1 })
    }
}

impl SpanContext {
    /// In the caller's trace, told of if it does so; or in a new one, of which a `ratio` is told of.
    pub(super) fn new(caller: Option<TraceParent>, ratio: f64) -> Self {
        let span = fastrand::u64(1..);
        match caller {
            Some(caller) => {
                SpanContext { trace: caller.trace, span, parent: Some(caller.span), sampled: caller.sampled }
            }
            None => {
                let trace = fastrand::u128(1..);
                // By the trace's name, so that others who draw so draw the same.
                let drawn = ((trace as u64) >> 1) as f64 / (1_u64 << 63) as f64;
                SpanContext { trace, span, parent: None, sampled: drawn < ratio }
            }
        }
    }

    /// The header for a callee, of a span in this trace.
    pub fn traceparent(&self, span: u64) -> String {
        format!("00-{:032x}-{span:016x}-{:02x}", self.trace, u8::from(self.sampled))
    }

    /// A part of the request's span.
    pub fn child(&self, name: &'static str, kind: Kind, time: (Instant, Instant)) -> Span {
        let (trace, id) = (self.trace, fastrand::u64(1..));
        Span { trace, id, parent: Some(self.span), name, kind, time, attributes: Vec::new(), error: None }
    }

    /// The request's own span.
    pub fn root(&self, name: &'static str, time: (Instant, Instant)) -> Span {
        let child = self.child(name, Kind::Server, time);
        Span { id: self.span, parent: self.parent, ..child }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_callers_trace_goes_on() {
        let caller = TraceParent::parse(CALLER).expect("W3C's own example");
        let context = SpanContext::new(Some(caller), 0.0);
        assert_eq!(context.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((context.parent, context.sampled), (Some(0x00f0_67aa_0ba9_02b7), true));
        assert_eq!(context.traceparent(0x00f0_67aa_0ba9_02b7), CALLER);
        let silent = TraceParent::parse(&CALLER.replace("-01", "-00")).expect("in order");
        assert!(!SpanContext::new(Some(silent), 1.0).sampled, "the caller decides");
    }

    #[test]
    fn headers_that_are_not_in_order_are_none() {
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert!(TraceParent::parse(later).is_some());
    }

    #[test]
    fn a_share_is_drawn() {
        let told = (0..10_000).filter(|_| SpanContext::new(None, 0.25).sampled).count();
        assert!((2_000..3_000).contains(&told), "{told}");
        assert!((0..100).all(|_| SpanContext::new(None, 1.0).sampled));
        assert!(!(0..100).any(|_| SpanContext::new(None, 0.0).sampled));
    }
}
