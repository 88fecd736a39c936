//! A byte automaton over several patterns that knows how much of a pattern the input ends with.

/// Trie of the patterns with failure links (Aho–Corasick), stepped one byte at a time.
#[derive(Debug)]
pub(super) struct Automaton {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// Sorted by byte.
    next: Vec<(u8, u32)>,
    fail: u32,
    depth: u32,
    /// Longest pattern that ends here.
    pattern: Option<u32>,
}

impl Automaton {
    pub(super) const ROOT: u32 = 0;

    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut automaton = Self { nodes: vec![Node::default()] };
        for (index, pattern) in patterns.enumerate().filter(|(_, pattern)| !pattern.is_empty()) {
            let end = pattern.iter().fold(Self::ROOT, |at, &byte| automaton.child_or_new(at, byte));
            automaton.nodes[end as usize].pattern.get_or_insert(index as u32);
        }
        automaton.link();
        automaton
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    pub(super) fn step(&self, mut state: u32, byte: u8) -> u32 {
        loop {
            match self.child(state, byte) {
                Some(next) => return next,
                None if state == Self::ROOT => return Self::ROOT,
                None => state = self.nodes[state as usize].fail,
            }
        }
    }

    /// Length of the longest suffix of the input that begins a pattern.
    pub(super) fn depth(&self, state: u32) -> usize {
        self.nodes[state as usize].depth as usize
    }

    pub(super) fn matched(&self, state: u32) -> Option<usize> {
        self.nodes[state as usize].pattern.map(|index| index as usize)
    }

    fn child(&self, state: u32, byte: u8) -> Option<u32> {
        let next = &self.nodes[state as usize].next;
        next.binary_search_by_key(&byte, |(b, _)| *b).ok().map(|at| next[at].1)
    }

    fn child_or_new(&mut self, state: u32, byte: u8) -> u32 {
        let new = self.nodes.len() as u32;
        let node = &mut self.nodes[state as usize];
        match node.next.binary_search_by_key(&byte, |(b, _)| *b) {
            Ok(at) => node.next[at].1,
            Err(at) => {
                node.next.insert(at, (byte, new));
                let depth = node.depth + 1;
                self.nodes.push(Node { depth, ..Node::default() });
                new
            }
        }
    }

    /// Sets failure links breadth first, so that shorter suffixes are complete before longer ones need them.
    fn link(&mut self) {
        let mut queue: std::collections::VecDeque<u32> = [Self::ROOT].into();
        while let Some(state) = queue.pop_front() {
            for (byte, child) in self.nodes[state as usize].next.clone() {
                let fail = match state {
                    Self::ROOT => Self::ROOT,
                    _ => self.step(self.nodes[state as usize].fail, byte),
                };
                let inherited = self.nodes[fail as usize].pattern;
                let node = &mut self.nodes[child as usize];
                node.fail = fail;
                node.pattern = node.pattern.or(inherited);
                queue.push_back(child);
            }
        }
    }
}
