//! The loop over the messages, watched.

use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectRepr, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::messages::LazyMessage;
use super::{Digester, Input, Lazy, LoopTrace, Sink, Step, WATCHER};
use crate::syntax::comparisons;
use crate::syntax::main_loop::WATCH;

/// Watches one rendering. It is a value of the context that no template can name.
#[derive(Debug)]
pub(crate) struct Watcher {
    messages: Arc<Lazy>,
    unchanged: usize,
    before: Option<LoopTrace>,
    /// What else decides on the text of an iteration: which template, which treatment of messages.
    variant: String,
    digester: Digester,
    sink: Sink,
    state: Mutex<Watched>,
}

/// What was found out.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The trace of the loop, when it could be watched to its end.
    pub(crate) trace: Option<LoopTrace>,
    /// Iterations that were left out.
    pub(crate) skipped: usize,
    /// Length of the text that stands in the sink before the loop.
    pub(crate) head: usize,
}

impl Watcher {
    pub(crate) fn new(
        messages: Arc<Lazy>,
        unchanged: usize,
        before: Option<LoopTrace>,
        variant: String,
        digester: Digester,
        sink: Sink,
    ) -> Self {
        Self { messages, unchanged, before, variant, digester, sink, state: Mutex::default() }
    }

    pub(crate) fn take(&self) -> Watched {
        std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn written(&self) -> usize {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Object for Watcher {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// Makes the function known that the rewritten loop calls.
pub(crate) fn register(environment: &mut Environment<'static>) {
    environment.add_function(WATCH, watch);
}

fn watch(
    state: &State<'_, '_>,
    changes: bool,
    list: Value,
    compared: Vec<Value>,
    names: Rest<Value>,
) -> Result<Value, Error> {
    let watcher = state.lookup(WATCHER).and_then(|value| value.downcast_object::<Watcher>());
    let watcher = watcher.ok_or_else(|| Error::from(ErrorKind::InvalidOperation))?;
    let items: Vec<Value> = match list.downcast_object_ref::<Lazy>() {
        Some(_) => {
            (0..watcher.messages.count() as u32).map(|index| watcher.messages.message(index)).collect()
        }
        None => list.try_iter()?.collect(),
    };
    // Anything else is compared as the template says, in a rendering that is not watched.
    let number = |value: &Value| value.as_i64().filter(|_| value.kind() == ValueKind::Number);
    let compared = compared.iter().map(number).collect::<Option<_>>();
    let compared = compared.ok_or_else(|| Error::from(ErrorKind::InvalidOperation))?;
    Ok(Value::from_object(MainLoop {
        watcher,
        items: items.into(),
        compared,
        names: names.0.into(),
        changes,
    }))
}

/// What the loop iterates over.
#[derive(Debug)]
struct MainLoop {
    watcher: Arc<Watcher>,
    items: Arc<[Value]>,
    /// The numbers that iterations compare their index with.
    compared: Arc<[i64]>,
    names: Arc<[Value]>,
    /// Whether an iteration may change what a name stands for.
    changes: bool,
}

impl Object for MainLoop {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Iter(Box::new(Iterations {
            main: Arc::clone(self),
            next: 0,
            trace: None,
            is_over: false,
            shift: 0,
        }))
    }
}

/// Iterations as the engine asks for them: what is written between two requests is the text of one.
#[derive(Debug)]
struct Iterations {
    main: Arc<MainLoop>,
    /// The next item; 0 before the loop has begun.
    next: usize,
    /// `None` when the loop is not watched.
    trace: Option<LoopTrace>,
    /// The iterations from here on depend on what an earlier one changed.
    is_over: bool,
    /// Bytes of the prompt that were left out of the sink so far.
    shift: usize,
}

impl Iterations {
    /// Before the first iteration: what can be left out?
    fn begin(&mut self) {
        let watcher = &self.main.watcher;
        let indices =
            self.main.items.iter().map(|item| Some(item.downcast_object_ref::<LazyMessage>()?.index));
        let Some(items) = indices.collect::<Option<Vec<u32>>>() else { return };
        let Some(names) = watcher.digester.values(&self.main.names) else { return };
        let head = {
            let sink = watcher.sink.lock().unwrap_or_else(PoisonError::into_inner);
            (sink.len(), watcher.digester.texts(&[watcher.variant.as_bytes(), &sink]))
        };
        watcher.messages.take_inputs();
        let mut trace = LoopTrace {
            head,
            names,
            steps: Vec::with_capacity(items.len()),
            roles: watcher.messages.roles(),
        };
        if let Some(before) = watcher.before.as_ref().filter(|b| b.head == head && b.names == names) {
            let count = watcher.messages.count();
            self.next = before.valid(&items, watcher.unchanged, count, &self.main.compared);
            trace.steps.extend_from_slice(&before.steps[..self.next]);
        }
        self.shift = trace.steps.last().map_or(0, |step| step.end - head.0);
        let mut state = watcher.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.skipped = self.next;
        state.head = head.0;
        drop(state);
        self.trace = Some(trace);
    }

    /// After an iteration: what did it look at, and will the next one find the names as this one did?
    fn end_of_iteration(&mut self) {
        let (main, done) = (&self.main, self.next - 1);
        let Some(trace) = self.trace.as_mut().filter(|trace| trace.steps.len() == done && !self.is_over)
        else {
            return;
        };
        let watcher = &main.watcher;
        let inputs = watcher.messages.take_inputs();
        if main.changes {
            self.is_over = watcher.digester.values(&main.names) != Some(trace.names);
            watcher.messages.take_inputs();
        }
        trace.steps.push(Step {
            end: watcher.written() + self.shift,
            message: main.items[done].downcast_object_ref::<LazyMessage>().map_or(u32::MAX, |m| m.index),
            inputs: inputs.filter(|_| !self.is_over),
            resumable: false,
        });
    }
}

impl Iterator for Iterations {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        if self.next == 0 {
            self.begin();
        } else {
            self.end_of_iteration();
        }
        let main = &self.main;
        let Some(item) = main.items.get(self.next) else {
            let mut state = main.watcher.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.trace = self.trace.take();
            return None;
        };
        let facts = Value::from_object(Facts { main: Arc::clone(main), index: self.next });
        self.next += 1;
        Some(Value::from(vec![facts, item.clone()]))
    }
}

/// `loop` inside the watched loop.
#[derive(Debug)]
struct Facts {
    main: Arc<MainLoop>,
    index: usize,
}

impl Object for Facts {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let items = &self.main.items;
        let (index, count) = (self.index, items.len());
        let saw = |input| self.main.watcher.messages.saw(input);
        let messages = self.main.watcher.messages.count() as u32;
        Some(match key {
            "index" => Value::from(index + 1),
            "index0" => Value::from(index),
            "first" => Value::from(index == 0),
            "previtem" => {
                index.checked_sub(1).and_then(|before| items.get(before).cloned()).unwrap_or_default()
            }
            "last" | "nextitem" => {
                saw(Input::Last(index + 1 == count));
                match key {
                    "last" => Value::from(index + 1 == count),
                    _ => items.get(index + 1).cloned().unwrap_or_default(),
                }
            }
            "length" | "revindex" | "revindex0" => {
                saw(Input::Count(messages));
                Value::from(match key {
                    "length" => count,
                    "revindex" => count - index,
                    _ => count - index - 1,
                })
            }
            _ => return None,
        })
    }

    /// `compare(which, operator)`: the index with one of the compared numbers.
    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        method: &str,
        arguments: &[Value],
    ) -> Result<Value, Error> {
        let argument = |at: usize| u8::try_from(arguments.get(at)?.as_usize()?).ok();
        let compared = || {
            let (which, operator) = (argument(0)?, argument(1)?);
            let number = self.main.compared.get(usize::from(which))?;
            let outcome = comparisons::holds(operator, (self.index as i64).cmp(number))?;
            Some((Input::Compared { which, operator, outcome }, outcome))
        };
        let (input, outcome) = compared()
            .filter(|_| method == "compare")
            .ok_or_else(|| Error::from(ErrorKind::UnknownMethod))?;
        self.main.watcher.messages.saw(input);
        Ok(Value::from(outcome))
    }
}
