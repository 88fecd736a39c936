//! Where a built-in renderer can go on.

/// What a rendering by code leaves: the places before its answers. 24 bytes per answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Digest of everything but the messages that decides on the text.
    pub(crate) scene: u128,
    /// Whether tools are offered.
    pub(crate) has_tools: bool,
    pub(crate) facts: Facts,
    pub(crate) places: Vec<Place>,
}

/// A place in the prompt: all text of the messages before an answer, none of the answer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Bytes of the prompt up to here.
    pub(crate) end: usize,
    /// The message that the answer is; the number of messages at the end of the conversation.
    pub(crate) message: u32,
    /// The caller can go on here.
    pub(crate) resumable: bool,
}

/// Messages that text before them may depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The first message of the system.
    pub(crate) first_system: Option<u32>,
    /// The last one.
    pub(crate) last_system: Option<u32>,
    /// The last message that asks for an answer.
    pub(crate) last_user: Option<u32>,
}

impl Facts {
    /// The facts of a conversation whose messages before `at` are those of a conversation with the facts `before`,
    /// the rest having these facts.
    pub(crate) fn after(self, before: &Self, at: u32) -> Self {
        let kept = |message: Option<u32>| message.filter(|message| *message < at);
        Self {
            first_system: kept(before.first_system).or(self.first_system),
            last_system: self.last_system.or_else(|| kept(before.last_system)),
            last_user: self.last_user.or_else(|| kept(before.last_user)),
        }
    }
}
