//! Functions that come in namespaces, under names of their own for the model.

use std::collections::HashMap;

/// Longest name that is made here.
const NAME_LIMIT: usize = 64;

/// The names of a request's functions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Name for the model to namespace and name, for those that have a namespace.
    spaced: Vec<(String, String, String)>,
}

impl Names {
    /// Names all functions, each a namespace and a name. A name that only one of them has stays as it is; otherwise
    /// the namespace stands before it.
    pub(super) fn of(functions: &[(Option<String>, String)]) -> Self {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for (_, name) in functions {
            *counts.entry(name).or_default() += 1;
        }
        let spaced = functions.iter().filter_map(|(space, name)| {
            let space = space.as_ref()?;
            let shown = match counts[name.as_str()] {
                1 => name.clone(),
                _ => format!("{space}__{name}")
                    .chars()
                    .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
                    .take(NAME_LIMIT)
                    .collect(),
            };
            Some((shown, space.clone(), name.clone()))
        });
        Names { spaced: spaced.collect() }
    }

    /// The model's name of a function.
    pub(super) fn encode<'a>(&'a self, space: Option<&str>, name: &'a str) -> &'a str {
        let known = self.spaced.iter().find(|(_, known, of)| Some(known.as_str()) == space && of == name);
        known.map_or(name, |(shown, ..)| shown)
    }

    /// Namespace and name of the function that the model calls so.
    pub(super) fn decode<'a>(&'a self, shown: &'a str) -> (Option<&'a str>, &'a str) {
        let known = self.spaced.iter().find(|(known, ..)| known == shown);
        known.map_or((None, shown), |(_, space, name)| (Some(space), name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_clash_change() {
        let names = Names::of(&[
            (None, "read".into()),
            (Some("files".into()), "read".into()),
            (Some("mcp.git".into()), "log".into()),
        ]);
        for (space, name, shown) in
            [(None, "read", "read"), (Some("files"), "read", "files__read"), (Some("mcp.git"), "log", "log")]
        {
            assert_eq!(names.encode(space, name), shown);
            assert_eq!(names.decode(shown), (space, name));
        }
        assert_eq!(names.encode(Some("gone"), "f"), "f");
        assert_eq!(names.decode("f"), (None, "f"));
    }
}
