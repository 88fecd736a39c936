//! The lock between the writer's steps and lookups.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::view::View;

/// Tries before a thread is laid to sleep, some 10 µs. Steps and lookups take a few microseconds, and waking up takes
/// longer than either; when the other side has been put aside by the system, sleeping is right.
const TRIES: u32 = 256;

/// What lookups read. Either side waits for the other for the time of one step or one lookup.
#[derive(Debug, Default)]
pub(super) struct Gate(RwLock<View>);

impl Gate {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, View> {
        for _ in 0..TRIES {
            if let Some(view) = self.0.try_read() {
                return view;
            }
            std::hint::spin_loop();
        }
        self.0.read()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, View> {
        for _ in 0..TRIES {
            if let Some(view) = self.0.try_write() {
                return view;
            }
            std::hint::spin_loop();
        }
        self.0.write()
    }
}
