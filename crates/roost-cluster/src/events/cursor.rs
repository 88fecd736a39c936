//! Which events of a rank have been seen.

/// The newest event applied. Pure: time and transport are somebody else's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    last: Option<u64>,
}

/// What an event number means to a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first event ever seen: nothing is known of what came before.
    Initial,
    /// The one after the last.
    Next,
    /// Seen already, or older.
    Stale,
    /// Events from `from` up to this one are missing.
    Gap {
        /// First missing event.
        from: u64,
    },
}

impl Cursor {
    /// A cursor after event `last`.
    pub const fn at(last: u64) -> Self {
        Self { last: Some(last) }
    }

    /// The newest event applied, if any.
    pub const fn last(self) -> Option<u64> {
        self.last
    }

    /// Judges an event number without moving.
    pub fn step(self, event_id: u64) -> Step {
        match self.last {
            None => Step::Initial,
            Some(last) if event_id <= last => Step::Stale,
            Some(last) if event_id - last == 1 => Step::Next,
            Some(last) => Step::Gap { from: last + 1 },
        }
    }

    /// Moves to an event that was applied; never backwards.
    pub fn advance(&mut self, event_id: u64) {
        self.last = Some(self.last.map_or(event_id, |last| last.max(event_id)));
    }
}
