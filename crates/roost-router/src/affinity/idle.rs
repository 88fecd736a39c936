//! Idle bindings in the order in which they became idle: a doubly linked list over slot numbers.

const NONE: u32 = u32::MAX;

/// The list. Each slot is in it at most once.
#[derive(Debug)]
pub(super) struct IdleList {
    links: Vec<Option<Link>>,
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

impl Default for IdleList {
    fn default() -> Self {
        Self { links: Vec::new(), first: NONE, last: NONE }
    }
}

impl IdleList {
    /// Returns the memory of the list, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<Option<Link>>()
    }

    /// Returns the slot that has been idle longest.
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Appends a slot that is not in the list.
    pub(super) fn push(&mut self, slot: u32) {
        let index = slot as usize;
        if self.links.len() <= index {
            self.links.resize(index + 1, None);
        }
        self.links[index] = Some(Link { previous: self.last, next: NONE });
        match self.last {
            NONE => self.first = slot,
            last => self.set_next(last, slot),
        }
        self.last = slot;
    }

    /// Takes a slot out, if it is in the list.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize).and_then(Option::take) else { return };
        match link.previous {
            NONE => self.first = link.next,
            previous => self.set_next(previous, link.next),
        }
        match link.next {
            NONE => self.last = link.previous,
            next => {
                if let Some(next) = &mut self.links[next as usize] {
                    next.previous = link.previous;
                }
            }
        }
    }

    fn set_next(&mut self, slot: u32, next: u32) {
        if let Some(link) = &mut self.links[slot as usize] {
            link.next = next;
        }
    }
}
