//! Rendering a conversation that continues one rendered before.
//!
//! A template is watched while it loops over the messages: which other messages an iteration looks at, whether it asks
//! for the end of the loop, and what the names it mentions stand for. The next rendering of a longer conversation runs
//! the template too, but leaves out the iterations whose inputs are all the same as before; their text is the same. Of
//! where the last question stands, which differs after each, an iteration sees whether it is before or behind it.
//! Everything before and after the loop is always run. Where a template does what cannot be watched (an iteration that
//! changes a namespace, a list that is no plain part of the messages, a date), nothing is left out.
//!
//! A built-in renderer knows itself where its text does not depend on what follows ([`Places`]).

mod digest;
mod messages;
mod places;
mod watch;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::messages::Role;
use crate::prompt::Prompt;
use crate::syntax::comparisons;

pub(crate) use digest::Digester;
pub(crate) use messages::Lazy;
pub(crate) use places::{Facts, Place, Places};
pub(crate) use watch::{Watcher, register};

/// The context variable that carries the [`Watcher`].
pub(crate) const WATCHER: &str = "__watcher";

/// Most inputs of one iteration that are remembered.
const INPUTS: usize = 4;

/// What a rendering leaves for the next one: where it can be gone on from, and on which conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace(pub(crate) Traced);

/// How a prompt came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Traced {
    /// By a template.
    Loop(LoopTrace),
    /// By a built-in renderer.
    Places(Places),
}

/// Per iteration of the loop over the messages, what it looked at and where its text ends. 57 bytes per message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoopTrace {
    /// Text before the loop: length and digest.
    head: (usize, u128),
    /// What the names that an iteration can reach stood for.
    names: u128,
    steps: Vec<Step>,
    /// Per message, its role as far as it is known: templates ask for those of all messages.
    roles: Vec<Option<Role>>,
}

/// One iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// Bytes of the prompt up to its end.
    end: usize,
    /// The message it renders.
    message: u32,
    /// Its other inputs; `None` when they are too many or could not be watched.
    inputs: Option<[Input; INPUTS]>,
    /// The caller can go on behind it.
    resumable: bool,
}

/// Something an iteration looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Input {
    #[default]
    Nothing,
    /// A member of a message.
    Message(u32),
    /// That there is no message of this index.
    NoMessage(u32),
    /// The number of messages or of iterations.
    Count(u32),
    /// Whether it was the last iteration.
    Last(bool),
    /// What came of comparing its index with a number that differs between renderings.
    Compared {
        /// Which number.
        which: u8,
        /// In what way.
        operator: u8,
        outcome: bool,
    },
}

/// A conversation rendered as the continuation of another.
#[derive(Debug)]
pub struct Continued {
    /// The prompt behind the reused bytes.
    pub prompt: Prompt,
    /// Bytes at the start of the earlier prompt that this one starts with too; they are not in `prompt`.
    pub reused: usize,
    /// How many of the first places of the earlier trace are places of this one too, the last of them where the
    /// reused bytes end; 0 when nothing is reused.
    pub skipped: usize,
    /// For the next rendering; `None` when the template cannot be watched.
    pub trace: Option<Trace>,
}

/// The messages of a conversation and what is known of them from the turn before.
#[derive(Clone, Debug)]
pub struct Turn<'a> {
    /// JSON text that the messages are parts of, in UTF-8.
    pub source: Bytes,
    /// Each message as JSON, in order: its bytes in `source`.
    pub messages: Vec<Range<u32>>,
    /// How many of the first messages are byte for byte those of the rendering that left the trace.
    pub unchanged: usize,
    /// The trace that another rendering left, of any template with any tools, arguments and settings: what differs
    /// decides what is left out, never what the text is.
    pub trace: Option<&'a Trace>,
}

impl Trace {
    /// The places that a later rendering may go on from: bytes of the prompt up to there, in order. Where the prompt
    /// has segments, an ordinary one that ends at a place is followed by a special one in every continuation.
    pub fn ends(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        let (steps, places) = match &self.0 {
            Traced::Loop(trace) => (&trace.steps[..], &[] as &[Place]),
            Traced::Places(places) => (&[] as &[Step], &places.places[..]),
        };
        let count = steps.len().max(places.len());
        (0..count).map(|at| steps.get(at).map_or_else(|| places[at].end, |step| step.end))
    }

    /// Tells behind which places the caller is able to go on, in the order of [`ends`](Self::ends). Without this,
    /// a trace is good for nothing.
    pub fn set_resumable(&mut self, resumable: impl IntoIterator<Item = bool>) {
        let flags: Box<dyn Iterator<Item = &mut bool> + '_> = match &mut self.0 {
            Traced::Loop(trace) => Box::new(trace.steps.iter_mut().map(|step| &mut step.resumable)),
            Traced::Places(places) => Box::new(places.places.iter_mut().map(|place| &mut place.resumable)),
        };
        for (flag, resumable) in flags.zip(resumable) {
            *flag = resumable;
        }
    }

    /// Bytes of memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let rest = match &self.0 {
            Traced::Loop(trace) => {
                trace.steps.capacity() * size_of::<Step>()
                    + trace.roles.capacity() * size_of::<Option<Role>>()
            }
            Traced::Places(places) => places.places.capacity() * size_of::<Place>(),
        };
        size_of::<Self>() + rest
    }

    /// The trace of a template's loop.
    pub(crate) fn as_loop(&self) -> Option<&LoopTrace> {
        match &self.0 {
            Traced::Loop(trace) => Some(trace),
            Traced::Places(_) => None,
        }
    }

    /// The trace of a built-in renderer.
    pub(crate) fn as_places(&self) -> Option<&Places> {
        match &self.0 {
            Traced::Loop(_) => None,
            Traced::Places(places) => Some(places),
        }
    }
}

impl LoopTrace {
    /// How many of the first iterations would give the text they gave. `compared` are the numbers that indices are
    /// compared with.
    fn valid(&self, items: &[u32], unchanged: usize, count: usize, compared: &[i64]) -> usize {
        let holds = |at: usize, input: &Input| match *input {
            Input::Nothing => true,
            Input::Message(index) => (index as usize) < unchanged,
            Input::NoMessage(index) => index as usize >= count,
            Input::Count(number) => number as usize == count,
            Input::Last(last) => last == (at + 1 == items.len()),
            Input::Compared { which, operator, outcome } => compared
                .get(usize::from(which))
                .is_some_and(|number| comparisons::holds(operator, (at as i64).cmp(number)) == Some(outcome)),
        };
        let steps = self.steps.iter().zip(items).enumerate();
        let valid = steps.take_while(|(at, (step, item))| {
            step.message == **item
                && (step.message as usize) < unchanged
                && step.inputs.is_some_and(|inputs| inputs.iter().all(|input| holds(*at, input)))
        });
        let valid = valid.count();
        self.steps[..valid].iter().rposition(|step| step.resumable).map_or(0, |last| last + 1)
    }
}

/// Text that is written piece by piece and looked at meanwhile.
pub(crate) type Sink = Arc<std::sync::Mutex<Vec<u8>>>;

#[cfg(test)]
pub(crate) mod tests;
