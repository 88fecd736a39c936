//! Finding markers in a text that arrives in pieces of any size.

/// Holds back the text that may become a marker and releases it when it cannot.
///
/// It looks at one character at a time, so where the stream was cut cannot matter. Of the text seen it keeps less than
/// one marker; every character is compared a bounded number of times.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    held: String,
}

impl Scanner {
    /// Takes one character. Text that is no marker goes to `out`; a complete marker is returned as its position.
    ///
    /// No marker may be the beginning of another one of the same list.
    pub(crate) fn step(&mut self, c: char, markers: &[&str], out: &mut String) -> Option<usize> {
        self.held.push(c);
        while let Some(first) = self.held.chars().next() {
            #[cfg(test)]
            crate::tests::work::count();
            if let Some(at) = markers.iter().position(|marker| *marker == self.held) {
                self.held.clear();
                return Some(at);
            }
            if markers.iter().any(|marker| marker.starts_with(&self.held)) {
                return None;
            }
            out.push(first);
            self.held.drain(..first.len_utf8());
        }
        None
    }

    /// Whether nothing is held back.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The text held back; the scanner forgets it.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}
