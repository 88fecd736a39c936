//! Messages as template values that are parsed when they are looked at, and tell that they were.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectRepr};

use super::{INPUTS, Input, Trace, Turn};
use crate::capabilities::Capabilities;
use crate::error::RenderError;
use crate::messages::{self, BrokenArguments, Role};

const ROLE: &str = "role";

/// The value of `messages`.
#[derive(Debug)]
pub(crate) struct Lazy {
    source: Bytes,
    raw: Vec<Range<u32>>,
    parsed: Vec<OnceLock<Value>>,
    /// Roles of messages, those of an earlier turn without parsing them again.
    roles: Vec<Option<Role>>,
    capabilities: Capabilities,
    broken: BrokenArguments,
    inputs: Mutex<Inputs>,
}

/// The value of one message.
#[derive(Debug)]
pub(crate) struct LazyMessage {
    messages: Arc<Lazy>,
    pub(super) index: u32,
}

/// What the iteration under way has looked at.
#[derive(Debug, Default)]
struct Inputs {
    seen: Vec<Input>,
    failed: bool,
}

impl Lazy {
    /// Messages from `unchanged` on are parsed at once, so that a mistake in one is an error; those before were parsed
    /// in an earlier turn.
    pub(crate) fn new(
        turn: &Turn<'_>,
        capabilities: Capabilities,
        broken: BrokenArguments,
    ) -> Result<Arc<Self>, RenderError> {
        let raw = turn.messages.clone();
        let parsed: Vec<OnceLock<Value>> = raw.iter().map(|_| OnceLock::new()).collect();
        let source = turn.source.clone();
        let known = turn.trace.and_then(Trace::as_loop).map_or(&[][..], |trace| &trace.roles);
        let mut roles: Vec<_> = known.iter().copied().take(turn.unchanged).collect();
        roles.resize(raw.len(), None);
        let mut lazy = Self { source, raw, parsed, roles, capabilities, broken, inputs: Mutex::default() };
        for index in turn.unchanged..lazy.raw.len() {
            let message = lazy.parse(index)?;
            lazy.roles[index] = message.get_attr(ROLE).ok().and_then(|role| Role::of(role.as_str()?));
            // Nobody else has the cell yet.
            let _first = lazy.parsed[index].set(message);
        }
        Ok(Arc::new(lazy))
    }

    pub(super) fn message(self: &Arc<Self>, index: u32) -> Value {
        Value::from_object(LazyMessage { messages: Arc::clone(self), index })
    }

    pub(super) fn count(&self) -> usize {
        self.raw.len()
    }

    pub(super) fn roles(&self) -> Vec<Option<Role>> {
        self.roles.clone()
    }

    /// The role of a message, where it is known.
    fn role(&self, index: u32) -> Option<Value> {
        let role = self.roles[index as usize]?;
        self.saw(Input::Message(index));
        Some(Value::from(role.as_str()))
    }

    pub(super) fn saw(&self, input: Input) {
        let mut inputs = self.lock();
        if inputs.seen.len() <= INPUTS && !inputs.seen.contains(&input) {
            inputs.seen.push(input);
        }
    }

    /// What was looked at since the last call; `None` when it was too much.
    pub(super) fn take_inputs(&self) -> Option<[Input; INPUTS]> {
        let mut inputs = self.lock();
        let mut taken = [Input::Nothing; INPUTS];
        let fits = inputs.seen.len() <= INPUTS;
        for (slot, input) in taken.iter_mut().zip(inputs.seen.drain(..)) {
            *slot = input;
        }
        fits.then_some(taken)
    }

    /// Whether a message could not be read though it could before.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inputs> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parse(&self, index: usize) -> Result<Value, RenderError> {
        let Range { start, end } = self.raw[index];
        let text =
            self.source.get(start as usize..end as usize).and_then(|raw| std::str::from_utf8(raw).ok());
        let text = text.ok_or_else(|| messages::invalid("messages", "is no text"))?;
        let message = messages::read_one(text, index, &self.capabilities, self.broken)?;
        Ok(Value::from_pairs(message.members))
    }

    fn value(&self, index: u32) -> &Value {
        self.saw(Input::Message(index));
        self.parsed[index as usize].get_or_init(|| {
            self.parse(index as usize).unwrap_or_else(|_| {
                self.lock().failed = true;
                Value::UNDEFINED
            })
        })
    }
}

impl Object for Lazy {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let index = u32::try_from(key.as_usize()?).ok()?;
        if (index as usize) < self.count() {
            return Some(self.message(index));
        }
        self.saw(Input::NoMessage(index));
        None
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.saw(Input::Count(self.count() as u32));
        Enumerator::Seq(self.count())
    }
}

impl Object for LazyMessage {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        if key.as_str() == Some(ROLE) {
            return self.get_value_by_str(ROLE);
        }
        self.messages.value(self.index).get_item(key).ok().filter(|value| !value.is_undefined())
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        if key == ROLE
            && let Some(role) = self.messages.role(self.index)
        {
            return Some(role);
        }
        self.messages.value(self.index).get_attr(key).ok().filter(|value| !value.is_undefined())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let keys = self.messages.value(self.index).try_iter().into_iter().flatten();
        Enumerator::Values(keys.collect())
    }
}
