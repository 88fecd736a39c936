//! Names of running requests: of ours for the events about them, of others' for the bookings that stand for them.

use hashbrown::HashMap;

use crate::BookingId;

/// Requests of other frontends that are counted as load; more are not.
const REMOTE_LIMIT: usize = 65_536;

type Random = foldhash::fast::RandomState;

#[derive(Debug, Default)]
pub(crate) struct Sequences {
    own: HashMap<BookingId, Box<str>, Random>,
    remote: HashMap<Box<str>, Remote, Random>,
}

/// A request of another frontend.
#[derive(Clone, Copy, Debug)]
struct Remote {
    booking: BookingId,
    /// Who told of it.
    teller: u64,
}

impl Sequences {
    /// A request of ours has this name.
    pub(super) fn name(&mut self, booking: BookingId, request: &str) {
        self.own.insert(booking, request.into());
    }

    /// Returns the name of a request of ours, for the last time if it has `ended`.
    pub(super) fn named(&mut self, booking: BookingId, ended: bool) -> Option<String> {
        match ended {
            true => self.own.remove(&booking).map(String::from),
            false => self.own.get(&booking).map(|name| String::from(&**name)),
        }
    }

    /// Tells whether another request can be counted.
    pub(crate) fn has_room(&self) -> bool {
        self.remote.len() < REMOTE_LIMIT
    }

    /// A request of another frontend is booked. Returns the booking it had before, if it is told of again.
    pub(crate) fn book(&mut self, request: &str, booking: BookingId, teller: u64) -> Option<BookingId> {
        self.remote.insert(request.into(), Remote { booking, teller }).map(|before| before.booking)
    }

    /// Forgets what `teller` told of and returns the bookings.
    pub(crate) fn forget(&mut self, teller: u64) -> Vec<BookingId> {
        self.remote
            .extract_if(|_, remote| remote.teller == teller)
            .map(|(_, remote)| remote.booking)
            .collect()
    }

    pub(crate) fn booking(&self, request: &str) -> Option<BookingId> {
        self.remote.get(request).map(|remote| remote.booking)
    }

    pub(crate) fn end(&mut self, request: &str) -> Option<BookingId> {
        self.remote.remove(request).map(|remote| remote.booking)
    }

    /// Forgets requests of other frontends whose booking is over.
    pub(crate) fn retain(&mut self, lives: impl Fn(BookingId) -> bool) {
        self.remote.retain(|_, remote| lives(remote.booking));
    }

    pub(crate) fn remote(&self) -> usize {
        self.remote.len()
    }
}
