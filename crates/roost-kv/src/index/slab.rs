//! Growable storage that never moves or over-allocates: fixed chunks instead of a doubling vector.

const PAGE_BITS: u32 = 8;
const PAGE: usize = 1 << PAGE_BITS;

/// Values addressed by a dense index. The owner keeps track of which indices are in use.
#[derive(Debug)]
pub(super) struct Slab<T> {
    pages: Vec<Vec<T>>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Sets the value at `index`, which is in use or the next new one.
    pub(super) fn put(&mut self, index: u32, value: T) {
        let (page, offset) = split(index);
        if page == self.pages.len() {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        let page = &mut self.pages[page];
        if offset == page.len() {
            page.push(value);
        } else {
            page[offset] = value;
        }
    }

    pub(super) fn get(&self, index: u32) -> &T {
        let (page, offset) = split(index);
        &self.pages[page][offset]
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut T {
        let (page, offset) = split(index);
        &mut self.pages[page][offset]
    }

    pub(super) fn clear(&mut self) {
        self.pages = Vec::new();
    }

    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * PAGE * size_of::<T>()
    }
}

fn split(index: u32) -> (usize, usize) {
    ((index >> PAGE_BITS) as usize, index as usize & (PAGE - 1))
}
