//! How many requests of each session the engine has seen.

use std::collections::VecDeque;

use foldhash::HashMap;
use parking_lot::Mutex;

/// Sessions remembered; the one that came first is forgotten first.
const MAX_SESSIONS: usize = 16_384;

/// A bounded count per session.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    counts: HashMap<String, u64>,
    order: VecDeque<String>,
}

impl Turns {
    /// Counts one more request of `session` and returns which one it is, from 1.
    pub(super) fn next(&self, session: &str) -> u64 {
        let mut state = self.0.lock();
        if let Some(count) = state.counts.get_mut(session) {
            *count += 1;
            return *count;
        }
        if state.order.len() == MAX_SESSIONS
            && let Some(oldest) = state.order.pop_front()
        {
            state.counts.remove(&oldest);
        }
        state.order.push_back(session.to_owned());
        state.counts.insert(session.to_owned(), 1);
        1
    }
}
