//! Faults of the plane, on order: how a worker misbehaves towards a frontend.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use roost_wire::message::DynamoError;
use roost_wire::{Admission, Misbehaviour};

/// One way to misbehave with a model request.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Refuse: at capacity.
    Overloaded,
    /// Refuse: not served here, with this text.
    Unavailable(String),
    /// Do not acknowledge; the connection is useless afterwards.
    NoAck,
    /// Acknowledge and never call home.
    NoCallHome,
    /// Call home and never send the prologue.
    NoPrologue,
    /// Send the prologue after this time.
    LatePrologue(Duration),
    /// What breaks the plane's rules before the answer begins.
    Misbehave(Misbehaviour),
    /// Refuse in the prologue.
    Refuse(Box<DynamoError>),
    /// Send this many items and then nothing, without closing.
    StallAfter(u64),
    /// Send this many items, and what follows after this time.
    PauseAfter(u64, Duration),
    /// Send this many items and close.
    CloseAfter(u64),
    /// Send this many items and then one that cannot be decoded.
    BadItemAfter(u64),
    /// Send this many items and die: the whole worker is gone, its records stay.
    CrashAfter(u64),
}

impl Fault {
    /// What the acknowledgement is, for faults that show there.
    fn admission(&self) -> Option<Admission> {
        match self {
            Fault::Overloaded => Some(Admission::Overloaded),
            Fault::Unavailable(why) => Some(Admission::Unavailable(why.clone())),
            Fault::NoAck => Some(Admission::Ignore),
            Fault::NoCallHome => Some(Admission::Forget),
            Fault::Misbehave(how) => Some(Admission::Misbehave(*how)),
            _ => None,
        }
    }
}

/// The faults that a worker has on order; clones share them.
///
/// A request takes the first fault on order.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Orders>>);

#[derive(Debug, Default)]
struct Orders {
    next: VecDeque<Fault>,
    always: Option<Fault>,
    withheld_events: u64,
}

impl Faults {
    /// Orders a fault for one request, after those ordered before.
    pub fn next(&self, fault: Fault) {
        self.0.lock().next.push_back(fault);
    }

    /// Orders a fault for every request, after those ordered for one.
    pub fn always(&self, fault: Fault) {
        self.0.lock().always = Some(fault);
    }

    /// Keeps the next `count` KV events from being published; queries know of them.
    pub fn withhold_kv_events(&self, count: u64) {
        self.0.lock().withheld_events += count;
    }

    /// Cancels all orders.
    pub fn clear(&self) {
        *self.0.lock() = Orders::default();
    }

    /// The fault of an acknowledgement that is due, if one is.
    pub(super) fn admission(&self) -> Option<Admission> {
        self.take(|fault| fault.admission())
    }

    /// The fault of a prologue that is due, if one is.
    pub(super) fn prologue(&self) -> Option<Fault> {
        self.take(|fault| {
            matches!(fault, Fault::NoPrologue | Fault::LatePrologue(_) | Fault::Refuse(_))
                .then(|| fault.clone())
        })
    }

    /// The fault of an answer's items that is due, if one is.
    pub(super) fn items(&self) -> Option<Fault> {
        self.take(|fault| match fault {
            Fault::StallAfter(_)
            | Fault::PauseAfter(..)
            | Fault::CloseAfter(_)
            | Fault::BadItemAfter(_)
            | Fault::CrashAfter(_) => Some(fault.clone()),
            _ => None,
        })
    }

    /// Whether one more event is to be withheld.
    pub(super) fn withholds_event(&self) -> bool {
        let mut orders = self.0.lock();
        let due = orders.withheld_events > 0;
        orders.withheld_events -= u64::from(due);
        due
    }

    fn take<T>(&self, fits: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        let mut orders = self.0.lock();
        match orders.next.front() {
            Some(first) => {
                let due = fits(first);
                if due.is_some() {
                    orders.next.pop_front();
                }
                due
            }
            None => orders.always.as_ref().and_then(fits),
        }
    }
}
