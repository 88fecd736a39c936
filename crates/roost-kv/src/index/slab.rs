//! Growable storage that never moves or over-allocates: fixed chunks instead of a doubling vector.

const CHUNK_BITS: u32 = 10;
const CHUNK: usize = 1 << CHUNK_BITS;

/// Values addressed by a dense index. The owner keeps track of which indices are in use.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T: Copy> Slab<T> {
    /// Sets the value at `index`, which is in use or the next new one.
    pub(super) fn put(&mut self, index: u32, value: T) {
        let (chunk, offset) = split(index);
        if chunk == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = &mut self.chunks[chunk];
        if offset == chunk.len() {
            chunk.push(value);
        } else {
            chunk[offset] = value;
        }
    }

    pub(super) fn get(&self, index: u32) -> T {
        let (chunk, offset) = split(index);
        self.chunks[chunk][offset]
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut T {
        let (chunk, offset) = split(index);
        &mut self.chunks[chunk][offset]
    }

    pub(super) fn clear(&mut self) {
        self.chunks = Vec::new();
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<T>()
    }
}

fn split(index: u32) -> (usize, usize) {
    ((index >> CHUNK_BITS) as usize, index as usize & (CHUNK - 1))
}
