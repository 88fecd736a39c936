//! The nearest known name of a misspelt one.

/// The candidate that needs the fewest edits to become `name`, if that is few enough to be a typo.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let tolerance = (name.chars().count() / 4).clamp(1, 3);
    candidates
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= tolerance)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Edits between two words: insert, delete, replace one character, or swap two neighbours.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for row in 1..=left.len() {
        let mut current = vec![row];
        for column in 1..=right.len() {
            let replace = last[column - 1] + usize::from(left[row - 1] != right[column - 1]);
            let mut best = replace.min(last[column] + 1).min(current[column - 1] + 1);
            let swapped = row > 1
                && column > 1
                && left[row - 1] == right[column - 2]
                && left[row - 2] == right[column - 1];
            if swapped {
                best = best.min(before_last[column - 2] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_typo_and_nothing_far_away() {
        let known = ["router-mode", "http-port", "http-host"];
        assert_eq!(nearest("ruoter-mode", known.into_iter()), Some("router-mode"));
        assert_eq!(nearest("http-prot", known.into_iter()), Some("http-port"));
        assert_eq!(nearest("max-model-len", known.into_iter()), None);
    }

    #[test]
    fn counts_a_swap_as_one_edit() {
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
