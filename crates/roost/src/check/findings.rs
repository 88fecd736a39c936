//! What was found, for people and for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Findings in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

#[derive(Debug)]
struct Finding {
    /// `ok`, `warning` or `failed`.
    result: &'static str,
    what: String,
    said: String,
    advice: Option<&'static str>,
}

impl Findings {
    pub(super) fn ok(&mut self, what: &str, said: impl Into<String>) {
        self.add("ok", what, said, None);
    }

    pub(super) fn warn(&mut self, what: &str, said: impl Into<String>, advice: &'static str) {
        self.add("warning", what, said, Some(advice));
    }

    /// It would not serve.
    pub(super) fn fail(&mut self, what: &str, said: impl Into<String>, advice: &'static str) {
        self.add("failed", what, said, Some(advice));
    }

    /// Options that have no effect.
    pub(super) fn notices(&mut self, notices: &[String]) {
        for notice in notices {
            self.add("warning", "configuration", notice, None);
        }
    }

    fn add(
        &mut self,
        result: &'static str,
        what: &str,
        said: impl Into<String>,
        advice: Option<&'static str>,
    ) {
        self.0.push(Finding { result, what: what.to_owned(), said: said.into(), advice });
    }

    /// Nothing would keep it from serving.
    pub(super) fn is_fit(&self) -> bool {
        self.0.iter().all(|finding| finding.result != "failed")
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Finding { result, what, said, advice } in &self.0 {
            let _infallible = writeln!(text, "{result:<8} {what}: {said}");
            if let Some(advice) = advice {
                let _infallible = writeln!(text, "{:<8} {advice}", "");
            }
        }
        text.push_str(if self.is_fit() { "It would serve." } else { "It would not serve." });
        text
    }

    pub(super) fn json(&self) -> String {
        let findings = self.0.iter().map(|finding| {
            json!({"result": finding.result, "what": finding.what, "said": finding.said, "advice": finding.advice})
        });
        json!({"fit": self.is_fit(), "findings": findings.collect::<Vec<Value>>()}).to_string()
    }
}
