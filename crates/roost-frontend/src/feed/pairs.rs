//! Which prefill workers compute prompts for which decode workers.

/// What decides it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) namespace: String,
    /// What the cards of prefill and decode workers of one release have in common.
    pub(super) version: String,
}

/// For each decode set the prefill set that belongs to it, of those given, the oldest first.
///
/// KV caches are handed over within a namespace only, and between workers of one version. A namespace whose only prefill
/// set is of a version that no decode set has is paired all the same, with the oldest decode set that has none: so does
/// Dynamo, which knows one set of each kind in a namespace.
pub(super) fn partners(prefill: &[Side], decode: &[Side]) -> Vec<Option<usize>> {
    let mut found: Vec<Option<usize>> =
        decode.iter().map(|side| prefill.iter().position(|other| other == side)).collect();
    for at in 0..decode.len() {
        let namespace = &decode[at].namespace;
        let mut there = (0..prefill.len()).filter(|other| prefill[*other].namespace == *namespace);
        if found[at].is_none()
            && let (Some(only), None) = (there.next(), there.next())
            && !found.contains(&Some(only))
        {
            found[at] = Some(only);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides(list: &[(&str, &str)]) -> Vec<Side> {
        let side = |(namespace, version): &(&str, &str)| Side {
            namespace: (*namespace).to_owned(),
            version: (*version).to_owned(),
        };
        list.iter().map(side).collect()
    }

    #[track_caller]
    fn check(prefill: &[(&str, &str)], decode: &[(&str, &str)], expected: &[Option<usize>]) {
        assert_eq!(partners(&sides(prefill), &sides(decode)), expected);
    }

    #[test]
    fn versions_keep_to_themselves() {
        check(&[("n", "1"), ("n", "2")], &[("n", "2"), ("n", "1")], &[Some(1), Some(0)]);
        check(&[("n", "1")], &[("n", "1"), ("n", "1")], &[Some(0), Some(0)]);
        // The new decode workers have come, their prefill workers have not.
        check(&[("n", "1")], &[("n", "1"), ("n", "2")], &[Some(0), None]);
        check(&[("n", "1"), ("n", "2")], &[("n", "3")], &[None]);
    }

    #[test]
    fn namespaces_keep_to_themselves() {
        check(&[("a", "1"), ("b", "1")], &[("b", "1"), ("a", "1")], &[Some(1), Some(0)]);
        check(&[("a", "1")], &[("b", "1")], &[None]);
        check(&[("a", "1")], &[("b", "2")], &[None]);
    }

    #[test]
    fn the_only_ones_of_a_namespace_belong_together() {
        check(&[("n", "1")], &[("n", "2")], &[Some(0)]);
        check(&[("n", "1")], &[("n", "2"), ("n", "3")], &[Some(0), None]);
        check(&[("a", "1"), ("b", "1")], &[("a", "2"), ("b", "2")], &[Some(0), Some(1)]);
        check(&[], &[("n", "1")], &[None]);
    }
}
