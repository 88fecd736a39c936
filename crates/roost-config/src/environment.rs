//! The process environment as a value.

use std::collections::BTreeMap;

/// A snapshot of environment variables, handed to [`parse`](crate::parse) explicitly.
///
/// Nothing else in roost reads the environment, so a test decides what a process sees by building one of these.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The variables of this process, read once. Names or values that are not UTF-8 are left out: no option has
    /// such a name, and a path given that way can be given as a flag.
    #[expect(clippy::disallowed_methods, reason = "the one place where the environment is read")]
    pub fn capture() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self { variables: std::env::vars_os().filter_map(text).collect() }
    }

    /// The value of a variable. An empty value counts as absent, as everywhere in Dynamo's recipes.
    ///
    /// Kubernetes adds `X_PORT=tcp://10.0.0.1:80` for every service X of a namespace. Such a value of a `_PORT`
    /// variable is therefore absent too: a service called `roost-http` must not stop roost from starting.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?.as_str();
        let is_service_link =
            name.ends_with("_PORT") && (value.starts_with("tcp://") || value.starts_with("udp://"));
        (!value.is_empty() && !is_service_link).then_some(value)
    }

    /// Names of all variables, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str)
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self { variables: pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}
