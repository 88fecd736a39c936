//! Stop ids: end-of-sequence ids of the model and stop ids of the request.

/// Ids that end a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopIds {
    hidden: Vec<u32>,
    visible: Vec<u32>,
    min_tokens: u32,
}

/// Why an id ends the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopKind {
    /// An id of the model (EOS and the like): its text is not shown.
    Hidden,
    /// An id the request asked for: its text is shown.
    Visible,
}

impl StopIds {
    /// `hidden` are the model's ids (pass none for `ignore_eos`), `visible` the request's. Nothing stops the
    /// sequence before `min_tokens` tokens were generated.
    pub fn new(
        hidden: impl IntoIterator<Item = u32>,
        visible: impl IntoIterator<Item = u32>,
        min_tokens: u32,
    ) -> Self {
        let sorted = |ids: &mut Vec<u32>| {
            ids.sort_unstable();
            ids.dedup();
        };
        let mut ids =
            Self { hidden: hidden.into_iter().collect(), visible: visible.into_iter().collect(), min_tokens };
        sorted(&mut ids.hidden);
        sorted(&mut ids.visible);
        ids
    }

    /// Whether stops count for the next token when `generated` tokens came before it. The same answer decides
    /// between [`StopScanner::push`](crate::StopScanner::push) and [`pass`](crate::StopScanner::pass).
    #[must_use]
    pub fn armed(&self, generated: u32) -> bool {
        generated >= self.min_tokens
    }

    /// Whether `id`, generated after `generated` other tokens, ends the sequence. An id that is both hidden and
    /// visible is visible. The order of checks per token is: hidden id, then its text through the stop
    /// strings, then visible id.
    #[must_use]
    pub fn check(&self, id: u32, generated: u32) -> Option<StopKind> {
        if !self.armed(generated) {
            None
        } else if self.visible.binary_search(&id).is_ok() {
            Some(StopKind::Visible)
        } else if self.hidden.binary_search(&id).is_ok() {
            Some(StopKind::Hidden)
        } else {
            None
        }
    }
}
