//! Pieces of an answer as a sequence of blocks, for the APIs whose answers are lists of items.

use crate::Piece;

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block<'a> {
    Text,
    Reasoning,
    Call { id: &'a str, name: &'a str },
}

/// A step of the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    Open(Block<'a>),
    /// More of the open block.
    Add(&'a str),
    Close,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    Call,
}

/// Cuts pieces into blocks: one is open at a time.
///
/// White space that stands alone before reasoning or calls, as models put it between their marks, is no block.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    open: Option<Kind>,
    any: bool,
    /// White space that may turn out to be the beginning of a text.
    held: String,
}

impl Blocks {
    /// Takes the next piece.
    pub(crate) fn push(&mut self, piece: Piece<'_>, mut give: impl FnMut(Step<'_>)) {
        match piece {
            Piece::Content("") | Piece::Reasoning("") | Piece::ToolArguments { fragment: "", .. } => {}
            Piece::Content(text) if self.open == Some(Kind::Text) => give(Step::Add(text)),
            Piece::Content(text) => {
                self.held.push_str(text);
                if !text.trim_start().is_empty() {
                    self.open_text(&mut give);
                }
            }
            Piece::Reasoning(text) => {
                self.held.clear();
                if self.open != Some(Kind::Reasoning) {
                    self.open(Kind::Reasoning, Block::Reasoning, &mut give);
                }
                give(Step::Add(text));
            }
            Piece::ToolStart { id, name, .. } => {
                self.held.clear();
                self.open(Kind::Call, Block::Call { id, name }, &mut give);
            }
            Piece::ToolArguments { fragment, .. } => {
                if self.open == Some(Kind::Call) {
                    give(Step::Add(fragment));
                }
            }
        }
    }

    /// The answer is whole, or cut: closes what is open.
    pub(crate) fn end(&mut self, mut give: impl FnMut(Step<'_>)) {
        if !self.any && !self.held.is_empty() {
            self.open_text(&mut give);
        }
        self.held.clear();
        if self.open.take().is_some() {
            give(Step::Close);
        }
    }

    fn open_text(&mut self, give: &mut impl FnMut(Step<'_>)) {
        self.open(Kind::Text, Block::Text, give);
        give(Step::Add(&self.held));
        self.held.clear();
    }

    fn open(&mut self, kind: Kind, block: Block<'_>, give: &mut impl FnMut(Step<'_>)) {
        if self.open.replace(kind).is_some() {
            give(Step::Close);
        }
        self.any = true;
        give(Step::Open(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(pieces: &[Piece<'_>]) -> Vec<String> {
        let mut seen = Vec::new();
        let mut blocks = Blocks::default();
        for piece in pieces {
            blocks.push(*piece, |step| seen.push(format!("{step:?}")));
        }
        blocks.end(|step| seen.push(format!("{step:?}")));
        seen
    }

    #[test]
    fn one_block_is_open_at_a_time_and_lone_space_is_none() {
        let call = |index, name| Piece::ToolStart { index, id: "i", name };
        let arguments = |index, fragment| Piece::ToolArguments { index, fragment };
        assert_eq!(
            steps(&[
                Piece::Reasoning("why"),
                Piece::Content("\n"),
                Piece::Content("\nHi"),
                Piece::Content(" there\n"),
                call(0, "f"),
                arguments(0, "{"),
                arguments(0, "}"),
                Piece::Content("\n"),
                call(1, "g"),
                Piece::Content("\n"),
            ]),
            [
                "Open(Reasoning)",
                "Add(\"why\")",
                "Close",
                "Open(Text)",
                "Add(\"\\n\\nHi\")",
                "Add(\" there\\n\")",
                "Close",
                "Open(Call { id: \"i\", name: \"f\" })",
                "Add(\"{\")",
                "Add(\"}\")",
                "Close",
                "Open(Call { id: \"i\", name: \"g\" })",
                "Close"
            ]
        );
        assert_eq!(steps(&[Piece::Content(" \n")]), ["Open(Text)", "Add(\" \\n\")", "Close"]);
        assert_eq!(steps(&[]), Vec::<String>::new());
    }
}
